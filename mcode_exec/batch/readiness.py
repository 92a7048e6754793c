"""Which tasks may begin: those whose needs are over, in their order, and whose session and workspace are free.

Needs are between entries of the spec, not between the many tasks that an entry
may stand for, so that a fan-out behind a fan-out costs no product of both.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from mcode_exec.batch.invocations import writes
from mcode_exec.records.job import Plan, PlannedTask


class Readiness:
    """The tasks of a plan that are not over; `ended`: whether each is, in its place."""

    def __init__(self, plan: Plan, ended: Sequence[bool], workspace: str) -> None:
        self._plan = plan
        self._workspace = workspace
        #: tasks of each entry that are not over
        self._left: dict[str, int] = {}
        #: entries that each entry waits for
        self._waits_for: dict[str, set[str]] = {}
        self._dependents: dict[str, list[str]] = {}
        self._positions: dict[str, list[int]] = {}
        self._roots: dict[str, str] = {}
        self._by_id = {spec.id: spec for spec in plan.spec.tasks}
        #: entries whose session another one goes on with
        self._shared = {
            spec.session.removeprefix("from:") for spec in plan.spec.tasks if spec.session.startswith("from:")
        }
        for task in plan.tasks:
            entry = task.spec.id
            self._positions.setdefault(entry, []).append(task.position)
            self._left[entry] = self._left.get(entry, 0) + (0 if ended[task.position] else 1)
        for spec in plan.spec.tasks:
            self._left.setdefault(spec.id, 0)  # an entry without items
            self._waits_for[spec.id] = {need for need in spec.needs if self._left.get(need, 0)}
            for need in self._waits_for[spec.id]:
                self._dependents.setdefault(need, []).append(spec.id)
        self._ready: list[int] = []
        self._held: set[str] = set()
        #: tasks that wait for a session or a workspace that another one has
        self._blocked: dict[str, deque[int]] = {}
        for entry, waits_for in self._waits_for.items():
            if not waits_for:
                self._add([one for one in self._positions.get(entry, ()) if not ended[one]])

    def _add(self, positions: list[int]) -> None:
        for position in positions:
            heapq.heappush(self._ready, position)

    def take(self) -> PlannedTask | None:
        """The next task that may begin; its session and workspace are held until it is put back or over."""
        while self._ready:
            position = heapq.heappop(self._ready)
            task = self._plan.tasks[position]
            wanted = self.resources_of(task)
            taken = next((one for one in wanted if one in self._held), None)
            if taken is None:
                self._held.update(wanted)
                return task
            self._blocked.setdefault(taken, deque()).append(position)
        return None

    def put_back(self, task: PlannedTask) -> None:
        """Another attempt of the task is to follow."""
        self._release(task)
        heapq.heappush(self._ready, task.position)

    def leave(self, task: PlannedTask) -> None:
        """Somebody else has taken the task; `over` is told when it is."""
        self._release(task)

    def _release(self, task: PlannedTask) -> None:
        for one in self.resources_of(task):
            self._held.discard(one)
            waiting = self._blocked.pop(one, None)
            if waiting:
                heapq.heappush(self._ready, waiting.popleft())
                if waiting:
                    self._blocked[one] = waiting

    def over(self, task: PlannedTask, *, held: bool) -> None:
        """The task is over; what waited for the last one of its entry is ready."""
        if held:
            self._release(task)
        entry = task.spec.id
        self._left[entry] -= 1
        if self._left[entry]:
            return
        for dependent in self._dependents.get(entry, ()):
            self._waits_for[dependent].discard(entry)
            if not self._waits_for[dependent]:
                self._add(self._positions.get(dependent, []))

    def resources_of(self, task: PlannedTask) -> tuple[str, ...]:
        """What no two tasks use at once: a session, and a workspace that is written to."""
        settings = task.settings
        kind, _, name = task.spec.session.partition(":")
        if kind == "from":
            return (f"session of {self._root_of(name)}",)
        found = []
        if task.spec.id in self._shared:
            found.append(f"session of {task.spec.id}")
        if kind in ("key", "continue", "id"):
            # a key is a template: what it comes to is known when it begins, so that all of an entry take turns
            found.append(f"session {task.spec.session}")
        elif settings.worktree:
            return tuple(found)
        if writes(settings) and not settings.shared_workspace:
            found.append(f"workspace {settings.cwd or self._workspace}")
        return tuple(found)

    def _root_of(self, entry: str) -> str:
        """The entry whose session a chain of `from:` goes on with."""
        root = self._roots.get(entry)
        if root is None:
            root = entry  # needs are no circle, and so neither is this
            while self._by_id[root].session.startswith("from:"):
                root = self._by_id[root].session.removeprefix("from:")
            self._roots[entry] = root
        return root

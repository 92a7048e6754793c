"""What a spec comes to: every task, in an order in which each stands behind those that it needs.

Here the tasks are held against each other: needs that lead nowhere or in a
circle, sessions of tasks that need not have run, names in templates and
conditions that mean nothing.  All of it before any model call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from mcode_exec.batch.conditions import Condition
from mcode_exec.batch.paths import PathError
from mcode_exec.batch.spec import MAX_TASKS
from mcode_exec.batch.templates import Template
from mcode_exec.errors import InvocationError
from mcode_exec.records.job import JobSpec, Plan, PlannedTask, TaskSettings, TaskSpec

#: what a template or condition can know of a task that is over
NEED_FIELDS = ("status", "output", "error", "exit_code", "session_id", "branch")

_encode = msgspec.json.Encoder(decimal_format="string", order="sorted").encode


def plan_of(spec: JobSpec) -> Plan:
    """Everything that `spec` comes to.  Raises: InvocationError with file and line."""
    by_id = {task.id: task for task in spec.tasks}
    ordered = _in_order(spec.tasks, by_id)
    groups = {task.id: _ids_of(task) for task in spec.tasks}
    count = sum(map(len, groups.values()))
    if count > MAX_TASKS:
        raise InvocationError(f"{spec.path} comes to {count:,} tasks; at most {MAX_TASKS:,} are possible.")
    _check_distinct(spec.tasks, groups)
    planned: list[PlannedTask] = []
    for task in ordered:
        _check_session(task, by_id, groups)
        needs = {need: groups[need] for need in task.needs}
        expander = _Expander(spec, task)
        for task_id, item in zip(groups[task.id], _items_of(task), strict=True):
            planned.append(
                PlannedTask(
                    id=task_id,
                    position=len(planned),
                    spec=task,
                    settings=task.settings,
                    item=item,
                    needs=needs,
                    digest=expander.digest(task_id, item),
                )
            )
    return Plan(spec=spec, tasks=tuple(planned))


def _ids_of(task: TaskSpec) -> tuple[str, ...]:
    if task.items is None:
        return (task.id,)
    return tuple(f"{task.id}/{name}" for name, _ in task.items)


def _items_of(task: TaskSpec) -> Iterable[Mapping[str, Any] | None]:
    return (None,) if task.items is None else (item for _, item in task.items)


def _check_distinct(tasks: tuple[TaskSpec, ...], groups: Mapping[str, tuple[str, ...]]) -> None:
    seen: dict[str, TaskSpec] = {}
    for task in tasks:
        for one in groups[task.id]:
            other = seen.setdefault(one, task)
            if other is not task:
                raise InvocationError(f"{task.place}: the id {one!r} is that of {other.place} already.")


def _in_order(tasks: tuple[TaskSpec, ...], by_id: Mapping[str, TaskSpec]) -> list[TaskSpec]:
    """The tasks as they stand in the file, but each behind its needs."""
    for task in tasks:
        for need in task.needs:
            if need not in by_id:
                import difflib

                near = difflib.get_close_matches(need, by_id, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]!r}?" if near else "."
                raise InvocationError(f"{task.place}: it needs {need!r}, and no task has that id{hint}")
    ordered: dict[str, TaskSpec] = {}
    for task in tasks:
        _put_in(task, by_id, ordered)
    return list(ordered.values())


def _put_in(first: TaskSpec, by_id: Mapping[str, TaskSpec], ordered: dict[str, TaskSpec]) -> None:
    """Put a task behind all that it needs; without recursion, since a chain may be long."""
    path: dict[str, list[str]] = {first.id: list(first.needs)}
    while path:
        task_id, left = next(reversed(path.items()))
        if left:
            need = left.pop(0)
            if need in path:
                circle = [*list(path)[list(path).index(need) :], need]
                raise InvocationError(
                    f"{by_id[task_id].place}: the tasks need each other in a circle: {' → '.join(circle)}."
                )
            if need not in ordered:
                path[need] = list(by_id[need].needs)
        else:
            ordered.setdefault(task_id, by_id[task_id])
            del path[task_id]


def _check_session(
    task: TaskSpec, by_id: Mapping[str, TaskSpec], groups: Mapping[str, tuple[str, ...]]
) -> None:
    kind, _, other = task.session.partition(":")
    if kind not in ("from", "fork"):
        return
    if other not in _all_needs(task, by_id):
        raise InvocationError(f'{task.place}: session = "{task.session}" wants {other!r} among its "needs".')
    if groups[other] != (other,):
        raise InvocationError(
            f"{task.place}: {other!r} stands for {len(groups[other])} tasks, so that it has no one session."
        )
    if kind == "from" and task.items is not None and len(task.items) > 1:
        raise InvocationError(
            f'{task.place}: tasks of many items cannot share the session of {other!r}; use "fork:{other}".'
        )


def _all_needs(task: TaskSpec, by_id: Mapping[str, TaskSpec]) -> set[str]:
    found: set[str] = set()
    left = list(task.needs)
    while left:
        need = left.pop()
        if need not in found:
            found.add(need)
            left.extend(by_id[need].needs)
    return found


class Texts(Struct, frozen=True, kw_only=True):
    """The expanded texts of a task."""

    prompt: str
    title: str | None
    labels: dict[str, str]
    branch: str | None
    session: str


class TaskTemplates:
    """The templates and the condition of an entry, read once for all of its tasks."""

    def __init__(self, task: TaskSpec) -> None:
        settings = task.settings
        self._task = task
        self.prompt = self._read(task.prompt, "prompt")
        self.title = None if settings.title is None else self._read(settings.title, "title")
        self.labels = {
            key: self._read(value, f"labels.{key}") for key, value in (settings.labels or {}).items()
        }
        self.branch = (
            None
            if settings.worktree_branch is None
            else self._read(settings.worktree_branch, "worktree_branch")
        )
        kind, _, name = task.session.partition(":")
        self.key = self._read(name, "session") if kind == "key" else None
        try:
            self.condition = None if task.when is None else Condition(task.when)
        except PathError as wrong:
            raise InvocationError(f'{task.place}: "when": {wrong}.') from None

    def _read(self, text: str, key: str) -> Template:
        try:
            return Template(text)
        except PathError as wrong:
            raise InvocationError(f'{self._task.place}: "{key}": {wrong}.') from None

    def expand(self, template: Template, key: str, values: Mapping[str, Any]) -> str:
        """Raises: InvocationError for a name that leads to nothing."""
        try:
            return template.expand(values)
        except PathError as wrong:
            raise InvocationError(f'{self._task.place}: "{key}": {wrong}.') from None

    def texts(self, values: Mapping[str, Any]) -> Texts:
        """Every text of the task with its values.  Raises: InvocationError."""
        return Texts(
            prompt=self.expand(self.prompt, "prompt", values),
            title=None if self.title is None else self.expand(self.title, "title", values),
            labels={key: self.expand(one, f"labels.{key}", values) for key, one in self.labels.items()},
            branch=None if self.branch is None else self.expand(self.branch, "worktree_branch", values),
            session=self._task.session
            if self.key is None
            else "key:" + self.expand(self.key, "session", values),
        )

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the condition holds.  Raises: InvocationError."""
        assert self.condition is not None
        try:
            return self.condition.holds(values)
        except PathError as wrong:
            raise InvocationError(f'{self._task.place}: "when": {wrong}.') from None


def values_for(
    spec: JobSpec,
    task_id: str,
    item: Mapping[str, Any] | None,
    needs: Mapping[str, Mapping[str, Any]],
    run_id: str,
) -> dict[str, Any]:
    """What the names of a task's templates and condition stand for."""
    return {
        **spec.vars,
        **({} if item is None else {"item": item}),
        "needs": needs,
        "task": {"id": task_id},
        "job": {"name": spec.job.name},
        "run": {"id": run_id},
    }


class _Expander:
    """Tries every template of an entry out, with what stands for the needs still unknown."""

    def __init__(self, spec: JobSpec, task: TaskSpec) -> None:
        self._spec = spec
        self._task = task
        self._templates = TaskTemplates(task)
        self._needs = {
            need: {field: f"{{{{ needs.{need}.{field} }}}}" for field in NEED_FIELDS} for need in task.needs
        }
        settings = structs.replace(task.settings, title=None, labels=None, worktree_branch=None)
        self._same = [_said(settings), task.when, list(task.needs)]
        if task.settings.check is not None:
            self._same.append(dict(spec.vars))

    def digest(self, task_id: str, item: Mapping[str, Any] | None) -> str:
        """Of everything that says what the task does.  Raises: InvocationError."""
        values = values_for(self._spec, task_id, item, self._needs, "{{ run.id }}")
        texts = self._templates.texts(values)
        if self._templates.condition is not None:
            self._templates.holds(values)
        body = [task_id, *self._same, structs.asdict(texts), None if item is None else dict(item)]
        return hashlib.sha256(_encode(body)).hexdigest()


def _said(settings: TaskSettings) -> dict[str, Any]:
    """What the settings say, without what they leave open."""
    return {key: value for key, value in structs.asdict(settings).items() if value is not None}

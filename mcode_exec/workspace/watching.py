"""What one turn does to the files of its workspace: looked at before and after, blocking.

A command may change anything, so before the first one the workspace is
snapshotted; write and edit name their file, so only that is looked at, ignored or
not.  Where the workspace cannot be followed, what they name is known all the same.
What is not known is said, never guessed: a file that may have been changed before
it was first looked at counts as one whose earlier content is not known.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct, structs

from mcode_exec.plurals import counted
from mcode_exec.records.change import FileChange, Gap
from mcode_exec.workspace import snapshot, snapshot_files
from mcode_exec.workspace.changed_files import changed_files, with_touched
from mcode_exec.workspace.comparing import is_later
from mcode_exec.workspace.followed import NotFollowedError, is_listed
from mcode_exec.workspace.programs import Stop
from mcode_exec.workspace.snapshot import Seen, Snapshot


class Found(Struct, frozen=True, kw_only=True):
    """What became of the workspace."""

    changes: tuple[FileChange, ...]
    contents: dict[bytes, bytes]
    gap: Gap
    reason: str | None
    ignores_mode: bool


class Watched:
    """The workspace of one turn.  One call after the other, those that were told to stop included."""

    def __init__(self, workspace: str, changes_dir: str, excluded: Iterable[str]) -> None:
        """`excluded`: paths of mcode's own, whose changes are no doing of the turn."""
        self._turnstile = threading.Lock()
        self._workspace = workspace
        self._changes_dir = changes_dir
        self._excluded = tuple(excluded)
        self._contents = snapshot_files.contents_of(changes_dir, workspace)
        self._begun_ns = time.time_ns()
        self._latest: Snapshot | None = None
        self._before: Snapshot | None = None
        self._before_paths: frozenset[bytes] = frozenset()
        #: why there is no snapshot
        self._unfollowed: str | None = None
        self._has_commands = False
        #: what stood under each path that an edit named, before the first edit of it
        self._touched: dict[bytes, Seen | None] = {}
        self._by_tool: set[bytes] = set()
        self._outside: set[str] = set()

    def before_command(self, limit_s: float, stop: Stop) -> None:
        """Look at the workspace, unless that was done."""
        with self._turnstile:
            if not self._has_commands:
                self._look(limit_s, stop)

    def _look(self, limit_s: float, stop: Stop) -> None:
        self._latest = snapshot_files.load_latest(self._changes_dir, self._workspace)
        try:
            self._before = snapshot.take(
                self._workspace,
                self._contents,
                earlier=self._latest,
                excluded=self._excluded,
                limit_s=limit_s,
                stop=stop,
            )
        except (NotFollowedError, TimeoutError, OSError) as error:
            if stop.is_set:
                return  # the turn ends: there will be no command
            self._unfollowed = _why(error, limit_s)
        else:
            self._before_paths = frozenset(seen.path for seen in self._before.files)
            self._save(self._before)
        self._has_commands = True

    def _save(self, taken: Snapshot) -> None:
        if self._latest is None or not snapshot_files.is_unchanged(self._latest, taken):
            with suppress(OSError):
                snapshot_files.save_latest(self._changes_dir, self._workspace, taken)
                self._latest = taken

    def before_edit(self, path: str, stop: Stop) -> None:
        """Look at the file that an edit names (absolute), unless that was done."""
        with self._turnstile:
            self._look_at(path, stop)

    def _look_at(self, path: str, stop: Stop) -> None:
        real = os.path.realpath(path)
        relative = self._relative(real)
        if relative is None:
            if not any(_is_within(real, place) for place in self._excluded):
                self._outside.add(real)
            return
        self._by_tool.add(relative)
        if relative in self._touched or relative in self._before_paths:
            return
        try:
            found = snapshot.see(self._workspace, (relative,), self._contents, stop=stop)
        except (OSError, TimeoutError):
            found = []
        seen = found[0] if found else None
        if seen is not None and self._before is not None and self._is_changed_since(seen, self._before):
            # a command of the turn has made it, or has changed it before anybody looked
            is_made = is_listed(self._workspace, relative, stop)
            seen = None if is_made else structs.replace(seen, digest=b"", blob=b"")
        self._touched[relative] = seen

    def _is_changed_since(self, seen: Seen, before: Snapshot) -> bool:
        return not seen.ctime_ns or is_later(seen, before.taken_ns)

    def _relative(self, real: str) -> bytes | None:
        """A path beneath the workspace; None for one outside, in git's own or in mcode's."""
        inside = self._workspace.rstrip("/") + "/"
        if not real.startswith(inside) or any(_is_within(real, place) for place in self._excluded):
            return None
        relative = os.fsencode(real[len(inside) :])
        return None if b".git" in relative.split(b"/") else relative

    def compare(self, limit_s: float, stop: Stop) -> Found:
        """What differs now.  May be asked again, when the turn has gone on.  Raises: OSError, TimeoutError."""
        with self._turnstile:
            return self._compare(limit_s, stop)

    def _compare(self, limit_s: float, stop: Stop) -> Found:
        unknown = self._unfollowed
        after: Snapshot | None = None
        if self._before is not None:
            try:
                after = self._look_again(self._before, limit_s, stop)
            except (NotFollowedError, TimeoutError, OSError) as error:
                unknown = _why(error, limit_s)
        if self._before is None or after is None:
            before, after = self._edited_only(stop)
        else:
            before = with_touched(self._before, self._touched.items())
        found = changed_files(
            self._workspace, self._contents, before, after, by_tool=frozenset(self._by_tool)
        )
        reasons = [] if unknown is None else [f"what its commands changed is not known: {unknown}"]
        if self._outside:
            reasons.append(f"{counted(len(self._outside), 'file')} outside of the workspace not followed")
        if found.left_out:
            reasons.append(f"{counted(found.left_out, 'more file')} changed")
        gap: Gap = "some" if reasons else "none"
        if unknown is not None and not self._by_tool:
            gap = "all"
        return Found(
            changes=tuple(found.changes),
            contents=found.contents,
            gap=gap,
            reason="; ".join(reasons) or None,
            ignores_mode=after.ignores_mode,
        )

    def _look_again(self, before: Snapshot, limit_s: float, stop: Stop) -> Snapshot:
        taken = snapshot.take(
            self._workspace,
            self._contents,
            earlier=before,
            excluded=self._excluded,
            limit_s=limit_s,
            stop=stop,
            all_of_earlier=True,
            also=self._touched,
        )
        self._save(taken)
        return taken

    def _edited_only(self, stop: Stop) -> tuple[Snapshot, Snapshot]:
        """What edits named, before and now."""
        known = {} if self._before is None else {seen.path: seen for seen in self._before.files}
        states = {path: known.get(path) for path in self._by_tool} | self._touched
        repositories = () if self._before is None else self._before.repositories
        files = [seen for seen in states.values() if seen is not None]
        now = snapshot.see(self._workspace, states, self._contents, stop=stop)
        before = Snapshot(snapshot.VERSION, self._begun_ns, files, repositories, False)
        return before, Snapshot(snapshot.VERSION, time.time_ns(), now, repositories, False)


def _is_within(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _why(error: Exception, limit_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"looking at the workspace takes longer than {limit_s:g} s"
    if isinstance(error, OSError):
        return f"the workspace cannot be looked at: {error.strerror or error}"
    return str(error)

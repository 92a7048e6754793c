"""The instruction files of a project and of the user, read for one turn.

Owns which files count: AGENTS.md or CLAUDE.md of every directory from the git
root down to the workspace, root first, then the files that the configuration
names.  A project's file must be a regular file whose real path lies inside the
project; whatever cannot be used is left out with a notice, never an error.
How the text is put before the model is system_prompt.py's business.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator

from msgspec import Struct

from mcode_exec.config import InstructionFile
from mcode_exec.paths import open_regular

#: per directory the first of these that can be used
FILE_NAMES = ("AGENTS.md", "CLAUDE.md")

#: for all files of the project together; the user's own have as much for themselves,
#: so that no repository can crowd them out
MAX_TOTAL_BYTES = 32 * 1024

#: notice codes
SKIPPED = "instructions.skipped"
SHORTENED = "instructions.shortened"
REPAIRED = "instructions.repaired"


class InstructionSection(Struct, frozen=True, kw_only=True):
    """The text of one file; `path` is relative to the project for its own files."""

    path: str
    text: str
    is_project: bool


class Instructions(Struct, frozen=True, kw_only=True):
    sections: tuple[InstructionSection, ...] = ()
    #: (code, sentence)
    notices: tuple[tuple[str, str], ...] = ()


def read_instructions(
    *,
    workspace: str,
    git_root: str | None,
    further: Iterable[InstructionFile] = (),
    with_project: bool = True,
) -> Instructions:
    """Read every instruction file that counts in `workspace`.

    `git_root` is the root of the work tree around the workspace, None without
    git.  Without `with_project` nothing of the project is read, the files that
    the configuration names inside it included.
    """
    real_workspace = os.path.realpath(workspace)
    root = os.path.realpath(git_root) if git_root else real_workspace
    if not _is_below(real_workspace, root):
        root = real_workspace
    project = _Reader(root=root, max_bytes=MAX_TOTAL_BYTES)
    own = _Reader(root=None, max_bytes=MAX_TOTAL_BYTES)
    if with_project:
        for directory in _directories(root, real_workspace):
            project.read_first(os.path.join(directory, name) for name in FILE_NAMES)
    for file in further:
        if not file.is_project:
            own.read(file.path)
        elif with_project:
            project.read(file.path)
    return Instructions(sections=(*own.sections, *project.sections), notices=(*own.notices, *project.notices))


class _Reader:
    """Reads files into sections until the room is used up; no file twice."""

    def __init__(self, *, root: str | None, max_bytes: int) -> None:
        self.sections: list[InstructionSection] = []
        self.notices: list[tuple[str, str]] = []
        self._root = root
        self._left = max_bytes
        self._seen: set[tuple[int, int]] = set()

    def read_first(self, paths: Iterable[str]) -> None:
        """Read the first of `paths` that exists and can be used."""
        for path in paths:
            if os.path.lexists(path) and self.read(path):
                return

    def read(self, path: str) -> bool:
        """Whether the file could be used, be it empty or read before."""
        real = os.path.realpath(path)
        if self._root is not None and not _is_below(real, self._root):
            return self._skip(path, "its real path is outside the project")
        try:
            fd = open_regular(real, os.O_NOFOLLOW)
        except OSError as error:
            return self._skip(path, error.strerror or str(error))
        with open(fd, "rb") as file:
            info = os.fstat(fd)
            if (info.st_dev, info.st_ino) in self._seen:
                return True
            self._seen.add((info.st_dev, info.st_ino))
            try:
                data = file.read(self._left + 1)
            except OSError as error:
                return self._skip(path, error.strerror or "it cannot be read")
        self._add(path, data)
        return True

    def _add(self, path: str, data: bytes) -> None:
        is_whole = len(data) <= self._left
        # without `final` a character that the cut went through is left out, not replaced
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        text = decoder.decode(data[: self._left], final=is_whole)
        if "\ufffd" in text and b"\xef\xbf\xbd" not in data:
            self._notice(REPAIRED, f"{self._shown(path)} is not valid UTF-8; the faulty bytes were replaced.")
        text = text.replace("\0", "").strip()
        self._left -= min(len(data), self._left)
        if not is_whole:
            limit = f"all instruction files together have {MAX_TOTAL_BYTES // 1024} KiB"
            what = "was cut" if text else "was left out"
            self._notice(SHORTENED, f"{self._shown(path)} {what}: {limit}.")
        if text:
            section = InstructionSection(path=self._shown(path), text=text, is_project=self._root is not None)
            self.sections.append(section)

    def _skip(self, path: str, reason: str) -> bool:
        self._notice(SKIPPED, f"{self._shown(path)} was not read as instructions: {reason}.")
        return False

    def _notice(self, code: str, sentence: str) -> None:
        self.notices.append((code, sentence))

    def _shown(self, path: str) -> str:
        if self._root is not None and path.startswith(self._root.rstrip("/") + "/"):
            path = path[len(self._root.rstrip("/")) + 1 :]
        return path if path.isprintable() else ascii(path)[1:-1]


def _directories(root: str, workspace: str) -> Iterator[str]:
    yield root
    at = root
    for part in workspace[len(root) :].split("/"):
        if part:
            at = os.path.join(at, part)
            yield at


def _is_below(real: str, root: str) -> bool:
    return real == root or real.startswith(root.rstrip("/") + "/")

"""Which files of a workspace are followed from turn to turn.

In a git checkout: what git tracks or would offer to track, in submodules and
other repositories inside it too; what is ignored is out.  Elsewhere, and where
there is no git: every file but those below the directories of
`ALWAYS_SKIPPED`.  Never `.git`.  git only lists here: it reads no content, so no
filter, hook or attribute of the repository has anything to do.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator

from msgspec import Struct

from mcode_exec.workspace.git import config_file, find_root, run_git
from mcode_exec.workspace.programs import Stop, find_program
from mcode_exec.workspace.walk import ALWAYS_SKIPPED

#: more files than these are not followed: a home directory, the largest monorepos
MAX_GIT_FILES = 200_000
MAX_PLAIN_FILES = 20_000
_MAX_CONFIG_BYTES = 1 << 20
_MAX_REPOSITORIES = 100  # submodules and other checkouts inside, all levels
_SKIPPED = frozenset(os.fsencode(name) for name in ALWAYS_SKIPPED)
_LIST = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
#: any `fileMode` that is not plainly true; then git itself is asked
_FILE_MODE = re.compile(rb"(?im)^\s*filemode\s*=\s*(?!true\s*$)")


class NotFollowedError(Exception):
    """The files of a workspace cannot be followed; the message says why."""


class Listing(Struct, frozen=True):
    """The files to follow, relative to the workspace, each with what lstat says of it."""

    files: list[tuple[bytes, os.stat_result]]
    #: of each repository that lists files here, what its paths begin with here: b"" or b"sub/"
    repositories: tuple[bytes, ...] = ()
    #: what is executable is no fact there
    ignores_mode: bool = False


def list_followed(workspace: str, *, deadline_s: float, stop: Stop) -> Listing:
    """The files and links of `workspace` (canonical).

    Units: `deadline_s` is a monotonic second.
    Raises: NotFollowedError; TimeoutError.
    """
    if find_root(workspace) is not None and find_program("git") is not None:
        listing = _by_git(workspace, deadline_s, stop)
        if listing.files or not _walk(workspace, deadline_s, stop, most=1):
            return listing
        # the workspace is itself ignored by the repository around it
    return Listing(_walk(workspace, deadline_s, stop, most=None))


def is_listed(workspace: str, path: bytes, stop: Stop) -> bool:
    """Whether a file at `path` (relative) would be among the followed ones; False where that cannot be told."""
    if find_root(workspace) is None or find_program("git") is None:
        return not _SKIPPED.intersection(path.split(b"/"))
    answer = run_git(["check-ignore", "-q", "--", os.fsdecode(path)], workspace, limit_s=2.0, stop=stop)
    return answer is not None and answer.exit_code == 1


class Ancestors:
    """Which directories are real ones: what is listed behind a link is not there."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._known: dict[bytes, bool] = {b"": True}

    def are_real(self, path: bytes) -> bool:
        """Whether every directory on the way to `path` is one."""
        directory = path.rpartition(b"/")[0]
        known = self._known.get(directory)
        if known is None:
            known = self._known[directory] = self.are_real(directory) and self._is_directory(directory)
        return known

    def _is_directory(self, directory: bytes) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(os.path.join(self._root, directory)).st_mode)
        except OSError:
            return False


def _by_git(workspace: str, deadline_s: float, stop: Stop) -> Listing:
    root = os.fsencode(workspace)
    ancestors = Ancestors(root)
    files: list[tuple[bytes, os.stat_result]] = []
    repositories: list[bytes] = []
    waiting = [b""]
    while waiting:
        prefix = waiting.pop()
        if len(repositories) == _MAX_REPOSITORIES:
            raise NotFollowedError(f"more than {_MAX_REPOSITORIES} repositories are in it")
        repositories.append(prefix)
        names = _listed(os.path.join(root, prefix), deadline_s, stop, is_inner=bool(prefix))
        if len(files) + len(names) > MAX_GIT_FILES:
            raise NotFollowedError(f"more than {MAX_GIT_FILES:,} files are in it")
        for number, name in enumerate(names):
            if not number % 1024 and (stop.is_set or time.monotonic() > deadline_s):
                raise TimeoutError
            path = prefix + name.rstrip(b"/")
            try:
                status = os.lstat(root + b"/" + path)
            except OSError:
                continue  # tracked and gone
            if not ancestors.are_real(path):
                continue
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path + b"/")  # a submodule, or a checkout that nobody tracks
            elif is_followed(status):
                files.append((path, status))
    return Listing(files, tuple(repositories), _ignores_mode(workspace))


def is_followed(status: os.stat_result) -> bool:
    """Whether it is a regular file or a link: pipes, sockets and devices have no content to follow."""
    return stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)


def _listed(directory: bytes, deadline_s: float, stop: Stop, *, is_inner: bool) -> list[bytes]:
    cwd = os.fsdecode(directory).rstrip("/")
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    if is_inner and find_root(cwd) != cwd:
        return []  # a submodule that is not checked out
    result = run_git(_LIST, cwd, limit_s=left_s, stop=stop)
    if result is None:
        raise NotFollowedError("git cannot be started")
    if result.exit_code is None:
        raise TimeoutError
    if result.exit_code != 0:
        said = result.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise NotFollowedError(f"git cannot list the files of {cwd}: {said}")
    return [name for name in result.stdout.split(b"\0") if name]


def _ignores_mode(workspace: str) -> bool:
    try:
        with open(config_file(workspace) or "", "rb") as file:
            config = file.read(_MAX_CONFIG_BYTES)
    except OSError:
        return False
    if _FILE_MODE.search(config) is None:
        return False
    result = run_git(["config", "--type=bool", "--get", "core.fileMode"], workspace, limit_s=5.0)
    return result is not None and result.stdout.strip() == b"false"


def _walk(
    workspace: str, deadline_s: float, stop: Stop, *, most: int | None
) -> list[tuple[bytes, os.stat_result]]:
    """Every file below; `most`: enough of them.  Raises: NotFollowedError, TimeoutError."""
    root = os.fsencode(workspace)
    found: list[tuple[bytes, os.stat_result]] = []
    waiting = [b""]
    while waiting:
        if stop.is_set or time.monotonic() > deadline_s:
            raise TimeoutError
        inside = waiting.pop()
        for name, status in _entries(os.path.join(root, inside)):
            if not stat.S_ISDIR(status.st_mode):
                found.append((inside + name, status))
            elif name not in _SKIPPED:
                waiting.append(inside + name + b"/")
        if most is not None and len(found) >= most:
            return found
        if len(found) > MAX_PLAIN_FILES:
            raise NotFollowedError(
                f"more than {MAX_PLAIN_FILES:,} files are in it, and it is no git repository"
            )
    return found


def _entries(directory: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Files, links and directories of a directory; none where it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # it has just gone
                if entry.name != b".git" and (stat.S_ISDIR(status.st_mode) or is_followed(status)):
                    yield entry.name, status
    except OSError:
        return

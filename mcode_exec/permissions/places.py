"""Where a path lies: inside the workspace, outside, in mcode's own data, on a disk device.

A path has two names, the one it was given by and the real one behind symbolic
links (`/proc/self/root/…` and `/dev/fd/N` are such links); both are judged.
Resolved at the moment of judging; a tool must open what was judged.
"""

from __future__ import annotations

import os
import posixpath
import stat

from msgspec import Struct

from mcode_exec.permissions.matching import GLOB, UNKNOWN
from mcode_exec.permissions.script import Word
from mcode_exec.permissions.vocabulary import names

#: what is no file of anybody's: writing there changes nothing
_NO_FILES = frozenset(
    {"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/full"}
)
_DISKS = (
    "sd",
    "hd",
    "vd",
    "xvd",
    "nvme",
    "mmcblk",
    "disk",
    "mapper/",
    "md",
    "dm-",
    "loop",
    "sr",
    "nbd",
    "pmem",
)
_LONGEST_PATH = 4_096  # characters that a system takes
_MOST_WAYS = 64  # meanings of one path
_MOST_EXPANDED = 200  # files looked at that a `*` means now
_SYSTEM_DIRECTORIES = names(
    "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /opt /proc /root /run /sbin /srv /sys /usr "
    "/usr/bin /usr/lib /var /Users /System /Library /Applications"
)


class Scope(Struct, frozen=True, kw_only=True):
    """The directories that a run is about."""

    workspace: str
    home: str | None
    temp_dir: str | None
    add_dirs: tuple[str, ...] = ()
    #: the data of this run, and where this user's mcode keeps data and configuration otherwise
    data_dir: str | None = None
    own_dirs: tuple[str, ...] = ()
    config_files: tuple[str, ...] = ()


class Name(Struct, frozen=True, kw_only=True):
    """One name of a path, absolute and without `.` and `..`."""

    path: str
    #: from the workspace; None outside of it
    relative: str | None
    #: whether its file system takes `A` and `a` for the same
    folds_case: bool = False


def normal(path: str) -> str:
    """Absolute path without `.`, `..` and doubled slashes; links are not followed."""
    path = posixpath.normpath(path)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def real(path: str) -> str | None:
    """The path behind all links, or None if it cannot be told."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError, RecursionError):
        return None


def is_inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root if root.endswith("/") else root + "/")


class Places:
    """Answers about paths within one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._workspaces = _both(scope.workspace)
        inside = (scope.workspace, *scope.add_dirs, *((scope.temp_dir,) if scope.temp_dir else ()))
        self._roots = tuple(real(root) or normal(root) for root in inside)
        own = (*((scope.data_dir,) if scope.data_dir else ()), *scope.own_dirs)
        self._data = tuple(dict.fromkeys(name for directory in own for name in _both(directory)))
        self._config = tuple(name for file in scope.config_files for name in _both(file))
        self._homes = _both(scope.home) if scope.home else ()
        self._case: dict[str, bool] = {}
        self._links: dict[str, tuple[str, ...]] = {}

    def with_links(self, links: dict[str, tuple[str, ...]]) -> Places:
        """The same places where some paths lead elsewhere, by links that are still to be made."""
        import copy

        linked = copy.copy(self)
        linked._links = links
        return linked

    def linked(self, path: str, *, is_entry: bool = False) -> tuple[str, ...]:
        """The path and what it means behind links to be made; `is_entry`: a link at its very end is meant itself."""
        if not self._links or not path.startswith("/") or len(path) > _LONGEST_PATH:
            return (path,)
        parts = [part for part in path.split("/") if part not in ("", ".")]
        ways = ["/"]
        for at, part in enumerate(parts):
            ways = [normal(posixpath.join(way, part)) for way in ways]
            if is_entry and at == len(parts) - 1:
                break
            for way in ways:  # grows while it is walked: links lead to links
                if len(ways) < _MOST_WAYS:
                    ways += [t for t in map(normal, self._links.get(way, ())) if t not in ways]
        tail = "/" if path.endswith("/") else ""
        return tuple(
            dict.fromkeys((path, *(way.rstrip("/") + tail or "/" for way in ways if way != normal(path))))
        )

    def names(self, path: str) -> tuple[Name, ...] | None:
        """The given and the real name, once if they are the same; None if it cannot be resolved."""
        resolved = real(path)
        if resolved is None:
            return None
        given = normal(path)
        return tuple(self._name(name) for name in dict.fromkeys((given, resolved)))

    def _name(self, path: str) -> Name:
        relative = None
        for root in self._workspaces:
            if is_inside(path, root):
                relative = path[len(root) :].lstrip("/") or "."
                break
        return Name(path=path, relative=relative, folds_case=self._folds_case(path))

    def _folds_case(self, path: str) -> bool:
        """Ask the file system for the same name in the other case, at the nearest thing that exists."""
        while not os.path.lexists(path) and path not in ("/", ""):
            path = posixpath.dirname(path)
        parent, base = posixpath.split(path)
        while base.swapcase() == base and base:
            parent, base = posixpath.split(parent)
        if not base:
            return False
        key = posixpath.join(parent, base)
        if key not in self._case:
            if len(self._case) > 1_000:
                self._case.clear()
            try:
                self._case[key] = os.path.samefile(key, posixpath.join(parent, base.swapcase()))
            except OSError:
                self._case[key] = False
        return self._case[key]

    def is_external(self, real_path: str) -> bool:
        """Outside of the workspace, further directories and the session's temporary directory."""
        return real_path not in _NO_FILES and not any(is_inside(real_path, root) for root in self._roots)

    def is_workspace(self, path: str) -> bool:
        return path in self._workspaces

    def is_mcodes_own(self, path: str, *, below: bool = False) -> bool:
        """In mcode's data or config; `below`: or a directory that holds them."""
        if path in self._config or (below and any(is_inside(file, path) for file in self._config)):
            return True
        for data in self._data:
            if below and is_inside(data, path):
                return True
            if is_inside(path, data):
                # A workspace or temporary directory that lies in the data directory is not its own data.
                return not any(is_inside(root, data) and is_inside(path, root) for root in self._roots)
        return False

    def is_tool_output(self, path: str) -> bool:
        """A large output that was set aside for the model to read."""
        return any(is_inside(path, data) for data in self._data) and "/reports/tool-outputs/" in path

    def is_irreplaceable(self, path: str) -> bool:
        """The root, a system directory, the home directory or one that holds it."""
        return path in _SYSTEM_DIRECTORIES or any(is_inside(home, path) for home in self._homes)

    def homes(self) -> tuple[str, ...]:
        return self._homes

    def expansions(self, path_pattern: str) -> list[str]:
        """What a globbed path means now: a link among it has another name than the pattern shows."""
        import glob
        from itertools import islice

        if GLOB in path_pattern.rsplit("/", 2)[0]:
            return []  # a whole tree is not walked for it
        pattern = "*".join(glob.escape(part) for part in path_pattern.split(GLOB))
        return list(islice(glob.iglob(pattern), _MOST_EXPANDED))

    def candidates(
        self, word: Word, directories: tuple[str, ...], *, is_entry: bool = False
    ) -> tuple[str, ...] | None:
        """The paths a word may mean; of an unknown or globbed one the directory it surely lies in.

        None: nothing can be told.  `is_entry`: a link to be made is meant itself.
        """
        start = word.pattern
        for placeholder in (UNKNOWN, GLOB):
            start = start.partition(placeholder)[0]
        if start != word.pattern:
            start = start[: start.rfind("/") + 1]
            if not start and word.is_unknown:
                return None
        if start.startswith("/"):
            return self.linked(start, is_entry=is_entry)
        if not directories:
            return None
        paths = (posixpath.join(directory, start) for directory in directories)
        return tuple(way for path in paths for way in self.linked(path, is_entry=is_entry))


def is_disk(path: str) -> bool:
    if not path.startswith("/dev/"):
        return False
    name = path[len("/dev/") :]
    if name.startswith(_DISKS) or name.startswith("rdisk"):
        return True
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def is_no_file(path: str) -> bool:
    """A device such as /dev/null, or a descriptor of the command itself."""
    return path in _NO_FILES or path.startswith(("/dev/fd/", "/proc/self/fd/"))


def _both(path: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((normal(path), real(path) or normal(path))))

"""Which files of a directory count: what its ignore rules leave.

Asked of `rg --files` where rg is on PATH, else of `git ls-files`, else by
walking.  All three list hidden files, never `.git`, and follow no symlink to a
directory.  Outside of a repository no ignore file counts, and the directories
of `ALWAYS_SKIPPED` are left out instead.  The walk is also taken for a
directory that is itself ignored.  Blocking and bounded; gives up when `stop`
is set.
"""

from __future__ import annotations

import os
import time

from mcode_exec.workspace.git import find_root, run_git
from mcode_exec.workspace.programs import Stop, find_program, run_program

#: directories that the plain walk leaves out
ALWAYS_SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        "__pycache__",
        ".venv",
        "venv",
        ".tox",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
    }
)
#: more files than this are not worth a model's attention
MAX_FILES = 500_000


def rg_options(directory: str) -> list[str]:
    """Of every rg call: no config file of the user, hidden files, never git's own.

    Outside of a repository rg obeys no .gitignore, so the directories of
    `ALWAYS_SKIPPED` are left out as in a walk.
    """
    skipped = {".git"} if find_root(directory) is not None else ALWAYS_SKIPPED
    globs = [f"--glob=!{name}" for name in sorted(skipped)]
    return ["--no-config", "--hidden", "--no-messages", "--color=never", *globs]


def list_files(directory: str, *, limit_s: float, stop: Stop) -> list[str]:
    """Paths relative to `directory`, sorted; undecodable bytes as surrogates.

    Raises: TimeoutError.
    """
    deadline_s = time.monotonic() + limit_s
    found = _by_rg(directory, limit_s, stop)
    if found is None:
        found = _by_git(directory, limit_s, stop)
    if found is None:
        found = _by_walking(directory, deadline_s, stop)
    found.sort()
    return found


def _by_rg(directory: str, limit_s: float, stop: Stop) -> list[str] | None:
    rg = find_program("rg")
    if rg is None:
        return None
    arguments = [rg, "--files", "--null", *rg_options(directory)]
    try:
        result = run_program(arguments, cwd=directory, limit_s=limit_s, stop=stop)
    except OSError:
        return None
    if result.exit_code is None:
        raise TimeoutError
    # 1: no file; 2: some directory could not be read
    return [os.fsdecode(name).removeprefix("./") for name in result.stdout.split(b"\0") if name]


def _by_git(directory: str, limit_s: float, stop: Stop) -> list[str] | None:
    if find_root(directory) is None:
        return None
    arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    result = run_git(arguments, directory, limit_s=limit_s, stop=stop)
    if result is None or result.exit_code is None:
        if result is not None:
            raise TimeoutError
        return None
    names = [os.fsdecode(name) for name in result.stdout.split(b"\0") if name]
    if result.exit_code != 0 or not names:
        return None
    # what git tracks may be deleted, and a submodule is a directory
    return [name for name in names if _is_file(os.path.join(directory, name))]


def _is_file(path: str) -> bool:
    return os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path))


def _by_walking(directory: str, deadline_s: float, stop: Stop) -> list[str]:
    found: list[str] = []
    waiting = [""]
    while waiting:
        if stop.is_set or time.monotonic() > deadline_s:
            raise TimeoutError
        inside = waiting.pop()
        try:
            with os.scandir(os.path.join(directory, inside)) as entries:
                for entry in entries:
                    path = f"{inside}/{entry.name}" if inside else entry.name
                    if not entry.is_dir(follow_symlinks=False):
                        found.append(path)
                    elif entry.name not in ALWAYS_SKIPPED:
                        waiting.append(path)
        except OSError:
            continue
        if len(found) > MAX_FILES:
            break
    return found

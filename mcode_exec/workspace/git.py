"""git, asked without running any code of the repository.

No hook, fsmonitor, filter, external diff, pager, editor, prompt or transport
runs, whatever the repository's config and attributes say, and a repository of
another user is no obstacle: nothing it could configure is obeyed.  What is
exact by reading files is read from files.  Writes nothing but what the caller
asks for; not even the index is refreshed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mcode_exec.workspace.programs import ProgramResult, Stop, find_program, run_program

#: walking the whole history of the largest repositories takes this long
ROOT_COMMIT_LIMIT_S = 30.0

#: command-line config wins over every file, and `safe.directory` is honoured there
_HARDENED = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=false",
    "core.sshCommand=false",
    "core.alternateRefsCommand=true",
    "core.untrackedCache=false",
    "credential.helper=",
    "diff.external=",
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "gpg.program=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "log.showSignature=false",
    "safe.directory=*",
)

#: no other GIT_ variable passes: it could point git at another repository or make it run something
_FIXED = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ASKPASS": "false",
    "GIT_EDITOR": "false",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}


class HeadState(Struct, frozen=True, kw_only=True):
    """Where HEAD stands."""

    #: None when detached
    branch: str | None
    #: full id; None before the first commit
    commit: str | None


def find_root(path: str) -> str | None:
    """The directory above or at `path` that holds `.git`; None outside of any repository."""
    current = os.path.realpath(path)
    while True:
        if _git_dir(current) is not None:
            return current
        parent = os.path.dirname(current)
        if parent == current:
            return None
        current = parent


def _git_dir(root: str) -> str | None:
    """The directory with HEAD: `.git` itself, or where a file of that name points (worktree, submodule)."""
    dot_git = os.path.join(root, ".git")
    if not os.path.isdir(dot_git):
        text = _read_line(dot_git)
        if text is None or not text.startswith("gitdir: "):
            return None
        dot_git = os.path.join(root, text.removeprefix("gitdir: "))
    return dot_git if os.path.lexists(os.path.join(dot_git, "HEAD")) else None


def common_dir(root: str) -> str | None:
    """Where the refs and objects of the repository are that is checked out at `root`."""
    git_dir = _git_dir(root)
    return None if git_dir is None else _common_dir(git_dir)


def _common_dir(git_dir: str) -> str:
    """Where refs, config and objects are; differs from the git directory in a linked worktree."""
    text = _read_line(os.path.join(git_dir, "commondir"))
    return git_dir if text is None else os.path.normpath(os.path.join(git_dir, text))


def _read_line(path: str) -> str | None:
    """First line of a small regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.fsdecode(os.read(fd, 4096).partition(b"\n")[0].rstrip())
    except OSError:
        return None
    finally:
        os.close(fd)


def head_state(root: str) -> HeadState | None:
    """Branch and commit, read from files; git itself is asked only where refs are not files."""
    git_dir = _git_dir(root)
    if git_dir is None:
        return None
    common = _common_dir(git_dir)
    head = _read_line(os.path.join(git_dir, "HEAD")) or ""
    if os.path.isdir(os.path.join(common, "reftable")):
        return _head_by_git(root)
    if not head.startswith("ref: "):
        return HeadState(branch=None, commit=head or None)
    ref = head.removeprefix("ref: ")
    commit = _read_line(os.path.join(common, ref)) or _packed_ref(common, ref)
    if commit is not None and commit.startswith("ref: "):
        return _head_by_git(root)
    return HeadState(branch=ref.removeprefix("refs/heads/"), commit=commit)


def _packed_ref(common: str, ref: str) -> str | None:
    wanted = b" " + os.fsencode(ref)
    try:
        with open(os.path.join(common, "packed-refs"), "rb") as file:
            for line in file:
                if line.rstrip().endswith(wanted) and line[:1] not in (b"#", b"^"):
                    return line.split(b" ", 1)[0].decode("ascii", "replace")
    except OSError:
        pass
    return None


def _head_by_git(root: str) -> HeadState | None:
    branch = _output(run_git(["symbolic-ref", "-q", "HEAD"], root, limit_s=5.0))
    commit = _output(run_git(["rev-parse", "-q", "--verify", "HEAD"], root, limit_s=5.0))
    return HeadState(branch=branch.removeprefix("refs/heads/") if branch else None, commit=commit)


def directory_key(root: str) -> str | None:
    """Identifies this very checkout's repository directory, cheaply; another clone at the same path has another.

    None where it cannot be told, and then nothing that is kept by it may be used.
    """
    git_dir = _git_dir(root)
    if git_dir is None:
        return None
    common = _common_dir(git_dir)
    try:
        objects = os.stat(os.path.join(common, "objects"))
        config = os.stat(os.path.join(common, "config"))
    except OSError:
        return None
    is_shallow = os.path.exists(os.path.join(common, "shallow"))
    facts = (common, objects.st_dev, objects.st_ino, config.st_ino, config.st_mtime_ns, is_shallow)
    return ascii(facts)


def config_file(path: str) -> str | None:
    """The config file of the repository around `path`; None outside of any."""
    root = find_root(path)
    git_dir = _git_dir(root) if root is not None else None
    return None if git_dir is None else os.path.join(_common_dir(git_dir), "config")


def index_file(root: str) -> str | None:
    """The index of the checkout at `root`."""
    git_dir = _git_dir(root)
    return None if git_dir is None else os.path.join(git_dir, "index")


def root_commit(root: str) -> str | None:
    """What names a repository wherever it is checked out.

    The root commit of HEAD, the smallest of several; in a shallow clone, whose
    history ends somewhere, `origin:` and the URL without credentials.  None
    without commits (or, in a shallow clone, without an origin).
    """
    git_dir = _git_dir(root)
    if git_dir is None:
        return None
    if os.path.exists(os.path.join(_common_dir(git_dir), "shallow")):
        url = _output(run_git(["config", "--get", "remote.origin.url"], root, limit_s=5.0))
        return f"origin:{without_credentials(url)}" if url else None
    state = head_state(root)
    if state is None or state.commit is None:
        return None
    found = _output(run_git(["rev-list", "--max-parents=0", "HEAD"], root, limit_s=ROOT_COMMIT_LIMIT_S))
    return min(found.split()) if found else None


def without_credentials(url: str) -> str:
    """`https://user:token@host/x` and `user@host:x` without the part before the `@`."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        before, colon, after = url.partition(":")
        return before.rpartition("@")[2] + colon + after if colon and "/" not in before else url
    authority, slash, path = rest.partition("/")
    return scheme + separator + authority.rpartition("@")[2] + slash + path


def run_git(
    arguments: Sequence[str],
    cwd: str,
    *,
    limit_s: float,
    stop: Stop | None = None,
    env: Mapping[str, str] | None = None,
    given: bytes | None = None,
) -> ProgramResult | None:
    """One hardened call, with `env` beside what is fixed and `given` on its stdin.

    None when there is no git or it cannot be started.
    """
    git = find_program("git")
    if git is None:
        return None
    command = [git]
    for option in _HARDENED:
        command += ["-c", option]
    try:
        return run_program(
            [*command, *arguments],
            cwd=cwd,
            env={**_FIXED, **(env or {})},
            limit_s=limit_s,
            stop=stop,
            given=given,
        )
    except OSError:
        return None


def _output(result: ProgramResult | None) -> str | None:
    if result is None or result.exit_code != 0:
        return None
    return os.fsdecode(result.stdout).strip() or None

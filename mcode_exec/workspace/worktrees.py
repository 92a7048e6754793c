"""Worktrees of a git repository: made from a commit, looked at, removed when nothing is lost by it.

Every call is hardened as in git.py, and as these check files out or compare
them, the filters that a repository configures are switched off besides: a file
kept by one (git-lfs) stands there as git has it.  Which worktree belongs to
which session is not known here.  Blocking: callers on the loop go through a thread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mcode_exec.workspace import git
from mcode_exec.workspace.programs import ProgramResult, Stop

#: checking out the largest repositories takes this long
CHECKOUT_LIMIT_S = 600.0
_LIMIT_S = 30.0
_MESSAGE_CHARS = 300


class WorktreeError(Exception):
    """git said no; the message is what it said."""


def branches_in_the_way(root: str, name: str) -> list[str]:
    """Branches because of which none of this name can be made: itself, one above or one below it."""
    parts = name.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    found = _lines(
        ["for-each-ref", "--format=%(refname)", *(f"refs/heads/{one}" for one in (name, *above))], root
    )
    names = [ref.removeprefix("refs/heads/") for ref in found]
    return [one for one in names if one in above or one == name or one.startswith(name + "/")]


def has_branch(repository: str, branch: str) -> bool:
    return bool(_lines(["for-each-ref", f"refs/heads/{branch}"], repository))


def is_branch_name(root: str, name: str) -> bool:
    """Whether git takes it as the name of a branch."""
    result = git.run_git(["check-ref-format", "--branch", name], root, limit_s=_LIMIT_S)
    # `@{-1}` is expanded: what it means is no name of a new branch
    return result is not None and result.exit_code == 0 and os.fsdecode(result.stdout).strip() == name


def has_directory(root: str, commit: str, below: str) -> bool:
    """Whether a commit has that directory."""
    return _lines(["cat-file", "-t", f"{commit}:{below}"], root) == ["tree"]


def add(root: str, path: str, branch: str, commit: str, stop: Stop | None = None) -> None:
    """Make a new branch at `commit` and a worktree of it at `path`, which does not exist yet.

    Raises: WorktreeError; what was made until then stays.
    """
    _must(["worktree", "add", "--quiet", "--no-checkout", "-b", branch, path, commit], root, stop)
    # Only now does the configuration hold that may be meant for this worktree, its filters among it.
    _must(["reset", "--quiet", "--hard", "HEAD"], path, stop, without_filters=True)


def why_kept(path: str) -> str | None:
    """What would be lost with a worktree, in a few words; None: nothing."""
    state = git.head_state(path)
    if state is None:
        return "it is no worktree of a git repository any more"
    changes = _result(["status", "--porcelain", "-z", "--ignore-submodules=none"], path, without_filters=True)
    if changes is None or changes.exit_code != 0:
        return f"git cannot tell whether it has changes ({_said(changes)})"
    if changes.stdout:
        count = len([one for one in changes.stdout.split(b"\0") if one])
        return f"it has changes that are not committed ({count} of `git status`)"
    if state.branch is None and not _lines(["for-each-ref", "--count=1", "--contains", "HEAD"], path):
        return "it has commits that are on no branch"
    return None


def remove(path: str) -> str | None:
    """Remove a worktree in which nothing would be lost; why it was left, or None."""
    reason = why_kept(path)
    if reason is not None:
        return reason
    result = _result(["worktree", "remove", path], git.common_dir(path) or path, without_filters=True)
    if result is None or result.exit_code != 0:
        return f"git did not remove it ({_said(result)})"
    return None


def forget_branch(repository: str, branch: str, commit: str | None = None) -> bool:
    """Delete a branch that nothing is lost by: it stands at `commit`, or another ref has all of it."""
    ref = f"refs/heads/{branch}"
    tip = _lines(["rev-parse", "--quiet", "--verify", ref], repository)
    if not tip:
        return False
    if tip != [commit]:
        others = _lines(["for-each-ref", "--format=%(refname)", "--contains", ref], repository)
        if all(other == ref for other in others):
            return False
    result = git.run_git(["update-ref", "-d", ref, tip[0]], repository, limit_s=_LIMIT_S)
    return result is not None and result.exit_code == 0


def _must(arguments: Sequence[str], cwd: str, stop: Stop | None, *, without_filters: bool = False) -> None:
    if stop is not None and stop.is_set:
        raise WorktreeError("it was stopped")
    result = _result(arguments, cwd, stop, limit_s=CHECKOUT_LIMIT_S, without_filters=without_filters)
    if result is None or result.exit_code != 0:
        raise WorktreeError(_said(result))


def _result(
    arguments: Sequence[str],
    cwd: str,
    stop: Stop | None = None,
    *,
    limit_s: float = _LIMIT_S,
    without_filters: bool = False,
) -> ProgramResult | None:
    env = _filters_off(cwd) if without_filters else None
    return git.run_git(arguments, cwd, limit_s=limit_s, stop=stop, env=env)


def _filters_off(cwd: str) -> dict[str, str]:
    """Variables that switch off every filter that is configured there, whatever it is called."""
    result = git.run_git(["config", "--list", "--name-only", "-z"], cwd, limit_s=_LIMIT_S)
    names = [] if result is None else os.fsdecode(result.stdout).split("\0")
    filters = {
        name.rpartition(".")[0] for name in names if name.startswith("filter.") and name.count(".") > 1
    }
    settings = [
        (f"{one}.{what}", value)
        for one in sorted(filters)
        for what, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
    ]
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


def _lines(arguments: Sequence[str], cwd: str) -> list[str]:
    result = git.run_git(arguments, cwd, limit_s=_LIMIT_S)
    if result is None or result.exit_code != 0:
        return []
    return os.fsdecode(result.stdout).split("\n")[:-1]


def _said(result: ProgramResult | None) -> str:
    if result is None:
        return "git cannot be started"
    if result.exit_code is None:
        return "git was stopped, or took too long"
    lines = [line for line in os.fsdecode(result.stderr).split("\n") if line.strip()]
    said = lines[-1].strip() if lines else f"exit {result.exit_code}"
    return said.removeprefix("fatal: ")[:_MESSAGE_CHARS]

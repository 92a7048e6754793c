"""Worktrees of sessions: where they are, what would stop one from being made, when one is removed.

A worktree lies in the data directory below the id of the session that it was
made for, and bears the name of the repository's directory, which some tools take
for the project's.  It goes with the last session that works in it, if nothing is
lost by that; what would be lost stays, and is named.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Literal

from mcode_exec import paths
from mcode_exec.errors import InvocationError, StoreFailedError
from mcode_exec.records.operation import WorktreePlan
from mcode_exec.records.session import RunLocation, Session
from mcode_exec.store import session_rows, turn_rows
from mcode_exec.workspace import git, worktrees
from mcode_exec.workspace.programs import Stop, find_program
from mcode_exec.workspace.worktrees import WorktreeError

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_OWN_BRANCHES = "mcode"
_DIGITS = 8  # of the session's id, in the name of a branch


def plan_worktree(data: str, directory: str, session_id: str, branch: str | None) -> WorktreePlan:
    """The worktree that a session is to get, begun at HEAD of the repository around `directory`.

    Raises: InvocationError for whatever is known to stop it.
    """
    flag = "--worktree" if branch is None else "--worktree-branch"
    if find_program("git") is None:
        raise InvocationError(
            f"{flag} needs git, and there is none on PATH; install it, or leave the flag out"
        )
    root = git.find_root(directory)
    if root is None:
        raise InvocationError(
            f"{flag}: {directory} is in no git repository; make it one (`git init`, and commit), name another "
            "directory with --cwd, or leave the flag out"
        )
    head = git.head_state(root)
    if head is None or head.commit is None:
        raise InvocationError(
            f"{flag}: the repository {root} has no commit yet that a worktree could begin at; commit something first"
        )
    below = os.path.relpath(os.path.realpath(directory), root)
    if below != "." and not worktrees.has_directory(root, head.commit, below):
        raise InvocationError(
            f"{flag}: {below} is not in HEAD of {root}, so that a worktree would not have it; commit it first, or "
            "name another directory with --cwd"
        )
    return WorktreePlan(
        repository=root,
        path=os.path.join(paths.worktrees_dir(data), session_id, os.path.basename(root) or "root"),
        branch=_own_branch(root, session_id) if branch is None else _checked(root, branch),
        commit=head.commit,
        below=None if below == "." else below,
    )


def _own_branch(root: str, session_id: str) -> str:
    digits = session_id.removeprefix("mvs_")
    for name in (
        f"{_OWN_BRANCHES}/{digits[:_DIGITS]}",
        f"{_OWN_BRANCHES}/{digits}",
        f"{_OWN_BRANCHES}-{digits}",  # somebody has a branch `mcode`
    ):
        if not worktrees.branches_in_the_way(root, name):
            return name
    raise InvocationError(f"the repository {root} has branches of all names that a worktree's could have")


def _checked(root: str, branch: str) -> str:
    if not worktrees.is_branch_name(root, branch):
        raise InvocationError(
            f"--worktree-branch {branch!r} is no name of a branch (see git check-ref-format)"
        )
    in_the_way = worktrees.branches_in_the_way(root, branch)
    if branch in in_the_way:
        raise InvocationError(
            f"--worktree-branch {branch}: {root} has that branch already; name another, or use --worktree alone, "
            "which makes one"
        )
    if in_the_way:
        raise InvocationError(
            f"--worktree-branch {branch} cannot be made beside the branch {in_the_way[0]} of {root}; name another"
        )
    return branch


def location_of(plan: WorktreePlan) -> RunLocation:
    return RunLocation(path=plan.path, branch=plan.branch, below=plan.below)


async def make_worktree(plan: WorktreePlan) -> None:
    """Check the worktree out.  Raises: StoreFailedError with what git said; cancelled, git is stopped first."""
    parent = os.path.dirname(plan.path)
    try:
        paths.make_private_dir(os.path.dirname(parent))
        paths.make_private_dir(parent)
    except OSError as error:
        raise StoreFailedError(f"{parent} cannot be made: {error.strerror}") from error
    stop = Stop()
    adding = asyncio.ensure_future(
        asyncio.to_thread(worktrees.add, plan.repository, plan.path, plan.branch, plan.commit, stop)
    )
    try:
        await asyncio.shield(adding)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([adding])
        raise
    except WorktreeError as error:
        raise StoreFailedError(
            f"no worktree of {plan.repository} could be made at {plan.path}: {error}",
            code="worktree_failed",
        ) from error


async def undo_worktree(plan: WorktreePlan) -> None:
    """Take away what was made of a worktree in which nothing has run yet."""
    await asyncio.to_thread(_undo, plan)


def _undo(plan: WorktreePlan) -> None:
    if os.path.isdir(plan.path) and git.find_root(plan.path) == os.path.realpath(plan.path):
        # a checkout that was cut off is full of deletions: by force, as nobody has worked there
        cwd = git.common_dir(plan.path) or plan.repository
        git.run_git(["worktree", "remove", "--force", plan.path], cwd, limit_s=worktrees.CHECKOUT_LIMIT_S)
    if os.path.isdir(plan.repository):
        worktrees.forget_branch(plan.repository, plan.branch, plan.commit)
    _remove_empty(os.path.dirname(plan.path))


async def remove_worktree(runtime: Runtime, session: Session) -> str | None:
    """Remove the worktree of a session that is being deleted; in a sentence what was left, and why.

    One in which another session works stays without a word.
    """
    location = session.run_location
    if location is None:
        return None
    if not _is_ours(runtime.data, location.path):
        return f"its worktree {location.path} is left: it is none of this data directory"
    others = await runtime.store.read(lambda: session_rows.sessions_at(location, 2))
    if any(one.id != session.id for one in others):
        return None
    return await asyncio.to_thread(_remove, location)


async def tidy_worktree(runtime: Runtime, session_id: str) -> Literal["left", "branch", "gone"]:
    """Remove the worktree of a session whose work is over, if it has nothing that is not committed.

    `branch`: only the branch is left, as it has commits that nothing else has.  A session that
    goes on later is told that its worktree is gone.
    """

    def read() -> tuple[Session | None, bool]:
        session = session_rows.find_session(session_id)
        if session is None or session.run_location is None:
            return None, False
        is_used = len(session_rows.sessions_at(session.run_location, 2)) > 1
        return session, is_used or turn_rows.find_lock(session_id) is not None

    session, is_used = await runtime.store.read(read)
    if session is None or session.run_location is None or is_used:
        return "left"
    if not _is_ours(runtime.data, session.run_location.path):
        return "left"
    return await asyncio.to_thread(_tidy, session.run_location)


def _tidy(location: RunLocation) -> Literal["left", "branch", "gone"]:
    repository = git.common_dir(location.path)
    if repository is None or _remove(location) is not None:
        return "left"
    if location.branch is None or not worktrees.has_branch(repository, location.branch):
        return "gone"
    return "gone" if worktrees.forget_branch(repository, location.branch) else "branch"


def _is_ours(data: str, path: str) -> bool:
    """Whether a path is one that we have made: rows are not believed further than that."""
    base = os.path.realpath(paths.worktrees_dir(data))
    return os.path.dirname(os.path.dirname(os.path.normpath(path))) in (base, paths.worktrees_dir(data))


def _remove(location: RunLocation) -> str | None:
    path = location.path
    if not os.path.lexists(path):
        _remove_empty(os.path.dirname(path))
        return None
    if os.path.islink(path) or os.path.islink(os.path.dirname(path)):
        return f"{path} is a link where the worktree was: it was left as it is"
    repository = git.common_dir(path)
    reason = worktrees.remove(path)
    if reason is not None:
        return (
            f"its worktree {path} (branch {location.branch or '-'}) is left: {reason}; "
            f"`git worktree remove --force {path}`, run in its repository, removes it"
        )
    if repository is not None and (location.branch or "").startswith(_OWN_BRANCHES):
        worktrees.forget_branch(repository, str(location.branch))
    _remove_empty(os.path.dirname(path))
    return None


def _remove_empty(directory: str) -> None:
    try:
        os.rmdir(directory)
    except OSError:
        pass

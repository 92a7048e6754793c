"""Making sessions and the projects they belong to."""

from __future__ import annotations

import re
from typing import Any

from msgspec import structs

from mcode_exec.faults import fault
from mcode_exec.ids import new_session_id
from mcode_exec.records.session import BTW, Project, Session, SessionKind
from mcode_exec.sessions.layout import allot_dir
from mcode_exec.sessions.titles import MAX_TITLE, default_title, title_in
from mcode_exec.store import session_rows
from mcode_exec.store.database import Store
from mcode_exec.version import VERSION

_FORKED = re.compile(r"(.*) \(fork #([1-9][0-9]{0,5})\)", re.DOTALL)


def project_of(workspace: str, repository: str | None, now_ms: int) -> Project:
    """The project a workspace belongs to.

    `repository` names a git repository wherever it is checked out: its root
    commit, or `origin:` and a URL for a shallow clone; without one the project
    is the directory.
    """
    import hashlib

    if repository is None:
        kind, identity = "workspace", workspace
    elif repository.startswith("origin:"):
        kind, identity = "origin", repository.removeprefix("origin:")
    else:
        kind, identity = "git", repository
    digest = hashlib.sha256(f"{kind}\0{identity}".encode("utf-8", "surrogateescape")).hexdigest()
    return Project(
        id="prj_" + digest[:32],
        kind="git" if kind == "git" else "origin" if kind == "origin" else "workspace",
        identity=identity,
        created_ms=now_ms,
    )


def title_of(prompt: str | None, now_ms: int) -> tuple[str, bool]:
    """The prompt's first line, at most 80 characters; without text a default title (and True)."""
    title = title_in(prompt or "")
    return (default_title(now_ms), True) if title is None else (title, False)


def new_session(
    *,
    project_id: str,
    workspace: str,
    title: str,
    title_is_default: bool,
    now_ms: int,
    session_kind: SessionKind = "conversation",
    session_key: str | None = None,
    labels: dict[str, str] | None = None,
    permission: dict[str, object] | None = None,
) -> Session:
    """A session record that is not stored yet."""
    session_id = new_session_id()
    return Session(
        id=session_id,
        project_id=project_id,
        workspace=workspace,
        created_ms=now_ms,
        updated_ms=now_ms,
        activity_ms=now_ms,
        history_relative_dir=allot_dir(now_ms, session_id),
        title=title,
        title_is_default=title_is_default,
        session_kind=session_kind,
        session_key=session_key,
        labels=labels or {},
        permission=permission or {},
        version=VERSION,
    )


def forked_title(title: str) -> str:
    """What a fork of a session is called: its title and the number of the fork, at most 80 characters."""
    found = _FORKED.fullmatch(title)
    base, number = (title, 1) if found is None else (found[1], int(found[2]) + 1)
    ending = f" (fork #{number})"
    room = MAX_TITLE - len(ending)
    return (base if len(base) <= room else base[: room - 1].rstrip() + "…") + ending


def inheriting_session(session: Session, source: Session, at: str) -> Session:
    """`session` with what a fork takes from its source; what is set in `session` already stays.

    Queue, lock, key, status and what its turns have changed do not come along.
    """
    has_model = session.model_id is not None
    return structs.replace(
        session,
        forked_from=source.id,
        forked_at=at,
        cache_key=source.cache_key or source.id,
        labels={**source.labels, **session.labels},
        permission=inherited_permission(source.permission, session.permission),
        agent=source.agent if session.agent is None else session.agent,
        provider_id=session.provider_id if has_model else source.provider_id,
        model_id=session.model_id if has_model else source.model_id,
        variant=session.variant if has_model else source.variant,
        effort=session.effort if has_model else source.effort,
        context_tokens=session.context_tokens if has_model else source.context_tokens,
    )


def side_session(session: Session, parent: Session) -> Session:
    """`session` as a side conversation of another: internal, hidden, and gone with it."""
    return structs.replace(
        session, session_kind="peek", visibility="hidden", parent_id=parent.id, purpose=BTW, labels={}
    )


def moved_note(here: str, before: str) -> str:
    """What the model is told of a conversation that goes on in another directory."""
    return f"[mcode: the workspace of this conversation is now {here}; before, it was {before}]"


def inherited_permission(source: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The permissions of a fork: those of its source, its own rules behind them, where the last match wins."""
    kept = {**source, **own}
    rules = [*source.get("rules", ()), *own.get("rules", ())]
    return {**kept, "rules": rules} if rules else kept


async def create_session(store: Store, project: Project, session: Session) -> Session:
    """Store a new session (and its project); with a key that is bound already, the session it is bound to."""

    def transaction() -> Session:
        kept = session_rows.ensure_project(project)
        wanted = structs.replace(session, project_id=kept.id)
        if wanted.session_key is not None:
            found = session_rows.find_by_key(kept.id, wanted.session_key)
            if found is not None:
                return found
        session_rows.insert_session(wanted)
        return wanted

    stored = await store.write(transaction)
    fault("after-session")
    return stored


async def drop_unused(store: Store, session_id: str) -> None:
    """Remove a session in which no turn was ever admitted."""
    await store.write(lambda: session_rows.delete_unused(session_id))

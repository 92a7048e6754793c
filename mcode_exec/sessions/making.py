"""Making sessions and the projects they belong to."""

from __future__ import annotations

import time

from msgspec import structs

from mcode_exec.faults import fault
from mcode_exec.ids import new_session_id
from mcode_exec.records.session import Project, Session, SessionKind
from mcode_exec.sessions.layout import allot_dir
from mcode_exec.store import session_rows
from mcode_exec.store.database import Store
from mcode_exec.version import VERSION

MAX_TITLE = 80  # characters


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
    for line in (prompt or "").split("\n"):
        words = " ".join(line.split())
        if words:
            return (words if len(words) <= MAX_TITLE else words[: MAX_TITLE - 1].rstrip() + "…"), False
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
    return f"New session - {moment}.{now_ms % 1000:03d}Z", True


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

"""Sessions that are made before their first turn, alone or under another.

What a child keeps of the permissions above it is written when it is made: its
parents may be gone when it runs, and what they forbade stays forbidden.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from mcode_exec.errors import SessionDeletingError, SessionError
from mcode_exec.faults import fault
from mcode_exec.records.session import Project, Session
from mcode_exec.sessions.finding import MAX_PARENTS
from mcode_exec.sessions.keeping import get_kept
from mcode_exec.store import session_rows
from mcode_exec.store.database import Store


def _own(session: Session) -> dict[str, Any]:
    """The permissions that a session was given itself."""
    return {key: value for key, value in session.permission.items() if key != "inherited"}


def inherited(parent: Session) -> list[dict[str, Any]]:
    """The permissions that hold for a child beside its own: those of its parent, then those above that one."""
    own = _own(parent)
    if parent.agent is not None:
        own["agent"] = parent.agent
    found: list[dict[str, Any]] = []
    for kept in (own, *parent.permission.get("inherited", ())):
        if kept not in found:
            found.append(kept)
    return found


async def create_ahead(
    store: Store, project: Project, session: Session, parent_id: str | None
) -> tuple[Session, bool]:
    """Store a session that no turn asked for, and its project; with a key that is bound, (that session, False).

    Raises: SessionError `session_key_bound` where that one has other permissions or another parent;
        `session_not_found`, `session_deleting` of the parent, or where it has too many above it.
    """

    def transaction() -> tuple[Session, bool]:
        wanted = session
        if parent_id is not None:
            parent = _checked_parent(parent_id)
            permission = {**session.permission, "inherited": inherited(parent)}
            wanted = structs.replace(session, parent_id=parent.id, permission=permission)
        kept = session_rows.ensure_project(project)
        wanted = structs.replace(wanted, project_id=kept.id, is_made_ahead=True)
        if wanted.session_key is not None:
            found = session_rows.find_by_key(kept.id, wanted.session_key)
            if found is not None:
                _check_same(found, wanted)
                return found, False
        session_rows.insert_session(wanted)
        return wanted, True

    stored = await store.write(transaction)
    fault("after-session")
    return stored


def _checked_parent(parent_id: str) -> Session:
    parent = get_kept(parent_id)
    above: Session | None = parent
    for _ in range(MAX_PARENTS):
        if above is None or above.parent_id is None:
            return parent
        above = session_rows.find_session(above.parent_id)
    raise SessionError(
        f"session {parent_id} has {MAX_PARENTS} sessions above it already; name one of those as --parent",
        code="turn_invalid_input",
    )


def _check_same(found: Session, wanted: Session) -> None:
    """A session that has the key is the one that is asked for, unless that one would be allowed something else."""
    if found.deleting_by is not None:
        raise SessionDeletingError(found.id)
    for what, is_other in (
        ("another parent", wanted.parent_id is not None and wanted.parent_id != found.parent_id),
        ("other permissions", bool(_own(wanted)) and _own(wanted) != _own(found)),
    ):
        if is_other:
            raise SessionError(
                f"the key {wanted.session_key!r} is bound to session {found.id}, which has {what}; "
                f"use another key, or `mcode sessions delete {found.id}`",
                code="session_key_bound",
            )

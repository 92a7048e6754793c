"""Sessions as rows: what a list shows, what `show` says first, and what is said of one that is being deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcode_exec.cli.list_options import notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcode_exec.records.session import Seal, Session

#: field -> heading of the table
COLUMNS = {"id": "SESSION", "lastTurn": "LAST TURN", "status": "STATUS", "model": "MODEL", "title": "TITLE"}


def _model(session: Session) -> str | None:
    if session.model_id is None:
        return None
    variant = f"#{session.variant}" if session.variant else ""
    return f"{session.provider_id}/{session.model_id}{variant}"


def _worktree(session: Session) -> dict[str, str | None] | None:
    location = session.run_location
    return None if location is None else {"path": location.path, "branch": location.branch}


#: the names that programs rely on
_FIELDS: dict[str, Callable[[Session], Any]] = {
    "id": lambda session: session.id,
    "title": lambda session: session.title,
    "status": lambda session: session.shown_status,
    "kind": lambda session: session.session_kind,
    "workspace": lambda session: session.workspace,
    "projectId": lambda session: session.project_id,
    "sessionKey": lambda session: session.session_key,
    "model": _model,
    "agent": lambda session: session.agent,
    "parentId": lambda session: session.parent_id,
    "forkedFrom": lambda session: session.forked_from,
    "forkedAt": lambda session: session.forked_at,
    "worktree": _worktree,
    "labels": lambda session: session.labels,
    "permission": lambda session: session.permission,
    "visibility": lambda session: session.visibility,
    "createdMs": lambda session: session.created_ms,
    "updatedMs": lambda session: session.updated_ms,
    "activityMs": lambda session: session.activity_ms,
    "archivedMs": lambda session: session.archived_ms,
    "errorCode": lambda session: session.error_code,
    "errorMessage": lambda session: session.error_message,
}
FIELDS = (*_FIELDS, "deletion")


def row_of(session: Session, seal: Seal | None) -> dict[str, Any]:
    """A session under the names that programs rely on."""
    deletion = None if seal is None else {"sinceMs": seal.since_ms, "reason": seal.reason}
    return {**{name: get(session) for name, get in _FIELDS.items()}, "deletion": deletion}


def table_row(session: Session) -> dict[str, Any]:
    """A session as a line for people."""
    from mcode_exec.output.transcript import local_time

    return {**row_of(session, None), "lastTurn": local_time(session.activity_ms)}


def tell_deletions(seals: Mapping[str, Seal]) -> None:
    """What is being deleted, why it is still there, and what to do."""
    from mcode_exec.output.transcript import local_time

    for session_id, seal in seals.items():
        since = "" if seal.since_ms is None else f" since {local_time(seal.since_ms)}"
        why = "" if seal.reason is None else f": {seal.reason}"
        notice(f"session {session_id} is being deleted{since}{why}; `mcode recover` goes on with it")

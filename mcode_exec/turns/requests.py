"""What a `--request-id` is unique in, and where a run is found by it.

Asked with a session selector an id is looked for in that session, without one
in the project.  A run is found both ways, however it was asked for: it is noted
under its session, and under its project unless another session's run has the
id there already.  The keys of `mcode steer` are of a session alone, and so are
those of its side conversations.
"""

from __future__ import annotations

from mcode_exec.records.session import Session
from mcode_exec.records.turn import Source, TurnRequest
from mcode_exec.store import turn_rows

#: their id is none that somebody gave for the whole project
_OF_A_SESSION: tuple[Source, ...] = ("steer", "retry")


def session_scope(session_id: str) -> str:
    return f"session:{session_id}"


def project_scope(project_id: str) -> str:
    return f"project:{project_id}"


def queue_scope(session_id: str) -> str:
    """Under which the dedupe keys of a session's items are found once these have run."""
    return f"queue:{session_id}"


def scopes_of(request: TurnRequest, session: Session) -> tuple[str, ...]:
    """Under which an accepted request is found from now on; inside the admission transaction."""
    if request.request_id is None or request.request_scope is None:
        return ()
    scopes = {request.request_scope, session_scope(session.id)}
    project = project_scope(request.rebind_project_id or session.project_id)
    known = turn_rows.find_request(project, request.request_id)
    is_of_a_session = request.source in _OF_A_SESSION or session.session_kind == "peek"
    is_free = known is None and not is_of_a_session
    if is_free or (known is not None and known.session_id == session.id):
        scopes.add(project)
    return tuple(scopes)

"""Rows of `operations`: manifests of sessions that are being made, or changed in steps."""

from __future__ import annotations

import msgspec

from mcode_exec.records.operation import Manifest, Operation
from mcode_exec.store.statement import Statement
from mcode_exec.store.tables import Operations, tuples

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Manifest).decode

_PAGE = Statement(
    lambda after, limit: (
        Operations.select(Operations.session_id, Operations.owner)
        .where(Operations.session_id > after)
        .order_by(Operations.session_id)
        .limit(limit)
    ),
    *(str, int),
)


def insert_operation(operation: Operation) -> None:
    Operations.insert(
        session_id=operation.session_id,
        owner=operation.owner,
        phase=operation.phase,
        manifest=_encode(operation.manifest).decode(),
    ).execute()


def find_operation(session_id: str) -> Operation | None:
    query = Operations.select(
        Operations.session_id, Operations.owner, Operations.phase, Operations.manifest
    ).where(Operations.session_id == session_id)
    return next(
        (
            Operation(session_id=one, owner=owner, phase=phase, manifest=_decode(manifest))
            for one, owner, phase, manifest in tuples(query)
        ),
        None,
    )


_HELD_UP = Statement(
    lambda session_id: (
        Operations.select(Operations.session_id)
        .where((Operations.session_id == session_id) & (Operations.phase != "copied"))
        .limit(1)
    ),
    str,
)


def is_held_up(session_id: str) -> bool:
    """Whether a session is not whole just now."""
    return _HELD_UP.exists(session_id)


def is_held_for(session_id: str, turn_id: str) -> bool:
    """Whether all that holds a session up is a rewind that this turn is to make final."""
    found = find_operation(session_id)
    return found is not None and found.phase == "held" and found.manifest.held_for == turn_id


def page_owners(after: str, limit: int) -> list[tuple[str, str]]:
    """(session id, owner token) of what is being made, those behind `after`."""
    return [(session_id, owner) for session_id, owner in _PAGE.tuples(after, limit)]


def set_phase(session_id: str, owner: str, phase: str) -> bool:
    """False if the operation is another process's by now, or gone."""
    query = Operations.update(phase=phase).where(
        (Operations.session_id == session_id) & (Operations.owner == owner)
    )
    return bool(query.execute())


def take_over(session_id: str, owner: str, new_owner: str) -> bool:
    """Make an operation of one process another's; False if it has changed hands before."""
    query = Operations.update(owner=new_owner).where(
        (Operations.session_id == session_id) & (Operations.owner == owner)
    )
    return bool(query.execute())


def delete_operation(session_id: str) -> bool:
    return bool(Operations.delete().where(Operations.session_id == session_id).execute())

"""Bringing an exported session back: its history first, its rows after, through the functions all use.

Under its own id everything is as it was; as a copy its messages and turns get
ids of the new session, always the same ones.  What binds a session to where it
was is left behind: permissions, session key, request ids, worktree, queue.
Until it is whole it is hidden and says `restoring` as its origin, so that who
was killed amid it can go on.

Functions block unless they are coroutines.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

import msgspec
from msgspec import structs

from mcode_exec.errors import StoreFailedError
from mcode_exec.ids import copied_message_id, copied_turn_id
from mcode_exec.records.export import ExportedSession, ExportedTurn
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.session import Session, SessionKind, SessionStatus, Visibility
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.attachments import Attachments
from mcode_exec.sessions.files import replace_file
from mcode_exec.sessions.history import FORMAT_VERSION, publish
from mcode_exec.sessions.layout import HistoryPaths, allot_dir
from mcode_exec.sessions.lines import serialise
from mcode_exec.sessions.masking import masked
from mcode_exec.sessions.record_rows import RecordRows
from mcode_exec.store import export_rows, message_rows, session_rows
from mcode_exec.store.database import Store

#: `origin` of a session that is not whole yet
RESTORING = "restoring"
_BATCH = 100  # records or rows of one transaction
_MAX_TITLE = 200

_encode = msgspec.json.Encoder(decimal_format="number").encode


def as_copy(document: ExportedSession, session_id: str) -> ExportedSession:
    """`document` under another id, its messages and turns under ids of that session."""
    return structs.replace(
        document,
        session=structs.replace(
            document.session,
            id=session_id,
            last_turn_id=None
            if document.session.last_turn_id is None
            else copied_turn_id(session_id, document.session.last_turn_id),
        ),
        history=tuple(
            structs.replace(
                record,
                id=copied_message_id(session_id, record.id),
                turn_id=copied_turn_id(session_id, record.turn_id),
            )
            for record in document.history
        ),
        messages=tuple(_renamed(message, session_id) for message in document.messages),
        turns=tuple(_renamed_turn(turn, session_id) for turn in document.turns),
        usage=tuple(
            structs.replace(
                usage,
                turn_id=copied_turn_id(session_id, usage.turn_id),
                message_id=copied_message_id(session_id, usage.message_id),
            )
            for usage in document.usage
        ),
    )


def _renamed(message: dict[str, Any], session_id: str) -> dict[str, Any]:
    parent = message.get("parent_id")
    return {
        **message,
        "id": copied_message_id(session_id, str(message.get("id"))),
        "turn_id": copied_turn_id(session_id, str(message.get("turn_id"))),
        **({} if parent is None else {"parent_id": copied_message_id(session_id, str(parent))}),
    }


def _renamed_turn(turn: ExportedTurn, session_id: str) -> ExportedTurn:
    turn_id = copied_turn_id(session_id, turn.turn_id)
    result = turn.result
    if isinstance(result, dict):
        result = {**result, "sessionId": session_id, "turnId": turn_id}
    return structs.replace(turn, turn_id=turn_id, result=result)


def session_of(document: ExportedSession, *, has_parent: bool) -> Session:
    """The session that a document describes, hidden and unfinished."""
    info = document.session
    # its process runs elsewhere, if it does
    said = "interrupted" if info.status == "started" else info.status
    title = " ".join(info.title.split())[:_MAX_TITLE] or "Restored session"
    return Session(
        id=info.id,
        project_id="",
        workspace=_workspace(info.workspace),
        created_ms=info.created_ms,
        updated_ms=info.updated_ms,
        activity_ms=info.activity_ms,
        history_relative_dir=allot_dir(info.created_ms, info.id),
        title=title,
        title_is_default=info.title_is_default,
        session_kind=_one_of(info.session_kind, SessionKind, "unknown"),
        status=_one_of(said, SessionStatus, "idle"),
        visibility="hidden",
        origin=RESTORING,
        agent=info.agent,
        provider_id=info.provider_id,
        model_id=info.model_id,
        variant=info.variant,
        effort=info.effort,
        context_tokens=info.context_tokens,
        parent_id=info.parent_id if has_parent else None,
        forked_from=info.forked_from,
        forked_at=info.forked_at,
        purpose=info.purpose,
        version=info.version,
        error_code=info.error_code,
        error_message=info.error_message,
        error_source=info.error_source,
        archived_ms=info.archived_ms,
        labels=info.labels,
        last_turn_id=info.last_turn_id,
    )


def _one_of(value: str, literal: Any, otherwise: str) -> Any:
    return value if value in get_args(literal) else otherwise


def _workspace(said: str) -> str:
    if not said.startswith("/") or "\0" in said:
        return "/"
    path = os.path.normpath(said)
    return os.path.realpath(path) if os.path.isdir(path) else path


def write_files(document: ExportedSession, paths: HistoryPaths, sessions_dir: str) -> int:
    """The history and the attachments on disk, surviving power loss; the size of the history.

    Attachments whose bytes have another digest are left out: nothing may be read under a name that is not its own.
    Raises: StoreFailedError.
    """
    if document.generation is None:
        return 0
    session_id = document.session.id
    header = structs.replace(document.generation, session_id=session_id, snapshot=None)
    data = serialise(header, document.history)
    attachments = Attachments(paths, os.path.dirname(sessions_dir))
    try:
        os.close(publish(paths, session_id, sessions_dir, data, header.at_ms))
    except FileExistsError:
        try:  # of one who was killed before the rows
            os.close(replace_file(paths.messages, data, durable=True))
        except OSError as error:
            raise StoreFailedError(f"{paths.messages} could not be written: {error.strerror}") from error
    if header.generation != 1:
        manifest = {
            "format": FORMAT_VERSION,
            "sessionId": session_id,
            "createdMs": header.at_ms,
            "generation": header.generation,
        }
        replace_file(paths.manifest, _encode(manifest) + b"\n", durable=False)
    for digest, body in document.attachments.items():
        bytes_of = _bytes(body)
        if bytes_of is not None and hashlib.sha256(bytes_of).hexdigest() == digest:
            attachments.keep(bytes_of)
    return len(data)


def _bytes(body: str | None) -> bytes | None:
    try:
        return None if body is None else base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None


async def write_rows(store: Store, document: ExportedSession, history_bytes: int, redactor: Redactor) -> None:
    """All rows of a session whose files are there; written twice they are the same."""
    session_id = document.session.id

    def begin() -> None:
        export_rows.delete_usage(session_id)
        for digest, text in document.prefixes.items():
            body = text.encode()
            if hashlib.sha256(body).hexdigest() == digest:
                message_rows.put_prefix(digest, body)

    await store.write(begin)
    # Before the records: of an answer whose usage is there they write none.
    await _each(store, document.usage, lambda usage: export_rows.put_usage(session_id, usage))
    await _each(
        store,
        document.turns,
        lambda turn: export_rows.put_turn(
            session_id, turn, None if turn.result is None else _encode(turn.result)
        ),
    )
    await _each(store, document.messages, lambda message: _put_earlier(session_id, message, redactor))
    rows = RecordRows(session_id, redactor)
    for batch in _batches(document.history):
        await store.write(partial(rows.write, batch))
    info = document.session
    visibility = _one_of(info.visibility, Visibility, "visible")
    origin = info.origin if info.origin != RESTORING else "local-runtime"

    def end() -> None:
        session_rows.update_session(
            session_id, history_bytes=history_bytes, visibility=visibility, origin=origin[:64]
        )

    await store.write(end)


def _put_earlier(session_id: str, message: dict[str, Any], redactor: Redactor) -> None:
    shown = msgspec.convert({**message, "session_id": session_id}, DisplayMessage)
    message_rows.put_message(masked(shown, redactor))


async def _each(store: Store, values: Sequence[Any], put: Callable[[Any], None]) -> None:
    for batch in _batches(values):

        def transaction(batch: Sequence[Any] = batch) -> None:
            for value in batch:
                put(value)

        await store.write(transaction)


def _batches(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[start : start + _BATCH] for start in range(0, len(values), _BATCH))

"""Watching all sessions: what comes, changes and goes, from the rows that the store's triggers leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct, structs

from mcode_exec.executor.watched_store import watched
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.store import session_rows

_PAGE = 200


class Change(Struct, frozen=True, kw_only=True):
    """One line of `watch --all`."""

    kind: str
    session_id: str
    at_ms: int
    #: as it is by now; None where it is gone
    session: Session | None = None


async def watch_all(
    data_dir: str | None,
    env: Mapping[str, str],
    told: Callable[[Change | None], None],
    rest: Callable[[], None],
) -> None:
    """Tell every change of every session from now on, for good; None: some were missed."""
    redactor = Redactor(secret_values(env))
    async with watched(data_dir, env, rest, waits=True) as (source, was_there):
        assert source is not None
        seen = await source.store.read(session_rows.newest_change) if was_there else 0
        while True:
            await source.change()
            while True:
                oldest, changes = await source.store.read(partial(_changes, seen))
                if changes and oldest > seen + 1:
                    told(None)
                for number, change in changes:
                    seen = number
                    told(_masked(change, redactor))
                if len(changes) < _PAGE:
                    break


def _changes(after: int) -> tuple[int, list[tuple[int, Change]]]:
    rows = session_rows.changes_after(after, _PAGE)
    return session_rows.oldest_change(), [
        (
            number,
            Change(
                kind=kind, session_id=session_id, at_ms=at_ms, session=session_rows.find_session(session_id)
            ),
        )
        for number, session_id, kind, at_ms in rows
    ]


def _masked(change: Change, redactor: Redactor) -> Change:
    session = change.session
    if session is None:
        return change
    error = session.error_message
    words: dict[str, Any] = {
        "title": redactor.text(session.title),
        "error_message": None if error is None else redactor.text(error),
    }
    return structs.replace(change, session=structs.replace(session, **words))

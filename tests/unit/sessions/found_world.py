"""A store with sessions and messages made by hand, and its search index, for tests of finding."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from mcode_exec.clock import SystemClock
from mcode_exec.records.finding import SessionFilter
from mcode_exec.records.message import DisplayMessage, TextPart
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions import words
from mcode_exec.sessions.making import new_session
from mcode_exec.sessions.search_index import SearchIndex, searching
from mcode_exec.sessions.searching import HitPage, search
from mcode_exec.store import message_rows, session_rows
from mcode_exec.store.database import Store
from mcode_exec.store.tables import Messages, Sessions

T = TypeVar("T")
EVERYTHING = SessionFilter()


def session_of(number: int, **changes: Any) -> Session:
    """A session with a number for an id, used once, at the instant of its number."""
    made = new_session(
        project_id="p", workspace="/w", title=f"title{number}", title_is_default=False, now_ms=1_000 + number
    )
    return structs.replace(made, **{"id": f"mvs_{number:032x}", "last_turn_id": "t", **changes})


class FoundWorld:
    """An open store; every change is a transaction of its own, as a turn's are."""

    def __init__(self, store: Store) -> None:
        self.store = store
        #: what was said while searching
        self.told: list[str] = []
        self.redactor = Redactor()

    async def add_session(self, number: int, **changes: Any) -> str:
        session = session_of(number, **changes)
        await self.store.write(lambda: session_rows.insert_session(session))
        return session.id

    async def put(self, session_id: str, message_id: str, text: str, **changes: Any) -> None:
        """Add a message, or change the one that has the id."""
        values: dict[str, Any] = {"role": "assistant", "created_ms": 5_000, "turn_id": "t", **changes}
        message = DisplayMessage(
            id=message_id, session_id=session_id, parts=(TextPart(index=0, text=text),), **values
        )
        await self.store.write(lambda: message_rows.put_message(message))

    async def drop_message(self, session_id: str, message_id: str) -> None:
        where = (Messages.session_id == session_id) & (Messages.id == message_id)
        await self.store.write(lambda: Messages.delete().where(where).execute())

    async def drop_session(self, session_id: str) -> None:
        def rows() -> None:
            Messages.delete().where(Messages.session_id == session_id).execute()
            Sessions.delete().where(Sessions.id == session_id).execute()

        await self.store.write(rows)

    async def touch(self, session_id: str, **columns: Any) -> None:
        await self.store.write(lambda: session_rows.update_session(session_id, **columns))

    async def hits(self, text: str, **how: Any) -> HitPage:
        looked_for = words.parse(text, how.pop("places", ()))[0]
        asked = {"since_ms": None, "before_doc": None, "limit": 50, **how}
        wanted = asked.pop("wanted", EVERYTHING)

        async def work(index: SearchIndex) -> HitPage:
            return await search(self.store, index, wanted, looked_for, redactor=self.redactor, **asked)

        return await searching(self.store, self.redactor, self.told.append, work)

    async def found(self, text: str, **how: Any) -> list[str]:
        """Ids of the messages that are found, `title` for a title, newest first."""
        return [hit.message_id or hit.place for hit in (await self.hits(text, **how)).hits]


def in_world(directory: Path, work: Callable[[FoundWorld], Awaitable[T]]) -> T:
    """Run `work` in a store in `directory`, which is made if it is not there."""

    async def main() -> T:
        store = await Store.open(str(directory / "mcode.db"), SystemClock())
        try:
            return await work(FoundWorld(store))
        finally:
            await store.close()

    return asyncio.run(main())

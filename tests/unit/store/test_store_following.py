"""A store that is followed while others make and change it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from mcode_exec.clock import SystemClock
from mcode_exec.errors import StoreFailedError
from mcode_exec.store import session_rows
from mcode_exec.store.database import Store


def test_a_store_that_is_being_made_is_none_or_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        for number in range(10):
            path = str(tmp_path / f"{number}.db")
            assert await Store.follow(path, SystemClock()) is None
            making = asyncio.ensure_future(Store.open(path, SystemClock()))
            followed = None
            while followed is None:
                followed = await Store.follow(path, SystemClock())
            assert await followed.read(session_rows.count_sessions) == 0
            await followed.close()
            await (await making).close()

    asyncio.run(scenario())


def test_what_others_write_is_a_change_although_nobody_had_it_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "mcode.db")
        await (await Store.open(path, SystemClock())).close()
        followed = await Store.follow(path, SystemClock())
        assert followed is not None
        before = await followed.data_version()
        with sqlite3.connect(path) as other:
            other.execute("INSERT INTO session_changes (session_id, kind, at_ms) VALUES ('s', 'updated', 0)")
        other.close()
        assert await followed.data_version() != before
        assert len(await followed.read(lambda: session_rows.changes_after(0, 10))) == 1
        with pytest.raises(StoreFailedError):
            await followed.write(lambda: session_rows.update_session("s", title="x"))
        await followed.close()

    asyncio.run(scenario())


def test_an_older_schema_is_no_store_to_follow(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = str(tmp_path / "mcode.db")
        await (await Store.open(path, SystemClock())).close()
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA user_version = 1")
        other.close()
        with pytest.raises(StoreFailedError, match="older mcode"):
            await Store.follow(path, SystemClock())

    asyncio.run(scenario())

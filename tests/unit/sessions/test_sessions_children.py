"""What a child keeps of the permissions above it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from mcode_exec.clock import SystemClock
from mcode_exec.errors import SessionError
from mcode_exec.records.session import Session
from mcode_exec.sessions.children import create_ahead, inherited
from mcode_exec.sessions.making import new_session, project_of
from mcode_exec.store.database import Store


def session(**permission: Any) -> Session:
    return new_session(
        project_id="", workspace="/w", title="t", title_is_default=False, now_ms=1, permission=permission
    )


def test_the_nearest_comes_first_and_the_same_layer_once() -> None:
    root = structs.replace(session(preset="read-only"), agent="reviewer")
    child = session(rules=[["deny", "bash"]], inherited=inherited(root))
    assert inherited(root) == [{"preset": "read-only", "agent": "reviewer"}]
    assert inherited(child) == [{"rules": [["deny", "bash"]]}, {"preset": "read-only", "agent": "reviewer"}]
    grandchild = session(inherited=inherited(child))
    assert inherited(session(inherited=inherited(grandchild))) == [{}, *inherited(child)]


def test_a_parent_without_rules_still_binds_by_the_preset_that_it_has() -> None:
    assert inherited(session()) == [{}]


def test_thirty_two_levels_are_the_most(tmp_path: Path) -> None:
    async def work() -> None:
        store = await Store.open(str(tmp_path / "mcode.db"), SystemClock())
        try:
            project = project_of("/w", None, 1)
            above, _ = await create_ahead(store, project, session(), None)
            for _ in range(32):
                above, is_new = await create_ahead(store, project, session(), above.id)
                assert is_new
            with pytest.raises(SessionError, match="above it already"):
                await create_ahead(store, project, session(), above.id)
        finally:
            await store.close()

    asyncio.run(work())


def test_a_parent_that_is_gone_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        store = await Store.open(str(tmp_path / "mcode.db"), SystemClock())
        try:
            with pytest.raises(SessionError):
                await create_ahead(store, project_of("/w", None, 1), session(), "mvs_" + "0" * 32)
        finally:
            await store.close()

    asyncio.run(work())

"""Trees of sessions: each once, under what it hangs on, whatever the links say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mcode_exec.errors import SessionError
from mcode_exec.records.finding import SessionFilter
from mcode_exec.sessions import finding
from mcode_exec.sessions.family import TreeCursor, TreePage, tree_of, trees
from mcode_exec.store import session_rows
from tests.unit.sessions.found_world import FoundWorld, in_world, session_of


def name(number: int) -> str:
    return f"mvs_{number:032x}"


async def add(world: FoundWorld, number: int, **changes: Any) -> None:
    session = session_of(number, **changes)
    await world.store.write(lambda: session_rows.insert_session(session))


def shown(page: TreePage) -> list[str]:
    """`number@depth` of each."""
    return [f"{int(node.session.id[4:], 16)}@{node.depth}" for node in page.nodes]


async def whole(world: FoundWorld, number: int, **how: Any) -> TreePage:
    session = await finding.find_exact(world.store, name(number))
    return await tree_of(world.store, session, **{"after": None, "limit": 200, "shows_hidden": False, **how})


async def all_trees(world: FoundWorld, wanted: SessionFilter | None = None, **how: Any) -> TreePage:
    asked = {"after": None, "limit": 200, "shows_hidden": False, **how}
    return await trees(world.store, wanted or SessionFilter(), **asked)


def cursor(text: str) -> TreeCursor:
    activity, root, last = text.split(":")
    return TreeCursor(last_id=last, root_id=root, root_activity_ms=int(activity))


def test_a_tree_is_shown_whole_from_any_of_its_sessions(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        await add(world, 1)
        await add(world, 2, forked_from=name(1), forked_at="m")
        await add(world, 3, parent_id=name(1), session_kind="task", visibility="hidden")
        await add(world, 4, parent_id=name(3), session_kind="task", visibility="hidden")
        await add(world, 5, parent_id=name(2), forked_from=name(2), session_kind="peek", visibility="hidden")
        await add(world, 6, parent_id=name(1))
        await add(world, 7)
        for number in (1, 2, 3, 4, 5, 6):
            page = await whole(world, number)
            assert shown(page) == ["1@0", "2@1", "5@2", "3@1", "4@2", "6@1"]
            assert page.cursor is None
        relations = [node.relation for node in page.nodes]
        assert relations == ["root", "fork", "side", "sub-agent", "sub-agent", "child"]
        assert [node.has_next for node in page.nodes] == [
            (), (True,), (True, False), (True,), (True, False), (False,),
        ]  # fmt: skip
        # the newest first
        assert shown(await all_trees(world)) == ["7@0", "1@0", "2@1", "5@2", "3@1", "4@2", "6@1"]

    in_world(tmp_path, work)


def test_a_hidden_conversation_is_shown_only_where_it_was_asked_for(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        await add(world, 1)
        await add(world, 2, forked_from=name(1), visibility="hidden")
        assert shown(await whole(world, 1)) == ["1@0"]
        assert shown(await whole(world, 1, shows_hidden=True)) == ["1@0", "2@1"]

    in_world(tmp_path, work)


def test_a_session_whose_source_does_not_fit_or_is_gone_is_a_root(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        await add(world, 1, workspace="/x")
        await add(world, 2, forked_from=name(1))
        await add(world, 3, forked_from=name(99))
        await add(world, 4, workspace="/x", forked_from=name(2))
        await add(world, 5, forked_from=name(4))
        here = SessionFilter(workspace="/w")
        # 5 hangs on 4, which hangs on 2, which is a root here
        assert shown(await all_trees(world, here)) == ["3@0", "2@0", "4@1", "5@2"]
        assert shown(await whole(world, 5)) == ["1@0", "2@1", "4@2", "5@3"]

    in_world(tmp_path, work)


def test_a_circle_is_said_and_shown_once(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        await add(world, 1, parent_id=name(3))
        await add(world, 2, parent_id=name(1))
        await add(world, 3, parent_id=name(2))
        await add(world, 4, parent_id=name(2))
        await add(world, 5, parent_id=name(5))
        page = await all_trees(world)
        assert shown(page) == ["5@0", "1@0", "2@1", "3@2", "4@2"]
        assert len(page.notices) == 2
        assert all("circle" in notice for notice in page.notices)
        page = await whole(world, 3)
        assert shown(page) == ["3@0", "1@1", "2@2", "4@3"]
        assert any("circle" in notice for notice in page.notices)
        assert shown(await whole(world, 5)) == ["5@0"]

    in_world(tmp_path, work)


def test_more_than_32_levels_are_cut_with_a_word(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        await add(world, 1)
        for number in range(2, 101):
            await add(world, number, parent_id=name(number - 1))
        page = await whole(world, 1)
        assert shown(page) == [f"{number + 1}@{number}" for number in range(33)]
        assert name(33) in page.notices[0]
        page = await whole(world, 100)
        assert shown(page)[0] == "68@0"
        assert shown(page)[-1] == "100@32"
        assert any("begins at " + name(68) in notice for notice in page.notices)
        assert len((await all_trees(world)).nodes) >= 33

    in_world(tmp_path, work)


def test_a_page_that_goes_on_in_a_session_that_is_gone_says_so(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        await add(world, 1)
        for number in (2, 3, 4):
            await add(world, number, parent_id=name(1))
        page = await whole(world, 1, limit=2)
        await world.drop_session(name(2))
        assert page.cursor is not None
        with pytest.raises(SessionError, match="begin anew"):
            await whole(world, 1, limit=2, after=cursor(page.cursor))

    in_world(tmp_path, work)


@settings(max_examples=60, deadline=None)
@given(
    links=some.lists(some.tuples(some.integers(0, 11), some.booleans()), min_size=1, max_size=12),
    limit=some.integers(1, 4),
    one=some.integers(0, 11),
)
def test_every_session_is_in_the_trees_once_and_pages_are_their_parts(
    tmp_path_factory: pytest.TempPathFactory, links: list[tuple[int, bool]], limit: int, one: int
) -> None:
    """Links lead anywhere: to sessions that are not there, to themselves, round in circles."""

    async def pages(read: Any) -> list[str]:
        found: list[str] = []
        after = None
        while True:
            page = await read(after)
            found += shown(page)
            if page.cursor is None:
                return found
            assert len(page.nodes) == limit
            after = cursor(page.cursor)

    async def work(world: FoundWorld) -> None:
        for number, (to, is_fork) in enumerate(links):
            link = {"forked_from" if is_fork else "parent_id": name(to)}
            await add(world, number, **(link if to != number or to % 2 else {}))
        everything = shown(await all_trees(world))
        assert sorted(text.partition("@")[0] for text in everything) == sorted(
            str(number) for number in range(len(links))
        )
        assert await pages(lambda after: all_trees(world, limit=limit, after=after)) == everything
        number = one % len(links)
        tree = shown(await whole(world, number))
        assert f"{number}@" in " ".join(tree)
        assert await pages(lambda after: whole(world, number, limit=limit, after=after)) == tree

    in_world(tmp_path_factory.mktemp("tree"), work)

"""Lists by filters are what a look at every session gives, in order, whatever page by page they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec import structs

from mcode_exec.records.finding import SessionFilter
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions import listing, words
from mcode_exec.sessions.family import tree_of
from mcode_exec.sessions.search_index import SearchIndex, searching
from mcode_exec.store import session_rows
from mcode_exec.store.tables import Operations
from tests.unit.sessions.found_world import FoundWorld, in_world, session_of

_SESSION = some.fixed_dictionaries(
    {
        "workspace": some.sampled_from(["/a", "/b"]),
        "session_kind": some.sampled_from(["conversation", "task", "peek", "cron"]),
        "status": some.sampled_from(["idle", "error", "started"]),
        "visibility": some.sampled_from(["visible", "hidden"]),
        "archived_ms": some.sampled_from([None, None, 7]),
        "deleting_by": some.sampled_from([None, None, None, "own"]),
        "last_turn_id": some.sampled_from(["t", "t", None]),
        "labels": some.sampled_from([{}, {"k": "v"}, {"k": "w"}, {"k": "v", "l": "x"}]),
        "activity_ms": some.integers(1, 6),
        "title": some.sampled_from(["alpha", "beta", "alpha beta"]),
    }
)
_FILTER = some.builds(
    SessionFilter,
    workspace=some.sampled_from([None, "/a"]),
    kinds=some.sampled_from([(), ("task",), ("task", "peek")]),
    excluded_kinds=some.sampled_from([(), ("cron",)]),
    statuses=some.sampled_from([(), ("error",), ("idle", "deleting"), ("deleting",)]),
    is_archived=some.sampled_from([None, True, False]),
    is_hidden=some.sampled_from([None, True, False]),
    since_ms=some.sampled_from([None, 3]),
    labels=some.sampled_from([(), (("k", "v"),), (("k", "v"), ("l", "x"))]),
    is_used=some.booleans(),
)


def fits(wanted: SessionFilter, one: Session) -> bool:
    return (
        wanted.workspace in (None, one.workspace)
        and (not wanted.kinds or one.session_kind in wanted.kinds)
        and one.session_kind not in wanted.excluded_kinds
        and (not wanted.statuses or one.shown_status in wanted.statuses)
        and wanted.is_archived in (None, one.archived_ms is not None)
        and wanted.is_hidden in (None, one.visibility == "hidden")
        and (wanted.since_ms is None or one.activity_ms >= wanted.since_ms)
        and all(one.labels.get(label) == value for label, value in wanted.labels)
        and (not wanted.is_used or one.last_turn_id is not None)
    )


@settings(max_examples=60, deadline=None)
@given(
    sessions=some.lists(_SESSION, max_size=20),
    wanted=_FILTER,
    limit=some.integers(1, 5),
    few=some.sampled_from([0, 3, 200]),
    text=some.sampled_from([None, "alpha", "alpha beta", "nowhere"]),
)
def test_pages_by_filters_and_words_are_the_sessions_that_fit_in_the_order_of_activity(
    tmp_path_factory: pytest.TempPathFactory,
    sessions: list[dict[str, Any]],
    wanted: SessionFilter,
    limit: int,
    few: int,
    text: str | None,
) -> None:
    made = [session_of(number, **values) for number, values in enumerate(sessions)]
    expected = sorted(
        (
            one
            for one in made
            if fits(wanted, one) and (text is None or set(text.split()) <= set(one.title.split()))
        ),
        key=lambda one: (one.activity_ms, one.id),
        reverse=True,
    )

    async def work(world: FoundWorld) -> list[str]:
        for one in made:
            await world.store.write(lambda one=one: session_rows.insert_session(one))

        async def pages(index: SearchIndex | None) -> list[str]:
            found: list[str] = []
            before = None
            while True:
                if index is None or text is None:
                    page = await listing.page(world.store, wanted, before, limit)
                else:
                    page = await listing.page_with_words(
                        world.store, index, wanted, words.parse(text)[0], before, limit
                    )
                found += [one.id for one in page]
                if len(page) < limit:
                    return found
                before = (page[-1].activity_ms, page[-1].id)

        if text is None:
            return await pages(None)
        return await searching(world.store, Redactor(), world.told.append, pages)

    with pytest.MonkeyPatch.context() as patch:
        # each of the ways in which a list may begin
        patch.setattr(listing, "FEW_SESSIONS", few)
        patch.setattr(listing, "_FEW_LABELLED", few)
        patch.setattr(listing, "_LOOKED_INTO", 3)
        patch.setattr("mcode_exec.sessions.search_index.MANY_HITS", few)
        patch.setattr("mcode_exec.store.search_rows._HITS_TOGETHER", 1 + few % 3)
        assert in_world(tmp_path_factory.mktemp("list"), work) == [one.id for one in expected]


def test_few_sessions_are_counted_only_as_far_as_few_goes(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def work(world: FoundWorld) -> None:
        for number in range(4):
            await world.add_session(number)
        wanted = SessionFilter(workspace="/w")
        ids = await world.store.read(lambda: listing.few_ids(wanted, 4))
        assert ids is not None
        assert len(ids) == 4
        assert await world.store.read(lambda: listing.few_ids(wanted, 3)) is None
        none = structs.replace(wanted, workspace="/x")
        assert await world.store.read(lambda: listing.few_ids(none, 3)) == []
        assert await world.store.read(lambda: listing.few_ids(SessionFilter(), 3)) is None

    in_world(tmp_path_factory.mktemp("few"), work)


def test_a_session_that_is_still_being_made_is_in_no_list_and_no_tree(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        whole = await world.add_session(1)
        made = await world.add_session(2, parent_id=whole, session_kind="peek", visibility="hidden")
        await world.put(made, "m1", "half a conversation")

        def begin() -> None:
            # what is taken back of a session that is there hides nothing of it
            for one in (made, whole):
                Operations.insert(session_id=one, owner="o", phase="begun", manifest="{}").execute()

        await world.store.write(begin)
        assert [one.id for one in await listing.page(world.store, SessionFilter(), None, 10)] == [whole]
        root = (await listing.page(world.store, SessionFilter(), None, 10))[0]
        tree = await tree_of(world.store, root, after=None, limit=10, shows_hidden=True)
        assert [node.session.id for node in tree.nodes] == [whole]
        assert await world.found("half") == []
        await world.store.write(lambda: Operations.delete().where(Operations.session_id == made).execute())
        assert len(await listing.page(world.store, SessionFilter(), None, 10)) == 2
        assert await world.found("half") == ["m1"]

    in_world(tmp_path, work)

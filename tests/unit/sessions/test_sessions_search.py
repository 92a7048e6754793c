"""The search index says what the store holds, whatever has happened to either of them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec import structs

from mcode_exec.errors import StoreFailedError
from mcode_exec.records.finding import SessionFilter
from mcode_exec.records.message import (
    FilePart,
    ReasoningPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
)
from mcode_exec.redaction import Redactor
from mcode_exec.sessions import search_index
from mcode_exec.sessions.searched_text import MAX_TOOL_CHARS, texts_of
from mcode_exec.store import session_rows
from mcode_exec.store.tables import SessionChanges
from tests.unit.sessions.found_world import FoundWorld, in_world
from tests.unit.store.test_store_messages import message


def test_what_is_added_changed_and_taken_away_is_found_as_it_is_now(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        one = await world.add_session(1)
        await world.put(one, "m1", "the first words")
        await world.put(one, "m2", "other words", created_ms=6_000)
        assert await world.found("words") == ["m2", "m1"]
        await world.touch(one, status="started")
        await world.put(one, "m2", "something else", created_ms=6_000)
        await world.put(one, "m3", "new words", created_ms=7_000)
        assert await world.found("words") == ["m3", "m1"]
        assert await world.found("else") == ["m2"]
        await world.touch(one, status="idle")
        await world.drop_message(one, "m1")
        assert await world.found("words") == ["m3"]
        await world.touch(one, title="a title with words")
        assert await world.found("words") == ["m3", "title"]
        await world.drop_session(one)
        assert await world.found("words") == []

    in_world(tmp_path, work)


def test_a_message_that_changed_without_a_word_is_shown_as_it_is_or_not_at_all(tmp_path: Path) -> None:
    """Rows that no change of a session tells of (a repair) are noticed when they would be shown."""

    async def work(world: FoundWorld) -> None:
        one = await world.add_session(1)
        await world.put(one, "m1", "the words")
        await world.put(one, "m2", "the words", created_ms=6_000)
        assert await world.found("words") == ["m2", "m1"]
        await world.drop_message(one, "m1")
        await world.put(one, "m2", "now others", created_ms=6_000)
        assert await world.found("words") == []
        assert await world.found("others") == ["m2"]

    in_world(tmp_path, work)


def test_another_store_in_the_place_of_the_one_that_was_indexed_is_noticed(tmp_path: Path) -> None:
    """A backup that was put back, and went on: the same numbers, other messages."""

    async def before(world: FoundWorld) -> None:
        one = await world.add_session(1)
        await world.put(one, "m1", "shared words")

    async def first(world: FoundWorld) -> None:
        await world.put("mvs_" + f"{1:032x}", "m2", "lost words", created_ms=6_000)
        assert await world.found("words") == ["m2", "m1"]

    async def second(world: FoundWorld) -> None:
        await world.put("mvs_" + f"{1:032x}", "m2b", "restored words", created_ms=6_000)
        assert await world.found("words") == ["m2b", "m1"]
        assert await world.found("lost") == []

    in_world(tmp_path, before)
    backup = (tmp_path / "mcode.db").read_bytes()
    in_world(tmp_path, first)
    (tmp_path / "mcode.db").write_bytes(backup)
    in_world(tmp_path, second)
    # and as it was when the backup was made, without anything new
    (tmp_path / "mcode.db").write_bytes(backup)

    async def nothing_new(world: FoundWorld) -> None:
        assert await world.found("words") == ["m1"]
        assert "another store" in world.told[0]

    in_world(tmp_path, nothing_new)


def test_changes_that_are_told_no_more_are_found_by_looking_at_every_session(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        ids = [await world.add_session(number) for number in range(1, 5)]
        for one in ids:
            await world.put(one, "m", "the words")
        assert len(await world.found("words")) == 4
        for one in ids[:2]:
            await world.put(one, "m", "the others")
        await world.drop_session(ids[2])
        # as after 10,000 changes, of which only the newest are kept
        await world.store.write(lambda: SessionChanges.delete().where(SessionChanges.row > 0).execute())
        await world.store.write(
            lambda: SessionChanges.insert(row=50_000, session_id="x", kind="updated", at_ms=1).execute()
        )
        assert len(await world.found("words")) == 1
        assert len(await world.found("others")) == 2

    in_world(tmp_path, work)


#: what happens between two searches
_STEP = some.tuples(
    some.sampled_from(["add", "put", "put", "put", "drop-message", "drop-session", "rename", "search"]),
    some.integers(0, 3),
    some.integers(0, 4),
    some.sampled_from(["alpha", "beta", "alpha beta", "gamma"]),
)


@settings(max_examples=40, deadline=None)
@given(steps=some.lists(_STEP, max_size=30))
def test_whatever_happens_the_index_finds_what_a_look_at_every_text_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, str]]
) -> None:
    texts: dict[str, dict[str, str]] = {}

    async def compare(world: FoundWorld) -> None:
        for word in ("alpha", "beta", "gamma", "alpha beta"):
            page = await world.hits(word, limit=200)
            found = {(hit.session_id, hit.message_id) for hit in page.hits}
            expected = {
                (one, None if name == "title" else name)
                for one, of_session in texts.items()
                for name, text in of_session.items()
                if set(word.split()) <= set(text.split())
            }
            assert found == expected

    async def work(world: FoundWorld) -> None:
        for kind, number, place, text in steps:
            one, name = f"mvs_{number:032x}", f"m{place}"
            if kind == "add" and one not in texts:
                await world.add_session(number)
                texts[one] = {"title": f"title{number}"}
            elif kind == "put" and one in texts:
                # as the commit of a turn: it runs while its messages change
                await world.touch(one, status="started")
                await world.put(one, name, text, created_ms=5_000 + place)
                texts[one][name] = text
            elif kind == "drop-message" and name in texts.get(one, {}):
                await world.drop_message(one, name)
                del texts[one][name]
            elif kind == "drop-session" and one in texts:
                await world.drop_session(one)
                del texts[one]
            elif kind == "rename" and one in texts:
                await world.touch(one, title=text)
                texts[one]["title"] = text
            elif kind == "search":
                await compare(world)
        await compare(world)

    in_world(tmp_path_factory.mktemp("found"), work)


def test_a_large_session_is_taken_in_piece_by_piece_and_a_search_that_was_cut_short_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "BATCH_DOCS", 7)

    async def work(world: FoundWorld) -> None:
        one, two = await world.add_session(1), await world.add_session(2)
        for number in range(40):
            await world.put(one, f"m{number}", f"word{number} all", created_ms=5_000 + number)
        await world.put(two, "last", "all", created_ms=9_000)
        index = search_index.SearchIndex(world.store, Redactor(), world.told.append)
        await index.open()
        taken_in = index._take_in
        calls = 0

        def dies_in_the_third(ids: Any) -> tuple[int, int]:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise KeyboardInterrupt
            return taken_in(ids)

        index._take_in = dies_in_the_third  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            await index.refresh()
        await index.close()
        found = await world.found("all", limit=200)
        assert found == ["last", *(f"m{number}" for number in reversed(range(40)))]

    in_world(tmp_path, work)


def test_two_that_index_at_the_same_time_get_in_each_others_way_and_both_find_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "BATCH_DOCS", 5)

    async def work(world: FoundWorld) -> None:
        for number in range(1, 20):
            one = await world.add_session(number)
            for place in range(6):
                await world.put(one, f"m{place}", "all the words", created_ms=5_000 + place)
        pages = await asyncio.gather(*(world.hits("words", limit=200) for _ in range(4)))
        assert [len(page.hits) for page in pages] == [19 * 6] * 4

    in_world(tmp_path, work)


def test_messages_of_one_millisecond_are_told_apart_however_many_there_are(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        one = await world.add_session(1)
        # the second is meant for the same document as the first: its row has the same last 20 bits
        await world.put(one, "m1", "first words")
        await world.store.write(
            lambda: (
                session_rows.Messages.update(row=(1 << 20) + 1)
                .where(session_rows.Messages.row == 1)
                .execute()
            )
        )
        await world.put(one, "m2", "second words")
        await world.store.write(
            lambda: session_rows.Messages.update(row=1).where(session_rows.Messages.id == "m2").execute()
        )
        assert sorted(await world.found("words")) == ["m1", "m2"]
        await world.touch(one, status="started")
        await world.put(one, "m2", "third words")
        assert await world.found("second") == []
        assert await world.found("third") == ["m2"]
        assert await world.found("first") == ["m1"]

    in_world(tmp_path, work)


@pytest.mark.parametrize(
    "at_ms",
    [0, -5, 1 << 50, 4_102_444_800_000, 253_402_300_799_000],
    ids=["0", "negative", "absurd", "2100", "9999"],
)
def test_a_message_of_any_time_is_found(tmp_path: Path, at_ms: int) -> None:
    async def work(world: FoundWorld) -> None:
        one = await world.add_session(1)
        await world.put(one, "m1", "the words", created_ms=at_ms)
        (hit,) = (await world.hits("words")).hits
        assert (hit.message_id, hit.at_ms) == ("m1", at_ms)

    in_world(tmp_path, work)


def test_pages_of_hits_lead_through_all_of_them_once(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        for number in range(1, 8):
            one = await world.add_session(number, workspace=f"/w{number % 2}")
            for place in range(3):
                await world.put(one, f"{number}-{place}", "words", created_ms=5_000 + place * 10 + number)
        for wanted in (SessionFilter(), SessionFilter(workspace="/w1")):
            whole = await world.found("words", limit=200, wanted=wanted)
            pages: list[str] = []
            before = None
            while True:
                page = await world.hits("words", limit=2, before_doc=before, wanted=wanted)
                pages += [str(hit.message_id) for hit in page.hits]
                if page.cursor is None:
                    break
                before = int(page.cursor)
            assert pages == whole
            assert len(pages) == (21 if wanted.workspace is None else 12)

    in_world(tmp_path, work)


@pytest.mark.parametrize("few", [0, 200])
def test_filters_hold_whether_few_sessions_fit_or_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("mcode_exec.sessions.searching.FEW_SESSIONS", few)

    async def work(world: FoundWorld) -> None:
        await world.put(await world.add_session(1), "m1", "words")
        await world.put(await world.add_session(2, workspace="/x"), "m2", "words")
        await world.put(await world.add_session(3, labels={"k": "v"}), "m3", "words")
        await world.put(await world.add_session(4, status="error"), "m4", "words", created_ms=9_000)
        assert sorted(await world.found("words", wanted=SessionFilter(workspace="/w"))) == ["m1", "m3", "m4"]
        assert await world.found("words", wanted=SessionFilter(labels=(("k", "v"),))) == ["m3"]
        assert await world.found("words", wanted=SessionFilter(statuses=("error",))) == ["m4"]
        assert await world.found("words", wanted=SessionFilter(statuses=("aborted",))) == []
        assert await world.found("words", since_ms=8_000) == ["m4"]

    in_world(tmp_path, work)


# what is searched


def test_what_was_said_and_what_tools_did_is_searched_and_nothing_else(tmp_path: Path) -> None:
    said = structs.replace(
        message(1, 0),
        parts=(
            TextPart(index=0, text="answer"),
            TextPart(index=1, text="reminder", synthetic=True),
            ReasoningPart(index=2, text="thought"),
            FilePart(index=3, digest="d", mime="image/png", filename="picture.png"),
            ToolPart(
                index=4,
                call_id="c",
                tool="bash",
                state=ToolCompleted(
                    input={"command": "ls", "deep": [{"list": ["inner", 7, None, True]}]},
                    output="o" * MAX_TOOL_CHARS + "beyond",
                ),
            ),
            ToolPart(index=5, call_id="d", tool="read", state=ToolError(input={}, error="failed")),
        ),
    )
    texts = texts_of(said)
    assert texts["answer"] == "answer\npicture.png"
    assert set(texts["tool"].split()) == {"bash", "ls", "inner", "7", "o" * MAX_TOOL_CHARS, "read", "failed"}
    assert set(texts_of(structs.replace(said, role="user"))) == {"prompt", "tool"}


def test_a_title_that_was_made_of_the_prompt_is_no_hit_beside_it(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        one = await world.add_session(1, title="fix the flaky…")
        await world.put(one, "m1", "fix  the\nflaky test", role="user")
        assert await world.found("flaky") == ["m1"]
        assert await world.found("flaky", places=("title",)) == ["title"]
        assert await world.found("flaky", places=("answer",)) == []
        await world.touch(one, title="my flaky one")
        assert await world.found("flaky") == ["m1", "title"]

    in_world(tmp_path, work)


def test_secrets_are_in_no_snippet_and_not_in_the_index(tmp_path: Path) -> None:
    secret = "hunter2-correct-horse"

    async def work(world: FoundWorld) -> None:
        world.redactor = Redactor([secret])
        one = await world.add_session(1)
        await world.put(one, "m1", f"the password is {secret} you know")
        (hit,) = (await world.hits("password")).hits
        assert hit.snippet == "the password is *** you know"
        assert await world.found("hunter2") == []

    in_world(tmp_path, work)
    assert b"hunter2" not in (tmp_path / "search.db").read_bytes()


def test_a_secret_that_was_not_known_when_it_was_indexed_is_masked_whole_all_the_same(tmp_path: Path) -> None:
    secret = "hunter2-correct-horse"

    async def work(world: FoundWorld) -> None:
        one = await world.add_session(1)
        await world.put(one, "m1", f"begin {secret} end")
        assert (await world.hits("correct")).hits
        world.redactor = Redactor([secret])
        (hit,) = (await world.hits("correct")).hits
        assert hit.snippet == "begin *** end"

    in_world(tmp_path, work)


# the file


async def _one_message(world: FoundWorld) -> None:
    await world.put(await world.add_session(1), "m1", "the words")
    assert await world.found("words") == ["m1"]


async def _found_again(world: FoundWorld) -> list[str]:
    assert await world.found("words") == ["m1"]
    return world.told


def test_the_index_is_private_and_made_anew_when_it_is_gone(tmp_path: Path) -> None:
    in_world(tmp_path, _one_message)
    index = tmp_path / "search.db"
    assert stat.S_IMODE(index.stat().st_mode) == 0o600
    index.unlink()
    assert in_world(tmp_path, _found_again) == []
    assert index.exists()


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database, but long enough to be taken for one" * 100)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _overwritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(bytes(data))


def _other_version(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def _other_tables(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE docs")
    connection.close()


def _lost_words(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM found_data WHERE id > 10")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("damage", [_garbage, _cut, _overwritten, _other_version, _other_tables, _lost_words])
def test_a_damaged_index_is_made_anew_with_a_word(tmp_path: Path, damage: Any) -> None:
    in_world(tmp_path, _one_message)
    damage(tmp_path / "search.db")
    (told,) = in_world(tmp_path, _found_again)
    assert str(tmp_path / "search.db") in told
    assert "made anew" in told
    assert in_world(tmp_path, _found_again) == []


@pytest.mark.parametrize("size", [0, 100])
def test_a_file_that_is_no_index_yet_becomes_one(tmp_path: Path, size: int) -> None:
    (tmp_path / "search.db").write_bytes(b"x" * size)
    in_world(tmp_path, _one_message)


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("untouched")
    (tmp_path / "search.db").symlink_to(target)
    with pytest.raises(StoreFailedError, match="search index"):
        in_world(tmp_path, _one_message)
    assert target.read_text() == "untouched"
    (tmp_path / "search.db").unlink()
    (tmp_path / "search.db").mkdir()
    with pytest.raises(StoreFailedError, match="search index"):
        in_world(tmp_path, _found_again)


def test_who_finds_an_index_that_was_just_made_anew_does_not_discard_it(tmp_path: Path) -> None:
    async def work(world: FoundWorld) -> None:
        await _one_message(world)
        late = search_index.SearchIndex(world.store, Redactor(), world.told.append)
        await late.open()
        _first = search_index.SearchIndex(world.store, Redactor(), world.told.append)
        await _first.open()
        await _first.discard()
        assert await world.found("words") == ["m1"]
        kept = (tmp_path / "search.db").stat().st_ino
        await late.discard()
        assert (tmp_path / "search.db").stat().st_ino == kept

    in_world(tmp_path, work)


@pytest.mark.parametrize("by", ["deletion", "next search"])
def test_the_words_of_a_deleted_session_leave_the_file_with_it(tmp_path: Path, by: str) -> None:
    async def work(world: FoundWorld) -> None:
        one, two = await world.add_session(1), await world.add_session(2)
        await world.put(one, "m1", "confidentialword in a text")
        await world.put(two, "m2", "an ordinary text")
        assert await world.found("confidentialword") == ["m1"]
        await world.drop_session(one)
        if by == "deletion":
            await search_index.forget(world.store, [one])
        else:
            assert await world.found("confidentialword") == []
        assert b"onfidentialword" not in (tmp_path / "search.db").read_bytes()
        assert await world.found("text") == ["m2"]

    in_world(tmp_path, work)


def test_forgetting_makes_no_index_and_removes_one_that_fails(tmp_path: Path) -> None:
    async def none(world: FoundWorld) -> None:
        await search_index.forget(world.store, ["mvs_x"])

    in_world(tmp_path, none)
    assert not (tmp_path / "search.db").exists()
    in_world(tmp_path, _one_message)
    _garbage(tmp_path / "search.db")
    in_world(tmp_path, none)
    assert not (tmp_path / "search.db").exists()

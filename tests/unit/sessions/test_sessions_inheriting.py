"""A copy of a session's history: ids of its own, the same words for a model, the same rows for people."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from mcode_exec.errors import BusyError, SessionDeletingError, SessionError
from mcode_exec.records.history import HistoryRecord, ImageBlock, Message, TextBlock
from mcode_exec.records.message import DisplayMessage, ToolError, ToolPart
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.attachments import Attachments
from mcode_exec.sessions.history import open_history
from mcode_exec.sessions.inheriting import Copy, Source, read_source
from mcode_exec.sessions.layout import HistoryPaths, history_paths
from mcode_exec.sessions.lines import Line, parse
from mcode_exec.sessions.record_rows import finish_rows
from mcode_exec.sessions.transcript import transcript
from mcode_exec.store import message_rows, session_rows
from mcode_exec.store.message_rows import RawMessage
from tests.unit.sessions.history_records import answer, record, result, user
from tests.unit.turns.turn_world import World

COPY = "mvs_" + "c" * 32


class Sessions:
    """Sessions with histories, in a real store."""

    def __init__(self, root: Path) -> None:
        (root / "sessions").mkdir()
        self.world = World(root)
        self.root = root

    def made(self, *records: HistoryRecord, rows: int | None = None) -> Session:
        """A session with these records; `rows`: only so many of them have theirs."""
        session = self.world.session()
        history = open_history(
            self.paths(session), session.id, self.world.sessions_dir, known_bytes=0, takeover=False, now_ms=1
        )
        ends = []
        for one in records:
            history.append((one,), 1)
            ends.append(history.size)
        history.close()
        count = len(records) if rows is None else rows
        lines = [Line(one, end) for one, end in zip(records[:count], ends, strict=False)]
        self.write_rows(session.id, lines, ends[count - 1] if count else 0)
        return session

    def write_rows(self, session_id: str, lines: list[Line], size: int) -> None:
        world = self.world
        world.do(world.store.write(lambda: finish_rows(lines, session_id, size, Redactor())))

    def paths(self, session: Session) -> HistoryPaths:
        return history_paths(self.world.sessions_dir, session.history_relative_dir)

    def source(self, session: Session, at: str | None = None, *, is_running: bool = False) -> Source:
        world = self.world
        if is_running:
            self.lock(session)
        return world.do(
            read_source(world.store, world.sessions_dir, session.id, at=at, is_held=lambda _: True)
        )

    def lock(self, session: Session) -> None:
        with sqlite3.connect(self.root / "mcode.db") as store:
            store.execute(
                "INSERT INTO session_locks VALUES (?, 'turn', 'own_x', 'lease_x', 'turn_x', 1, 2, 'b', 2, 1, 'h')",
                (session.id,),
            )

    def messages(self, session_id: str) -> list[DisplayMessage]:
        world = self.world
        rows = world.do(world.store.read(lambda: message_rows.messages_after(session_id, 0, 1000)))
        return [message for _, message in rows]

    def usage(self) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.root / "mcode.db") as store:
            return store.execute("SELECT session_id, message_id FROM token_usage ORDER BY row").fetchall()

    def put(self, rows: Sequence[RawMessage], session_id: str = COPY) -> None:
        world = self.world
        world.do(world.store.write(lambda: message_rows.insert_copies(session_id, 1, rows)))


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    made = Sessions(tmp_path)
    yield made
    made.world.close()


CONVERSATION = (
    structs.replace(user(1), id="msg-user-v1-" + "1" * 64),
    answer(2, "I look", "call_1", "call_2"),
    result(3, "call_1"),
    result(4, "call_2"),
    answer(5, "done"),
)


def copied(source: Source, *notes: str) -> Copy:
    return Copy(source, COPY, notes, 7000)


def test_a_model_is_sent_the_very_same_messages(sessions: Sessions) -> None:
    source = sessions.source(sessions.made(*CONVERSATION))
    assert transcript(copied(source).records) == transcript(CONVERSATION)


def test_ids_are_the_copys_own_of_the_same_kinds_and_always_the_same(sessions: Sessions) -> None:
    source = sessions.source(sessions.made(*CONVERSATION))
    ids = [one.id for one in copied(source).records]
    assert len(set(ids)) == len(ids)
    assert not set(ids) & {one.id for one in CONVERSATION}
    assert [one.startswith("msg-user-v1-") for one in ids] == [True, False, False, False, False]
    assert ids == [one.id for one in copied(source).records]
    assert ids != [one.id for one in Copy(source, "mvs_" + "d" * 32, (), 7000).records]
    assert [one.copied_from for one in copied(source).records] == [one.id for one in CONVERSATION]
    turns = {one.turn_id for one in copied(source).records}
    assert len(turns) == 1
    assert turns != {"turn_1"}


def test_the_file_is_one_that_a_turn_can_open(sessions: Sessions) -> None:
    loaded = parse(copied(sessions.source(sessions.made(*CONVERSATION))).data, "x")
    assert loaded.header.session_id == COPY
    assert loaded.header.generation == 1
    assert loaded.header.reason == "fork"
    assert not loaded.torn_tail
    assert len(loaded.lines) == len(CONVERSATION)


def test_rows_are_those_that_the_records_make_and_nothing_is_paid_for_twice(sessions: Sessions) -> None:
    source = sessions.source(sessions.made(*CONVERSATION))
    paid = sessions.usage()
    assert len(paid) == 2
    copy = copied(source)
    sessions.put(copy.rows(Redactor()))
    carried = sessions.messages(COPY)
    other = "mvs_" + "e" * 32
    made_anew = Copy(source, other, (), 7000)
    sessions.write_rows(other, list(parse(made_anew.data, "x").lines), len(made_anew.data))
    projected = sessions.messages(other)
    assert [one.parts for one in carried] == [one.parts for one in projected]
    assert [one.usage for one in carried] == [one.usage for one in projected]
    assert [one.id for one in carried] == [one.id for one in copy.records if one.message.role != "tool"]
    assert {one.session_id for one in carried} == {COPY}
    assert [one.parent_id for one in carried] == [None, carried[0].id, carried[0].id]
    assert sessions.usage() == paid


@pytest.mark.parametrize("written", range(len(CONVERSATION) + 1))
def test_what_the_source_has_not_written_into_rows_yet_is_in_the_copys(
    sessions: Sessions, written: int
) -> None:
    """A kill between history and rows, at every record."""
    whole = copied(sessions.source(sessions.made(*CONVERSATION))).rows(Redactor())
    late = copied(sessions.source(sessions.made(*CONVERSATION, rows=written))).rows(Redactor())
    assert late == whole


def test_secrets_are_masked_in_rows_that_are_made_here(sessions: Sessions) -> None:
    said = (user(1, "the word is swordfish-9"), answer(2, "fine"))
    source = sessions.source(sessions.made(*said, rows=0))
    rows = copied(source).rows(Redactor(("swordfish-9",)))
    assert b"swordfish-9" not in b"".join(row.data for row in rows)


def test_a_running_turn_gives_its_last_whole_round_and_is_not_waited_for(sessions: Sessions) -> None:
    session = sessions.made(*CONVERSATION, user(6), answer(7, "more", "call_3"))
    source = sessions.source(session, is_running=True)
    assert source.records == CONVERSATION
    assert source.at == "msg-5"
    assert not source.is_cut_short
    with pytest.raises(BusyError):
        sessions.source(session, "msg-7")


def test_a_first_round_that_still_runs_is_a_reason_to_come_again(sessions: Sessions) -> None:
    with pytest.raises(BusyError):
        sessions.source(sessions.made(user(1)), is_running=True)


def test_calls_that_a_death_cut_short_get_results_that_say_so(sessions: Sessions) -> None:
    source = sessions.source(sessions.made(*CONVERSATION[:3]))
    assert source.is_cut_short
    copy = copied(source)
    assert [one.message.role for one in copy.records] == ["user", "assistant", "tool", "tool"]
    assert copy.records[-1].repair == "interrupted"
    message = sessions_message(copy.rows(Redactor())[-1])
    states = [part.state for part in message.parts if isinstance(part, ToolPart)]
    assert isinstance(states[1], ToolError)
    assert states[1].kind == "interrupted"
    assert copied(source).data == copy.data, "whoever goes on makes the same"


def sessions_message(row: RawMessage) -> DisplayMessage:
    import msgspec

    return msgspec.json.decode(row.data, type=DisplayMessage)


def test_notes_stand_behind_the_history_hidden_and_are_nobodys_prompt(sessions: Sessions) -> None:
    copy = copied(sessions.source(sessions.made(*CONVERSATION)), "one", "two")
    assert [one.message for one in copy.records[-2:]] == [
        Message(role="user", content=(TextBlock(text=text, synthetic=True),)) for text in ("one", "two")
    ]
    assert all(not one.id.startswith("msg-user-") for one in copy.records[-2:])
    assert [row.id for row in copy.rows(Redactor())][-2:] == [one.id for one in copy.records[-2:]]


def test_a_prompt_that_was_said_again_behind_the_cut_is_shown_as_it_stood(sessions: Sessions) -> None:
    first = structs.replace(user(3, "say it"), turn_id="turn_2")
    again = structs.replace(first, turn_id="turn_3")
    session = sessions.made(
        *CONVERSATION[:1], answer(2, "yes"), first, answer(4, "no"), again, answer(5, "ok")
    )
    taken = copied(sessions.source(session, "msg-4"))
    rows = taken.rows(Redactor())
    assert [row.turn_id for row in rows] == [
        one.turn_id for one in taken.records if one.message.role != "tool"
    ]


def test_a_message_is_named_by_a_prefix_that_only_it_has(sessions: Sessions) -> None:
    said = (
        structs.replace(user(1), id="msg-" + "ab" * 16),
        structs.replace(answer(2, "x"), id="msg-" + "ab" * 4 + "cd" * 12),
        structs.replace(answer(3, "y"), id="msg-" + "cd" * 16),
    )
    session = sessions.made(*said)
    assert sessions.source(session, "msg-cdcdcdcd").at == said[2].id
    with pytest.raises(SessionError, match="several messages"):
        sessions.source(session, "msg-abababab")
    with pytest.raises(SessionError, match="no message"):
        sessions.source(session, "msg-12345678")


def test_a_session_that_is_deleted_or_gone_is_no_source(sessions: Sessions) -> None:
    session, world = sessions.made(*CONVERSATION), sessions.world
    world.do(world.store.write(lambda: session_rows.update_session(session.id, deleting_by="own_x")))
    with pytest.raises(SessionDeletingError):
        sessions.source(session)
    Path(sessions.paths(sessions.made()).messages).unlink(missing_ok=True)
    other = sessions.made(*CONVERSATION)
    Path(sessions.paths(other).messages).unlink()
    with pytest.raises(SessionError, match="history of session"):
        sessions.source(other)


def test_attachments_and_whole_outputs_are_links_of_its_own(sessions: Sessions, tmp_path: Path) -> None:
    session = sessions.made()
    paths = sessions.paths(session)
    kept = Attachments(paths, str(tmp_path))
    digest, unused = kept.keep(b"picture"), kept.keep(b"of another turn")
    os.makedirs(paths.tool_outputs)
    for name in ("call_1.txt", "call_9.txt"):
        Path(paths.tool_outputs, name).write_text(name)
    secret = tmp_path / "elsewhere"
    secret.write_text("not ours")
    os.symlink(secret, Path(paths.attachments, "f" * 64))
    said = (
        record(
            1, "user", ImageBlock(digest=digest, mime="image/png"), ImageBlock(digest="f" * 64, mime="x/y")
        ),
        answer(2, "so", "call_1"),
        result(3, "call_1"),
    )
    history = open_history(
        paths, session.id, sessions.world.sessions_dir, known_bytes=0, takeover=False, now_ms=1
    )
    history.append(said, 1)
    history.close()
    target = history_paths(sessions.world.sessions_dir, "2026/01/02/x-" + COPY)
    copy = copied(sessions.source(session))
    for _ in range(2):  # a death in between changes nothing
        copy.take_files(target, str(tmp_path))
    assert os.listdir(target.attachments) == [digest]
    assert os.path.samefile(Path(target.attachments, digest), Path(paths.attachments, digest))
    assert os.listdir(target.tool_outputs) == ["call_1.txt"]
    assert unused not in os.listdir(target.attachments)

"""`mcode sessions search`: words in messages and titles, of what is there and of nothing that was deleted."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_delete_full_disk import fill, small_disk
from tests.promises.test_sessions_continue import change, started
from tests.promises.test_when_busy import busy_session
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say


def hits(mcode: Mcode, *args: str, **how: Any) -> list[dict[str, Any]]:
    run = mcode.run("sessions", "search", *args, "--output-format", "jsonl", **how).check()
    return [json.loads(line) for line in run.out.splitlines()]


def places(mcode: Mcode, *args: str) -> list[str]:
    return [hit["place"] for hit in hits(mcode, *args)]


def many_messages(mcode: Mcode, session: str, count: int, words: str) -> None:
    """Fill a session with messages like its first one, as a store of years has them."""
    connection = sqlite3.connect(mcode.data / "mcode.db", timeout=10)
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM messages WHERE session_id = ?", (session,)).fetchone())
    data = json.loads(row["data"])

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(count):
            name = f"msg-many-{number}"
            document = {
                **data,
                "id": name,
                "role": "assistant",
                "parts": [{"type": "text", "index": 0, "text": f"{words} {number}"}],
            }
            yield tuple(
                {
                    **row,
                    "row": None,
                    "id": name,
                    "role": "assistant",
                    "revision": 1,
                    "data": json.dumps(document).encode(),
                }.values()
            )

    with connection:
        connection.executemany(f"INSERT INTO messages VALUES ({', '.join('?' * len(row))})", rows())
    connection.close()


def test_what_was_said_answered_and_done_is_found_where_it_stands(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("Looking.") + call("bash", {"command": "echo platypus-7"}), say("The kangaroo is fine."))
    session = started(mcode, "--title", "An aardvark")
    (hit,) = hits(mcode, "kangaroo")
    assert hit["sessionId"] == session
    assert hit["title"] == "An aardvark"
    assert hit["workspace"] == str(mcode.workspace)
    assert (hit["place"], hit["role"], hit["snippet"]) == ("answer", "assistant", "The kangaroo is fine.")
    # the ids are those that `show` and `history` give
    shown = mcode.run("sessions", "show", session, "--output-format", "jsonl").check().out
    assert hit["messageId"] in shown
    assert places(mcode, "first", "words") == ["prompt"]
    assert places(mcode, "AARDVARK") == ["title"]
    assert places(mcode, "platypus") == ["tool"]
    assert places(mcode, "platypus", "--in", "answer") == []
    assert places(mcode, "kangaroo", "--in", "answer", "--in", "title") == ["answer"]
    assert places(mcode, "kanga*") == ["answer"]
    assert places(mcode, '"kangaroo is"') == ["answer"]
    assert places(mcode, '"is kangaroo"') == []
    assert places(mcode, "kangaroo", "aardvark") == []


def test_a_search_is_of_this_workspace_unless_it_is_of_all(mcode: Mcode) -> None:
    other = mcode.root / "other"
    other.mkdir()
    here, there = started(mcode), started(mcode, cwd=other)
    assert [hit["sessionId"] for hit in hits(mcode, "first")] == [here]
    assert [hit["sessionId"] for hit in hits(mcode, "first", "--cwd", str(other))] == [there]
    assert [hit["sessionId"] for hit in hits(mcode, "first", "--all")] == [there, here]
    change(mcode, "UPDATE sessions SET visibility = 'hidden', session_kind = 'task' WHERE id = ?", here)
    assert hits(mcode, "first") == []
    assert [hit["sessionId"] for hit in hits(mcode, "first", "--kind", "task")] == [here]
    nothing = mcode.run("sessions", "search", "first").check()
    assert nothing.out == ""
    assert "--all" in nothing.err


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "text",
    [
        '"',
        '""" words',
        "a OR b",
        "prompt:words",
        "NEAR(words, 2)",
        "-words",
        "words)",
        "{title}:words",
        "^words*",
        "' OR 1",
    ],
)
def test_nothing_that_is_typed_is_syntax(mcode: Mcode, text: str) -> None:
    started(mcode)
    run = mcode.run("sessions", "search", "--", text)
    assert run.code in (0, 2)
    assert "Traceback" not in run.err
    assert "SQL" not in run.err


def test_pages_lead_through_all_hits_once_while_new_ones_come(mcode: Mcode) -> None:
    session = started(mcode)
    many_messages(mcode, session, 7, "words")
    whole = [(hit["messageId"], hit["place"]) for hit in hits(mcode, "words")]
    assert len(whole) == 8
    found: list[tuple[str, str]] = []
    flags: tuple[str, ...] = ()
    while True:
        run = mcode.run(
            "sessions", "search", "words", "--limit", "3", *flags, "--output-format", "json"
        ).check()
        document = json.loads(run.out)
        found += [(hit["messageId"], hit["place"]) for hit in document["hits"]]
        if document["nextCursor"] is None:
            break
        started(mcode)
        flags = ("--before", document["nextCursor"])
    assert found == whole
    mcode.run("sessions", "search", "words", "--limit", "201").check(2)
    assert "no cursor" in mcode.run("sessions", "search", "words", "--before", "5:x").check(2).err
    assert "nothing to search for" in mcode.run("sessions", "search", "").check(2).err


def test_every_format_carries_the_same_and_nothing_acts_on_a_terminal(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("alarm \x1b[31m\u202e red \x07"))
    started(mcode)
    forms = {
        form: mcode.run("sessions", "search", "alarm", "--output-format", form).check().out
        for form in ("table", "json", "jsonl", "csv")
    }
    for form in ("table", "csv"):
        assert not set("\x1b\u202e\x07") & set(forms[form])
    (hit,) = json.loads(forms["json"])["hits"]
    assert json.loads(forms["jsonl"]) == hit
    (cells,) = csv.DictReader(io.StringIO(forms["csv"]))
    assert list(cells) == list(hit)
    assert hit["sessionId"] in forms["table"]


def test_nothing_of_a_deleted_session_is_found_nor_left_in_the_index(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("the confidentialword"), say("an ordinary answer"))
    deleted, kept = started(mcode), started(mcode)
    assert len(hits(mcode, "confidentialword")) == 1
    mcode.run("sessions", "delete", deleted).check()
    left = b"".join(path.read_bytes() for path in mcode.data.glob("search.db*"))
    assert b"onfidentialword" not in left
    assert hits(mcode, "confidentialword", "--all") == []
    assert [hit["sessionId"] for hit in hits(mcode, "first")] == [kept]


def test_what_prune_deletes_leaves_the_index_too(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("the confidentialword"))
    started(mcode)
    assert len(hits(mcode, "confidentialword")) == 1
    mcode.run("sessions", "prune", "--older-than", "1ms").check()
    left = b"".join(path.read_bytes() for path in mcode.data.glob("search.db*"))
    assert b"onfidentialword" not in left
    assert hits(mcode, "confidentialword", "--all") == []


def test_what_is_taken_back_renamed_or_moved_is_found_as_it_is_now(mcode: Mcode, peer: Peer) -> None:
    session = started(mcode, "--title", "An aardvark")
    peer.script(say("a kangaroo"))
    mcode.exec("--session", session, "a platypus").check()
    assert places(mcode, "kangaroo") == ["answer"]
    mcode.run("sessions", "rewind", session, "--to", "last").check()
    assert places(mcode, "kangaroo") == []
    assert places(mcode, "platypus") == []
    mcode.run("sessions", "rewind", session, "--undo").check()
    assert places(mcode, "kangaroo") == ["answer"]
    mcode.run("sessions", "rename", session, "A wombat").check()
    assert places(mcode, "aardvark") == []
    assert places(mcode, "wombat") == ["title"]
    mcode.run("sessions", "archive", session).check()
    assert places(mcode, "wombat") == []
    assert places(mcode, "wombat", "--archived") == ["title"]


def test_a_deletion_that_was_killed_leaves_nothing_to_find_either(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("the confidentialword"))
    session = started(mcode)
    assert len(hits(mcode, "confidentialword")) == 1
    env = {"MCODE_FAULT": "after-deletion"}
    killed = mcode.run("sessions", "delete", session, env=env)
    assert killed.code == -9
    assert hits(mcode, "confidentialword", "--all") == []
    left = b"".join(path.read_bytes() for path in mcode.data.glob("search.db*"))
    assert b"onfidentialword" not in left


def test_a_search_that_was_killed_while_it_indexed_has_lost_nothing(mcode: Mcode) -> None:
    session = started(mcode)
    many_messages(mcode, session, 30_000, "words of years")
    index = mcode.data / "search.db"
    running = mcode.start("sessions", "search", "years", "--limit", "1")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not _documents(index):
        time.sleep(0.005)
    running.process.kill()
    running.finish()
    before = _documents(index)
    assert before > 0
    (hit,) = hits(mcode, '"words of years 29999"')
    assert hit["messageId"] == "msg-many-29999"
    # a title, the prompt, its answer, and all of ours
    assert _documents(index) == 30_000 + 3
    integrity = sqlite3.connect(index).execute("PRAGMA integrity_check").fetchone()
    assert integrity == ("ok",)


def _documents(index: Path) -> int:
    if not index.exists():
        return 0
    connection = sqlite3.connect(f"file:{index}?mode=ro", uri=True)
    try:
        (count,) = connection.execute("SELECT count(*) FROM docs").fetchone()
        return int(count)
    except sqlite3.Error:
        return 0  # not made yet
    finally:
        connection.close()


def test_an_index_that_is_held_or_gone_or_broken_stops_no_turn_and_no_list(mcode: Mcode) -> None:
    session = started(mcode)
    assert len(hits(mcode, "first")) == 1
    holder = sqlite3.connect(mcode.data / "search.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    mcode.exec("--session", session, "more words").check()
    assert session in mcode.run("sessions", "list").check().out
    holder.execute("ROLLBACK")
    holder.close()
    assert len(hits(mcode, "words")) == 2
    (mcode.data / "search.db").write_bytes(b"broken" * 1_000)
    mcode.exec("--session", session, "yet more words").check()
    run = mcode.run("sessions", "search", "words", "--output-format", "jsonl").check()
    assert len(run.out.splitlines()) == 3
    assert "made anew" in run.err
    (mcode.data / "search.db").unlink()
    assert len(hits(mcode, "words")) == 3


def test_on_a_full_disk_what_was_indexed_before_is_found(mcode: Mcode, peer: Peer) -> None:
    with small_disk(mcode):
        session = started(mcode)
        fill(mcode.data / "hog")
        refused = mcode.run("sessions", "search", "first").check(74)
        assert "is full" in refused.err
        (mcode.data / "hog").unlink()
        assert len(hits(mcode, "first")) == 1
        mcode.exec("--session", session, "first of all").check()
        fill(mcode.data / "hog")
        run = mcode.run("sessions", "search", "first", "--output-format", "jsonl").check()
        assert [json.loads(line)["snippet"] for line in run.out.splitlines()] == ["first words"]
        assert "is full" in run.err
        for command in ("list", "tree", "history"):
            mcode.run("sessions", command, *([session] if command == "history" else [])).check()
        (mcode.data / "hog").unlink()
        assert len(hits(mcode, "first")) == 2


def test_a_turn_that_runs_is_searched_and_goes_on(mcode: Mcode, peer: Peer) -> None:
    session, running, gate = busy_session(mcode, peer)
    prompt = json.loads(
        mcode.run("sessions", "history", session, "--output-format", "jsonl").check().out.splitlines()[-1]
    )
    word = prompt["text"].split()[0]
    assert prompt["messageId"] in [hit["messageId"] for hit in hits(mcode, word)]
    gate.open()
    running.finish().check()


def test_secrets_are_neither_found_nor_shown_nor_in_the_index(mcode: Mcode, peer: Peer) -> None:
    secret = "hunter2-correct-horse"
    env = {"DEPLOY_TOKEN": secret}
    peer.script(say(f"the password is {secret} indeed"))
    started(mcode, env=env)
    run = mcode.run("sessions", "search", "password", env=env).check()
    assert "***" in run.out
    assert secret not in run.out
    assert hits(mcode, "horse", env=env) == []
    assert b"hunter2" not in (mcode.data / "search.db").read_bytes()


def test_the_index_is_private_and_no_target_of_a_run(mcode: Mcode) -> None:
    started(mcode)
    hits(mcode, "first")
    for path in mcode.data.glob("search.db*"):
        assert path.stat().st_mode & 0o777 == 0o600
    mcode.exec("x", "--result", mcode.data / "search.db").check(74)
    assert len(hits(mcode, "first")) == 1

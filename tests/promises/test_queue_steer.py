"""`mcode queue steer`: an item goes to the turn that runs, or is a turn of its own with all it has."""

from __future__ import annotations

import json
import signal

import pytest

from tests.promises.test_queue import add, idle_session
from tests.promises.test_when_busy import JSON, busy_session, items, prompts, stopped_waiter
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.pictures import png

OWN = [
    (("--model", "fake/other-2"), "active-model-override-unsupported"),
    (("--effort", "high"), "active-model-override-unsupported"),
    (("--fallback-model", "fake/other-2"), "active-model-override-unsupported"),
    (("--file", "p.png"), "steer-attachments-unsupported"),
]


@pytest.mark.parametrize(("flags", "code"), OWN)
def test_what_a_running_turn_cannot_take_stays_in_the_queue(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...], code: str
) -> None:
    (mcode.workspace / "p.png").write_bytes(png(2, 2))
    session, first, gate = busy_session(mcode, peer)
    item = add(mcode, session, "x", *flags)
    assert code in mcode.run("queue", "steer", item).check(4).err
    assert [row["id"] for row in items(mcode)] == [item]
    assert mcode.query("SELECT * FROM turn_signals") == []
    gate.open()
    first.finish().check()


@pytest.mark.parametrize("flags", [flags for flags, _ in OWN])
def test_on_an_idle_session_an_item_runs_with_all_it_has(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...]
) -> None:
    (mcode.workspace / "p.png").write_bytes(png(2, 2))
    session = idle_session(mcode, peer)
    item = add(mcode, session, "x", *flags)
    mcode.run("queue", "steer", item).check()
    assert prompts(mcode) == ["begin", "x"]
    assert items(mcode) == []
    if "--model" in flags:
        assert peer.last.json["model"] == "other-2"


def test_what_else_an_item_has_changes_nothing_of_a_running_turn_and_is_said(
    mcode: Mcode, peer: Peer
) -> None:
    session, first, gate = busy_session(mcode, peer)
    item = add(mcode, session, "x", "--max-steps", "2", "--timeout", "9m", "--on-ask", "deny")
    run = mcode.run("queue", "steer", item).check()
    assert "--timeout, --max-steps, --on-ask changed nothing" in run.err
    gate.open()
    first.finish().check()


def test_a_text_file_is_words_to_a_running_turn_by_either_command(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "note.txt").write_text("the note's words\n")
    session, first, gate = busy_session(mcode, peer)
    mcode.run("steer", session, "one", "--file", "note.txt", *JSON).check()
    mcode.run("queue", "steer", add(mcode, session, "two", "--file", "note.txt")).check()
    said = [row["text"] for row in mcode.query("SELECT text FROM turn_signals ORDER BY row")]
    assert said == [
        f'{words}\n\n<file name="note.txt">\nthe note\'s words\n</file>' for words in ("one", "two")
    ]
    gate.open()
    first.finish().check()


def test_the_place_of_a_process_that_waits_is_run_by_nobody_else(mcode: Mcode, peer: Peer) -> None:
    _, waiting = stopped_waiter(mcode, peer)
    refused = mcode.run("queue", "steer", items(mcode)[0]["id"]).check(75)
    assert "is the place of a process that waits" in refused.err
    waiting.send(signal.SIGCONT)
    assert waiting.finish().check().result["output"] == "echo w"


def test_a_script_is_told_what_became_of_an_item(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    item = add(mcode, session, "more")
    handed = json.loads(mcode.run("queue", "steer", item, "--output-format", "json").check().out)
    running = mcode.query("SELECT turn_id FROM turn_signals")[0]["turn_id"]
    assert handed == {
        "itemId": item,
        "sessionId": session,
        "outcome": "steered",
        "turnId": running,
        "result": None,
        "error": None,
    }
    gate.open()
    first.finish().check()
    item = add(mcode, session, "alone")
    ran = json.loads(mcode.run("queue", "steer", item, "--output-format", "json").check().out)
    assert (ran["itemId"], ran["outcome"], ran["result"]["output"]) == (item, "ran", "echo alone")

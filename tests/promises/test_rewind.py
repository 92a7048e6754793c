"""`mcode sessions rewind` takes a prompt and all after it back, in both layers, and can bring it back."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.promises.test_fork import JSON, conversation_of_two, everything_of, run_once, words
from tests.promises.test_prompt_prefix import conversation
from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import call, hang, say, status


def rewind(mcode: Mcode, session: str, *args: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(mcode.run("sessions", "rewind", session, *args, *JSON).check().out)
    return told


def prompts(mcode: Mcode, session: str) -> list[str]:
    """Ids of what people said, oldest first."""
    rows = mcode.query("SELECT id FROM messages WHERE session_id = ? AND role = 'user' ORDER BY row", session)
    return [str(row["id"]) for row in rows]


def row_of(mcode: Mcode, session: str) -> dict[str, Any]:
    (row,) = mcode.query("SELECT * FROM sessions WHERE id = ?", session)
    return row


def test_the_next_turn_goes_on_from_before_the_prompt(mcode: Mcode, peer: Peer, api: str) -> None:
    session = conversation_of_two(mcode, peer)
    first_turn = peer.calls[1]
    told = rewind(mcode, session, "--to", prompts(mcode, session)[1])
    assert told["type"] == "sessions.rewind"
    assert (told["prompt"], told["messages"], told["turns"], told["isUndo"]) == ("second prompt", 2, 1, False)
    assert words(mcode, session) == ["first prompt", "I look.", "first answer"]
    peer.script(say("another way"))
    mcode.exec("third prompt", "--session", session).check()
    assert not peer.last.violations
    assert conversation(peer.last).startswith(conversation(first_turn))
    assert "second" not in peer.last.text
    assert words(mcode, session)[-2:] == ["third prompt", "another way"]
    mcode.run("sessions", "verify", session).check()


def test_undo_brings_back_what_the_last_rewind_took(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    before, records = words(mcode, session), mcode.messages(session)
    rewind(mcode, session, "--to", prompts(mcode, session)[0][:20])
    assert words(mcode, session) == []
    assert mcode.messages(session) == []
    told = rewind(mcode, session, "--undo")
    assert (told["messages"], told["turns"], told["isUndo"]) == (5, 2, True)
    assert words(mcode, session) == before
    assert mcode.messages(session) == records
    peer.script(say("goes on"))
    mcode.exec("third", "--session", session).check()
    assert not peer.last.violations
    assert "second answer" in peer.last.text


def test_everything_can_be_taken_back_and_the_session_begins_anew(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    rewind(mcode, session, "--to", prompts(mcode, session)[0])
    peer.script(say("anew"))
    mcode.exec("begin", "--continue").check()
    assert words(mcode, session) == ["begin", "anew"]
    assert "first prompt" not in peer.last.text


def test_what_was_taken_back_is_kept_and_its_usage_stays(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    usage = mcode.run("usage", *JSON).check().out
    data = (mcode.session_dir(session) / "messages.jsonl").read_bytes()
    rewind(mcode, session, "--to", "last")
    (kept,) = (mcode.session_dir(session) / "snapshots").iterdir()
    assert kept.name.startswith("g000000000001--rwd_")
    assert kept.read_bytes() == data
    assert kept.stat().st_mode & 0o777 == 0o600
    assert mcode.run("usage", *JSON).check().out == usage
    rewind(mcode, session, "--undo")
    assert mcode.run("usage", *JSON).check().out == usage


def test_a_failed_turn_that_is_taken_back_leaves_the_session_idle(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    turn = row_of(mcode, session)["last_turn_id"]
    peer.script(status(401))
    mcode.exec("third", "--session", session).check(77)
    assert row_of(mcode, session)["status"] == "error"
    rewind(mcode, session, "--to", "last")
    row = row_of(mcode, session)
    assert (row["status"], row["error_code"], row["last_turn_id"]) == ("idle", None, turn)
    run = mcode.run("retry", session).check(4)
    assert "was taken back" in run.err


def test_words_to_a_running_turn_can_be_taken_back_and_last_is_the_prompt(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "until [ -e go ]; do sleep 0.1; done"}), say("done"))
    running = mcode.start("exec", "do it", *JSON)
    peer.wait_for(1)
    (session,) = (row["id"] for row in mcode.query("SELECT id FROM sessions"))
    mcode.run("steer", session, "and this").check()
    (mcode.workspace / "go").touch()
    running.finish().check()
    do_it, and_this = prompts(mcode, session)
    assert rewind(mcode, session, "--to", and_this)["prompt"] == "and this"
    assert prompts(mcode, session) == [do_it]
    assert rewind(mcode, session, "--undo")["prompt"] == "and this"
    assert rewind(mcode, session, "--to", "last")["prompt"] == "do it"
    assert words(mcode, session) == []


@pytest.mark.parametrize("name", ["msg-0123456789abcdef", "msg-user-v1-00000000", "first prompt", "LAST"])
def test_what_is_no_prompt_cannot_be_taken_back(mcode: Mcode, peer: Peer, name: str) -> None:
    session = conversation_of_two(mcode, peer)
    before = everything_of(mcode, session)
    run = mcode.run("sessions", "rewind", session, "--to", name).check(4)
    assert "only those can be taken back" in run.err
    assert "Traceback" not in run.err
    assert everything_of(mcode, session) == before


def test_an_answer_is_no_prompt(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    (answer, *_) = mcode.query("SELECT id FROM messages WHERE role = 'assistant' ORDER BY row")
    run = mcode.run("sessions", "rewind", session, "--to", answer["id"]).check(4)
    assert "is no message of a person" in run.err


def test_undo_is_refused_once_the_session_has_gone_on(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    run = mcode.run("sessions", "rewind", session, "--undo").check(4)
    assert "no rewind that could be undone" in run.err
    rewind(mcode, session, "--to", "last")
    peer.script(say("on"))
    mcode.exec("on", "--session", session).check()
    before = everything_of(mcode, session)
    run = mcode.run("sessions", "rewind", session, "--undo").check(4)
    assert "has gone on since" in run.err
    assert "snapshots/g000000000001--rwd_" in run.err
    assert everything_of(mcode, session) == before
    rewind(mcode, session, "--to", "last")
    rewind(mcode, session, "--undo")
    assert words(mcode, session)[-2:] == ["on", "on"]
    mcode.run("sessions", "rewind", session, "--undo").check(4)


def test_one_of_the_two_ways_is_named(mcode: Mcode) -> None:
    for args in ((), ("--undo", "--to", "last")):
        run = mcode.run("sessions", "rewind", "mvs_0123456789", *args).check(2)
        assert "name either --to MSG or --undo" in run.err


def test_a_running_session_is_not_rewound(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    peer.script(hang())
    running = mcode.start("exec", "third", "--session", session)
    peer.wait_for(4)
    for args in (("--to", "last"), ("--undo",)):
        run = mcode.run("sessions", "rewind", session, *args).check(75)
        assert "busy" in run.err
    mcode.run("sessions", "edit-last", session, "no").check(75)
    running.send(signal.SIGTERM)
    running.finish()
    assert "third" in words(mcode, session)


def test_a_fork_may_go_back_into_what_it_inherited(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    fork_id = mcode.run("sessions", "fork", session).check().out.strip()
    before = everything_of(mcode, session)
    rewind(mcode, fork_id, "--to", "last")
    assert words(mcode, fork_id) == ["first prompt", "I look.", "first answer"]
    assert everything_of(mcode, session) == before
    rewind(mcode, fork_id, "--undo")
    assert words(mcode, fork_id) == words(mcode, session)
    total = json.loads(mcode.run("usage", *JSON).check().out)["total"]
    assert total["answers"] == 3


def test_edit_last_runs_another_prompt_in_the_place_of_the_last(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    peer.script(say("edited answer"))
    run = mcode.run("sessions", "edit-last", session, "second prompt, better", *JSON).check()
    assert (run.result["sessionId"], run.result["output"]) == (session, "edited answer")
    assert words(mcode, session)[-2:] == ["second prompt, better", "edited answer"]
    assert "second answer" not in peer.last.text
    assert not peer.last.violations


def test_edit_last_takes_nothing_back_where_its_turn_cannot_begin(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    before = everything_of(mcode, session)
    mcode.run("sessions", "edit-last", session, "no", "--model", "nope/none").check(3)
    mcode.run("sessions", "edit-last", session, "").check(2)
    mcode.run("sessions", "edit-last", session, "dry", "--dry-run").check(0)
    assert everything_of(mcode, session) == before


def test_edit_last_of_a_session_without_a_prompt_is_refused(mcode: Mcode, peer: Peer) -> None:
    session = run_once(mcode, "only")
    rewind(mcode, session, "--to", "last")
    run = mcode.run("sessions", "edit-last", session, "again").check(4)
    assert "no prompt that could be taken back" in run.err


def test_edit_last_answers_a_usage_error_with_a_result(mcode: Mcode) -> None:
    run = mcode.run("sessions", "edit-last", "nope", "again", *JSON).check(2)
    assert run.result["error"]["code"] == "turn_invalid_input"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_edit_last_that_is_stopped_ends_with_its_result(
    mcode: Mcode, peer: Peer, stop: signal.Signals
) -> None:
    session = conversation_of_two(mcode, peer)
    calls = len(peer.calls)
    peer.script(hang())
    running = mcode.start("sessions", "edit-last", session, "other", *JSON)
    peer.wait_for(calls + 1)
    running.send(stop)
    run = running.finish().check(-stop)
    assert run.result["status"] == "cancelled"


def test_a_deleted_session_takes_its_snapshots_along(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    directory = mcode.session_dir(session)
    rewind(mcode, session, "--to", "last")
    mcode.run("sessions", "delete", session).check()
    assert not directory.exists()


def written(name: str, text: str) -> Any:
    return call("write", {"file_path": name, "content": text})


@pytest.mark.parametrize("is_git", [True, False])
def test_files_are_taken_back_with_their_turns_and_brought_back(
    mcode: Mcode, peer: Peer, is_git: bool
) -> None:
    if is_git:
        make_repository(mcode.workspace)
    kept, made = mcode.workspace / "kept.txt", mcode.workspace / "made.txt"
    kept.write_text("before\n")
    peer.script(
        say("begun"),
        written("made.txt", "new\n"),
        call("bash", {"command": "echo more >> kept.txt"}),
        say("done"),
    )
    session = run_once(mcode, "begin")
    mcode.exec("change", "--session", session).check()
    assert (kept.read_text(), made.read_text()) == ("before\nmore\n", "new\n")
    told = rewind(mcode, session, "--to", "last", "--files")
    assert sorted(told["files"]) == ["kept.txt", "made.txt"]
    assert told["leftFiles"] == []
    assert kept.read_text() == "before\n"
    assert not made.exists()
    told = rewind(mcode, session, "--undo")
    assert sorted(told["files"]) == ["kept.txt", "made.txt"]
    assert (kept.read_text(), made.read_text()) == ("before\nmore\n", "new\n")
    rewind(mcode, session, "--to", "last")
    assert rewind(mcode, session, "--undo")["files"] == []


def test_a_file_that_has_changed_since_refuses_it_all_unless_forced(mcode: Mcode, peer: Peer) -> None:
    one, two = mcode.workspace / "one.txt", mcode.workspace / "two.txt"
    peer.script(written("one.txt", "1\n"), written("two.txt", "2\n"), say("done"))
    session = run_once(mcode, "change")
    two.write_text("mine\n")
    before = everything_of(mcode, session)
    run = mcode.run("sessions", "rewind", session, "--to", "last", "--files").check(4)
    assert "two.txt" in run.err
    assert "one.txt" not in run.err
    assert "files_changed" in run.err
    assert everything_of(mcode, session) == before
    assert (one.read_text(), two.read_text()) == ("1\n", "mine\n")
    rewind(mcode, session, "--to", "last", "--files", "--force")
    assert not one.exists()
    assert not two.exists()


@pytest.mark.parametrize("with_files", [True, False])
def test_an_undo_touches_files_only_where_the_rewind_did(mcode: Mcode, peer: Peer, with_files: bool) -> None:
    peer.script(written("made.txt", "new\n"), say("done"))
    session = run_once(mcode, "change")
    rewind(mcode, session, "--to", "last", *(["--files"] if with_files else []))
    with closing(sqlite3.connect(mcode.data / "mcode.db")) as store, store:
        # as retention leaves it
        store.execute("UPDATE schema_migrations SET applied_ms = 0")
        store.execute("UPDATE turn_receipts SET accepted_ms = accepted_ms - 8 * 86400000")
        store.execute("DELETE FROM turn_changes")
    if with_files:
        before = everything_of(mcode, session)
        run = mcode.run("sessions", "rewind", session, "--undo").check(4)
        assert "it is kept for 7 days" in run.err
        assert everything_of(mcode, session) == before
    told = rewind(mcode, session, "--undo", *(["--force"] if with_files else []))
    assert (told["files"], len(told["leftFiles"])) == ([], int(with_files))
    assert (mcode.workspace / "made.txt").exists() is not with_files


def test_files_are_taken_back_by_whole_turns(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "until [ -e go ]; do sleep 0.1; done; echo x > made"}), say("done"))
    running = mcode.start("exec", "do it", *JSON)
    peer.wait_for(1)
    (session,) = (row["id"] for row in mcode.query("SELECT id FROM sessions"))
    mcode.run("steer", session, "and this").check()
    (mcode.workspace / "go").touch()
    running.finish().check()
    run = mcode.run("sessions", "rewind", session, "--to", prompts(mcode, session)[1], "--files").check(4)
    assert "by whole turns" in run.err
    assert (mcode.workspace / "made").exists()
    rewind(mcode, session, "--to", prompts(mcode, session)[0], "--files", "--force")
    assert not (mcode.workspace / "made").exists()

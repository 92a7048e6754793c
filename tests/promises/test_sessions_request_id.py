"""--request-id: the same request is run once, whoever asks how often."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.promises.test_recover import write
from tests.promises.test_when_busy import wait_until
from tests.support.mcode import Mcode, git, make_repository
from tests.support.peer import Peer
from tests.support.steps import Gate, call, gated, hang, say, status


def test_the_same_request_gives_the_stored_result_and_asks_no_model(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(say("the answer"))
    first = mcode.exec("x", "--request-id", "r1", "--output-format", "json").check().result
    second = mcode.exec("x", "--request-id", "r1", "--output-format", "json").check().result
    assert (first["replayed"], second["replayed"]) == (False, True)
    assert (first["output"], second["output"]) == ("the answer", "the answer")
    assert (first["sessionId"], first["turnId"]) == (second["sessionId"], second["turnId"])
    assert first["runId"] != second["runId"]
    assert len(peer.calls) == 1
    text = mcode.exec("x", "--request-id", "r1").check()
    assert text.out == "the answer\n"
    events = mcode.exec("x", "--request-id", "r1", "--output-format", "stream-json").check()
    assert events.events[-1]["type"] == "exec.completed"
    assert len(mcode.query("SELECT id FROM sessions")) == 1


def test_a_replay_of_asks_that_were_denied_exits_with_5_again(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "sudo ls"}), say("could not"))
    first = mcode.exec("x", "--request-id", "r1", "--output-format", "json").check(5)
    again = mcode.exec("x", "--request-id", "r1", "--output-format", "json").check(5)
    assert again.result["replayed"]
    assert again.result["output"] == first.result["output"] == "could not"
    assert len(peer.calls) == 2


def test_another_input_under_the_same_id_is_a_conflict(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("x", "--request-id", "r1").check()
    run = mcode.exec("other", "--request-id", "r1", "--output-format", "json").check(4)
    assert run.result["error"]["code"] == "turn_ingress_conflict"
    assert len(peer.calls) == 1
    assert len(mcode.query("SELECT id FROM sessions")) == 1
    mcode.exec("other", "--request-id", "r2").check()


def test_an_attachment_is_part_of_the_input(mcode: Mcode, peer: Peer) -> None:
    note = mcode.workspace / "note.txt"
    note.write_text("one")
    mcode.exec("x", "--file", note, "--request-id", "r1").check()
    mcode.exec("x", "--file", note, "--request-id", "r1").check()
    note.write_text("two")
    mcode.exec("x", "--file", note, "--request-id", "r1").check(4)
    assert len(peer.calls) == 1


def test_a_request_that_failed_runs_again_as_the_next_attempt_in_its_session(
    mcode: Mcode, peer: Peer
) -> None:
    peer.script(status(400, {"error": {"message": "no", "type": "invalid_request_error"}}), say("now"))
    first = mcode.exec("x", "--request-id", "r1", "--output-format", "json").check(4).result
    second = mcode.exec("x", "--request-id", "r1", "--output-format", "json").check().result
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["sessionId"] == second["sessionId"]
    assert first["turnId"] != second["turnId"]
    third = mcode.exec("x", "--request-id", "r1", "--output-format", "json").check().result
    assert (third["replayed"], third["attempt"]) == (True, 2)


def test_a_request_whose_process_was_killed_runs_again(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(hang(), say("now"))
    first = mcode.start("exec", "x", "--request-id", "r1")
    peer.wait_for(1)
    first.kill()
    first.finish()
    run = mcode.exec("x", "--request-id", "r1", "--output-format", "json").check()
    assert (run.result["attempt"], run.result["output"]) == (2, "now")
    assert mcode.query("SELECT outcome, reason FROM turn_receipts ORDER BY sequence") == [
        {"outcome": "failed", "reason": "process-restart"},
        {"outcome": "completed", "reason": None},
    ]


def test_however_many_attempts_came_to_nothing_the_model_is_asked_once(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(
        status(400, {"error": {"message": "no", "type": "invalid_request_error"}}), hang(), say("now")
    )
    mcode.exec("deploy it", "--request-id", "r1").check(4)
    killed = mcode.start("exec", "deploy it", "--request-id", "r1")
    peer.wait_for(2)
    killed.kill()
    killed.finish()
    run = mcode.exec("deploy it", "--request-id", "r1", "--output-format", "json").check()
    assert run.result["attempt"] == 3
    assert [request.body for request in peer.calls] == [peer.calls[0].body] * 3
    assert peer.last.text.count("deploy it") == 1


def test_an_attempt_after_one_that_did_something_says_so_to_the_model(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    refusal = status(400, {"error": {"message": "no", "type": "invalid_request_error"}})
    peer.script(call("bash", {"command": "echo done >> log"}), refusal, refusal, refusal, say("now"))
    mcode.exec("deploy it", "--request-id", "r1").check(4)
    assert "an earlier attempt" not in peer.last.text
    for code in (4, 4, 0):
        mcode.exec("deploy it", "--request-id", "r1").check(code)
        assert peer.last.text.count("an earlier attempt of this same request") == 1
        assert peer.last.text.count("deploy it") == 2
        assert not peer.last.violations


def test_a_request_that_is_running_is_waited_for(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("shared"), gate))
    first = mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json")
    gate.wait_reached()
    others = [mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json") for _ in range(3)]
    late = mcode.exec("x", "--request-id", "r1", "--timeout", "1s", "--output-format", "json").check(6)
    assert late.result["status"] == "timeout"
    assert all(one.process.poll() is None for one in others)
    gate.open()
    results = [one.finish().check().result for one in (first, *others)]
    assert [result["replayed"] for result in results] == [False, True, True, True]
    assert {result["output"] for result in results} == {"shared"}
    assert len(peer.calls) == 1
    assert len(mcode.query("SELECT id FROM sessions")) == 1


def test_who_waits_for_a_request_takes_it_on_when_its_process_dies(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang(), say("taken on"))
    first = mcode.start("exec", "x", "--request-id", "r1")
    peer.wait_for(1)
    second = mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json")
    time.sleep(0.6)
    first.kill()
    first.finish()
    result = second.finish().check().result
    assert (result["attempt"], result["output"], result["replayed"]) == (2, "taken on", False)


def test_a_stopped_process_is_waited_for_until_its_lease_runs_out(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang(), say("taken on"))
    first = mcode.start("exec", "x", "--request-id", "r1")
    peer.wait_for(1)
    os.kill(first.pid, signal.SIGSTOP)
    second = mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json")
    wait_until(lambda: b"request 'r1' runs already" in second.err, "nothing is told")
    assert second.process.poll() is None
    # half an hour passes
    write(mcode, "UPDATE session_locks SET expires_boot_ms = 0, expires_ms = 0")
    run = second.finish().check()
    assert (run.result["attempt"], run.result["output"]) == (2, "taken on")
    assert run.err.count("request 'r1' runs already") == 1
    os.kill(first.pid, signal.SIGCONT)
    first.finish().check(75)


def test_a_stopped_process_is_still_waited_for(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("slow"), gate))
    first = mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json")
    gate.wait_reached()
    os.kill(first.pid, signal.SIGSTOP)
    second = mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json")
    time.sleep(0.6)
    assert second.process.poll() is None
    os.kill(first.pid, signal.SIGCONT)
    gate.open()
    assert first.finish().check().result["turnId"] == second.finish().check().result["turnId"]


def test_without_a_selector_an_id_is_unique_in_its_project_with_one_in_its_session(
    mcode: Mcode, peer: Peer
) -> None:
    origin = make_repository(mcode.root / "origin")
    clone = mcode.root / "clone"
    git(mcode.root, "clone", "-q", str(origin), str(clone))

    def session_of(cwd: Path, *flags: str) -> tuple[str, bool]:
        run = mcode.exec("x", "--request-id", "r1", "--output-format", "json", *flags, cwd=cwd).check()
        return run.result["sessionId"], run.result["replayed"]

    first, replayed = session_of(origin)
    assert not replayed
    assert session_of(clone) == (first, True)
    elsewhere, replayed = session_of(mcode.workspace)
    assert (elsewhere != first, replayed) == (True, False)
    keyed, replayed = session_of(origin, "--session-key", "k")
    assert (keyed != first, replayed) == (True, False)
    assert session_of(origin, "--session-key", "k") == (keyed, True)
    assert session_of(origin, "--session", first) == (first, True)
    assert session_of(origin, "--session", keyed) == (keyed, True)
    assert session_of(origin) == (first, True)


def test_an_empty_request_id_is_a_usage_error(mcode: Mcode, peer: Peer) -> None:
    for empty in ("", "  "):
        mcode.exec("x", "--request-id", empty).check(2)
    assert peer.calls == []
    assert not (mcode.data / "mcode.db").exists() or mcode.query("SELECT id FROM sessions") == []


def test_eight_processes_with_one_new_request_run_it_once(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("once", delay_s=0.01))
    running = [mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json") for _ in range(8)]
    results = [one.finish(60).check().result for one in running]
    assert len(peer.calls) == 1
    assert sorted(result["replayed"] for result in results) == [False] + [True] * 7
    assert len(mcode.query("SELECT id FROM sessions")) == 1
    assert len({json.dumps(result["usage"]) for result in results}) == 1


def test_of_several_that_start_at_once_another_takes_over_when_the_first_dies(
    mcode: Mcode, peer: Peer
) -> None:
    peer.script(hang(), say("taken over"))
    running = [mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json") for _ in range(4)]
    peer.wait_for(1)
    (lock,) = mcode.query("SELECT pid, session_id FROM session_locks")
    (first,) = [one for one in running if one.pid == lock["pid"]]
    time.sleep(1)
    first.kill()
    results = [one.finish().check().result for one in running if one is not first]
    assert {result["output"] for result in results} == {"taken over"}
    assert sorted(result["replayed"] for result in results) == [False, True, True]
    assert {(result["attempt"], result["sessionId"]) for result in results} == {(2, lock["session_id"])}
    assert len(mcode.query("SELECT id FROM sessions")) == 1
    assert len(mcode.session_dirs()) == 1


def test_of_several_that_start_at_once_another_runs_again_when_the_first_fails(
    mcode: Mcode, peer: Peer
) -> None:
    gate = Gate()
    refused = status(400, {"error": {"message": "no", "type": "invalid_request_error"}})
    peer.script(gated(refused, gate), say("second try"))
    running = [mcode.start("exec", "x", "--request-id", "r1", "--output-format", "json") for _ in range(3)]
    gate.wait_reached()
    time.sleep(1)
    gate.open()
    runs = [one.finish() for one in running]
    assert sorted(run.code for run in runs) == [0, 0, 4]
    assert len({run.result["sessionId"] for run in runs}) == 1
    assert len(mcode.query("SELECT id FROM sessions")) == 1
    assert [message["role"] for message in mcode.messages()] == ["user", "user", "assistant"]


REFUSED = status(400, {"error": {"message": "no", "type": "invalid_request_error"}})
R1 = ("--request-id", "r1", "--output-format", "json")


def new_session(mcode: Mcode, peer: Peer) -> str:
    peer.script(say("begun"))
    session: str = mcode.exec("begin", "--output-format", "json").check().result["sessionId"]
    return session


@pytest.mark.parametrize("is_named_first", [True, False])
def test_a_run_is_found_with_its_session_s_name_and_without(
    mcode: Mcode, peer: Peer, is_named_first: bool
) -> None:
    session = new_session(mcode, peer) if is_named_first else None
    peer.script(REFUSED, say("now"))
    named = () if session is None else ("--session", session)
    first = mcode.exec("x", *R1, *named).check(4).result
    session = first["sessionId"]
    ways: tuple[tuple[str, ...], ...] = (("--session", session), (), ("--continue",))
    for way in ways:
        conflict = mcode.exec("other", *R1, *way).check(4)
        assert conflict.result["error"]["code"] == "turn_ingress_conflict"
    second = mcode.exec("x", *R1, *(ways[1] if is_named_first else ways[0])).check().result
    assert (second["attempt"], second["sessionId"], second["output"]) == (2, session, "now")
    for way in ways:
        again = mcode.exec("x", *R1, *way).check().result
        assert (again["replayed"], again["turnId"]) == (True, second["turnId"])
    assert len(mcode.query("SELECT id FROM sessions")) == 1


@pytest.mark.parametrize("is_named_first", [True, False])
def test_a_retried_request_is_found_both_ways(mcode: Mcode, peer: Peer, is_named_first: bool) -> None:
    named = ("--session", new_session(mcode, peer)) if is_named_first else ()
    peer.script(REFUSED, say("now"))
    session = mcode.exec("x", *R1, *named).check(4).result["sessionId"]
    retried = mcode.run("retry", session, "--output-format", "json").check().result
    asked = len(peer.calls)
    for way in (("--session", session), ()):
        again = mcode.exec("x", *R1, *way).check().result
        assert (again["replayed"], again["turnId"], again["attempt"]) == (True, retried["turnId"], 2)
    assert len(peer.calls) == asked


@pytest.mark.parametrize("is_named_first", [True, False])
def test_of_several_that_ask_both_ways_at_once_one_runs(
    mcode: Mcode, peer: Peer, is_named_first: bool
) -> None:
    named = ("--session", new_session(mcode, peer)) if is_named_first else ()
    peer.script(REFUSED)
    session = mcode.exec("x", *R1, *named).check(4).result["sessionId"]
    asked, gate = len(peer.calls), Gate()
    peer.script(gated(say("once"), gate))
    running = [mcode.start("exec", "x", *R1, *way) for way in (("--session", session), ()) for _ in range(2)]
    gate.wait_reached()
    time.sleep(0.5)
    gate.open()
    results = [one.finish(60).check().result for one in running]
    assert len(peer.calls) == asked + 1
    assert sorted(result["replayed"] for result in results) == [False, True, True, True]
    assert {(result["attempt"], result["sessionId"]) for result in results} == {(2, session)}
    assert len(mcode.query("SELECT id FROM sessions")) == 1


def test_a_first_attempt_that_runs_by_name_is_waited_for_without(mcode: Mcode, peer: Peer) -> None:
    session = new_session(mcode, peer)
    gate = Gate()
    peer.script(gated(say("once"), gate))
    first = mcode.start("exec", "x", *R1, "--session", session)
    gate.wait_reached()
    second = mcode.start("exec", "x", *R1)
    time.sleep(0.6)
    assert second.process.poll() is None
    gate.open()
    results = [one.finish().check().result for one in (first, second)]
    assert [(result["sessionId"], result["replayed"]) for result in results] == [
        (session, False),
        (session, True),
    ]
    assert len(mcode.query("SELECT id FROM sessions")) == 1


def test_an_id_of_two_sessions_is_the_first_one_s_for_who_names_none(mcode: Mcode, peer: Peer) -> None:
    one, two = (
        mcode.exec(key, "--session-key", key, *R1).check().result["sessionId"] for key in ("one", "two")
    )
    assert one != two
    assert mcode.exec("one", *R1).check().result["sessionId"] == one
    mcode.exec("two", *R1).check(4)
    assert mcode.exec("two", "--session", two, *R1).check().result["replayed"]


def test_the_key_of_a_steer_is_its_session_s_alone(mcode: Mcode, peer: Peer) -> None:
    session = new_session(mcode, peer)
    mcode.run("steer", session, "go on", "--idempotency-key", "r1").check()
    assert mcode.exec("x", *R1).check().result["sessionId"] != session
    again = mcode.exec("go on", *R1, "--session", session).check().result
    assert (again["replayed"], again["sessionId"]) == (True, session)

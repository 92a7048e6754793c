"""`mcode queue`: what waits, how it is changed, and who runs it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

from tests.promises.test_when_busy import busy_session, echo, items, prompts, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, forever, hang, say, status

JSON = ("--output-format", "json")


def idle_session(mcode: Mcode, peer: Peer) -> str:
    peer.script(say("begun"), forever(echo))
    session: str = mcode.exec("begin", *JSON).check().result["sessionId"]
    return session


def add(mcode: Mcode, session: str, text: str, *flags: str) -> str:
    return mcode.run("queue", "add", session, text, *flags).check().out.strip()


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def drain(mcode: Mcode, session: str, *flags: str, code: int = 0) -> list[dict[str, Any]]:
    run = mcode.run("queue", "drain", "--session", session, "--output-format", "jsonl", *flags).check(code)
    return lines(run.out)


def test_a_data_directory_without_a_store_has_nothing_that_waits(mcode: Mcode) -> None:
    run = mcode.run("queue", "list", "--all").check()
    assert "nothing waits" in run.err
    assert json.loads(mcode.run("queue", "list", "--all", *JSON).check().out)["items"] == []


def test_items_run_in_their_order_and_leave_the_queue(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    ids = [add(mcode, session, f"q{number}") for number in range(3)]
    listed = json.loads(mcode.run("queue", "list", session, *JSON).check().out)["items"]
    assert [(row["id"], row["text"], row["position"]) for row in listed] == [
        (ids[0], "q0", 1),
        (ids[1], "q1", 2),
        (ids[2], "q2", 3),
    ]
    delivered = drain(mcode, session)
    assert [(one["itemId"], one["outcome"], one["result"]["output"]) for one in delivered] == [
        (ids[number], "ran", f"echo q{number}") for number in range(3)
    ]
    assert prompts(mcode) == ["begin", "q0", "q1", "q2"]
    assert items(mcode) == []
    assert drain(mcode, session) == []
    assert "nothing waits" in mcode.run("queue", "drain", "--all").check().err


def test_the_table_says_what_waits_and_that_nobody_drains(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "later")
    run = mcode.run("queue", "list", "--all").check()
    assert item in run.out
    assert "later" in run.out
    assert f"no live process drains {session}" in run.err
    assert mcode.run("queue", "list").check(2).err


def test_items_are_moved_changed_and_taken_back(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    one, two, three = (add(mcode, session, text) for text in ("one", "two", "three"))
    mcode.run("queue", "move", three, "--to", "1").check()
    mcode.run("queue", "edit", one, "uno").check()
    mcode.run("queue", "remove", two).check()
    assert [row["output"] for row in (line["result"] for line in drain(mcode, session))] == [
        "echo three",
        "echo uno",
    ]
    gone = mcode.run("queue", "remove", two).check(4)
    assert "there is no queue item" in gone.err
    assert mcode.run("queue", "edit", one[:12], "x").check(4).err


def test_a_dedupe_key_queues_once(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    first = add(mcode, session, "x", "--dedupe-key", "k")
    assert add(mcode, session, "x", "--dedupe-key", "k") == first
    conflict = mcode.run("queue", "add", session, "other", "--dedupe-key", "k").check(4)
    assert "turn_ingress_conflict" in conflict.err
    assert len(items(mcode)) == 1


def test_a_failed_turn_holds_the_queue_and_unpause_lets_it_go(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "waits")
    refused = status(400, {"error": {"message": "no", "type": "invalid_request_error"}})
    peer.script(refused)
    failed = mcode.exec("fails", "--session", session, *JSON).check(4)
    assert "passed over: no live process drains them" in failed.err
    assert mcode.query("SELECT reason FROM queue_pauses") == [{"reason": "turn-final-failure"}]
    held = mcode.run("queue", "drain", "--session", session).check(4)
    assert "queue_paused" in held.err
    peer.script(say("direct"), forever(echo))
    direct = mcode.exec("direct", "--session", session, *JSON).check()
    assert "passed over: the queue is paused" in direct.err
    mcode.run("queue", "unpause", session).check()
    assert [line["result"]["output"] for line in drain(mcode, session)] == ["echo waits"]


def test_a_failed_item_does_not_hold_the_queue(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    for text in ("a", "b"):
        add(mcode, session, text)
    refused = status(400, {"error": {"message": "no", "type": "invalid_request_error"}})
    peer.script(refused, forever(echo))
    delivered = drain(mcode, session, code=4)
    assert [line["result"]["status"] for line in delivered] == ["failed", "succeeded"]
    assert mcode.query("SELECT * FROM queue_pauses") == []


def test_stop_on_failure_leaves_the_rest(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    for text in ("a", "b"):
        add(mcode, session, text)
    peer.script(status(400, {"error": {"message": "no", "type": "invalid_request_error"}}), forever(echo))
    assert len(drain(mcode, session, "--stop-on-failure", code=4)) == 1
    assert len(items(mcode)) == 1


def test_clearing_a_paused_queue_with_the_next_turn(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "waits")
    mcode.run("queue", "pause", session).check()
    run = mcode.exec("x", "--session", session, "--paused-queue", "clear", *JSON).check()
    assert "1 item of the paused queue taken away" in run.err
    assert items(mcode) == []
    assert mcode.query("SELECT * FROM queue_pauses") == []


def test_an_item_has_its_own_model_and_limits(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "x", "--model", "fake/other-2", "--max-steps", "1")
    peer.script(forever(call("bash", {"command": "true"})))
    (line,) = drain(mcode, session, code=7)
    assert peer.last.json["model"] == "other-2"
    assert line["result"]["limit"]["name"] == "steps"


def test_of_an_item_s_and_the_drainer_s_permissions_the_stricter_count(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    mark = mcode.workspace / "mark"
    add(mcode, session, "x", "--permission", "full")
    peer.script(call("bash", {"command": f"touch {mark}"}), say("done"))
    (line,) = drain(mcode, session, "--deny", "bash:touch *")
    assert line["result"]["permissionDenials"][0]["verdict"] == "deny"
    add(mcode, session, "x", "--deny", "bash:touch *")
    peer.script(call("bash", {"command": f"touch {mark}"}), say("done"))
    (line,) = drain(mcode, session, "--permission", "full")
    assert line["result"]["permissionDenials"][0]["verdict"] == "deny"
    assert not mark.exists()
    add(mcode, session, "x", "--permission", "full")
    peer.script(call("bash", {"command": f"touch {mark}"}), say("done"))
    drain(mcode, session, "--permission", "full")
    assert mark.exists()


def test_an_attachment_waits_with_its_item(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    session = idle_session(mcode, peer)
    note = tmp_path / "note.txt"
    note.write_text("the attached words")
    add(mcode, session, "read it", "--file", str(note))
    note.unlink()
    drain(mcode, session)
    assert "the attached words" in peer.last.text


def test_a_killed_drainer_loses_no_item_and_runs_none_twice(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "x")
    for point in ("after-claim", "after-admission", "after-opening", "before-append"):
        died = mcode.run("queue", "drain", "--session", session, env={"MCODE_FAULT": point})
        assert died.code == -signal.SIGKILL, point
        assert [row["id"] for row in items(mcode)] == [item], point
    (line,) = drain(mcode, session)
    assert line["result"]["output"] == "echo x"
    assert prompts(mcode) == ["begin", "x"]
    (row,) = mcode.query("SELECT count(*) AS n FROM turn_receipts WHERE reason = 'process-restart'")
    assert row["n"] == 3


def test_an_item_whose_prompt_stands_in_history_is_not_run_again(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "x")
    died = mcode.run("queue", "drain", "--session", session, env={"MCODE_FAULT": "after-append"})
    assert died.code == -signal.SIGKILL
    assert drain(mcode, session) == []
    assert items(mcode) == []
    assert prompts(mcode) == ["begin", "x"]


def test_following_runs_what_comes_and_a_signal_ends_it(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    following = mcode.start("queue", "drain", "--all", "--follow", "--output-format", "jsonl")
    wait_until(lambda: mcode.query("SELECT * FROM queue_drainers"), "does not stand behind the items")
    for number in range(2):
        add(mcode, session, f"q{number}")
        wait_until(lambda n=number: following.out.count(b"\n") == n + 1, "the item was not run")
    following.send(signal.SIGTERM)
    assert following.finish().code == -signal.SIGTERM
    assert [line["result"]["output"] for line in lines(following.out.decode())] == ["echo q0", "echo q1"]
    assert mcode.query("SELECT * FROM queue_drainers") == []


def test_a_signal_ends_the_item_that_runs_and_holds_the_rest(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    for text in ("a", "b"):
        add(mcode, session, text)
    peer.script(hang())
    before = len(peer.calls)
    running = mcode.start("queue", "drain", "--session", session, "--output-format", "jsonl")
    peer.wait_for(before + 1)
    running.send(signal.SIGINT)
    run = running.finish()
    assert run.code == -signal.SIGINT
    (line,) = lines(run.out)
    assert line["result"]["status"] == "cancelled"
    assert [row["state"] for row in items(mcode)] == ["queued"]
    assert mcode.query("SELECT reason FROM queue_pauses") == [{"reason": "user-stop"}]


def test_steering_an_item_hands_it_to_the_running_turn(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    item = add(mcode, session, "look here")
    run = mcode.run("queue", "steer", item).check()
    assert "was handed to turn" in run.err
    assert items(mcode) == []
    gate.open()
    first.finish().check()
    assert [row["text"] for row in mcode.query("SELECT text FROM turn_signals")] == ["look here"]


def test_steering_an_item_of_an_idle_session_runs_it_past_a_pause(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "first")
    second = add(mcode, session, "second")
    mcode.run("queue", "pause", session).check()
    run = mcode.run("queue", "steer", second).check()
    assert "echo second" in run.out
    assert prompts(mcode) == ["begin", "second"]
    assert len(items(mcode)) == 1
    assert mcode.query("SELECT reason FROM queue_pauses") == [{"reason": "user-stop"}]


def test_a_waiter_whose_item_was_steered_or_taken_back_says_so(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    ends = []
    for action, code in (("steer", 0), ("remove", 4)):
        waiting = mcode.start("exec", action, "--session", session, "--when-busy", "wait", *JSON)
        wait_until(lambda: items(mcode), "no place in line")
        mcode.run("queue", action, items(mcode)[0]["id"]).check()
        ends.append(waiting.finish().check(code).result["status"])
    assert ends == ["steered", "cancelled"]
    gate.open()
    first.finish().check()


def test_an_expired_item_is_not_run(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "x", "--expires", "100ms")
    time.sleep(0.2)
    assert drain(mcode, session) == []
    assert items(mcode) == []


def test_two_drainers_share_the_work(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    for number in range(6):
        add(mcode, session, f"q{number}")
    running = [
        mcode.start("queue", "drain", "--session", session, "--output-format", "jsonl") for _ in range(2)
    ]
    runs = [one.finish() for one in running]
    assert {run.code for run in runs} <= {0, 75}
    while items(mcode):
        drain(mcode, session)
    assert prompts(mcode) == ["begin", *(f"q{number}" for number in range(6))]

"""`mcode queue drain` where items cannot be run, or others are at work: reasons and exit codes."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.promises.test_queue import JSON, add, drain, idle_session, lines
from tests.promises.test_when_busy import busy_session, items, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.wire import CHAT


def add_foreign(mcode: Mcode, session: str, text: str) -> str:
    """An item for a model that only another configuration has."""
    other = mcode.root / "other.toml"
    other.write_text(mcode.config.read_text().replace("[providers.fake", "[providers.foreign"))
    return add(mcode, session, text, "--model", "foreign/big-1", "--config", str(other))


def _cannot_run(mcode: Mcode, why: str) -> tuple[int, str]:
    """Make items impossible to run; the exit code of a drain, and what it says."""
    text = mcode.config.read_text()
    if why == "key":
        mcode.config.write_text(text.replace("${FAKE_KEY}", "${NOT_SET}"))
        return 77, "KEY_MISSING"
    if why == "config":
        mcode.config.write_text(text + "\n[nonsense\n")
        return 3, "CONFIG_INVALID"
    if why == "model":
        mcode.config.write_text(text.replace("[providers.fake", "[providers.other"))
        return 3, "MODEL_UNKNOWN"
    if why == "agent":
        mcode.config.write_text(text.replace("[agents.helper]", "[agents.other]"))
        return 3, "there is no agent 'helper'"
    mcode.workspace.rename(mcode.workspace.with_name("gone"))
    return 4, "workspace_missing"


@pytest.mark.sample(4)
@pytest.mark.parametrize("why", ["key", "config", "model", "agent", "workspace"])
@pytest.mark.parametrize("what", ["--session", "--all"])
def test_an_item_that_cannot_be_run_here_stays_and_the_drain_ends_with_its_reason(
    mcode: Mcode, peer: Peer, why: str, what: str
) -> None:
    mcode.configure(tables='[agents.helper]\nprompt = "help"\n')
    session = idle_session(mcode, peer)
    first = add(mcode, session, "first", *(("--agent", "helper") if why == "agent" else ()))
    second = add(mcode, session, "second")
    code, reason = _cannot_run(mcode, why)
    of = (what, session) if what == "--session" else (what,)
    run = mcode.run("queue", "drain", *of, "--output-format", "jsonl", cwd=mcode.home).check(code)
    (line,) = lines(run.out)
    assert (line["itemId"], line["outcome"], line["result"]) == (first, "released", None)
    assert reason in run.err
    assert "another process" not in run.err
    assert [row["id"] for row in items(mcode)] == [first, second]
    quiet = mcode.run("queue", "drain", *of, "-q", cwd=mcode.home).check(code)
    assert quiet.err.count("mcode: error: ") == 1
    assert reason in quiet.err


def test_a_session_whose_item_cannot_be_run_holds_up_no_other(mcode: Mcode, peer: Peer) -> None:
    one, two = idle_session(mcode, peer), idle_session(mcode, peer)
    add_foreign(mcode, one, "x")
    add(mcode, two, "x")
    run = mcode.run("queue", "drain", "--all", "--output-format", "jsonl").check(3)
    assert {line["sessionId"]: line["outcome"] for line in lines(run.out)} == {one: "released", two: "ran"}


def test_who_follows_says_once_what_it_cannot_run_and_runs_it_when_it_can(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    good = mcode.config.read_text()
    mcode.config.write_text(good.replace("${FAKE_KEY}", "${NOT_SET}"))
    item = add(mcode, session, "x")
    following = mcode.start("queue", "drain", "--session", session, "--follow", "--output-format", "jsonl")
    wait_until(lambda: b"KEY_MISSING" in following.out, "the refusal is not told")
    other = add(mcode, session, "y")
    time.sleep(2.5)  # it has tried again by now
    assert following.out.count(b"\n") == 1
    assert [row["id"] for row in items(mcode)] == [item, other]
    mcode.config.write_text(good)
    wait_until(lambda: not items(mcode), "what can be run again is not run")
    following.send(signal.SIGTERM)
    assert following.finish().code == -signal.SIGTERM
    assert [line["outcome"] for line in lines(following.out.decode())] == ["released", "ran", "ran"]


def test_an_edit_lets_who_follows_try_at_once(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    item = add_foreign(mcode, session, "x")
    behind = add(mcode, session, "y")
    following = mcode.start("queue", "drain", "--all", "--follow", "--output-format", "jsonl")
    wait_until(lambda: b"released" in following.out, "the refusal is not told")
    mcode.run("queue", "move", behind, "--to", "1").check()
    wait_until(lambda: b"echo y" in following.out, "a move wakes nobody", timeout_s=8)
    mcode.run("queue", "edit", item, "z", "--model", "fake/big-1").check()
    wait_until(lambda: b"echo z" in following.out, "an edit wakes nobody", timeout_s=8)
    following.send(signal.SIGTERM)
    following.finish()


def test_exec_drain_says_what_could_not_run_even_when_quiet(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    item = add_foreign(mcode, session, "x")
    run = mcode.exec("own", "--session", session, "--drain", "-q").check(0)
    assert run.out == "echo own\n"
    assert run.err.startswith(f"mcode: error: {item} could not run here and waits on: ")
    assert "MODEL_UNKNOWN" in run.err
    assert [row["id"] for row in items(mcode)] == [item]


def test_an_item_whose_own_values_can_never_run_leaves_the_queue_with_its_reason(
    mcode: Mcode, peer: Peer
) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "x", "--effort", "max")
    mcode.configure(api=CHAT)  # which has no such level
    add(mcode, session, "y")
    first, second = drain(mcode, session, code=2)
    assert (first["itemId"], first["outcome"]) == (item, "dropped")
    assert "'max'" in first["error"]["message"]
    assert second["result"]["output"] == "echo y"


@pytest.mark.parametrize("flags", [("--allow", "bash(("), ("--permission", "off", "--deny", "bash")])
def test_flags_of_the_drainer_that_cannot_be_cost_no_item(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...]
) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "x")
    (line,) = drain(mcode, session, *flags, code=2)
    assert line["outcome"] == "released"
    assert len(items(mcode)) == 1


def test_an_item_whose_time_is_up_before_it_begins_is_a_timeout(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "x", "--timeout", "500ms")
    slow = mcode.config.read_text().replace(
        'api_key = "${FAKE_KEY}"', 'api_key_command = ["sh", "-c", "sleep 2; echo key-of-some-length"]'
    )
    mcode.config.write_text(slow)
    (line,) = drain(mcode, session, code=6)
    assert (line["outcome"], line["error"]["code"]) == ("released", "TIMEOUT")
    assert len(items(mcode)) == 1


def test_a_drain_of_all_says_what_is_paused(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "x")
    mcode.run("queue", "pause", session).check()
    for of in (("--all",), ("--session", session)):
        run = mcode.run("queue", "drain", *of).check(4)
        assert f"the queue of {session} is paused" in run.err
        assert "nothing waits" not in run.err


def test_a_drain_beside_a_running_turn_says_who_is_at_work(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    add(mcode, session, "x")
    run = mcode.run("queue", "drain", "--all", "--output-format", "jsonl").check(75)
    assert run.out == ""
    assert "has run since" in run.err
    assert "session_busy" in run.err
    gate.open()
    first.finish().check()


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["timeout", "kill"])
def test_who_follows_comes_back_to_a_session_that_its_turn_has_left_without_a_wake(
    mcode: Mcode, peer: Peer, how: str
) -> None:
    session, first, gate = busy_session(mcode, peer, *(("--timeout", "3s") if how == "timeout" else ()))
    add(mcode, session, "x")
    following = mcode.start("queue", "drain", "--all", "--follow", "--output-format", "jsonl")
    wait_until(lambda: mcode.query("SELECT * FROM queue_drainers"), "does not stand behind the items")
    if how == "kill":
        first.kill()
    else:
        first.finish().check(6)
    gate.open()
    wait_until(lambda: b"echo x" in following.out, "the item was left lying", timeout_s=25)
    following.send(signal.SIGTERM)
    following.finish()


def test_a_waiter_behind_an_item_that_it_cannot_run_says_so_and_does_not_claim_it_all_the_time(
    mcode: Mcode, peer: Peer
) -> None:
    session, first, gate = busy_session(mcode, peer)
    item = add_foreign(mcode, session, "ahead")
    waiting = [
        mcode.start("exec", text, "--session", session, "--when-busy", "wait", *JSON) for text in ("v", "w")
    ]
    wait_until(lambda: len(items(mcode)) == 3, "no place in line")
    gate.open()
    first.finish().check()
    for one in waiting:
        wait_until(lambda w=one: b"stands ahead and cannot run here" in w.err, "nothing is said of it")
    (before,) = mcode.query("SELECT counter FROM queue_wakes")
    time.sleep(4)
    (after,) = mcode.query("SELECT counter FROM queue_wakes")
    assert (
        after["counter"] - before["counter"] <= 6
    )  # two each, after 1 s and 2 s, and one that was under way
    assert items(mcode)[0]["id"] == item
    mcode.run("queue", "remove", item).check()
    runs = [one.finish().check() for one in waiting]
    assert {run.result["output"] for run in runs} == {"echo v", "echo w"}
    for run in runs:
        assert run.err.count("stands ahead and cannot run here") == 1
        assert item in run.err
        assert run.err.count("which stands ahead") == 1


def test_a_waiter_that_gives_up_says_what_stood_ahead(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    item = add_foreign(mcode, session, "ahead")
    flags = ("--session", session, "--when-busy", "wait", "--wait-timeout", "4s", *JSON)
    waiting = mcode.start("exec", "w", *flags)
    wait_until(lambda: len(items(mcode)) == 2, "no place in line")
    gate.open()
    first.finish().check()
    error = waiting.finish().check(75).result["error"]
    assert error["code"] == "session_has_queued_messages"
    assert f"{item} stands ahead and cannot run here" in error["message"]


def test_an_item_ahead_of_a_waiter_is_not_said_to_be_left_lying(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    add(mcode, session, "ahead")
    waiting = mcode.start("exec", "w", "--session", session, "--when-busy", "wait", *JSON)
    wait_until(lambda: len(items(mcode)) == 2, "no place in line")
    assert "no live process" not in mcode.run("queue", "list", session).check().err
    behind = add(mcode, session, "behind")
    run = mcode.run("queue", "list", session, *JSON).check()
    assert [(row["id"] == behind, row["drained"]) for row in _rows(run.out)] == [
        (False, True),
        (False, True),
        (True, False),
    ]
    assert f"no live process drains {session}" in mcode.run("queue", "list", session).check().err
    gate.open()
    first.finish().check()
    waiting.finish().check()


def _rows(out: str) -> list[dict[str, Any]]:
    import json

    rows: list[dict[str, Any]] = json.loads(out)["items"]
    return rows

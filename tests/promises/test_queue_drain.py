"""`mcode queue drain`: items that cannot run here, and a stdout that takes nothing."""

from __future__ import annotations

import json
import os

import pytest

from tests.promises.test_queue import JSON, add, drain, idle_session
from tests.promises.test_when_busy import items, prompts, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer

SPARE = '[providers.spare]\napi = "openai-completions"\nbase_url = "{url}"\napi_key = "${{FAKE_KEY}}"\n'
NO_KEY = {"FAKE_KEY": None}


@pytest.mark.parametrize("which", ["--session", "--all"])
def test_an_item_that_cannot_run_here_waits_on_and_the_exit_code_says_why(
    mcode: Mcode, peer: Peer, which: str
) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "later")
    named = (which, session) if which == "--session" else (which,)
    run = mcode.run("queue", "drain", *named, "--output-format", "jsonl", env=NO_KEY).check(77)
    (line,) = [json.loads(one) for one in run.out.splitlines()]
    assert (line["itemId"], line["outcome"], line["error"]["code"]) == (item, "released", "KEY_MISSING")
    assert f"items of session {session} are left: the next one cannot run here" in run.err
    assert "at work" not in run.err
    config = mcode.config.read_text()
    mcode.config.write_text("[providers\n")
    mcode.run("queue", "drain", *named).check(3)
    mcode.config.write_text(config)
    mcode.workspace.rename(mcode.workspace.with_name("moved"))
    gone = mcode.run("queue", "drain", *named, cwd=mcode.root).check(4)
    assert "the next one cannot run here" in gone.err
    mcode.workspace.with_name("moved").rename(mcode.workspace)
    assert [one["outcome"] for one in drain(mcode, session)] == ["ran"]


def test_one_session_that_cannot_run_holds_up_no_other(mcode: Mcode, peer: Peer) -> None:
    first = idle_session(mcode, peer)
    second = mcode.exec("begin", *JSON).check().result["sessionId"]
    mcode.configure(tables=SPARE.format(url=peer.url))
    add(mcode, first, "one", "--model", "spare/m")
    add(mcode, second, "two")
    mcode.configure(tables="")
    run = mcode.run("queue", "drain", "--all", "--output-format", "jsonl").check(3)
    outcomes = {json.loads(one)["sessionId"]: json.loads(one)["outcome"] for one in run.out.splitlines()}
    assert outcomes == {first: "released", second: "ran"}


def test_all_of_it_paused_is_said(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "later")
    mcode.run("queue", "pause", session).check()
    run = mcode.run("queue", "drain", "--all").check(4)
    assert "queue_paused" in run.err
    assert f"mcode queue unpause {session}" in run.err


def test_a_drain_that_follows_notices_an_item_that_was_changed(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    mcode.configure(tables=SPARE.format(url=peer.url))
    item = add(mcode, session, "later", "--model", "spare/m")
    mcode.configure(tables="")
    drainer = mcode.start("queue", "drain", "--all", "--follow")
    wait_until(lambda: item.encode() in drainer.err, "it is tried")
    mcode.configure(tables=SPARE.format(url=peer.url))
    mcode.run("queue", "edit", item, "changed").check()
    wait_until(lambda: not items(mcode), "it is run")
    drainer.send(15)
    drainer.finish()
    assert prompts(mcode)[-1] == "changed"


def test_who_waits_behind_an_item_that_cannot_run_tries_it_once(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    mcode.configure(tables=SPARE.format(url=peer.url))
    item = add(mcode, session, "later", "--model", "spare/m")
    mcode.configure(tables="")
    drainer = mcode.start("queue", "drain", "--session", session, "--follow")
    wait_until(lambda: item.encode() in drainer.err, "it is tried")
    wait = ("--session", session, "--when-busy", "wait")
    run = mcode.exec("now", *wait, "--wait-timeout", "2s").check(75)
    assert run.err.count(f"running {item}") == 1
    assert f"{item} stands ahead and cannot run here: " in run.err
    waiter = mcode.start("exec", "now", *wait)
    wait_until(lambda: b"waiting until it is changed" in waiter.err, "it is tried")
    mcode.run("queue", "remove", item).check()
    waiter.finish().check()
    drainer.send(15)
    drainer.finish()
    assert prompts(mcode)[-1] == "now"


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_with_stdout_closed_nothing_is_begun(mcode: Mcode, peer: Peer, follow: tuple[str, ...]) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "later")
    read, write = os.pipe()
    os.close(read)
    run = mcode.start("queue", "drain", "--session", session, *follow, stdout=write)
    os.close(write)
    run.finish().check(141)
    assert b"Traceback" not in run.err
    assert len(items(mcode)) == 1


def test_a_full_disk_under_stdout_is_74(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "later")
    with open("/dev/full", "wb") as full:
        run = mcode.start("queue", "drain", "--session", session, stdout=full).finish().check(74)
    assert "stdout: cannot write the result: No space left on device" in run.err

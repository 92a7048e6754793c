"""`mcode abort` that comes before its turn: what is named is stopped when it comes, what nobody knows goes on."""

from __future__ import annotations

import json

from tests.promises.test_abort import JSON, abort
from tests.promises.test_recover import write
from tests.promises.test_when_busy import echo, items, prompts, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import forever

LATER = "turn_00000000-0000-4000-8000-000000000001"


def begun(mcode: Mcode, peer: Peer) -> str:
    peer.script(forever(echo))
    session: str = mcode.exec("begin", *JSON).check().result["sessionId"]
    return session


def test_a_turn_that_is_named_before_it_is_submitted_never_starts(mcode: Mcode, peer: Peer) -> None:
    session = begun(mcode, peer)
    assert abort(mcode, session, "--turn", LATER)["outcome"] == "not-running"
    told = mcode.run("abort", session, "--turn", LATER).check()
    assert "it is stopped before it starts" in told.err
    mcode.run("queue", "add", session, "q").check()
    write(mcode, "UPDATE queue_items SET turn_id = ?", LATER)
    asked = len(peer.calls)
    run = mcode.run("queue", "drain", "--session", session, "--output-format", "jsonl").check(4)
    (line,) = [json.loads(one) for one in run.out.splitlines()]
    assert line["outcome"] == "dropped"
    assert items(mcode) == []
    assert len(peer.calls) == asked
    assert prompts(mcode) == ["begin"]


def test_a_process_that_only_prepares_its_turn_is_known_to_nobody_and_goes_on(
    mcode: Mcode, peer: Peer
) -> None:
    session = begun(mcode, peer)
    began, go, slow = mcode.root / "began", mcode.root / "go", mcode.root / "key.sh"
    slow.write_text(
        f"#!/bin/sh\ntouch {began}\nuntil [ -e {go} ]; do sleep 0.02; done\necho fake-key-0123456789abcdef\n"
    )
    slow.chmod(0o700)
    config = mcode.config.read_text()
    mcode.config.write_text(config.replace('api_key = "${FAKE_KEY}"', f'api_key_command = ["{slow}"]'))
    running = mcode.start("exec", "next", "--session", session, *JSON)
    wait_until(began.exists, "the key was not asked for")
    run = mcode.run("abort", session).check()
    assert run.out == "not-running\n"
    assert "what is not submitted yet hears nothing of this" in run.err
    go.touch()
    assert running.finish().check().result["output"] == "echo next"

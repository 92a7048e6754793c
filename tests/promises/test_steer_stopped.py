"""Words for a turn that is stopped around an answer that calls: history stays a conversation."""

from __future__ import annotations

import signal
import time

import pytest

from tests.promises.test_when_busy import wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, call, gated

JSON = ("--output-format", "json")


@pytest.mark.sample(5)
@pytest.mark.parametrize("delay_ms", [0, 1, 2, 3, 4, 5, 6, 8, 10, 15])
def test_a_call_has_its_result_before_what_was_said(mcode: Mcode, peer: Peer, delay_ms: int) -> None:
    gate = Gate()
    peer.script(gated(call("bash", {"command": "sleep 20"}), gate))
    running = mcode.start("exec", "begin", *JSON, "--permission", "off")
    gate.wait_reached()
    wait_until(lambda: mcode.query("SELECT id FROM messages"), "the prompt's rows are not written")
    session = mcode.query("SELECT id FROM sessions")[0]["id"]
    mcode.run("steer", session, "one more thing").check()
    gate.open()
    time.sleep(delay_ms / 1000)
    running.send(signal.SIGTERM)
    running.finish().check(-signal.SIGTERM)
    blocks = [block for message in mcode.messages(session) for block in message["content"]]
    kinds = [block["type"] for block in blocks]
    assert kinds in (["text", "text"], ["text", "tool_call", "tool_result", "text"])
    assert blocks[-1]["text"] == "one more thing"

"""One connection for all steps of a run, whatever the format; a peer that closes between steps costs no retry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say

STEPS = [call("glob", {"pattern": f"*{number}"}) for number in range(4)]
STREAM = ("--output-format", "stream-json")


def test_all_steps_of_a_run_use_one_connection(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(*STEPS, say("done"))
    run = mcode.exec("go", *STREAM).check()
    assert [request.connection for request in peer.calls] == [1] * 5
    assert run.result["retries"] == 0


@pytest.fixture
def closing() -> Iterator[Peer]:
    with Peer(*STEPS, say("done"), strict=True, keep_alive=False) as server:
        yield server


def test_a_connection_that_the_peer_closes_between_steps_is_no_retry(
    mcode: Mcode, closing: Peer, api: str
) -> None:
    mcode.configure(base_url=closing.url)
    run = mcode.exec("go", *STREAM).check()
    assert [request.connection for request in closing.calls] == [1, 2, 3, 4, 5]
    assert (run.result["retries"], run.of_type("llm.retry")) == (0, [])

"""Memory that runs out is an ending like any other: one result, a session that goes on."""

from __future__ import annotations

import shutil

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say


@pytest.fixture
def limited(mcode: Mcode) -> Mcode:
    """mcode with little more address space than it needs for a hello."""
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit here")
    # glibc sets 64 MiB of address space aside for each thread that happens to allocate beside another
    arenas = ("env", "MALLOC_ARENA_MAX=1")
    mcode.command = [*arenas, "prlimit", f"--as={260 << 20}", *mcode.command]
    mcode.exec("hello").check()
    return mcode


def test_a_tool_that_runs_out_of_memory_is_a_result_for_the_model(limited: Mcode, peer: Peer) -> None:
    with open(limited.workspace / "large.txt", "wb") as large:
        large.truncate(3 << 30)
    peer.script(
        call("edit", {"file_path": "large.txt", "old_string": "x", "new_string": "y"}),
        say("I see"),
    )
    run = limited.exec("go", "--output-format", "json").check()
    assert (run.result["output"], run.result["toolErrors"]) == ("I see", 1)


def test_an_answer_that_does_not_fit_into_memory_leaves_a_session_that_goes_on(
    limited: Mcode, peer: Peer
) -> None:
    peer.script(say("x" * 40_000_000, piece=4_000_000))
    run = limited.exec("go", "--session-key", "k", "--output-format", "json")
    assert run.code != 0
    # below Python an allocation that fails may end the process; else there is one result
    if run.code > 0:
        assert run.result["exitCode"] == run.code
        assert "Traceback" not in run.err
    peer.script(say("fine"))
    again = limited.exec("on", "--session-key", "k", "--output-format", "json").check()
    assert again.result["output"] == "fine"

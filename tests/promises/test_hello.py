"""The main job, whole: one command runs a turn, stores it, and says truthfully how it ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say


def test_a_hello_answers_on_stdout_and_names_its_session_on_stderr(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(say("Hello there"))
    run = mcode.run("exec", "say hi")
    assert (run.code, run.out) == (0, "Hello there\n")
    assert "mcode exec --session mvs_" in run.err
    assert all(line.startswith("mcode: ") for line in run.err.splitlines())


def test_the_command_to_go_on_with_is_one_that_works_from_here(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("one"))
    script = shutil.which("mcode", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if script is None:
        pytest.skip("mcode is not installed as a program here")
    hints = {}
    for path in (f"{Path(script).parent}:/usr/bin:/bin", "/usr/bin:/bin"):
        env = mcode.environment({"PATH": path})
        done = subprocess.run(
            [script, "exec", "x"], cwd=mcode.workspace, env=env, capture_output=True, text=True, check=True
        )
        hints[path] = done.stderr.splitlines()[-1].partition("continue with: ")[2].split()[0]
    assert list(hints.values()) == ["mcode", script]


def test_a_turn_with_a_tool_ends_with_one_result_that_is_true(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(call("bash", {"command": "echo hi"}), say("done"))
    run = mcode.run("exec", "go", "--output-format", "json")
    assert run.code == 0
    result = run.result
    assert result["status"] == "succeeded"
    assert result["output"] == "done"
    assert (result["steps"], result["toolCalls"], result["toolErrors"]) == (2, 1, 0)


def test_a_session_goes_on_with_what_was_said_before(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(call("bash", {"command": "echo tool-ran"}), say("answer-uno"), say("two"))
    mcode.run("exec", "prompt-prima")
    run = mcode.run("exec", "--continue", "prompt-secunda", "--output-format", "json")
    assert run.result["output"] == "two"
    last = peer.requests[-1].text
    assert (
        last.index("prompt-prima")
        < last.index("echo tool-ran")
        < last.index("answer-uno")
        < last.index("prompt-secunda")
    )

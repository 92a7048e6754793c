"""A real bug fix: a failing suite that the model's edits make green, over each wire format."""

from __future__ import annotations

import subprocess
import sys

from tests.support.bugfix import ANSWER, PROMPT, STEPS, bugfix_script, copy_workspace
from tests.support.mcode import Mcode, git
from tests.support.peer import Peer


def _suite(mcode: Mcode) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    env = {**mcode.environment(), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""}
    return subprocess.run(command, cwd=mcode.workspace, env=env, capture_output=True, text=True, timeout=60)


def test_a_failing_suite_is_made_green(mcode: Mcode, peer: Peer, api: str) -> None:
    copy_workspace("rota", mcode.workspace)
    peer.script(*bugfix_script())
    run = mcode.exec(
        PROMPT, "--output-format", "stream-json", env={"PYTHONPATH": mcode.environment().get("PYTHONPATH")}
    )
    run.check()
    result = run.result
    assert result["output"] == ANSWER
    assert result["steps"] == STEPS
    assert [one["tool"] for one in result["toolFailures"]] == ["bash"], "the first run of the tests was red"
    assert result["permissionDenials"] == []
    after = _suite(mcode)
    assert after.returncode == 0, after.stdout
    assert git(mcode.workspace, "diff", "--name-only") == "rota/shifts.py"
    outputs = [
        event["item"]["toolCall"]
        for event in run.of_type("item.completed")
        if event["item"]["type"] == "tool_call" and event["item"]["toolCall"]["name"] == "bash"
    ]
    assert "failed" in str(outputs[0]["error"])
    assert "7 passed" in outputs[1]["output"]
    # the session goes on and still knows what was done
    peer.script(lambda request: ANSWER if "7 passed" in request.text else "forgotten")
    assert mcode.exec("And now?", "--continue").check().out == ANSWER + "\n"

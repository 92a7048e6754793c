"""The bug of the workspace is real, and the script's edits repair it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.bugfix import STEPS, bugfix_script, copy_workspace
from tests.support.mcode import git
from tests.support.steps import Answer, Call


def suite(directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=directory, capture_output=True, text=True
    )
    return done.stdout.strip().splitlines()[-1]


def test_the_edits_of_the_script_make_the_failing_suite_pass(tmp_path: Path) -> None:
    directory = copy_workspace("rota", tmp_path / "rota")
    assert "3 failed, 4 passed" in suite(directory)
    script = bugfix_script()
    assert len(script) == STEPS
    for step in script:
        for part in step.parts if isinstance(step, Answer) else ():
            if isinstance(part, Call) and part.name == "edit":
                assert isinstance(part.arguments, dict)
                path = directory / part.arguments["file_path"]
                text = path.read_text()
                assert text.count(part.arguments["old_string"]) == 1
                path.write_text(text.replace(part.arguments["old_string"], part.arguments["new_string"]))
    assert "7 passed" in suite(directory)
    assert git(directory, "status", "--porcelain") == "M rota/shifts.py"

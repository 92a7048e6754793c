"""A run of a real bug fix: the steps by which a model repairs the workspace `rota`, and that workspace."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tests.support.mcode import REPOSITORY, make_repository
from tests.support.steps import Answer, Step, call, say, think

PROMPT = "The tests fail. Find out why and fix it."
ANSWER = "Fixed: night shifts end on the next day, and a shift inside a longer one no longer cuts it off."
STILL_RED = "The tests still fail."

_NIGHT_BEFORE = """\
    start, _, end = text.partition("-")
    return minutes(start), minutes(end)
"""
_NIGHT_AFTER = """\
    start, end = (minutes(clock) for clock in text.split("-", 1))
    return start, end if end > start else end + DAY
"""
_MERGE_BEFORE = "merged[-1] = (merged[-1][0], end)"
_MERGE_AFTER = "merged[-1] = (merged[-1][0], max(end, merged[-1][1]))"

#: model calls that the script takes
STEPS = 7


def bugfix_script(python: str = sys.executable) -> list[Step]:
    """Look around, see the suite fail, read, edit twice, note it, see it pass, answer.

    `python` must have pytest.  The answer depends on what the last test run really printed.
    """
    run_tests = {"command": f"{python} -m pytest -q 2>&1", "description": "run the tests"}
    return [
        think("First look around.") + call("list") + call("grep", {"pattern": "def ", "glob": "*.py"}),
        say("I run the tests.") + call("bash", run_tests),
        call("read", {"file_path": "rota/shifts.py"})
        + call("todo_write", {"todos": _todos("in_progress", "pending")}),
        call(
            "edit",
            {"file_path": "rota/shifts.py", "old_string": _NIGHT_BEFORE, "new_string": _NIGHT_AFTER},
        ),
        call(
            "edit",
            {"file_path": "rota/shifts.py", "old_string": _MERGE_BEFORE, "new_string": _MERGE_AFTER},
        ),
        call("bash", run_tests) + call("todo_write", {"todos": _todos("completed", "completed")}),
        _judge,
    ]


def copy_workspace(name: str, to: Path) -> Path:
    """A repository with one commit made of `fixtures/workspaces/<name>`."""
    source = REPOSITORY / "fixtures" / "workspaces" / name
    shutil.copytree(source, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return make_repository(to, {})


def _todos(*states: str) -> list[dict[str, Any]]:
    names = ("night shifts end on the next day", "contained shifts")
    return [{"content": name, "status": state} for name, state in zip(names, states, strict=True)]


def _judge(request: Any) -> Answer:
    return say(ANSWER if "7 passed" in request.text else STILL_RED)

"""Schedules in tests: the clock is moved by what `run-due` is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.mcode import Mcode, Run

#: when schedules of tests are added
START = "2026-05-04T00:30:00Z"


def add(
    mcode: Mcode, name: str, *args: str | Path, cron: str = "0 * * * *", zone: str = "UTC", **how: Any
) -> Run:
    """Keep a schedule, by default one of every full hour; a prompt unless `args` name what it runs."""
    what = args if any(arg in ("--prompt", "--prompt-file") or str(arg).endswith(".toml") for arg in args) else (
        "--prompt", f"do <{name}>", *args,
    )  # fmt: skip
    now = how.pop("now", START)
    return mcode.run("schedule", "add", name, *what, "--cron", cron, "--timezone", zone, "--now", now, **how)


def run_due(mcode: Mcode, now: str, *args: str, **how: Any) -> Run:
    """Run what is due at `now`."""
    return mcode.run("schedule", "run-due", "--now", now, *args, **how)


def lines(run: Run) -> list[dict[str, Any]]:
    """The records on stdout."""
    return [json.loads(line) for line in run.out.splitlines()]


def history(mcode: Mcode, name: str) -> list[tuple[str, str, int | None]]:
    """(due, status, exit code) of each due time, the oldest first."""
    run = mcode.run("schedule", "history", name, "--output-format", "jsonl").check()
    return [(one["dueAt"][5:16], one["status"], one["exitCode"]) for one in reversed(lines(run))]


def listed(mcode: Mcode) -> dict[str, dict[str, Any]]:
    """The rows of `schedule list`, by name."""
    run = mcode.run("schedule", "list", "--output-format", "json").check()
    return {row["name"]: row for row in json.loads(run.out)["schedules"]}

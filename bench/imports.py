"""How long the import of a large OpenCode store takes, and how much memory: 1,000 sessions with 50,000 parts."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from timing import Row, must_succeed, peak_rss_bytes, timed, world

SESSIONS, PARTS = 1_000, 50_000
IMPORT_S = 30.0
PEAK_MIB = 100
_MS = 1_796_160_000_000


def make_store(path: Path, sessions: int = SESSIONS, parts: int = PARTS) -> None:
    """A database of OpenCode's first format: in each session prompts, calls with results, and answers."""
    store = sqlite3.connect(path)
    store.executescript(
        """
        CREATE TABLE session (id text PRIMARY KEY, directory text NOT NULL, title text NOT NULL,
            time_created integer NOT NULL, time_updated integer NOT NULL);
        CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
            data text NOT NULL);
        CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
            data text NOT NULL);
        """
    )
    steps = parts // sessions // 4
    for number in range(sessions):
        session = f"ses_bench{number:016d}"
        store.execute(
            "INSERT INTO session VALUES (?, '/home/u/app', ?, ?, ?)",
            (session, f"session {number}", _MS + number, _MS + number),
        )
        for step in range(steps):
            at = _MS + number + step
            user, answer = f"msg_{number:06d}{step:04d}a", f"msg_{number:06d}{step:04d}b"
            said = {"role": "user", "time": {"created": at}}
            made = {
                "role": "assistant", "providerID": "p", "modelID": "m", "finish": "stop", "cost": 0.01,
                "tokens": {"input": 100, "output": 5, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            }  # fmt: skip
            state = {
                "status": "completed",
                "input": {"command": "ls"},
                "output": "a line\n" * 40,
                "title": "ls",
            }
            store.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (user, session, at, json.dumps(said)))
            store.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (answer, session, at, json.dumps(made)))
            rows = (
                (user, {"type": "text", "text": f"question {step} " * 10}),
                (answer, {"type": "tool", "callID": f"c{step}", "tool": "bash", "state": state}),
                (answer, {"type": "text", "text": f"answer {step} " * 30}),
                (answer, {"type": "step-finish", "reason": "stop"}),
            )
            for place, (message, part) in enumerate(rows):
                store.execute(
                    "INSERT INTO part VALUES (?, ?, ?, ?)",
                    (f"prt_{message}{place}", message, session, json.dumps(part)),
                )
    store.commit()
    store.close()


def run(_runs: int) -> list[Row]:
    """An import, the one after it, and their largest resident size."""
    with world() as (mcode, _peer):
        source = mcode.root / "opencode.db"
        make_store(source)
        command = [*mcode.command, "sessions", "import", str(source), "--output-format", "jsonl"]
        env = mcode.environment()
        first = must_succeed(timed(command, env=env, cwd=mcode.workspace)).wall_s
        again = must_succeed(timed(command, env=env, cwd=mcode.workspace)).wall_s
        env = mcode.environment({"MCODE_HOME": str(mcode.root / "other")})
        peak = peak_rss_bytes(command, env=env, cwd=mcode.workspace) >> 20
    what = f"import of {SESSIONS} sessions with {PARTS} parts"
    return [
        Row(what, f"{first:.1f} s", f"< {IMPORT_S:.0f} s", first < IMPORT_S),
        Row(f"{what}: memory", f"{peak} MiB", f"< {PEAK_MIB} MiB", peak < PEAK_MIB),
        Row("the same once more: nothing new", f"{again:.1f} s", "", None),
    ]

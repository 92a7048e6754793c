"""How long the import of a large OpenCode store takes, and how much memory: 1,000 sessions with 50,000 parts."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SESSIONS, PARTS = 1_000, 50_000
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


def measure() -> dict[str, float]:
    """Seconds of an import and of the one after it, and the peak of memory in MiB."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "opencode.db")
        make_store(source)
        env = {**os.environ, "MCODE_HOME": str(Path(directory, "data"))}
        command = [str(Path(sys.executable).with_name("mcode")), "sessions", "import", str(source)]
        seconds = []
        for _ in range(2):
            started = time.monotonic()
            subprocess.run([*command, "--output-format", "jsonl"], env=env, check=True, capture_output=True)
            seconds.append(time.monotonic() - started)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"import s": seconds[0], "again s": seconds[1], "peak MiB": peak}


if __name__ == "__main__":
    sys.stdout.write("".join(f"{name:10} {value:8.2f}\n" for name, value in measure().items()))

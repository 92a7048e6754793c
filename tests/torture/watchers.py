"""Watchers beside a storm: one a session, killed and followed by another behind its newest line.

What they tell together is what the contract promises of one: each turn begins
once and ends once, in the order of acceptance and as its receipt says, and each
item of history is told once.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.support.mcode import Mcode
from tests.support.running import Running

_ENDS = ("turn.completed", "turn.failed")
_CATCH_UP_S = 20


@dataclass
class Watcher:
    """What is told of one session, by as many processes as it takes."""

    mcode: Mcode
    session: str
    #: lines of those that have ended
    told: list[dict[str, Any]] = field(default_factory=list)
    running: Running | None = None

    def begin(self) -> None:
        """Go on behind the newest line."""
        rows = self.mcode.query(
            "SELECT id FROM messages WHERE session_id = ? ORDER BY row LIMIT 1", self.session
        )
        after = self.told[-1]["cursor"] if self.told else rows[0]["id"]
        flags = ("--follow", "--after", after, "--output-format", "jsonl")
        self.running = self.mcode.start("sessions", "watch", self.session, *flags)

    def end(self, signum: int) -> None:
        """End the process that watches; a line that it did not finish was never told."""
        assert self.running is not None
        self.running.send(signum)
        run = self.running.finish(20)
        self.running = None
        assert run.code == -signum, f"the watcher ended with {run.code}: {run.err}"
        self.told += [json.loads(line) for line in run.out_bytes.split(b"\n")[:-1]]

    def check(self) -> None:
        """Wait until everything is told, and end; then nothing may be missing, and nothing be told twice."""
        wanted = self._turns()
        until_s = time.monotonic() + _CATCH_UP_S
        while len(self._ends()) < len(wanted) and time.monotonic() < until_s:
            time.sleep(0.05)
        self.end(signal.SIGTERM)
        assert self._ends() == wanted, "turns are not told as their receipts say"
        begun = [event["turnId"] for event in self.told if event["type"] == "turn.started"]
        assert begun == [turn_id for turn_id, _ in wanted][1:], "beginnings are missing, or told twice"
        over = Counter(
            event["itemId"] if event["type"] == "item.discarded" else event["item"]["id"]
            for event in self.told
            if event["type"] in ("item.completed", "item.discarded")
        )
        assert over == Counter(self._items()), "items are missing, or told twice"

    def count_ends(self) -> int:
        return len(self._ends())

    def _ends(self) -> list[tuple[str, str]]:
        live = [] if self.running is None else self.running.events
        return [
            (event["turnId"], event.get("status", "succeeded"))
            for event in (*self.told, *live)
            if event["type"] in _ENDS
        ]

    def _turns(self) -> list[tuple[str, str]]:
        """Turn and status, in the order in which they were accepted."""
        rows = self.mcode.query(
            "SELECT turn_id, result FROM turn_receipts WHERE session_id = ? ORDER BY sequence", self.session
        )
        return [
            (row["turn_id"], "interrupted" if row["result"] is None else json.loads(row["result"])["status"])
            for row in rows
        ]

    def _items(self) -> list[str]:
        rows = self.mcode.query(
            "SELECT id, data FROM messages WHERE session_id = ? AND role = 'assistant' ORDER BY row",
            self.session,
        )
        return [
            f"{row['id']}:{part['index']}"
            for row in rows
            for part in json.loads(row["data"])["parts"]
            if part["type"] in ("text", "reasoning", "tool")
        ]

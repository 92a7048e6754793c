"""Many real processes on few sessions, killed at random, and what must hold when they are gone.

A storm is a number of waves.  In each wave commands of every kind that meets
others on a session run at the same time: turns that wait in line, items that are
queued, drainers, steers, aborts.  Some die at a commit point (MCODE_FAULT), some
by SIGKILL at any instant, some are stopped and woken.  Then everything that
waits is drained, and the store is checked.  A seed repeats the choices, not the
order in which the kernel runs them.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sqlite3
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.running import Running
from tests.support.steps import Step, call, forever, say
from tests.torture.watchers import Watcher

#: every point at which something is committed; the later passes of those that a turn passes several times
POINTS = (
    "after-claim",
    "after-admission",
    "after-opening",
    "after-prompt",
    *(
        f"{point}:{count}"
        for point in ("before-append", "after-append", "after-rows")
        for count in (1, 2, 3, 4)
    ),
    "before-settlement",
    "after-settlement",
)
JSON = ("--output-format", "json")


@dataclass
class Started:
    """One command of a wave."""

    kind: str
    session: str
    word: str
    running: Running
    dies: bool


@dataclass
class Tally:
    """What a storm has done."""

    waves: int = 0
    commands: int = 0
    kills: int = 0
    answered: int = 0
    queued: int = 0
    steered: int = 0
    stopped: int = 0
    #: turns whose end was told to a watcher
    watched: int = 0
    #: processes that were asleep while their lease ran out
    overslept: int = 0
    #: seconds, in tenths, in which nobody but us could write
    locked: int = 0


@dataclass
class Storm:
    """A world of its own: sessions, the commands that meet on them, and what they promised."""

    mcode: Mcode
    peer: Peer
    seed: int
    sessions: list[str] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    #: words of prompts whose command said that they were answered
    answered: set[str] = field(default_factory=set)
    #: words of prompts that are in a queue's hands, in the order in which they came, by session
    queued: dict[str, list[str]] = field(default_factory=dict)
    #: words that a running turn was said to take
    steered: set[str] = field(default_factory=set)
    watchers: list[Watcher] = field(default_factory=list)
    numbers: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def begin(self, count: int) -> Storm:
        self.mcode.may_leave_processes = True
        self.peer.script(forever(_answer))
        for _ in range(count):
            made = self.mcode.exec("begin", *JSON).check().result
            self.sessions.append(made["sessionId"])
            self.queued[made["sessionId"]] = []
            self.watchers.append(Watcher(self.mcode, made["sessionId"]))
        return self

    # a wave

    def wave(self, commands: int, kills: int) -> None:
        """Run `commands` at once, of which `kills` die."""
        for watcher in self.watchers:
            watcher.begin()
        doomed = set(self.random.sample(range(commands), kills))
        begun = [self._start(number in doomed) for number in range(commands)]
        started = [one for one in begun if one is not None]
        if self.random.random() < 0.3:
            self._lock_store(self.random.choice((2, 10, 25)))
        for _ in range(3):
            time.sleep(self.random.random() * 0.1)
            self._sleep(started)
        watcher = self.random.choice(self.watchers)
        watcher.end(signal.SIGKILL)
        watcher.begin()
        for one in started:
            if one.dies and self.random.random() < 0.3:
                time.sleep(self.random.random() * 0.1)
                one.running.kill()
        for one in started:
            self._finish(one)
        self.tally.waves += 1
        self.tally.commands += commands

    def _start(self, dies: bool) -> Started | None:
        self.numbers += 1
        word = f"w{self.numbers}."
        session = self.random.choice(self.sessions)
        kind = self.random.choices(("wait", "add", "drain", "steer", "abort"), (5, 3, 3, 2, 1))[0]
        if kind == "abort":  # of an item that is on its way, too: only there may items go unrun
            session = self.sessions[-1]
        args: tuple[str, ...] = {
            "wait": ("exec", word, "--session", session, "--when-busy", "wait", *JSON),
            "add": ("queue", "add", session, word),
            "drain": ("queue", "drain", "--session", session, "--output-format", "jsonl"),
            "steer": ("steer", session, word, *JSON),
            "abort": ("abort", session),
        }[kind]
        env = {"MCODE_FAULT": self.random.choice(POINTS)} if dies else None
        if kind == "add":  # in the order in which they were started, so that the order of the line is known
            run = self.mcode.run(*args)
            if run.code == 0:
                self.queued[session].append(word)
                self.tally.queued += 1
            return None
        return Started(kind, session, word, self.mcode.start(*args, env=env), dies)

    def _finish(self, one: Started) -> None:
        run = one.running.finish(120)
        if run.code == -signal.SIGKILL:
            self.tally.kills += 1
            return
        assert run.code in (0, 4, 75), f"{one.kind} {one.word}: exit {run.code}\n{run.out}\n{run.err}"
        if one.kind in ("wait", "steer") and run.code == 0:
            status = run.result["status"]
            if status == "succeeded":
                assert one.word in run.result["output"], run.result
                self.answered.add(one.word)
                self.tally.answered += 1
            elif status == "steered":
                if one.session != self.sessions[-1]:  # where an abort may take what became an item of it
                    self.steered.add(one.word)
                self.tally.steered += 1

    def _sleep(self, started: list[Started]) -> None:
        """Stop a process that holds a session, for a while; now and then for longer than its lease lasts."""
        holders = {row["pid"] for row in self.mcode.query("SELECT pid FROM session_locks")}
        for one in started:
            if one.running.pid not in holders or one.running.process.poll() is not None:
                continue
            one.running.send(signal.SIGSTOP)
            if self.random.random() < 0.5:
                # one that is stopped while it writes keeps everybody out, us too
                with contextlib.suppress(sqlite3.OperationalError), self._store(1) as store:
                    changed = store.execute(
                        "UPDATE session_locks SET expires_boot_ms = 0 WHERE pid = ?", (one.running.pid,)
                    )
                    self.tally.overslept += changed.rowcount
            time.sleep(self.random.random() * 0.5)
            one.running.send(signal.SIGCONT)
            self.tally.stopped += 1
            return

    def _lock_store(self, tenths: int) -> None:
        with self._store() as store:
            store.execute("BEGIN IMMEDIATE")
            time.sleep(tenths / 10)
            store.execute("ROLLBACK")
        self.tally.locked += tenths

    @contextlib.contextmanager
    def _store(self, patience_s: float = 30) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.mcode.data / "mcode.db", isolation_level=None, timeout=patience_s)
        try:
            yield connection
        finally:
            connection.close()

    # afterwards

    def calm(self) -> None:
        """Run what waits, whatever holds it, until nothing is left."""
        until_s = time.monotonic() + 300
        while True:
            for session in self.sessions:
                self.mcode.run("queue", "unpause", session).check()
                run = self.mcode.run("queue", "drain", "--session", session, timeout=120)
                assert run.code in (0, 4, 75), run.err
            if not self.mcode.query("SELECT id FROM queue_items"):
                break
            assert time.monotonic() < until_s, "the queue does not empty"
        for session in self.sessions:  # a history is mended when its session is opened again
            self.mcode.exec("calm", "--session", session, *JSON).check()

    def check(self) -> None:
        """One truth in the store, and it is what the commands said and the watchers were told."""
        for watcher in self.watchers:
            if watcher.running is not None:
                watcher.check()
        self.tally.watched = sum(watcher.count_ends() for watcher in self.watchers)
        query = self.mcode.query
        assert query("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
        assert query("SELECT * FROM session_locks") == []
        assert query("SELECT * FROM turn_receipts WHERE settled_ms IS NULL") == []
        assert query("SELECT * FROM sessions WHERE status = 'started'") == []
        assert query("SELECT * FROM queue_items") == []
        assert query("SELECT * FROM turn_signals WHERE state = 'pending' AND kind = 'steer'") == []
        assert self.mcode.survivors() == []
        said: set[str] = set()
        for session in self.sessions:
            said |= self._check_history(session)
        assert self.steered <= said, f"steers were lost: {self.steered - said}"

    def _check_history(self, session: str) -> set[str]:
        """Check one history; every word that was said in it."""
        records = [line for line in self.mcode.history(session) if "message" in line]
        ids = [line["id"] for line in records]
        assert len(ids) == len(set(ids)), "a record stands in history twice"
        said = [_word(line) for line in records if line["message"]["role"] == "user"]
        words = [word for word in said if word]
        assert len(words) == len(set(words)), f"said twice: {sorted(words)}"
        for word in self.answered:
            assert word not in words or self._is_answered(records, word), f"{word} is not answered"
        queued = [word for word in words if word in self.queued[session]]
        expected = self.queued[session]
        if session == self.sessions[-1]:
            expected = [word for word in expected if word in queued]
        assert queued == expected, "items were lost, or left the order of the line"
        _check_calls(records)
        shown = [line["id"] for line in records if line["message"]["role"] != "tool"]
        rows = self.mcode.query("SELECT id FROM messages WHERE session_id = ? ORDER BY row", session)
        assert [row["id"] for row in rows] == shown
        return set(words)

    def _is_answered(self, records: list[dict[str, Any]], word: str) -> bool:
        (turn,) = {line["turn_id"] for line in records if _word(line) == word}
        texts = [
            block.get("text", "")
            for line in records
            if line["turn_id"] == turn and line["message"]["role"] == "assistant"
            for block in line["message"]["content"]
        ]
        return any(word in text for text in texts)


def _answer(request: Any) -> Step:
    """A call first, then the words that the user said: every turn has several commit points."""
    newest = request.messages[-1]
    content = newest["content"]
    if isinstance(content, str):
        words = content
    elif any(block["type"] == "tool_result" for block in content):
        return say("done " + " ".join(_all_words(request)[-20:]))
    else:
        words = " ".join(block["text"] for block in content if block["type"] == "text")
    if zlib.crc32(words.encode()) % 2:
        return call("bash", {"command": "echo one"})
    return say(f"done {words}")


def _all_words(request: Any) -> list[str]:
    found = []
    for message in request.messages:
        if message["role"] != "user":
            continue
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [block["text"] for block in blocks if block["type"] == "text"]
    return found


def _word(line: dict[str, Any]) -> str | None:
    """The word of a prompt or a steer; None for mcode's own notes."""
    if line["message"]["role"] != "user":
        return None
    text = str(line["message"]["content"][0].get("text", ""))
    return text if text.startswith("w") and text.endswith(".") else None


def _check_calls(records: list[dict[str, Any]]) -> None:
    """Every call has exactly one result."""
    calls: list[str] = []
    results: list[str] = []
    for line in records:
        for block in line["message"]["content"]:
            if block["type"] == "tool_call":
                calls.append(block["id"])
            elif block["type"] == "tool_result":
                results.append(block["call_id"])
    assert sorted(calls) == sorted(results), "a call without its result, or with two"


def storm(root: Path, peer: Peer, seed: int, *, sessions: int = 3) -> Storm:
    return Storm(Mcode(root, peer), peer, seed).begin(sessions)


def as_json(tally: Tally) -> str:
    return json.dumps(tally.__dict__)

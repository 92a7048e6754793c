"""`mcode sessions watch --follow` beside turns that follow fast: each has its one end, in order."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.promises.test_watch import LINES, lines
from tests.promises.test_watch_turns import ENDS, JSON
from tests.promises.test_when_busy import echo, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import forever, say, status

TURNS = 30
REFUSED = status(400, {"error": {"message": "no"}})


def ends_of(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["turnId"], event["type"]) for event in events if event["type"] in ENDS]


def first_message(mcode: Mcode) -> str:
    found: str = mcode.query("SELECT id FROM messages ORDER BY row LIMIT 1")[0]["id"]
    return found


def receipts(mcode: Mcode) -> list[tuple[str, str]]:
    rows = mcode.query("SELECT turn_id, outcome FROM turn_receipts ORDER BY sequence")
    return [
        (row["turn_id"], "turn.completed" if row["outcome"] == "completed" else "turn.failed") for row in rows
    ]


def test_a_slow_reader_is_told_every_end_in_order(mcode: Mcode, peer: Peer) -> None:
    killed = range(5, TURNS, 7)
    said = [number for number in range(1, TURNS) if number not in killed]
    peer.script(say("begun"), *(REFUSED if n % 3 == 1 else say(f"answer {n} " * 900) for n in said))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    read, write = os.pipe()
    after = ("--after", first_message(mcode), "--follow")  # whenever the watcher begins
    watching = mcode.start("sessions", "watch", session, *after, *LINES, stdout=write)
    os.close(write)
    wait_until(lambda: _waits(watching.pid), "it does not begin")
    os.kill(watching.pid, signal.SIGSTOP)
    for number in range(1, TURNS):
        env = {"MCODE_FAULT": "after-admission"} if number in killed else None
        mcode.exec(f"prompt {number}", "--session", session, *JSON, env=env)
    os.kill(watching.pid, signal.SIGCONT)
    out = b""
    while out.count(b'"type":"turn.completed"') + out.count(b'"type":"turn.failed"') < TURNS:
        piece = os.read(read, 300)
        assert piece, out[-500:]
        out += piece
    while not out.endswith(b"\n"):
        out += os.read(read, 1)
    watching.send(signal.SIGTERM)
    os.close(read)
    watching.finish()
    events = lines(out)
    assert ends_of(events) == receipts(mcode)
    assert {(event["runId"], event["sessionId"]) for event in events} == {(None, session)}


def test_turns_that_wrote_nothing_have_their_end_too(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    after = ("--after", first_message(mcode), "--follow")
    watching = mcode.start("sessions", "watch", session, *after, *LINES)
    for number in range(3):
        # killed right behind its admission: a receipt, and no message
        mcode.exec("lost", "--session", session, env={"MCODE_FAULT": "after-admission"})
        mcode.exec(f"prompt {number}", "--session", session).check()
    wait_until(lambda: watching.out.count(b"turn.completed") == 4, "not all ends are told")
    watching.send(signal.SIGTERM)
    assert ends_of(lines(watching.finish().out_bytes)) == receipts(mcode)


def test_an_interrupt_ends_it_in_the_background_of_a_script(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    session = mcode.exec("begin", *JSON).check().result["sessionId"]
    command = [*map(str, mcode.command), "sessions", "watch", session, "--follow"]
    script = 'trap "" INT; "$@" & echo $!; wait $!; echo "ended $?"'
    with subprocess.Popen(
        ["bash", "-c", script, "bash", *command],
        stdout=subprocess.PIPE,
        text=True,
        env=mcode.environment(),
        cwd=mcode.workspace,
    ) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        wait_until(lambda: _waits(pid), "it does not begin")
        os.kill(pid, signal.SIGINT)
        assert shell.stdout.readline() == "ended 130\n"


def _waits(pid: int) -> bool:
    """Whether the watcher has opened the store and looks at it."""
    try:
        targets = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(target.endswith("mcode.db") for target in targets)

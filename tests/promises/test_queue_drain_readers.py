"""`mcode queue drain` and its stdout: closed, full, read by somebody who goes; and no key in what it gets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.promises.test_queue import add, idle_session
from tests.promises.test_when_busy import echo, items, prompts
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, forever, gated, say


def _shell(mcode: Mcode, tail: str) -> subprocess.CompletedProcess[str]:
    command = " ".join(mcode.command)
    return subprocess.run(
        ["bash", "-c", f"{command} {tail}"],
        env=mcode.environment(),
        cwd=mcode.workspace,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )


def test_with_a_closed_stdout_nothing_is_run(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    item = add(mcode, session, "x")
    for tail in (f"queue drain --session {session} >&-", f"queue steer {item} >&-"):
        run = _shell(mcode, tail)
        assert run.returncode == 141, run
        assert "stdout was closed by its reader" in run.stderr
        assert "Traceback" not in run.stderr
        assert all(line.startswith("mcode: ") for line in run.stderr.splitlines())
    assert prompts(mcode) == ["begin"]
    assert len(items(mcode)) == 1


def test_a_reader_that_goes_ends_the_turn_that_runs(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    for text in ("a", "b"):
        add(mcode, session, text)
    gate = Gate()
    peer.script(gated(say("late"), gate), forever(echo))
    reading, writing = os.pipe()
    running = mcode.start("queue", "drain", "--session", session, stdout=writing)
    os.close(writing)
    gate.wait_reached()
    os.close(reading)
    run = running.finish()
    gate.open()
    assert run.code == 141
    assert "stdout was closed by its reader" in run.err
    assert "Traceback" not in run.err
    assert len(items(mcode)) == 1
    assert mcode.query("SELECT reason FROM turn_receipts ORDER BY sequence DESC LIMIT 1") == [
        {"reason": "stdout-closed"}
    ]


def test_a_reader_that_has_gone_before_is_noticed_too(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "a")
    reading, writing = os.pipe()
    os.close(reading)
    running = mcode.start("queue", "drain", "--session", session, stdout=writing)
    os.close(writing)
    run = running.finish()
    assert run.code == 141
    assert "Traceback" not in run.err


def test_a_full_disk_behind_stdout_is_a_failed_write(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    add(mcode, session, "x")
    run = _shell(mcode, f"queue drain --session {session} >/dev/full")
    assert run.returncode == 74
    assert "No space left on device" in run.stderr
    assert "OUTPUT_WRITE_FAILED" in run.stderr


def test_what_is_told_of_an_item_has_no_key_in_it(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    session = idle_session(mcode, peer)
    key = tmp_path / "key"
    key.write_text("zebra-crossing-of-4711\n")
    key.chmod(0o600)
    mcode.config.write_text(
        mcode.config.read_text().replace('api_key = "${FAKE_KEY}"', f'api_key_file = "{key}"')
    )
    for output_format in ("text", "jsonl"):
        add(mcode, session, "say zebra-crossing-of-4711")
        run = mcode.run("queue", "drain", "--session", session, "--output-format", output_format).check()
        assert "echo say ***" in run.out
        assert "zebra" not in run.out + run.err

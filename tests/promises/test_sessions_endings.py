"""How each ending is kept: receipt, session and result say the same, and the session goes on."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, forever, hang, say, status

LOOKS = call("bash", {"command": "ls"})


def kept(mcode: Mcode) -> tuple[Any, ...]:
    """What the newest receipt and its session say."""
    (row,) = mcode.query(
        "SELECT r.outcome, r.reason, r.code, s.status, s.error_code, s.error_source, r.result"
        " FROM turn_receipts r JOIN sessions s ON s.id = r.session_id ORDER BY r.sequence DESC LIMIT 1"
    )
    return tuple(row.values())


ROWS: list[tuple[str, list[Any], list[str], int, str, tuple[Any, ...]]] = [
    ("answered", [say("yes")], [], 0, "succeeded", ("completed", None, None, "idle", None, None)),
    (
        "asks denied",
        [call("bash", {"command": "sudo ls"}), say("could not")],
        [],
        5,
        "interaction_required",
        ("completed", None, None, "idle", None, None),
    ),
    (
        "asks denied, --on-ask deny",
        [call("bash", {"command": "sudo ls"}), say("could not")],
        ["--on-ask", "deny"],
        0,
        "succeeded",
        ("completed", None, None, "idle", None, None),
    ),
    (
        "failed",
        [status(400, {"error": {"message": "bad", "type": "invalid_request_error"}})],
        [],
        4,
        "failed",
        ("failed", None, "LLM_BAD_REQUEST", "error", "LLM_BAD_REQUEST", "provider"),
    ),
    (
        "loop",
        [forever(call("bash", {"command": "echo same"}))],
        [],
        4,
        "failed",
        ("failed", None, "LOOP_DETECTED", "error", "LOOP_DETECTED", "runtime"),
    ),
    (
        "timeout",
        [hang()],
        ["--timeout", "1s"],
        6,
        "timeout",
        ("aborted", "deadline", None, "aborted", None, None),
    ),
    (
        "limit",
        [LOOKS, say("never")],
        ["--max-steps", "1"],
        7,
        "limit_exceeded",
        ("aborted", "limit", "LIMIT_STEPS", "aborted", None, None),
    ),
]


@pytest.mark.parametrize(
    ("steps", "flags", "code", "told", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_receipt_session_and_result_agree(
    mcode: Mcode,
    peer: Peer,
    steps: list[Any],
    flags: list[str],
    code: int,
    told: str,
    expected: tuple[Any, ...],
) -> None:
    peer.script(*steps)
    run = mcode.exec("x", "--session-key", "k", "--output-format", "json", *flags).check(code)
    result = run.result
    assert (result["status"], result["exitCode"]) == (told, code)
    *found, stored = kept(mcode)
    assert tuple(found) == expected
    assert {**json.loads(stored), "durationMs": 0} == {**result, "durationMs": 0}
    assert mcode.query("SELECT * FROM session_locks") == []
    peer.script(say("goes on"))
    again = mcode.exec("y", "--session-key", "k", "--output-format", "json").check()
    assert again.result["output"] == "goes on"
    assert kept(mcode)[:4] == ("completed", None, None, "idle")
    assert not peer.last.violations


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("where", ["model", "tool"])
def test_a_signal_is_kept_as_the_reason(mcode: Mcode, peer: Peer, number: signal.Signals, where: str) -> None:
    peer.script(hang() if where == "model" else call("bash", {"command": "touch up; sleep 30"}))
    running = mcode.start("exec", "x", "--session-key", "k", "--output-format", "json")
    peer.wait_for(1)
    while where == "tool" and not (mcode.workspace / "up").exists():
        assert running.process.poll() is None
    running.send(number)
    run = running.finish().check(-number)
    assert (run.result["status"], run.result["exitCode"]) == ("cancelled", 128 + number)
    assert kept(mcode)[:4] == ("aborted", "signal", None, "aborted")
    if where == "tool":
        assert [message["role"] for message in mcode.messages()] == ["user", "assistant", "tool"]
        assert "aborted" in json.dumps(mcode.messages()[-1])
    peer.script(say("goes on"))
    mcode.exec("y", "--session-key", "k").check()
    assert not peer.last.violations


def test_a_reader_of_stdout_that_goes_is_kept_as_the_reason(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang())
    read_end, write_end = os.pipe()
    running = mcode.start(
        "exec", "x", "--session-key", "k", "--output-format", "stream-json", stdout=write_end
    )
    os.close(write_end)
    peer.wait_for(1)
    os.close(read_end)
    run = running.finish().check(141)
    assert "Traceback" not in run.err
    assert kept(mcode)[:4] == ("aborted", "stdout-closed", None, "aborted")
    peer.script(say("goes on"))
    mcode.exec("y", "--session-key", "k").check()


def test_a_rejected_submission_leaves_no_trace(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("x", "--model", "no/such").check(3)
    mcode.exec("x", "--tools", "no-such-tool").check(2)
    mcode.exec("x", "--max-cost", "1", "--session", "mvs_" + "0" * 32).check(4)
    for table in ("sessions", "turn_receipts", "messages"):
        assert mcode.query(f"SELECT * FROM {table}") == []
    assert peer.calls == []
    assert not list((mcode.data / "sessions").iterdir())


def test_the_prompt_is_in_history_before_the_model_is_asked(mcode: Mcode, peer: Peer) -> None:
    seen: list[str] = []

    def look(_: Any) -> Any:
        seen.extend(message["role"] for message in mcode.messages())
        return say("done")

    peer.script(look)
    mcode.exec("x").check()
    assert seen == ["user"]
    (prompt,) = [line for line in mcode.history() if line.get("message", {}).get("role") == "user"]
    (receipt,) = mcode.query("SELECT turn_id, session_id, digest FROM turn_receipts")
    assert prompt["turn_id"] == receipt["turn_id"]
    assert prompt["id"].startswith("msg-user-v1-")
    assert len(prompt["id"]) == len("msg-user-v1-") + 64


def test_every_first_record_of_a_turn_names_a_stored_prefix(mcode: Mcode) -> None:
    mcode.exec("x").check()
    mcode.exec("--continue", "y").check()
    prefixes = [line["prefix"] for line in mcode.history() if line.get("prefix")]
    assert len(prefixes) == 2
    stored = [row["digest"] for row in mcode.query("SELECT digest FROM prefixes")]
    assert sorted(set(prefixes)) == sorted(stored)


def test_the_receipt_keeps_a_digest_never_the_input(mcode: Mcode) -> None:
    mcode.exec("a-very-special-input", "--request-id", "r").check()
    (receipt,) = mcode.query("SELECT digest, source, request_scope, request_id, code FROM turn_receipts")
    assert "a-very-special-input" not in str(receipt)
    assert len(receipt["digest"]) == 64

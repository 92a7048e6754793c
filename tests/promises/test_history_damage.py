"""A damaged history: repaired where a crash explains it, else named, untouched, and mended on request."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say


def conversed(mcode: Mcode, peer: Peer) -> tuple[str, Path]:
    """A session of a prompt, a call, its result and an answer, all with an é; and its file."""
    peer.script(call("bash", {"command": "echo é-out"}), say("é-answer"), say("next"))
    run = mcode.exec("é-prompt", "--output-format", "json").check()
    return run.result["sessionId"], mcode.session_dir() / "messages.jsonl"


def roles(mcode: Mcode) -> list[str]:
    return [message["role"] for message in mcode.messages()]


@pytest.mark.sample(5)
@pytest.mark.parametrize("where", ["1", "half", "inside é", "before newline"])
def test_a_torn_last_record_is_set_aside_and_both_later_runs_work(
    mcode: Mcode, peer: Peer, api: str, where: str
) -> None:
    session_id, path = conversed(mcode, peer)
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    cut = {
        "1": start + 1,
        "half": (start + len(whole)) // 2,
        "inside é": whole.rindex("é".encode()) + 1,
        "before newline": len(whole) - 1,
    }[where]
    path.write_bytes(whole[:cut])
    first = mcode.exec("--session", session_id, "one", "--output-format", "stream-json").check()
    mcode.exec("--session", session_id, "two").check()
    assert "é-prompt" in peer.last.text
    assert "é-out" in peer.last.text
    mcode.history()
    torn = [one for one in first.of_type("notice") if one["code"] == "history.torn-tail"]
    if where == "before newline":
        assert not torn
        assert "é-answer" in peer.last.text
    else:
        assert torn
        (kept,) = (path.parent / "reports").glob("torn-tail-*")
        assert kept.read_bytes() == whole[start:cut]
        assert str(kept) in torn[0]["message"]


def test_welded_records_are_split(mcode: Mcode, peer: Peer, api: str) -> None:
    session_id, path = conversed(mcode, peer)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(lines[0] + b"\n" + lines[1] + lines[2] + b"\n" + lines[3] + lines[4] + b"\n")
    mcode.exec("--session", session_id, "on").check()
    assert roles(mcode) == ["user", "assistant", "tool", "assistant", "user", "assistant"]


BAD_LINES = ['{"role":"user",', "42", "[]", '{"role":"alien"}', "", "[" * 100_000, '{"a":' * 100_000]


@pytest.mark.sample(5)
@pytest.mark.parametrize("bad", BAD_LINES, ids=lambda bad: bad[:12])
@pytest.mark.parametrize("line", [2, 4])
def test_a_line_that_is_no_record_stops_the_run_until_verify_sets_it_aside(
    mcode: Mcode, peer: Peer, bad: str, line: int
) -> None:
    session_id, path = conversed(mcode, peer)
    lines = path.read_bytes().split(b"\n")
    lines[line - 1] = bad.encode()
    damaged = b"\n".join(lines)
    path.write_bytes(damaged)
    asked = len(peer.calls)

    run = mcode.exec("--session", session_id, "on", "--output-format", "json").check(4)
    error = run.result["error"]
    assert error["code"] == "HISTORY_CORRUPT"
    assert f"{path} line {line} " in error["message"]
    assert "verify --repair" in error["message"]
    assert len(peer.calls) == asked
    assert path.read_bytes() == damaged

    verified = mcode.run("sessions", "verify", session_id, "--output-format", "jsonl").check(4)
    assert [json.loads(one)["line"] for one in verified.out.splitlines()] == [line]
    assert path.read_bytes() == damaged

    repaired = mcode.run("sessions", "verify", session_id, "--repair", "--output-format", "jsonl").check()
    (finding,) = [json.loads(one) for one in repaired.out.splitlines()]
    assert (finding["line"], finding["repaired"]) == (line, True)
    assert Path(finding["keptIn"]).read_text() == bad + "\n"
    mcode.run("sessions", "verify", session_id).check()

    run = mcode.exec("--session", session_id, "on", "--output-format", "json").check()
    assert run.result["status"] == "succeeded"
    mcode.exec("--session", session_id, "and on").check()


def test_a_header_and_a_manifest_nested_without_end_are_no_bug_of_ours(mcode: Mcode, peer: Peer) -> None:
    session_id, path = conversed(mcode, peer)
    path.with_name("manifest.json").write_text("[" * 100_000)
    run = mcode.exec("--session", session_id, "on", "--output-format", "stream-json").check()
    assert [one["code"] for one in run.of_type("notice")] == ["history.manifest"]
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([b"[" * 100_000, *lines[1:]]))
    run = mcode.exec("--session", session_id, "on", "--output-format", "json").check(4)
    assert f"{path} line 1 " in run.result["error"]["message"]
    mcode.run("sessions", "verify", session_id).check(4)
    mcode.run("sessions", "verify", session_id, "--repair").check()
    mcode.exec("--session", session_id, "on").check()
    assert "é-prompt" in peer.last.text


def test_a_repair_waits_for_nobody_while_a_turn_runs(mcode: Mcode, peer: Peer) -> None:
    from tests.support.steps import Gate, gated

    session_id, _ = conversed(mcode, peer)
    gate = Gate()
    peer.script(gated(say("x"), gate))
    running = mcode.start("exec", "--session", session_id, "slow")
    gate.wait_reached()
    run = mcode.run("sessions", "verify", session_id, "--repair").check(75)
    assert "busy" in run.err
    gate.open()
    running.finish().check()


def test_a_history_that_vanished_is_named(mcode: Mcode, peer: Peer) -> None:
    session_id, path = conversed(mcode, peer)
    path.unlink()
    run = mcode.exec("--session", session_id, "on", "--output-format", "json").check(4)
    assert run.result["error"]["code"] == "HISTORY_CORRUPT"
    assert str(path) in run.result["error"]["message"]
    for flags in ([], ["--repair"]):
        verified = mcode.run("sessions", "verify", session_id, *flags, "--output-format", "jsonl").check(4)
        finding = json.loads(verified.out)
        assert (finding["problem"], finding["repaired"]) == ("messages.jsonl is missing", False)


def test_a_header_that_only_lacks_its_newline_is_whole(mcode: Mcode, peer: Peer) -> None:
    session_id, path = conversed(mcode, peer)
    path.write_bytes(path.read_bytes().partition(b"\n")[0])
    run = mcode.exec("--session", session_id, "on", "--output-format", "stream-json").check()
    assert "history.shorter" in [one["code"] for one in run.of_type("notice")]
    assert roles(mcode) == ["user", "assistant"]
    mcode.run("sessions", "verify", session_id).check()


def test_a_history_of_another_session_is_named_and_left_alone(mcode: Mcode, peer: Peer) -> None:
    session_id, path = conversed(mcode, peer)
    other = "mvs_" + "1" * 32
    foreign = path.read_bytes().replace(session_id.encode(), other.encode())
    path.write_bytes(foreign + b"42\n")
    for flags in ([], ["--repair"]):
        verified = mcode.run("sessions", "verify", session_id, *flags, "--output-format", "jsonl").check(4)
        assert other in json.loads(verified.out)["problem"]
    assert path.read_bytes() == foreign + b"42\n"
    path.write_bytes(foreign)
    run = mcode.exec("--session", session_id, "on", "--output-format", "json").check(4)
    assert other in run.result["error"]["message"]


def test_what_stands_in_the_place_of_a_history_file_never_hangs_a_run(mcode: Mcode, peer: Peer) -> None:
    session_id, path = conversed(mcode, peer)
    manifest = path.with_name("manifest.json")
    manifest.unlink()
    os.mkfifo(manifest)
    run = mcode.exec("--session", session_id, "on", "--output-format", "stream-json").check()
    assert [one["code"] for one in run.of_type("notice")] == ["history.manifest"]
    history = path.read_bytes()
    for make in (os.mkfifo, os.mkdir):
        path.unlink()
        make(path)
        run = mcode.exec("--session", session_id, "on", "--output-format", "json").check(74)
        assert str(path) in run.result["error"]["message"]
        mcode.run("sessions", "verify", session_id).check(74)
        path.rmdir() if path.is_dir() else path.unlink()
        path.write_bytes(history)
    # what a crash left cannot be set aside
    path.write_bytes(history[:-3])
    path.with_name("reports").write_text("a file")
    run = mcode.exec("--session", session_id, "on", "--output-format", "json").check(74)
    assert "reports" in run.result["error"]["message"]
    assert path.read_bytes() == history[:-3]


@pytest.mark.parametrize("manifest", [None, "", "{}", '{"format": 1, "generation": 9}', "[1]"])
def test_a_manifest_that_disagrees_is_told_and_made_anew(
    mcode: Mcode, peer: Peer, manifest: str | None
) -> None:
    session_id, path = conversed(mcode, peer)
    file = path.parent / "manifest.json"
    good = json.loads(file.read_text())
    file.unlink() if manifest is None else file.write_text(manifest)
    run = mcode.exec("--session", session_id, "on", "--output-format", "stream-json").check()
    assert any(one["code"] == "history.manifest" for one in run.of_type("notice"))
    assert json.loads(file.read_text()) == good
    again = mcode.exec("--session", session_id, "on", "--output-format", "stream-json").check()
    assert not any(one["code"].startswith("history.") for one in again.of_type("notice"))


def test_rows_that_lag_behind_history_are_finished_at_the_next_run(mcode: Mcode, peer: Peer) -> None:
    import sqlite3

    session_id, _ = conversed(mcode, peer)
    before = mcode.query("SELECT id, role, data FROM messages ORDER BY row")
    usage = mcode.query("SELECT message_id, input_tokens FROM token_usage ORDER BY row")
    with sqlite3.connect(mcode.data / "mcode.db") as connection:
        connection.execute("DELETE FROM messages")
        connection.execute("DELETE FROM token_usage")
        connection.execute("UPDATE sessions SET history_bytes = 0")
    connection.close()
    mcode.exec("--session", session_id, "on").check()
    assert mcode.query("SELECT id, role, data FROM messages ORDER BY row")[: len(before)] == before
    assert mcode.query("SELECT message_id, input_tokens FROM token_usage ORDER BY row")[: len(usage)] == usage


def test_history_names_no_place_of_this_machine_but_what_was_said(mcode: Mcode, peer: Peer) -> None:
    _, path = conversed(mcode, peer)
    assert str(mcode.root) not in path.read_text()
    assert str(mcode.root) not in (path.parent / "manifest.json").read_text()
    # so a data directory can be moved
    moved = mcode.root / "moved"
    mcode.data.rename(moved)
    mcode.data = moved
    mcode.exec("--continue", "on", env={"MCODE_HOME": str(moved)}).check()
    assert len(mcode.session_dirs()) == 1

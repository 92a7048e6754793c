"""Commands that list and show, with the real store behind them and no terminal in sight."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import time

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say


@pytest.fixture
def session(mcode: Mcode, peer: Peer) -> str:
    """A session with a command in it; its id."""
    peer.script(call("bash", {"command": "printf 'one\\n\\033[31mtwo\\n'"}), say("done — fertig"))
    run = mcode.exec("first prompt", "--output-format", "json", "--label", "k=v").check()
    found: str = run.result["sessionId"]
    return found


def test_sessions_are_listed_for_people_and_for_programs(mcode: Mcode, session: str) -> None:
    table = mcode.run("sessions", "list").check()
    rows = json.loads(mcode.run("sessions", "list", "--output-format", "json").check().out)
    lines = mcode.run("sessions", "list", "--output-format", "stream-json").check().out.splitlines()
    cells = list(
        csv.DictReader(io.StringIO(mcode.run("sessions", "list", "--output-format=csv").check().out))
    )

    assert session in table.out
    assert table.err == ""
    assert rows["nextCursor"] is None
    assert [row["id"] for row in rows["sessions"]] == [session]
    assert rows["sessions"][0]["labels"] == {"k": "v"}
    assert json.loads(lines[0]) == rows["sessions"][0]
    assert cells[0]["id"] == session


def test_cursors_lead_through_a_list_without_gap_or_repeat(mcode: Mcode, session: str) -> None:
    for _ in range(4):
        mcode.exec("again").check()
    found: list[str] = []
    cursor: list[str] = []
    while True:
        page = mcode.run("sessions", "list", "--limit", "2", "--output-format", "json", *cursor).check()
        found += [row["id"] for row in json.loads(page.out)["sessions"]]
        if json.loads(page.out)["nextCursor"] is None:
            break
        cursor = ["--before", json.loads(page.out)["nextCursor"]]

    assert len(found) == len(set(found)) == 5
    assert found[-1] == session
    assert "mcode: more: --before " in mcode.run("sessions", "list", "--limit", "2").check().err


def test_an_empty_list_says_so_on_stderr_only(mcode: Mcode) -> None:
    run = mcode.run("sessions", "list").check()

    assert (run.out, run.err) == ("", "mcode: no sessions here\n")


def test_a_session_is_read_back_with_its_tools(mcode: Mcode, session: str) -> None:
    run = mcode.run("sessions", "show", session[:14]).check()

    assert f"session {session}: first prompt" in run.out
    assert "▸ bash printf 'one" in run.out
    assert "[completed in " in run.out
    assert "done — fertig" in run.out
    assert "\x1b" not in run.out
    shown = json.loads(mcode.run("sessions", "show", session, "--output-format", "json").check().out)
    assert shown["session"]["id"] == session
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "assistant"]


def test_an_export_is_one_json_document(mcode: Mcode, session: str) -> None:
    document = json.loads(mcode.run("sessions", "export", session).check().out)

    assert document["session"]["id"] == session
    assert (document["format"], document["formatVersion"]) == ("mcode.session", 2)
    assert [line["message"]["role"] for line in document["history"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_a_sound_history_verifies_and_a_bad_line_is_4(mcode: Mcode, session: str) -> None:
    assert "the history is sound" in mcode.run("sessions", "verify", session).check().err
    history = mcode.session_dir() / "messages.jsonl"
    lines = history.read_bytes().split(b"\n")
    lines[2] = b"42"
    history.write_bytes(b"\n".join(lines))

    broken = mcode.run("sessions", "verify", session, "--output-format", "json").check(4)
    assert json.loads(broken.out)["findings"]
    mcode.run("sessions", "verify", session, "--repair").check()
    mcode.run("sessions", "verify", session).check()


def test_what_is_not_there_is_one_sentence(mcode: Mcode, session: str) -> None:
    for args, code in (
        (("sessions", "show", "mvs_ffffffff"), 4),
        (("sessions", "export", "nonsense"), 2),
        (("sessions", "list", "--before", "x"), 2),
        (("sessions", "list", "--all", "--cwd", "."), 2),
        (("sessions", "list", "--output-format", "xml"), 2),
        (("models", "nowhere"), 3),
    ):
        run = mcode.run(*args).check(code)
        assert run.out == ""
        assert len(run.err.splitlines()) == 1
        assert run.err.startswith("mcode: error: ")


def test_doctor_and_models_answer_in_every_format(mcode: Mcode) -> None:
    assert mcode.run("doctor").check().out.startswith("ok    ")
    checks = json.loads(mcode.run("doctor", "--output-format", "json").check().out)["checks"]
    assert {"name", "ok", "detail", "state"} == set(checks[0])
    assert "fake/big-1" in mcode.run("models").check().out
    models = [
        json.loads(line) for line in mcode.run("models", "--output-format", "jsonl").check().out.splitlines()
    ]
    assert "fake/big-1" in {row["model"] for row in models}


def test_doctor_says_4_where_a_run_would_stop(mcode: Mcode) -> None:
    mcode.config.write_text("model = [\n")

    assert "FAIL  config" in mcode.run("doctor").check(4).out


def test_a_list_into_a_closed_pipe_is_quiet(mcode: Mcode, session: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    run = mcode.start("sessions", "list", stdout=write_end).finish()
    os.close(write_end)

    assert (run.code, run.err) == (141, "")


def test_a_dry_run_shows_what_would_run_and_calls_nothing(mcode: Mcode, peer: Peer) -> None:
    text = mcode.exec("go", "--dry-run").check()
    described = json.loads(mcode.exec("go", "--dry-run", "--output-format", "json").check().out)

    assert "  name: fake/big-1\n" in text.out
    assert described["type"] == "exec.dryRun"
    assert described["model"]["name"] == "fake/big-1"
    assert peer.requests == []
    assert not mcode.data.exists() or mcode.session_dirs() == []
    failed = mcode.exec("go", "--dry-run", "--cwd", "/nonexistent", "--output-format", "json").check(2)
    assert failed.result["exitCode"] == 2


@pytest.mark.parametrize("flags", [("--dry-run",), ("--output-format", "json")])
def test_waiting_for_stdin_ends_with_the_first_interrupt(mcode: Mcode, flags: tuple[str, ...]) -> None:
    read_end, write_end = os.pipe()
    running = mcode.start("exec", "--input", "-", *flags, stdin=read_end)
    os.close(read_end)
    os.write(write_end, b"x")
    deadline = time.monotonic() + 20
    while _unread(write_end) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.process.send_signal(signal.SIGINT)
    run = running.finish(10)
    os.close(write_end)

    assert run.code == -signal.SIGINT
    assert run.out == "" if "--dry-run" in flags else run.result["exitCode"] == 130


def _unread(fd: int) -> int:
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), "little")

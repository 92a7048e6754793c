"""stdout carries the result and nothing else, whole, whatever reads it; the files that flags name likewise."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, answer, call, drip, forever, gated, hang, say, status, think

BIG = "".join(f"{n:07d} naïve 漢字 line\n" for n in range(120_000))


def shell(
    mcode: Mcode, script: str, *, timeout: float = 50.0, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """A bash script in which `mcode` is the product; pipes and closed descriptors are its business."""
    command = " ".join(shlex.quote(word) for word in mcode.command)
    return subprocess.run(
        ["bash", "-c", f'mcode() {{ {command} "$@"; }}\n{script}'],
        env={**mcode.environment(), **env},
        cwd=mcode.workspace,
        capture_output=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


# large answers, slow readers


def test_three_megabytes_arrive_whole_through_a_pipe_that_sleeps(mcode: Mcode, peer: Peer) -> None:
    assert len(BIG.encode()) > 3 << 20
    peer.script(say(BIG, piece=4000))
    done = shell(mcode, "mcode exec -q hi | (sleep 1.5; sha256sum); echo ${PIPESTATUS[0]}")
    digest, code = done.stdout.decode().split("\n")[:2]
    assert digest.split()[0] == hashlib.sha256(BIG.encode()).hexdigest()
    assert code == "0"


def test_three_megabytes_in_json_and_in_an_export(mcode: Mcode, peer: Peer) -> None:
    peer.script(say(BIG, piece=4000))
    done = shell(mcode, "mcode exec -q hi --output-format json | (sleep 1; cat)")
    result = json.loads(done.stdout)
    assert result["output"] == BIG
    done = shell(mcode, f"mcode sessions export {result['sessionId']} | (sleep 1; cat)")
    assert BIG.strip() in json.dumps(json.loads(done.stdout), ensure_ascii=False).replace("\\n", "\n")


def test_a_non_blocking_stdout_gets_every_byte(mcode: Mcode, peer: Peer) -> None:
    peer.script(say(BIG, piece=4000))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    running = mcode.start("exec", "-q", "hi", stdout=writer)
    os.close(writer)
    received = bytearray()
    time.sleep(0.5)
    while piece := os.read(reader, 65536):
        received += piece
        if len(received) % 7 == 0:
            time.sleep(0.001)
    os.close(reader)
    running.finish().check(0)
    assert received.decode() == BIG


# closed readers


@pytest.mark.sample(4)
@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
@pytest.mark.parametrize("reader", ["true", "head -c 1", "head -1"])
def test_a_closed_reader_is_141_without_a_traceback(mcode: Mcode, peer: Peer, form: str, reader: str) -> None:
    # the answer is later than the reader's end
    peer.script(call("bash", {"command": "sleep 0.3"}), forever(drip("x" * 4000, 0.05)))
    done = shell(
        mcode, f"mcode exec hi --output-format {form} | {reader} >/dev/null; echo ${{PIPESTATUS[0]}}"
    )
    expected = "141"
    if reader != "true" and form != "stream-json":
        expected = "0"  # it reads what there is, which is everything
    assert done.stdout.decode().strip() in (expected, "141"), done
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert all(line.startswith(b"mcode: ") for line in done.stderr.splitlines())


def test_a_closed_stdout_aborts_the_turn_and_its_commands_and_settles(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "sleep 77"}), say("late"))
    started = time.monotonic()
    reader = "grep --line-buffered -m 1 item.updated"
    done = shell(mcode, f"mcode exec hi --output-format stream-json | {reader} >&2; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == b"141\n", done
    assert time.monotonic() - started < 20
    (row,) = mcode.query("select * from turn_receipts")
    assert "stdout-closed" in str(row)
    assert mcode.survivors() == []
    peer.script(say("on"))
    assert mcode.exec("-c", "on").check(0).out == "on\n"


def test_a_closed_stdout_does_not_matter_when_a_file_was_asked_for(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    for flag in ("--result", "--events", "-o"):
        file = tmp_path / f"f{flag.strip('-')}"
        peer.script(call("bash", {"command": "sleep 0.4"}), say("answer"))
        done = shell(
            mcode, f"mcode exec hi --output-format stream-json {flag} {file} | true; echo ${{PIPESTATUS[0]}}"
        )
        assert done.stdout in (b"0\n", b"141\n"), done
        assert b"answer" in file.read_bytes(), flag


def test_stdout_closed_at_the_start(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    done = shell(mcode, f"mcode exec hi >&-; echo $?; mcode exec hi --result {tmp_path}/r >&-; echo $?")
    assert done.stdout == b"141\n0\n", done
    assert json.loads((tmp_path / "r").read_text())["output"] == "hello"


def test_stderr_closed_at_the_start_is_no_trouble(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "echo x; echo y >&2"}), say("done"))
    done = shell(mcode, "mcode exec hi 2>&-; echo $?; mcode exec --nope 2>&-; echo $?")
    assert done.stdout == b"done\n0\n2\n", done
    done = shell(mcode, "mcode exec hi 0<&- 1>out 2>&-; echo $?; cat out")
    assert done.stdout == b"0\ndone\n", done


def test_both_streams_into_one_pipe_that_closes(mcode: Mcode, peer: Peer) -> None:
    done = shell(mcode, "mcode exec hi -v 2>&1 | head -1; echo ${PIPESTATUS[0]}")
    assert b"Traceback" not in done.stdout
    assert done.stdout.strip().rsplit(b"\n", 1)[-1] in (b"0", b"141")


def test_a_stderr_that_nobody_reads_holds_nothing_up(mcode: Mcode, peer: Peer) -> None:
    noisy = "import sys; sys.stderr.write('x' * 2_000_000); print('ok')"
    peer.script(
        *[call("bash", {"command": f'python3 -c "{noisy}"', "description": f"{i}"}) for i in range(2)],
        say("done"),
    )
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*mcode.command, "exec", "hi", "-v"],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    os.close(writer)
    out, _ = process.communicate(timeout=40)
    os.close(reader)
    assert (process.returncode, out) == (0, b"done\n")
    tool = next(m for m in mcode.messages() if m["role"] == "tool")["content"][0]["content"]
    assert len(tool) < 100_000
    assert "ok" in tool


# text


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_text_is_utf8_whatever_the_locale(mcode: Mcode, peer: Peer, form: str) -> None:
    peer.script(say("naïve — 漢字 \U0001f600"))
    environment = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "ascii",
        "PYTHONCOERCECLOCALE": "0",
        "LANG": None,
    }
    run = mcode.exec("grüße", "--output-format", form, env=environment).check(0)
    if form == "text":
        assert run.out_bytes.decode() == "naïve — 漢字 \U0001f600\n"
    else:
        assert run.result["output"] == "naïve — 漢字 \U0001f600"
    assert "grüße" in peer.last.text


def test_lone_surrogates_of_a_model_become_valid_text(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(say("before \ud83d after"))
    run = mcode.exec("hi").check(0)
    assert run.out_bytes.decode() == "before \ufffd after\n"
    run = mcode.exec("hi", "--output-format", "json").check(0)
    assert json.loads(run.out_bytes)["output"] in ("before \ufffd after", "before \ud83d after")
    mcode.run("sessions", "show", run.result["sessionId"]).check(0)
    assert mcode.exec("-c", "again").check(0)


def test_what_a_model_says_cannot_act_on_a_terminal_or_a_ci_runner_through_stderr(
    mcode: Mcode, peer: Peer
) -> None:
    nasty = "x\x1b[2J\x1b]0;owned\x07\r\n::set-output name=a::b\n\u202e##vso[task]\x9b1m"
    peer.script(
        call("bash", {"command": f"printf %s {shlex.quote(nasty)}; exit 3", "description": nasty}),
        call("bash", {"command": f"sudo {nasty}"}),
        call(nasty, {"a": nasty}),
        status(400, {"error": {"message": nasty}}),
    )
    run = mcode.exec("go", "-v").check(4)
    for character in "\x1b\x07\r\x9b\u202e":
        assert character not in run.err, hex(ord(character))
    lines = run.err.split("\n")[:-1]
    assert all(line.startswith("mcode: ") for line in lines)
    assert not any(line.lstrip().startswith(("::", "##")) for line in lines)
    peer.script(status(400, {"error": {"message": nasty}}))
    run = mcode.exec("go", "--title", nasty)
    assert "\x1b" not in run.err + mcode.run("sessions", "list").out


def test_an_answer_is_printed_as_it_is_into_a_pipe(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("a\tb\r\n\x1b[1mc\x1b[0m\n\n"))
    assert mcode.exec("hi").check(0).out_bytes == b"a\tb\r\n\x1b[1mc\x1b[0m\n\n"


@pytest.mark.parametrize("trailing", [(say(""),), (think("…"),), (say(" \n"), say("")), (say("\u200b"),)])
def test_an_answer_before_an_empty_last_step_is_not_lost(
    mcode: Mcode, peer: Peer, trailing: tuple[object, ...]
) -> None:
    peer.script(answer(say("The answer is 4."), call("bash", {"command": "echo x"})), *trailing)  # type: ignore[arg-type]
    run = mcode.exec("hi", "--output-format", "json").check(0)
    assert run.result["output"] == "The answer is 4."
    assert "earlier step" in run.err


def test_prints_of_libraries_warnings_and_debugging_never_reach_stdout(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import logging, warnings, sys, os, atexit, threading, time\n"
        "logging.basicConfig(stream=sys.stdout, level=0)\n"
        "def later():\n"
        "    same = lambda: os.readlink('/proc/self/fd/1') == os.readlink('/proc/self/fd/2')\n"
        "    while not same():  # from the moment at which stdout is mcode's alone\n"
        "        time.sleep(0.001)\n"
        "    time.sleep(0.05)\n"
        "    print('a dependency prints'); os.write(1, b'raw noise\\n'); warnings.warn('old')\n"
        "threading.Thread(target=later, daemon=True).start()\n"
    )
    path = f"{tmp_path / 'site'}:{mcode.environment().get('PYTHONPATH', '')}"
    peer.script(call("bash", {"command": "sleep 0.3; head -c 1000000 /dev/zero | tr '\\0' x"}), say("done"))
    run = mcode.exec(
        "hi", "-v", "--output-format", "stream-json", env={"PYTHONPATH": path, "PYTHONWARNINGS": "default"}
    ).check(0)
    assert all(line.startswith(b'{"') for line in run.out_bytes.splitlines())
    assert run.result["output"] == "done"
    assert "dependency prints" in run.err


# files


FILE_FLAGS = ["--events", "--result", "-o", "--session-id-file"]


def contents_are_right(flag: str, data: bytes) -> None:
    if flag == "--events":
        types = [json.loads(line)["type"] for line in data.splitlines()]
        assert (types[0], types[-1]) == ("exec.started", "exec.completed")
        assert "turn.completed" in types
    elif flag == "--result":
        assert json.loads(data)["output"] == "hello"
    elif flag == "-o":
        assert data == b"hello\n"
    else:
        assert data.startswith(b"mvs_")
        assert data.endswith(b"\n")


@pytest.mark.sample(4)
@pytest.mark.parametrize("flag", FILE_FLAGS)
@pytest.mark.parametrize("form", ["text", "json"])
def test_each_file_flag_writes_a_regular_file(
    mcode: Mcode, peer: Peer, tmp_path: Path, flag: str, form: str
) -> None:
    file = tmp_path / "out" if form == "text" else tmp_path / "läng lich" / "out"
    file.parent.mkdir(exist_ok=True)
    file.write_text("stale " * 1000)
    mcode.exec("hi", flag, file, "--output-format", form).check(0)
    contents_are_right(flag, file.read_bytes())
    assert [one.name for one in file.parent.iterdir() if one.name.startswith(".out")] == []


@pytest.mark.parametrize("flag", FILE_FLAGS)
def test_each_file_flag_writes_a_fifo_a_descriptor_and_stdout(
    mcode: Mcode, peer: Peer, tmp_path: Path, flag: str
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.append(fifo.read_bytes()))
    thread.start()
    mcode.exec("hi", flag, fifo).check(0)
    thread.join(10)
    contents_are_right(flag, received[0])
    done = shell(mcode, f"mcode exec -q hi {flag} /dev/fd/3 3>three >/dev/null; echo $?")
    assert done.stdout == b"0\n", done
    contents_are_right(flag, (mcode.workspace / "three").read_bytes())
    done = shell(mcode, f"mcode exec -q hi {flag} /dev/fd/3 3>&1 >/dev/null | cat")
    contents_are_right(flag, done.stdout)
    done = shell(mcode, f"mcode exec -q hi {flag} -")
    assert b"hello\n" in done.stdout


@pytest.mark.parametrize("flag", FILE_FLAGS)
def test_a_file_that_cannot_be_written_is_74_before_any_model_call(
    mcode: Mcode, peer: Peer, tmp_path: Path, flag: str
) -> None:
    for target in (tmp_path, tmp_path / "no" / "dir", "/proc/nope", "/dev/fd/63"):
        run = mcode.exec("hi", flag, target, "--output-format", "json").check(74)
        assert run.result["error"]["code"] == "OUTPUT_WRITE_FAILED"
        assert len(run.err.splitlines()) == 1, run.err
        assert flag in run.err
    assert not peer.calls


@pytest.mark.parametrize("flag", ["--result", "-o", "--session-id-file"])
def test_a_stale_file_is_gone_while_the_run_goes_on(
    mcode: Mcode, peer: Peer, tmp_path: Path, flag: str
) -> None:
    file = tmp_path / "out"
    file.write_text("stale")
    gate = Gate()
    peer.script(gated(say("hello"), gate))
    running = mcode.start("exec", "hi", flag, str(file))
    gate.wait_reached()
    assert not file.exists() or (flag == "--session-id-file" and file.read_bytes().startswith(b"mvs_"))
    gate.open()
    running.finish().check(0)
    contents_are_right(flag, file.read_bytes())


def test_a_stale_answer_does_not_survive_a_failure(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "o").write_text("stale")
    peer.script(forever(status(400)))
    mcode.exec("hi", "-o", tmp_path / "o").check(4)
    assert not (tmp_path / "o").exists()


def test_the_session_id_is_there_before_the_first_answer(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(hang())
    running = mcode.start("exec", "hi", "--session-id-file", str(tmp_path / "id"))
    peer.wait_for(1)
    session = (tmp_path / "id").read_text().strip()
    running.send(signal.SIGKILL)
    running.finish()
    mcode.may_leave_processes = True
    peer.script(say("back"))
    assert mcode.exec("--session", session, "again").check(0).out == "back\n"


def test_two_flags_on_one_target_cannot_be_combined(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "y").mkdir()
    (tmp_path / "link").symlink_to("x")
    one = str(tmp_path / "x")
    for other in (one, f"{tmp_path}/y/../x", str(tmp_path / "link"), os.path.relpath(one, mcode.workspace)):
        run = mcode.exec("hi", "--result", one, "--events", other, "--output-format", "json").check(2)
        assert "cannot be combined" in run.err
        assert run.result["exitCode"] == 2
    assert "cannot be combined" in mcode.exec("hi", "--result", "-", "--events", "/dev/stdout").check(2).err
    mcode.exec("hi", "--result", "/dev/null", "--events", "/dev/null").check(0)
    assert len(peer.calls) == 1


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_stdout_is_the_programs_alone_where_its_format_has_it(mcode: Mcode, peer: Peer, form: str) -> None:
    for flag in FILE_FLAGS:
        run = mcode.exec("hi", flag, "-", "--output-format", form).check(2)
        assert "cannot be combined" in run.err
        assert run.out.count('"exec.result"') == 1
    assert not peer.calls


def test_events_are_flushed_line_by_line(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    gate = Gate()
    peer.script(gated(say("hello"), gate))
    running = mcode.start("exec", "hi", "--events", str(tmp_path / "e"))
    gate.wait_reached()
    deadline = time.monotonic() + 5
    types: list[str] = []
    while "turn.started" not in types and time.monotonic() < deadline:
        types = [json.loads(line)["type"] for line in (tmp_path / "e").read_bytes().split(b"\n")[:-1]]
    assert types[:3] == ["exec.started", "session.started", "turn.started"], types
    gate.open()
    running.finish().check(0)


def test_files_follow_the_umask_and_symlinks(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    done = shell(mcode, f"umask 027; mcode exec -q hi -o {tmp_path}/link --result {tmp_path}/new; echo $?")
    assert done.stdout == b"hello\n0\n", done
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"hello\n"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_a_full_device_for_the_result_is_74_although_the_turn_succeeded(mcode: Mcode, peer: Peer) -> None:
    for flag in ("--result", "-o"):
        run = mcode.exec("hi", flag, "/dev/full", "--output-format", "json").check(74)
        assert run.result["error"]["code"] == "OUTPUT_WRITE_FAILED"
        assert run.result["partialOutput"] == "hello"


def test_a_fifo_without_a_reader_is_an_error_after_five_seconds(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "f")
    run = mcode.exec("hi", "--events", tmp_path / "f").check(74)
    assert 4.5 < run.duration_s < 9
    assert not peer.calls


def test_a_reader_of_the_events_that_leaves_is_told_in_the_result(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "sleep 0.5"}), say("hello"))
    done = shell(
        mcode, "mkfifo f; head -1 f >/dev/null & mcode exec hi --events f --output-format json; echo $?"
    )
    result, code = done.stdout.splitlines()
    assert code == b"74"
    assert json.loads(result)["error"]["code"] == "OUTPUT_WRITE_FAILED"
    assert json.loads(result)["partialOutput"] == "hello"


def test_everything_closed_at_the_start(mcode: Mcode) -> None:
    done = shell(mcode, "mcode exec hi --result r <&- >&- 2>&-; echo $?; cat r")
    code, result = done.stdout.splitlines()
    assert code == b"0"
    assert json.loads(result)["output"] == "hello"

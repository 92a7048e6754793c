"""How `mcode exec` ends: exit codes, results, signals, closed and slow readers.  Real processes, real pipes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("scripted_mcode.py")
ROOT = PROGRAM.parents[3]
SESSION = "mvs_" + "0123456789abcdef" * 2


def world(script: str, **env: str) -> dict[str, str]:
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "SCRIPT": script, "HOME": "/nonexistent"}
    return {**base, **env}


def start(
    script: str, *flags: str, env: dict[str, str] | None = None, **settings: Any
) -> subprocess.Popen[bytes]:
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    command = [sys.executable, str(PROGRAM), "exec", "hi", *flags]
    return subprocess.Popen(command, env=world(script, **(env or {})), **settings)


def run(script: str, *flags: str, **settings: Any) -> tuple[int, bytes, str]:
    process = start(script, *flags, **settings)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, (err or b"").decode()


def wait_for(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stderr is not None
    line = process.stderr.readline()
    assert text in line, line


def result_in(out: bytes) -> dict[str, Any]:
    last = json.loads(out.splitlines()[-1])
    found: dict[str, Any] = last.get("result", last)
    assert found["type"] == "exec.result"
    return found


ENDINGS = {
    "hello": (0, "succeeded", ""),
    "asks": (5, "interaction_required", "mcode: denied bash: `make all` must be asked for"),
    "limit": (
        7,
        "limit_exceeded",
        f"mcode: stopped: step limit 3 reached (set by --max-steps); session {SESSION}",
    ),
    "busy": (75, "failed", "mcode: error: session mvs_0 is busy"),
    "config": (3, "failed", "mcode: error: no model is set (CONFIG_INVALID)"),
    "bug": (70, "failed", "mcode: error: unexpected ValueError: no such luck; this is a bug in mcode"),
    "memory": (70, "failed", "mcode: error: unexpected MemoryError; this is a bug in mcode"),
}


@pytest.mark.parametrize("script", ENDINGS)
@pytest.mark.parametrize("output_format", ["text", "json", "stream-json", "jsonl"])
def test_every_ending_has_one_code_one_sentence_and_one_result(script: str, output_format: str) -> None:
    code, status, sentence = ENDINGS[script]

    rc, out, err = run(script, "--output-format", output_format)

    assert rc == code, err
    assert sentence in err
    assert all(line.startswith("mcode: ") for line in err.splitlines())
    assert "Traceback" not in err
    if output_format == "text":
        assert out.decode() == {"hello": "hello\n", "asks": "done so far\n"}.get(script, "")
        return
    lines = [json.loads(line) for line in out.splitlines()]
    found = result_in(out)
    assert (found["status"], found["exitCode"]) == (status, code)
    assert found["retryable"] is (code in (69, 75))
    if output_format == "json":
        assert len(lines) == 1
    else:
        assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
        assert lines[0]["type"] == "exec.started"
        assert [line["type"] for line in lines].count("exec.completed") == 1


def test_the_last_line_of_stderr_names_the_session_and_how_to_go_on() -> None:
    _, _, err = run("hello", "--data-dir", "/a b")

    line = f"mcode: session {SESSION}, continue with: mcode exec --data-dir '/a b' --session {SESSION} \"…\""
    assert err.splitlines()[-1] == line


def test_quiet_keeps_only_errors() -> None:
    assert run("hello", "-q") == (0, b"hello\n", "")
    assert "mcode: error: no model is set" in run("config", "-q")[2]


def test_an_ephemeral_session_cannot_be_continued() -> None:
    assert run("hello", "--ephemeral")[2] == ""


def test_money_is_a_number_in_the_result() -> None:
    assert b'"costUsd":0.00012,' in run("hello", "--output-format", "json")[1]


def test_whatever_is_printed_goes_to_stderr() -> None:
    rc, out, err = run("noisy", "--output-format", "stream-json", env={"PYTHONWARNINGS": "default"})

    assert rc == 0
    assert all(json.loads(line) for line in out.splitlines())
    assert "mcode: printed by a dependency\n" in err
    assert "mcode: without newline\n" in err
    assert "raw bytes of a C library" in err
    assert "mcode: from the model: \\e[31m\\r::set-output name=x::y\n" in err
    assert "\x1b" not in err


def test_a_bug_leaves_its_traceback_in_the_diagnostics_only(tmp_path: Path) -> None:
    _, _, err = run("bug", "--diagnostics-dir", str(tmp_path / "d"))

    (report,) = (tmp_path / "d").iterdir()
    assert "ValueError: no such luck" in report.read_text()
    assert report.stat().st_mode & 0o777 == 0o600
    assert "Traceback" not in err
    assert "mcode:   ValueError: no such luck" in run("bug", "-v")[2]


def test_errors_that_nobody_waits_for_are_one_line_each() -> None:
    rc, out, err = run("stray")

    assert (rc, out) == (0, b"hello\n")
    assert "mcode: unexpected KeyError in the background: 'lost task' (-v shows where)" in err
    assert "mcode: unexpected KeyError in the background: 'lost thread' (-v shows where)" in err
    assert "Traceback" not in err
    assert "Traceback" in run("stray", "-v")[2]


def test_a_slow_reader_gets_every_byte() -> None:
    process = start("big")
    time.sleep(0.5)
    assert process.stdout is not None
    out = process.stdout.read()

    assert out.decode() == "naïve — 漢字 " * 200_000 + "\n"
    assert process.wait(10) == 0
    process.communicate()


def test_a_non_blocking_stdout_is_written_completely() -> None:
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETFL, os.O_NONBLOCK)
    process = start("big", "--output-format", "json", stdout=write_end)
    os.close(write_end)
    time.sleep(0.3)
    with os.fdopen(read_end, "rb") as reader:
        out = reader.read()

    assert result_in(out)["output"] == "naïve — 漢字 " * 200_000
    process.communicate()
    assert process.returncode == 0


def test_a_parent_that_reads_stdout_only_does_not_hang_the_run() -> None:
    process = start("chatty", "--output-format", "json")
    assert process.stdout is not None
    out = process.stdout.read()  # ends only when the process does

    assert result_in(out)["status"] == "succeeded"
    assert process.wait(10) == 0
    process.communicate()


@pytest.mark.parametrize("script", ["wait", "stream"])
@pytest.mark.parametrize("output_format", ["text", "stream-json"])
def test_a_closed_stdout_is_noticed_and_ends_the_run_with_141(script: str, output_format: str) -> None:
    process = start(script, "--output-format", output_format)
    assert process.stdout is not None
    assert process.stderr is not None
    if output_format == "stream-json":
        process.stdout.readline()
    else:
        time.sleep(0.3)
    process.stdout.close()

    assert process.wait(10) == 141
    err = process.stderr.read().decode()
    process.stderr.close()
    assert "BrokenPipe" not in err
    assert "Exception ignored" not in err


def test_a_stdout_that_was_never_open_counts_as_closed() -> None:
    command = f"exec {sys.executable} {PROGRAM} exec hi >&-"
    done = subprocess.run(["sh", "-c", command], env=world("hello"), stderr=subprocess.PIPE, check=False)

    assert done.returncode == 141


def test_closed_stdin_and_stderr_are_no_reason_to_stop() -> None:
    command = f"exec {sys.executable} {PROGRAM} exec hi <&- 2>&-"
    done = subprocess.run(["sh", "-c", command], env=world("hello"), stdout=subprocess.PIPE, check=False)

    assert (done.returncode, done.stdout) == (0, b"hello\n")


def test_a_closed_stdout_does_not_end_a_run_that_writes_its_result_elsewhere(tmp_path: Path) -> None:
    process = start("hello", "--result", str(tmp_path / "r.json"))
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=10)

    assert process.returncode == 0, err
    assert json.loads((tmp_path / "r.json").read_bytes())["output"] == "hello"


def test_a_full_disk_behind_stdout_is_74(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        rc, _, err = run("hello", "--result", str(tmp_path / "r.json"), stdout=full)

    assert rc == 74
    assert "mcode: error: stdout: cannot write the result: No space left on device." in err
    assert json.loads((tmp_path / "r.json").read_bytes())["exitCode"] == 74


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("script", ["wait", "slow_open"])
def test_a_signal_ends_the_process_by_that_signal_after_a_result(script: str, signum: int) -> None:
    process = start(script, "--output-format", "stream-json")
    assert process.stdout is not None
    process.stdout.readline()
    if script == "wait":
        wait_for(process, b"waiting")
    process.send_signal(signum)
    out, _ = process.communicate(timeout=10)

    assert process.returncode == -signum
    assert (result_in(out)["status"], result_in(out)["exitCode"]) == ("cancelled", 128 + signum)


def test_a_signal_before_the_loop_runs_still_gives_a_result() -> None:
    process = start("wait", "--output-format", "json", env={"PYTHONVERBOSE": "1"})
    assert process.stderr is not None
    for line in process.stderr:  # the command line is being parsed, there is no loop yet
        if b"import 'mcode_exec.cli.exec_command'" in line:
            break
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)

    assert process.returncode == -signal.SIGTERM
    assert result_in(out)["exitCode"] == 143


def test_a_hangup_that_was_ignored_at_start_stays_ignored() -> None:
    process = start("wait", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for(process, b"waiting")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)

    assert process.returncode == -signal.SIGTERM


def test_an_interrupt_that_was_ignored_at_start_still_ends_the_run() -> None:
    process = start("wait", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    wait_for(process, b"waiting")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)

    assert process.returncode == -signal.SIGINT


def test_a_signal_sent_twice_at_once_is_one_signal() -> None:
    process = start("wait", "--output-format", "json")
    wait_for(process, b"waiting")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=10)

    assert process.returncode == -signal.SIGTERM
    assert result_in(out)["status"] == "cancelled"


def test_a_second_signal_ends_a_settlement_that_hangs() -> None:
    process = start("stuck")
    wait_for(process, b"waiting")
    process.send_signal(signal.SIGINT)
    wait_for(process, b"settling")
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)

    assert process.wait(5) == -signal.SIGTERM
    process.communicate()


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_signal_after_the_outcome_changes_nothing(output_format: str) -> None:
    rc, out, _ = run("late", "--output-format", output_format)

    assert rc == 0
    assert out == b"hello\n" if output_format == "text" else result_in(out)["exitCode"] == 0


@pytest.mark.parametrize("script", ["big", "stream"])
def test_a_reader_that_never_reads_does_not_outlive_a_signal(script: str) -> None:
    process = start(script, "--output-format", "stream-json")
    time.sleep(0.7)
    process.send_signal(signal.SIGTERM)

    assert process.wait(8) == -signal.SIGTERM
    process.communicate()


def test_a_reader_that_never_reads_does_not_outlive_the_timeout() -> None:
    process = start("stream", "--output-format", "stream-json", "--timeout", "300ms")

    assert process.wait(9) == 6
    process.communicate()


def test_a_time_limit_ends_the_run_with_6() -> None:
    rc, out, _ = run("wait", "--timeout", "200ms", "--output-format", "json")

    assert (rc, result_in(out)["status"]) == (6, "timeout")


@pytest.mark.sample(2)
@pytest.mark.parametrize("script", ["blocked", "stuck"])
@pytest.mark.parametrize("output_format", ["text", "json", "stream-json"])
def test_a_run_that_is_stuck_does_not_outlive_the_timeout_and_leaves_its_result_all_the_same(
    script: str, output_format: str, tmp_path: Path
) -> None:
    file, events = tmp_path / "r.json", tmp_path / "ev.jsonl"
    flags = ("--timeout", "100ms", "--output-format", output_format, "--result", str(file))
    rc, out, err = run(script, *flags, "--events", str(events))

    assert rc == 6
    result = result_in(file.read_bytes())
    assert (result["status"], result["exitCode"], result["error"]["code"]) == ("timeout", 6, "TIMEOUT")
    assert (result["sessionId"], result["usageIncomplete"], result["costUsd"]) == (SESSION, True, None)
    assert json.loads(events.read_bytes().splitlines()[-1])["result"] == result
    assert "stopped: time limit 100ms reached" in err
    assert out == b"" if output_format == "text" else result_in(out) == result


def test_threads_and_connections_that_hang_do_not_hold_the_exit() -> None:
    assert run("slow_close")[:2] == (0, b"hello\n")


@pytest.mark.parametrize("answer", ["naïve — 漢字", "lone \\ud83d surrogate"])
@pytest.mark.parametrize("locale", ["C", "xx_XX"])
def test_stdout_is_utf8_whatever_the_locale(locale: str, answer: str) -> None:
    env = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "ANSWER": "plain"}
    text = answer.encode().decode("unicode_escape") if "\\u" in answer else answer
    program = (
        f"import os; os.environb[b'ANSWER'] = {text.encode('utf-8', 'surrogatepass')!r};"
        "import runpy, sys; sys.argv = sys.argv[1:];"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    for output_format in ("text", "json"):
        command = [
            sys.executable,
            "-c",
            program,
            str(PROGRAM),
            "exec",
            "hi",
            "--output-format",
            output_format,
        ]
        done = subprocess.run(command, env=world("surrogate", **env), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        if output_format == "text":
            assert (
                done.stdout.decode()
                == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") + "\n"
            )
        else:
            assert json.loads(done.stdout)["output"] == text


def test_a_bug_in_what_follows_the_result_changes_nothing_of_it() -> None:
    code, out, err = run("broken_pages", "--output-format", "json")
    assert code == 0
    assert result_in(out)["status"] == "succeeded"
    assert "unexpected AttributeError after the run" in err

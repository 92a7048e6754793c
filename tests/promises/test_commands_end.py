"""Commands end: with their shell, on their limit, with the turn and with mcode; nothing survives, nothing hangs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import call, hang, say

JSON = ("--output-format", "json")
STREAM = ("--output-format", "stream-json")


def _bash(command: str, **more: Any) -> Any:
    return call("bash", {"command": command, **more})


def _output(run: Run, number: int = 0) -> str:
    """What the tool call `number` of a stream-json run brought."""
    items = [event["item"] for event in run.of_type("item.completed")]
    calls = [item["toolCall"] for item in items if item["type"] == "tool_call"]
    return str(calls[number]["output"] or calls[number]["error"])


def _is_alive(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _wait_until(is_true: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def _pids(*files: Path) -> list[int]:
    for file in files:
        _wait_until(lambda file=file: file.exists() and file.read_text().endswith("\n"), f"{file} is written")  # type: ignore[misc]
    return [int(line) for file in files for line in file.read_text().split()]


BACKGROUND = {
    "child that holds stdout": "(sleep 300 &) ; echo ok",
    "silent child": "sleep 300 >/dev/null 2>&1 & echo ok",
    "nohup": f"nohup {sys.executable} -m http.server 0 --bind 127.0.0.1 & echo ok",
    "session of its own": "setsid sleep 300 & echo ok",
    "double fork": "setsid sh -c 'sleep 300 & exit' ; echo ok",
    "cleared environment": "env -i setsid -f /bin/sleep 300 ; echo ok",
    "ignores TERM": "setsid sh -c \"trap '' TERM HUP; sleep 300; sleep 300\" & echo ok",
    "stopped": "setsid sleep 300 & kill -STOP $!; echo ok",
    "endless writer": "echo ok; yes &",
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("command", BACKGROUND.values(), ids=BACKGROUND.keys())
def test_a_command_ends_with_its_shell_and_what_it_left_is_named_and_gone(
    mcode: Mcode, peer: Peer, command: str
) -> None:
    peer.script(_bash(command), say("done"))
    run = mcode.exec("go", *STREAM).check()
    item = next(
        event["item"]["toolCall"]
        for event in run.of_type("item.completed")
        if event["item"]["type"] == "tool_call"
    )
    assert item["status"] == "completed"
    assert "ok" in item["output"]
    assert item["durationMs"] < 2000
    left = run.result["leftoverProcesses"]
    assert left, "what stayed in the background is named"
    assert all(one["command"] for one in left)
    assert not [one for one in left if _is_alive(one["pid"])]
    assert not mcode.survivors()


def test_a_background_process_lives_on_until_the_turn_ends(mcode: Mcode, peer: Peer) -> None:
    peer.script(
        _bash("(while :; do sleep 0.05; date >> ticks; done) >/dev/null 2>&1 & echo $! > pid"),
        _bash("sleep 0.3; kill -0 $(cat pid) && echo still-there; test -s ticks && echo ticking"),
        say("done"),
    )
    run = mcode.exec("go", *STREAM).check()
    assert "still-there" in _output(run, 1)
    assert "ticking" in _output(run, 1)
    assert len(run.result["leftoverProcesses"]) >= 1
    assert not _is_alive(int((mcode.workspace / "pid").read_text()))


def test_a_command_that_leaves_nothing_names_nothing(mcode: Mcode, peer: Peer) -> None:
    peer.script(_bash("sleep 0.05 & wait; echo ok"), say("done"))
    assert mcode.exec("go", *JSON).check().result["leftoverProcesses"] == []


LIMITED = {
    "wrapper": 'bash -c "sleep 300; touch late"',
    "pipeline": "yes | sleep 300; touch late",
    "ignores TERM": "trap '' TERM; (trap '' TERM; sleep 300; touch late) & wait; sleep 300; touch late",
    "session of its own": "setsid sh -c 'sleep 300; touch late' & wait; touch late",
    "no environment": "env -i setsid -f /bin/sleep 300; sleep 300; touch late",
    "stopped": "kill -STOP $$; touch late",
    "deep": 'bash -c \'bash -c "bash -c \\"sleep 300; touch late\\""; touch late\'; touch late',
}


@pytest.mark.parametrize("command", LIMITED.values(), ids=LIMITED.keys())
def test_the_limit_of_a_command_ends_its_whole_tree(mcode: Mcode, peer: Peer, command: str) -> None:
    marker = "echo $$ > shell.pid; "
    peer.script(_bash(marker + command, timeout_ms=300), say("done"))
    run = mcode.exec("go", *STREAM).check()
    assert "timed out" in _output(run)
    assert run.duration_s < 8
    assert not (mcode.workspace / "late").exists()
    assert not mcode.survivors()
    assert not _is_alive(int((mcode.workspace / "shell.pid").read_text()))
    assert run.result["toolErrors"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_a_command_settles_everything_and_ends_the_process_by_it(
    mcode: Mcode, peer: Peer, number: signal.Signals
) -> None:
    tree = "echo $$ > pids; (trap '' TERM INT HUP; setsid sh -c 'echo $$ >> pids; sleep 90' & sleep 90)"
    peer.script(_bash(tree), say("never"))
    running = mcode.start("exec", "go", *STREAM)
    pid_file = mcode.workspace / "pids"
    _wait_until(lambda: pid_file.exists() and pid_file.read_text().count("\n") == 2, "the command runs")
    running.send(number)
    run = running.finish(10)
    assert run.code == -number
    assert run.duration_s < 9
    assert run.events[-1]["type"] == "exec.completed"
    assert run.result["status"] == "cancelled"
    assert run.result["exitCode"] == 128 + number
    assert not [pid for pid in _pids(pid_file) if _is_alive(pid)]
    assert mcode.query("select status from sessions")[0]["status"] == "aborted"
    assert mcode.query("select * from session_locks") == []
    receipt = mcode.query("select * from turn_receipts")[0]
    assert (receipt["outcome"], receipt["reason"]) == ("aborted", "signal")
    roles = [message["role"] for message in mcode.messages()]
    assert roles[:3] == ["user", "assistant", "tool"]
    assert "aborted" in str(mcode.messages()[2])
    peer.script(say("again"))
    assert mcode.exec("--continue", "again").check().out == "again\n"


def test_a_command_that_catches_term_and_leaves_with_0_does_not_turn_a_timeout_into_success(
    mcode: Mcode, peer: Peer
) -> None:
    peer.script(_bash("trap 'exit 0' TERM; sleep 60 & wait"), say("never"))
    run = mcode.exec("go", "--timeout", "1s", *JSON).check(6)
    assert run.result["status"] == "timeout"
    assert run.duration_s < 6


def test_the_second_signal_ends_at_once_and_leaves_a_session_that_goes_on(mcode: Mcode, peer: Peer) -> None:
    # the tree takes its whole grace, so the second signal finds us settling
    peer.script(_bash("trap '' TERM; echo x > up; while :; do sleep 1; done"), say("never"))
    running = mcode.start("exec", "go", *STREAM)
    _wait_until((mcode.workspace / "up").exists, "the command runs")
    running.send(signal.SIGINT)
    time.sleep(0.3)
    sent = time.monotonic()
    running.send(signal.SIGINT)
    assert running.process.wait(5) == -signal.SIGINT
    assert time.monotonic() - sent < 1.0
    mcode.may_leave_processes = True
    running.finish(5)
    peer.script(say("again"))
    assert mcode.exec("--continue", "again").check().out == "again\n"
    _wait_until(lambda: not mcode.survivors(), "the strays are gone")


def test_a_signal_while_the_model_is_silent_ends_within_two_seconds(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang())
    running = mcode.start("exec", "go", *JSON)
    peer.wait_for(1)
    sent = time.monotonic()
    running.send(signal.SIGINT)
    run = running.finish(10)
    assert time.monotonic() - sent < 2
    assert run.code == -signal.SIGINT
    assert run.result["exitCode"] == 130


def test_a_hangup_that_was_ignored_at_start_stays_ignored(mcode: Mcode, peer: Peer) -> None:
    peer.script(_bash("echo up > up; sleep 0.5; echo ok"), say("done"))
    process = subprocess.Popen(
        ["nohup", *mcode.command, "exec", "go"],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_until((mcode.workspace / "up").exists, "the command runs")
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"done\n"), err


def test_the_next_mcode_ends_what_a_killed_one_left(mcode: Mcode, peer: Peer) -> None:
    mcode.may_leave_processes = True
    peer.script(_bash("setsid sh -c 'echo $$ > stray; sleep 300' & echo $$ > shell; sleep 300"), say("never"))
    running = mcode.start("exec", "go", *STREAM)
    stray, shell = _pids(mcode.workspace / "stray", mcode.workspace / "shell")
    running.kill()
    running.process.wait(5)
    _wait_until(lambda: not _is_alive(shell), "the direct child dies with mcode")
    assert _is_alive(stray)
    peer.script(say("again"))
    run = mcode.exec("--continue", "again", *JSON).check()
    assert run.result["output"] == "again"
    assert not _is_alive(stray)
    running.finish(5)


def test_strays_of_a_killed_mcode_are_left_alone_while_they_belong_to_a_living_one(
    mcode: Mcode, peer: Peer
) -> None:
    peer.script(
        _bash("setsid sleep 300 & echo $! > pid; sleep 1.5; kill -0 $(cat pid) && echo alive"), say("done")
    )
    running = mcode.start("exec", "go", *STREAM)
    _pids(mcode.workspace / "pid")
    peer_of_other = mcode.workspace.parent / "other"
    peer_of_other.mkdir()
    other = mcode.run("sessions", "list", cwd=peer_of_other)
    other.check()
    run = running.finish(20).check()
    assert "alive" in _output(run)


SUBREAPER = """
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
bystander = subprocess.Popen(["setsid", "sleep", "30"])
code = subprocess.call(sys.argv[1:])
time.sleep(0.05)
assert bystander.poll() is None, "the bystander was killed"
bystander.kill()
sys.exit(code)
"""


def test_under_a_subreaper_orphans_are_found_and_bystanders_spared(mcode: Mcode, peer: Peer) -> None:
    peer.script(_bash("setsid -f sh -c 'echo $$ > pid; sleep 300'; sleep 0.2; echo ok"), say("done"))
    done = subprocess.run(
        [sys.executable, "-c", SUBREAPER, *mcode.command, "exec", "go", *JSON],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 0, done
    assert b'"leftoverProcesses":[{' in done.stdout
    assert not [pid for pid in _pids(mcode.workspace / "pid") if _is_alive(pid)]


needs_namespace = pytest.mark.skipif(
    os.geteuid() != 0
    or shutil.which("unshare") is None
    or subprocess.run(["unshare", "-pf", "--mount-proc", "true"], capture_output=True).returncode != 0,
    reason="needs root and a pid namespace",
)


@needs_namespace
@pytest.mark.parametrize("kind", ["pid 1", "child of pid 1"])
def test_in_a_pid_namespace_nothing_is_missed_and_nothing_hangs(mcode: Mcode, peer: Peer, kind: str) -> None:
    peer.script(
        _bash("(sleep 300 &); setsid -f sh -c 'sleep 300'; sleep 0.2; echo ok"),
        _bash("echo two"),
        say("done"),
    )
    command = [*mcode.command, "exec", "go", *JSON]
    if kind == "child of pid 1":
        command = ["sh", "-c", '"$@"; code=$?; ps -e -o args= > after; exit $code', "sh", *command]
    done = subprocess.run(
        ["unshare", "-pf", "--mount-proc", *command],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 0, done
    assert done.stdout.count(b'"command":') >= 2
    if kind == "child of pid 1":
        assert "sleep 300" not in (mcode.workspace / "after").read_text()


@needs_namespace
def test_as_pid_1_a_signal_still_ends_it_with_its_code(mcode: Mcode, peer: Peer) -> None:
    peer.script(_bash("echo up > up; sleep 60"), say("never"))
    process = subprocess.Popen(
        ["unshare", "-pf", "--mount-proc", *mcode.command, "exec", "go", *JSON],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _wait_until((mcode.workspace / "up").exists, "the command runs")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    out, err = process.communicate(timeout=15)
    assert process.returncode == 143, (process.returncode, out, err)
    assert b'"status":"cancelled"' in out


PROMPTING = {
    "commit": "git commit --allow-empty",
    "rebase": "git rebase -i --root",
    "clone": "git clone https://127.0.0.1:1/x",
    "credential": "printf 'protocol=https\\nhost=127.0.0.1\\n\\n' | git credential fill",
    "sudo": "sudo -v",
    "ssh": "ssh -o ConnectTimeout=2 nobody@127.0.0.1 -p 1",
    "less": "less README.md; echo paged",
    "man": "man ls | head -1",
    "read": "read -r line; echo got:$line",
    "cat": "cat",
    "tty": "cat < /dev/tty",
    "passwd": f"{sys.executable} -c 'import getpass; getpass.getpass()'",
    "log": "git log --stat; git diff; git branch -a; echo paged",
    "rg": "rg nothing-here; grep nothing-here; echo done",
    "python": f"{sys.executable} -i < /dev/null",
    "vi": "${EDITOR:-vi} README.md",
}


def test_commands_that_would_ask_fail_quickly_instead(
    mcode: Mcode, peer: Peer, workspace: Callable[..., Path]
) -> None:
    import pty

    workspace(git=True)
    steps = [_bash(command, timeout_ms=8000) for command in PROMPTING.values()]
    peer.script(*steps, say("done"))
    # under a terminal of its own, where a prompt would find one
    main, other = pty.openpty()
    try:
        process = subprocess.Popen(
            ["setsid", "-c", *mcode.command, "exec", "go", "--permission", "off", "--result", "result.json"],
            env=mcode.environment(),
            cwd=mcode.workspace,
            stdin=other,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert process.wait(60) == 0
    finally:
        os.close(main)
        os.close(other)
    results = [message["content"][0] for message in mcode.messages() if message["role"] == "tool"]
    assert len(results) == len(PROMPTING)
    for name, result in zip(PROMPTING, results, strict=True):
        assert "timed out" not in result["content"], (name, result)
        assert result["duration_ms"] < 6000, (name, result)


def test_both_streams_of_a_noisy_command_are_drained(mcode: Mcode, peer: Peer) -> None:
    program = 'import sys; sys.stderr.write("x"*2000000); sys.stdout.write("y"*2000000); print("ok")'
    peer.script(_bash(f"{sys.executable} -c '{program}'"), say("done"))
    run = mcode.exec("go", *STREAM).check()
    assert "ok" in _output(run)
    assert len(_output(run)) < 100_000


def test_a_command_does_not_read_the_stdin_of_its_caller(mcode: Mcode, peer: Peer) -> None:
    from tests.support.steps import forever

    def step(request: Any) -> Any:
        return say("done") if "(no output)" in request.text else _bash("cat")

    peer.script(forever(step))
    loop = 'while read l; do "$@" exec "say $l" </dev/stdin; done'
    done = subprocess.run(
        ["sh", "-c", loop, "sh", *mcode.command],
        input=b"a\nb\nc\n",
        env=mcode.environment(),
        cwd=mcode.workspace,
        capture_output=True,
        timeout=30,
    )
    assert done.stdout == b"done\n" * 3, done


def test_a_tool_that_is_blocked_in_the_kernel_keeps_neither_the_abort_nor_the_end(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    """A read that blocks (here: a FIFO swapped in behind the search tools) is left behind in a daemon thread."""
    os.mkfifo(mcode.workspace / "pipe")
    peer.script(
        call("read", {"file_path": "pipe"}) + call("grep", {"pattern": "x", "path": "pipe"}),
        call("grep", {"pattern": "x"}),
        say("done"),
    )
    run = mcode.exec("go", *JSON).check()
    assert run.duration_s < 8


def test_the_end_does_not_wait_for_a_server_that_keeps_the_connection(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("done"))
    started = mcode.start("exec", "go", *STREAM)
    started.wait_event("exec.completed")
    at = time.monotonic()
    started.process.wait(5)
    assert time.monotonic() - at < 2


def test_a_signal_after_the_final_result_never_changes_the_outcome(mcode: Mcode, peer: Peer) -> None:
    for delay_s in (0.0, 0.002, 0.005, 0.01, 0.03):
        peer.script(say("done"))
        running = mcode.start("exec", "go", *STREAM)
        running.wait_event("exec.completed")
        time.sleep(delay_s)
        running.send(signal.SIGTERM)
        run = running.finish(5)
        assert run.result["exitCode"] == 0
        assert run.code == 0, f"the outcome was overwritten {delay_s} s after the result"


def test_a_child_that_kills_its_parent_group_does_not_kill_mcode(mcode: Mcode, peer: Peer) -> None:
    peer.script(_bash("kill -9 0"), _bash("kill -9 -- -$$"), say("done"))
    run = mcode.exec("go", "--permission", "off", *STREAM).check()
    assert "signal 9" in _output(run, 0)
    assert "signal 9" in _output(run, 1)


def test_a_sigchld_ignored_by_the_caller_changes_nothing(mcode: Mcode, peer: Peer) -> None:
    peer.script(_bash("exit 7"), say("done"))
    program = textwrap.dedent(
        """
        import os, signal, sys
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.execvp(sys.argv[1], sys.argv[1:])
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *mcode.command, "exec", "go", *JSON],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    assert done.returncode == 0, done
    assert b"exit code: 7" in done.stdout


def test_limits_of_commands_come_from_the_config_and_no_call_goes_beyond(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(tables='[timeouts]\ncommand = "300ms"\ncommand_max = "600ms"')
    peer.script(_bash("sleep 20"), _bash("sleep 20", timeout_ms=60_000), say("done"))
    run = mcode.exec("go", *STREAM).check()
    assert "timed out after 300 ms" in _output(run, 0)
    assert "timed out after 600 ms" in _output(run, 1)


@pytest.mark.parametrize("tool", [("glob", {"pattern": "*"}), ("grep", {"pattern": "x"})])
def test_a_search_that_hangs_does_not_hold_up_a_signal(
    mcode: Mcode, peer: Peer, tmp_path: Path, tool: tuple[str, dict[str, str]]
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "rg").write_text("#!/bin/sh\ntrap '' INT\ntouch started\nexec sleep 60\n")
    (programs / "rg").chmod(0o755)
    (mcode.workspace / "f").write_text("x\n")
    peer.script(call(*tool), say("never"))
    running = mcode.start("exec", "go", *STREAM, env={"PATH": f"{programs}:{os.environ['PATH']}"})
    _wait_until((mcode.workspace / "started").exists, "the search runs")
    running.send(signal.SIGINT)
    run = running.finish(10)
    assert run.code == -signal.SIGINT
    assert run.result["status"] == "cancelled"
    assert not mcode.survivors()


def test_what_an_earlier_command_left_is_named_by_an_aborted_turn_too(mcode: Mcode, peer: Peer) -> None:
    peer.script(_bash("setsid sleep 300 & echo $! > left"), _bash("touch up; sleep 60"), say("never"))
    running = mcode.start("exec", "go", *STREAM)
    _wait_until((mcode.workspace / "up").exists, "the second command runs")
    running.send(signal.SIGTERM)
    run = running.finish(10)
    assert "sleep 300" in str(run.result["leftoverProcesses"])
    assert not _is_alive(int((mcode.workspace / "left").read_text()))


def test_a_workspace_that_a_command_removes_is_an_error_of_the_next_call(mcode: Mcode, peer: Peer) -> None:
    peer.script(
        _bash('rmdir "$PWD"'), _bash("echo hi"), call("list"), call("grep", {"pattern": "x"}), say("done")
    )
    result = mcode.exec("go", "--permission", "off", *JSON).check().result
    assert [failure["tool"] for failure in result["toolFailures"]] == ["bash", "list", "grep"]


def test_a_hundred_processes_left_behind_are_all_ended(mcode: Mcode, peer: Peer) -> None:
    peer.script(_bash("for i in $(seq 100); do setsid sleep 300 & done; echo ok"), say("done"))
    result = mcode.exec("go", *JSON).check().result
    assert len(result["leftoverProcesses"]) == 100
    assert not mcode.survivors()

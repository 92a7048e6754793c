"""Signals, deadlines and what is left behind: one settled ending, nothing survives, nothing hangs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import REPOSITORY, Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, call, forever, gated, hang, say, stall_after, status
from tests.support.terminal import Terminal

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
#: what batch systems, limits and wrappers end their jobs with
OTHER_SIGNALS = [signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU]


def settled(mcode: Mcode) -> dict[str, Any]:
    """The one receipt, after checking that nothing is held any more."""
    assert mcode.query("select * from session_locks") == []
    (row,) = mcode.query("select * from turn_receipts order by sequence desc limit 1")
    return row


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", [*SIGNALS, *OTHER_SIGNALS])
def test_a_signal_during_a_command_settles_and_ends_by_the_signal(
    mcode: Mcode, peer: Peer, number: signal.Signals
) -> None:
    peer.script(call("bash", {"command": "sleep 91"}), say("never"))
    running = mcode.start("exec", "go", "--output-format", "stream-json")
    running.wait_event(
        "item.updated", where=lambda e: e["item"].get("toolCall", {}).get("status") == "running"
    )
    time.sleep(0.2)
    running.send(number)
    run = running.finish(10)
    assert run.code == -number
    assert run.events[-1]["type"] == "exec.completed"
    result = run.result
    assert (result["status"], result["exitCode"]) == ("cancelled", 128 + number)
    assert result["error"]["code"] == "TURN_ABORTED"
    assert mcode.survivors() == []
    row = settled(mcode)
    assert "signal" in str(row)
    (session,) = mcode.query("select status from sessions")
    assert session["status"] == "aborted"
    roles = [message["role"] for message in mcode.messages()]
    assert roles == ["user", "assistant", "tool"]
    peer.script(say("on"))
    assert mcode.exec("-c", "on").check(0).out == "on\n"


#: the real command, which gets a signal the moment it looks for a module for the first time
EARLY = """
import os, sys
class Signaller:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Signaller())
from mcode_exec.cli.main import main
main()
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("module", ["click", "mcode_exec.cli.exec_command", "mcode_exec.executor.runtime"])
def test_a_signal_while_modules_are_loaded_gives_a_result_too(
    mcode: Mcode, peer: Peer, number: signal.Signals, module: str
) -> None:
    program = EARLY.format(module=module, number=int(number))
    mcode.command = [sys.executable, "-P", "-c", program]
    for form in ("json", "stream-json"):
        run = mcode.exec("go", "--output-format", form, env={"PYTHONPATH": str(REPOSITORY)})
        assert run.code == -number
        assert (run.result["status"], run.result["exitCode"]) == ("cancelled", 128 + number)
    assert not peer.calls


def test_an_interrupt_that_a_script_has_ignored_for_its_jobs_ends_them_in_order(
    mcode: Mcode, peer: Peer
) -> None:
    peer.script(hang())
    mcode.command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *mcode.command]
    running = mcode.start("exec", "go", "--output-format", "json")
    peer.wait_for(1)
    running.send(signal.SIGINT)
    run = running.finish(10)
    assert run.code == -signal.SIGINT
    assert run.result["status"] == "cancelled"


def test_a_signal_while_the_model_is_silent_ends_within_two_seconds(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    for step in (hang(), stall_after("half an answer")):
        peer.script(step)
        running = mcode.start("exec", "go", "--output-format", "json")
        peer.wait_for(len(peer.calls) + 1)
        time.sleep(0.3)
        sent = time.monotonic()
        running.send(signal.SIGINT)
        run = running.finish(10)
        assert time.monotonic() - sent < 2
        assert run.code == -signal.SIGINT
        assert run.result["partialOutput"] in (None, "half an answer")
        assert run.result["usageIncomplete"] is True, "what a cut-off call costs is not known"


def test_a_second_signal_ends_at_once_and_leaves_a_session_that_goes_on(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "trap '' TERM INT HUP; sleep 92"}), say("never"))
    running = mcode.start("exec", "go", "--output-format", "stream-json")
    mcode.may_leave_processes = True
    running.wait_event(
        "item.updated", where=lambda e: e["item"].get("toolCall", {}).get("status") == "running"
    )
    time.sleep(0.2)
    running.send(signal.SIGINT)
    time.sleep(0.12)
    running.send(signal.SIGINT)
    run = running.finish(3)
    assert run.code == -signal.SIGINT
    peer.script(say("on"))
    assert mcode.exec("-c", "on").check(0).out == "on\n"
    assert mcode.survivors() == [], "the next mcode ends what was left"


def test_a_signal_while_retrying_is_noticed_at_once(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(retry='base_delay = "30s"')
    peer.script(forever(status(503)))
    running = mcode.start("exec", "go", "--output-format", "stream-json")
    running.wait_event("llm.retry")
    running.send(signal.SIGTERM)
    run = running.finish(3)
    assert run.code == -signal.SIGTERM


def test_an_ignored_sighup_stays_ignored(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("done"), gate))
    process = subprocess.Popen(
        ["nohup", *mcode.command, "exec", "go"],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    gate.wait_reached()
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    gate.open()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"done\n"), err


def test_a_shell_loop_stops_at_ctrl_c(mcode: Mcode, peer: Peer) -> None:
    """The signal is raised again, so a shell that got it too sees that its child died by it."""
    peer.script(forever(hang()))
    command = " ".join(shlex.quote(word) for word in mcode.command)
    process = subprocess.Popen(
        ["bash", "-c", f"for i in 1 2 3; do {command} exec $i; done; echo went on"],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    peer.wait_for(1)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert out == b""
    assert process.returncode == -signal.SIGINT
    assert len(peer.calls) == 1


@pytest.mark.parametrize(
    "rounds", [pytest.param(10), pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_a_signal_around_the_end_never_contradicts_the_result(mcode: Mcode, peer: Peer, rounds: int) -> None:
    peer.script(forever(say("done")))
    for round_ in range(rounds):
        running = mcode.start("exec", "go", "--output-format", "stream-json", "--ephemeral")
        running.wait_event("turn.completed" if round_ % 2 else "exec.completed")
        time.sleep((round_ % 5) * 0.01)
        running.send(signal.SIGTERM)
        run = running.finish(10)
        assert run.events[-1]["type"] == "exec.completed"
        told = run.result["exitCode"]
        assert run.code == (told if told < 128 else 128 - told), run
        assert (run.result["status"] == "succeeded") == (run.code == 0)


@pytest.mark.parametrize(
    "rounds", [pytest.param(14), pytest.param(150, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_a_signal_at_any_moment_leaves_one_result_or_dies_by_it(
    mcode: Mcode, peer: Peer, rounds: int
) -> None:
    peer.script(forever(call("bash", {"command": "sleep 93"})))
    for round_ in range(rounds):
        running = mcode.start("exec", "go", "--output-format", "json")
        time.sleep(round_ * 0.6 / rounds)
        running.send(signal.SIGTERM)
        run = running.finish(10)
        assert run.code == -signal.SIGTERM, run.out + run.err
        assert "Traceback" not in run.err
        if run.out:  # before Python runs any of our code there is nobody to answer
            assert run.result["exitCode"] == 128 + signal.SIGTERM
        assert mcode.survivors() == []


# deadlines


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "step",
    [
        hang(),
        stall_after("half"),
        call("bash", {"command": "sleep 94"}),
        call("bash", {"command": "trap 'exit 0' TERM; sleep 94"}),
        call("bash", {"command": "trap '' TERM INT HUP; while :; do sleep 1; done"}),
        call("bash", {"command": "setsid sh -c 'trap \"\" TERM; sleep 94' & sleep 94"}),
        call("bash", {"command": "python3 -c 'while True: pass'"}),
    ],
    ids=["hangs", "stalls", "sleeps", "exits-0-on-term", "ignores-term", "own-session", "burns"],
)
def test_the_deadline_decides_whatever_the_model_or_the_command_does(
    mcode: Mcode, peer: Peer, step: Any
) -> None:
    peer.script(step, say("never"))
    run = mcode.exec("go", "--timeout", "1500ms", "--output-format", "json").check(6)
    result = run.result
    assert (result["status"], result["error"]["code"]) == ("timeout", "TIMEOUT")
    assert result["limit"] == {"name": "timeout", "value": "1.5s", "source": "--timeout"}
    assert run.duration_s < 1.5 + 5
    assert mcode.survivors() == []
    assert "deadline" in str(settled(mcode))


def test_the_deadline_counts_while_another_process_locks_the_store(mcode: Mcode, peer: Peer) -> None:
    import sqlite3

    mcode.exec("hi").check(0)
    locker = sqlite3.connect(mcode.data / "mcode.db", isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")
    run = mcode.exec("hi", "--timeout", "1s", "--output-format", "json")
    locker.execute("ROLLBACK")
    locker.close()
    run.check(6)
    assert run.result["status"] == "timeout"
    assert run.duration_s < 6


def test_the_deadline_counts_while_a_request_of_the_same_id_runs(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang())
    first = mcode.start("exec", "go", "--request-id", "r1")
    peer.wait_for(1)
    run = mcode.exec("go", "--request-id", "r1", "--timeout", "1s", "--output-format", "json").check(6)
    assert run.result["status"] == "timeout"
    first.send(signal.SIGTERM)
    first.finish(10)


def test_the_deadline_counts_while_retries_wait(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(retry='base_delay = "20s"')
    peer.script(forever(status(503, headers={"retry-after": "20"})))
    run = mcode.exec("go", "--timeout", "2s", "--output-format", "json")
    assert run.code in (6, 69), run
    assert run.duration_s < 7
    assert len(peer.calls) == 1


def test_the_configured_timeout_counts_like_the_flag(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(tables='[limits]\ntimeout = "1s"')
    peer.script(hang())
    run = mcode.exec("go", "--output-format", "json").check(6)
    assert run.result["limit"]["name"] == "timeout"
    assert "config" in run.result["limit"]["source"]


def test_the_process_ends_soon_after_its_result_although_the_connection_stays_open(
    mcode: Mcode, peer: Peer
) -> None:
    running = mcode.start("exec", "go", "--output-format", "stream-json")
    running.wait_event("exec.completed")
    done = time.monotonic()
    running.finish(5).check(0)
    assert time.monotonic() - done < 2


# terminals


def test_a_terminal_gets_a_status_line_that_is_taken_away(
    mcode: Mcode, peer: Peer, terminal: Callable[..., Terminal]
) -> None:
    gate = Gate()
    peer.script(call("bash", {"command": "sleep 0.4"}), gated(say("the answer"), gate))
    shown = terminal([*mcode.command, "exec", "go"])
    shown.read(lambda screen: b"step 2" in screen)
    gate.open()
    assert shown.end() == 0
    assert b"step 1" in shown.screen
    assert b"bash" in shown.screen
    assert b"the answer\r\n" in shown.screen
    last_status = shown.screen.rindex(b"step ")
    assert b"\r\x1b[K" in shown.screen[last_status : shown.screen.rindex(b"the answer")]


def test_a_dumb_terminal_and_a_pipe_get_none(
    mcode: Mcode, peer: Peer, terminal: Callable[..., Terminal]
) -> None:
    peer.script(forever(say("the answer", first_byte_s=0.3)))
    shown = terminal([*mcode.command, "exec", "go"], TERM="dumb")
    assert shown.end() == 0
    assert b"\x1b" not in shown.screen
    shown = terminal([*mcode.command, "exec", "go", "-q"])
    assert shown.end() == 0
    assert shown.screen == b"the answer\r\n"
    assert "\x1b" not in mcode.exec("go", env={"TERM": "xterm"}).check(0).err


def test_no_color_has_no_color(mcode: Mcode, peer: Peer, terminal: Callable[..., Terminal]) -> None:
    peer.script(say("the answer", first_byte_s=0.3))
    shown = terminal([*mcode.command, "exec", "go"], NO_COLOR="1")
    assert shown.end() == 0
    assert b"step 1" in shown.screen
    assert b"\x1b[2m" not in shown.screen


def test_an_answer_on_a_terminal_cannot_act_on_it(
    mcode: Mcode, peer: Peer, terminal: Callable[..., Terminal]
) -> None:
    peer.script(say("a\x1b]0;owned\x07b\tc\nd"))
    shown = terminal([*mcode.command, "exec", "go", "-q"])
    assert shown.end() == 0
    assert b"\x1b]0" not in shown.screen
    assert b"\x07" not in shown.screen
    assert b"c\r\nd" in shown.screen


def test_ctrl_c_on_a_terminal_is_one_settled_ending(
    mcode: Mcode, peer: Peer, terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    peer.script(call("bash", {"command": "sleep 95"}), say("never"))
    script = shlex.join([*mcode.command, "exec", "go", "--result", str(tmp_path / "r")]) + "; echo code=$?"
    shown = terminal(["bash", "--norc", "-ic", script])
    shown.read(lambda screen: b"bash" in screen)
    time.sleep(0.3)
    shown.type(b"\x03")
    shown.end()
    result = json.loads((tmp_path / "r").read_bytes())
    assert (result["status"], result["exitCode"]) == ("cancelled", 130)
    assert mcode.survivors() == []
    assert "signal" in str(settled(mcode))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["hi"], [b"code=0", b"the answer"]),
        # what it was asked to read is the terminal, which belongs to the shell now
        (["--input", "-"], [b"code=2", b"in the foreground only"]),
        (["hi", "--input", "/dev/tty"], [b"code=2", b"in the foreground only"]),
    ],
    ids=["prompt", "stdin", "tty"],
)
def test_a_run_in_the_background_of_an_interactive_shell_is_never_stopped(
    mcode: Mcode, peer: Peer, terminal: Callable[..., Terminal], args: list[str], says: list[bytes]
) -> None:
    peer.script(call("bash", {"command": "cat; read x </dev/tty; echo end"}), say("the answer"))
    script = f"stty tostop; {shlex.join([*mcode.command, 'exec', *args])} & pid=$!; wait $pid; echo code=$?"
    shown = terminal(["bash", "--norc", "-ic", script])
    states: set[str] = set()
    watching = True

    def watch() -> None:
        while watching:
            for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
                try:
                    if f"MCODE_HOME={mcode.data}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                        states.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
                except OSError:
                    pass
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    shown.read(lambda screen: b"code=" in screen)
    watching = False
    thread.join()
    shown.end()
    assert all(text in shown.screen for text in says), shown.screen
    assert "T" not in states


@pytest.mark.parametrize(
    "command",
    [
        "git commit --allow-empty",
        "git clone https://127.0.0.1:1/x",
        "less a.txt",
        "git log",
        "ssh -o ConnectTimeout=2 nohost.invalid",
        "python3",
    ],
)
def test_commands_that_want_a_terminal_end_quickly(
    mcode: Mcode, peer: Peer, terminal: Callable[..., Terminal], workspace: Callable[..., Path], command: str
) -> None:
    workspace({"a.txt": "text\n" * 500}, git=True)
    peer.script(call("bash", {"command": command, "timeout_ms": 15000}), say("the answer"))
    shown = terminal([*mcode.command, "exec", "hi", "--permission", "full"])
    started = time.monotonic()
    assert shown.end() == 0
    assert time.monotonic() - started < 12
    assert b"the answer" in shown.screen


@pytest.mark.sample(1)
@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_reader_that_is_stuck_holds_nobody_up_after_a_deadline_or_a_signal(
    mcode: Mcode, peer: Peer, form: str
) -> None:
    mcode.configure(tables='[limits]\ntimeout = "1s"')
    big = "z" * 2_000_000
    peer.script(forever(say(big, piece=2000)))
    for number in (None, signal.SIGTERM):
        reader, writer = os.pipe()
        flags = () if number is None else ("--timeout", "1h")
        running = mcode.start("exec", "go", "--output-format", form, *flags, stdout=writer)
        os.close(writer)
        if number is not None:
            time.sleep(1)
            running.send(number)
        run = running.finish(12)
        os.close(reader)
        assert run.duration_s < 1 + 5 + 1
        assert run.code in (6, 74) if number is None else run.code == -number
    assert mcode.query("select * from session_locks") == []


def test_an_outer_timeout_sees_its_signal(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang())
    done = subprocess.run(
        ["timeout", "1", *mcode.command, "exec", "go", "--output-format", "json"],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    assert done.returncode == 124
    assert json.loads(done.stdout)["exitCode"] == 143


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_as_pid_1_it_ends_orphans_and_obeys_signals(mcode: Mcode, peer: Peer) -> None:
    namespace = ["unshare", "-fp", "--mount-proc", *mcode.command, "exec", "go", "--output-format", "json"]
    how: dict[str, Any] = {"env": mcode.environment(), "cwd": mcode.workspace, "stdin": subprocess.DEVNULL}
    if subprocess.run(["unshare", "-fp", "--mount-proc", "true"], capture_output=True).returncode:
        pytest.skip("no pid namespaces here")
    peer.script(call("bash", {"command": "(setsid sleep 96 &); sleep 0.1"}), say("ok"))
    done = subprocess.run(namespace, capture_output=True, timeout=20, **how)
    assert done.returncode == 0, done
    assert [one["command"] for one in json.loads(done.stdout)["leftoverProcesses"]] == ["sleep 96"]
    peer.script(hang())
    before = len(peer.calls)
    process = subprocess.Popen(namespace, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)
    peer.wait_for(before + 1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 143
    assert json.loads(out)["exitCode"] == 143

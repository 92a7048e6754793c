from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import resource
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from mcode_exec.sandbox import ending, procfs, trees
from mcode_exec.sandbox.capture import OutputCapture
from mcode_exec.sandbox.environment import command_environment
from mcode_exec.sandbox.processes import CommandResult, CommandRunner, become_subreaper
from mcode_exec.sandbox.strays import end_strays
from mcode_exec.tools.capping import join

T = TypeVar("T")


@pytest.fixture(autouse=True, scope="module")
def _subreaper() -> None:
    become_subreaper()


def runner(tmp_path: Path, owner: str = "own_test", **limits: int) -> CommandRunner:
    env = command_environment(
        os.environ, passed=(), secret_names=(), secret_values=(), temp_dir=str(tmp_path)
    )
    return CommandRunner(env=env, owner=owner, **limits)


def run_all(tmp_path: Path, body: Callable[[CommandRunner], Awaitable[T]], **limits: int) -> T:
    async def main() -> T:
        commands = runner(tmp_path, **limits)
        try:
            return await body(commands)
        finally:
            await commands.end_leftovers()

    return asyncio.run(main())


def run(tmp_path: Path, script: str, *, limit_s: float = 20.0, spill: str | None = None) -> CommandResult:
    return run_all(
        tmp_path, lambda commands: commands.run(script, cwd=str(tmp_path), limit_s=limit_s, spill_path=spill)
    )


def living(marker: str) -> list[int]:
    """Processes, zombies apart, whose command line holds `marker`."""
    found = []
    for pid in procfs.every_pid():
        stat = procfs.find_stat(pid)
        if stat and not stat.is_zombie and marker in procfs.command_line(pid) and pid != os.getpid():
            found.append(pid)
    return found


@pytest.fixture
def marker() -> Iterator[str]:
    """A number of seconds that names this test's sleeps; whatever is left of them fails the test."""
    seconds = f"3{os.urandom(3).hex().translate(str.maketrans('abcdef', '123456'))}"
    yield seconds
    left = living(f"sleep {seconds}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_output_of_both_streams_stands_in_order_of_arrival(tmp_path: Path) -> None:
    result = run(tmp_path, "echo a; echo b >&2; echo c; exit 7")
    assert result.head == b"a\nb\nc\n"
    assert (result.exit_code, result.signal, result.timed_out) == (7, None, False)


def test_a_command_gets_an_empty_stdin_no_terminal_and_its_directory(tmp_path: Path) -> None:
    result = run(tmp_path, "cat; pwd; (: </dev/tty) 2>/dev/null || echo no tty; grep -c . <&0")
    assert result.head.decode() == f"{tmp_path}\nno tty\n0\n"


def test_a_command_gets_the_default_action_of_sigpipe(tmp_path: Path) -> None:
    result = run(tmp_path, "yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert result.head == b"y\n141\n"


def test_a_search_without_a_path_does_not_wait_for_stdin(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("needle\n")
    result = run(tmp_path, "grep needle; echo $?; if command -v rg >/dev/null; then rg -N needle; fi")
    assert result.head.startswith(b"1\n")
    assert not result.timed_out


def test_a_command_inherits_no_descriptor(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        numbers = run(tmp_path, "ls /proc/self/fd").head.split()
    finally:
        os.close(read_end)
        os.close(write_end)
    assert numbers == [b"0", b"1", b"2", b"3"], "3 is what ls reads the directory with"


def test_a_signal_that_ends_the_shell_is_told_apart_from_an_exit_code(tmp_path: Path) -> None:
    result = run(tmp_path, "kill -SEGV $$")
    assert (result.exit_code, result.signal) == (None, signal.SIGSEGV)


def test_two_megabytes_on_stderr_do_not_block(tmp_path: Path) -> None:
    result = run(tmp_path, f'{sys.executable} -c \'import sys; sys.stderr.write("x"*2000000); print("ok")\'')
    assert result.total_bytes == 2_000_003
    assert result.tail.endswith(b"ok\n")
    assert len(result.head) + len(result.tail) == 128 * 1024


def test_the_whole_of_a_large_output_is_spilled_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "out.txt"
    result = run(tmp_path, "seq 1 100000", spill=str(path))
    assert result.spill_path == str(path)
    assert result.spilled_bytes == result.total_bytes
    assert path.read_bytes() == b"".join(b"%d\n" % number for number in range(1, 100_001))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().startswith(result.head)
    assert path.read_bytes().endswith(result.tail)


def test_a_file_that_has_reached_its_bound_says_how_much_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    capture = OutputCapture(str(path), max_spilled_bytes=200_000)
    for _ in range(3):
        capture.add(b"x" * 99_999 + b"\n")
    capture.close()
    assert (capture.total_bytes, capture.spilled_bytes, path.stat().st_size) == (300_000, 200_000, 200_000)
    text = join("head", "tail", total_bytes=300_000, total_lines=None, path="/f", file_bytes=200_000)
    assert "its first 200000 bytes are in /f" in text
    whole = join("head", "tail", total_bytes=300_000, total_lines=None, path="/f", file_bytes=300_000)
    assert "the whole output is in /f" in whole


def test_a_file_that_the_disk_does_not_take_is_removed_again(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    capture = OutputCapture(str(path))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        for _ in range(5):
            capture.add(b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        capture.close()
    assert (capture.total_bytes, capture.spill_path, path.exists()) == (500_000, None, False)
    assert capture.tail.endswith(b"x")


def test_a_small_output_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    assert run(tmp_path, "seq 1 20000", spill=str(path)).spill_path is None
    assert not path.exists()


@pytest.mark.parametrize(
    "script",
    [
        "(sleep {0} &); echo ok",
        "sleep {0} >/dev/null 2>&1 & echo ok",
        "nohup sleep {0} & echo ok",
        "setsid sleep {0} & sleep 0.05; echo ok",
        "(setsid sh -c 'sleep {0} & exec sleep {0}' &); sleep 0.05; echo ok",
        "env -i setsid sleep {0} & sleep 0.05; echo ok",
    ],
)
def test_a_command_ends_with_its_shell_and_names_what_it_left(
    tmp_path: Path, marker: str, script: str
) -> None:
    async def body(commands: CommandRunner) -> None:
        started = time.monotonic()
        result = await commands.run(script.format(marker), cwd=str(tmp_path), limit_s=30, spill_path=None)
        assert time.monotonic() - started < 5
        assert b"ok" in result.head
        assert result.exit_code == 0
        assert any(f"sleep {marker}" in process.command for process in result.left_running)
        assert living(f"sleep {marker}"), "what is left in the background lives until the turn ends"
        ended = await commands.end_leftovers()
        assert any(f"sleep {marker}" in process.command for process in ended)
        assert living(f"sleep {marker}") == []
        assert await commands.end_leftovers() == []

    run_all(tmp_path, body)


@pytest.mark.parametrize(
    "script",
    [
        'bash -c "sleep {0}; touch late"',
        "yes | sleep {0}",
        "(setsid sh -c 'sleep {0} & sleep {0}' &); sleep {0}",
        "kill -STOP $$",
        "sleep {0} & kill -STOP $!; wait",
    ],
)
def test_the_limit_ends_the_whole_tree(tmp_path: Path, marker: str, script: str) -> None:
    result = run(tmp_path, script.format(marker), limit_s=0.3)
    assert result.timed_out
    assert living(f"sleep {marker}") == []
    assert not (tmp_path / "late").exists()


def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path, marker: str) -> None:
    result = run(tmp_path, f"trap '' TERM; (trap '' TERM; sleep {marker}) & wait", limit_s=0.3)
    assert result.timed_out
    assert result.duration_ms < 5000


def test_what_handles_sigterm_has_time_to_clean_up(tmp_path: Path, marker: str) -> None:
    result = run(tmp_path, f"trap 'echo cleaned; exit 3' TERM; sleep {marker} & wait", limit_s=0.3)
    assert result.head == b"cleaned\n"
    assert (result.timed_out, result.exit_code) == (True, 3)


def test_a_tree_that_forks_as_fast_as_it_can_is_ended(tmp_path: Path, marker: str) -> None:
    script = f"trap '' TERM; f() {{ sleep 0.01; f & exec sleep {marker}; }}; f & wait"
    assert run(tmp_path, script, limit_s=0.3).timed_out


@pytest.mark.parametrize("way", ["", "setsid ", "setsid -f ", "env -i "])
def test_a_command_with_too_many_processes_is_ended(tmp_path: Path, marker: str, way: str) -> None:
    script = f"for i in $(seq 90); do {way}/usr/bin/sleep {marker} & done; wait; sleep {marker}"
    result = run_all(
        tmp_path,
        lambda commands: commands.run(script, cwd=str(tmp_path), limit_s=60, spill_path=None),
        max_processes=40,
    )
    assert (result.process_limit, result.timed_out) == (40, False)
    assert result.left_running == ()
    assert living(f"sleep {marker}") == []


def test_too_many_processes_in_the_background_are_ended_and_told(tmp_path: Path, marker: str) -> None:
    async def body(commands: CommandRunner) -> tuple[CommandResult, CommandResult, int]:
        script = f"for i in $(seq 90); do sleep {marker} & done"
        first = await commands.run(script, cwd=str(tmp_path), limit_s=60, spill_path=None)
        while living(f"sleep {marker}"):
            await asyncio.sleep(0.02)
        second = await commands.run("echo on", cwd=str(tmp_path), limit_s=60, spill_path=None)
        third = await commands.run("echo on", cwd=str(tmp_path), limit_s=60, spill_path=None)
        assert third.process_limit is None
        return first, second, len(await commands.end_leftovers())

    first, second, named = run_all(tmp_path, body, max_processes=40)
    assert [first.process_limit, second.process_limit].count(40) == 1
    assert len(first.left_running) == 90 or first.process_limit == 40
    assert second.head == b"on\n"
    assert named >= 40 or first.process_limit == 40


def test_as_many_processes_as_allowed_are_left_alone(tmp_path: Path, marker: str) -> None:
    script = f"for i in $(seq 35); do sleep {marker} & done; sleep 0.5; echo done; kill $(jobs -p)"
    result = run_all(
        tmp_path,
        lambda commands: commands.run(script, cwd=str(tmp_path), limit_s=60, spill_path=None),
        max_processes=40,
    )
    assert (result.head, result.exit_code, result.process_limit) == (b"done\n", 0, None)


def test_a_cancelled_command_leaves_nothing(tmp_path: Path, marker: str) -> None:
    async def body(commands: CommandRunner) -> None:
        script = f"(setsid sleep {marker} &); sleep {marker}"
        task = asyncio.create_task(commands.run(script, cwd=str(tmp_path), limit_s=30, spill_path=None))
        while len(living(f"sleep {marker}")) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert living(f"sleep {marker}") == []

    run_all(tmp_path, body)


def test_a_second_cancellation_does_not_wait_for_the_grace(tmp_path: Path, marker: str) -> None:
    async def body(commands: CommandRunner) -> float:
        script = f"trap '' TERM; echo go >go; while :; do sleep {marker}; done"
        task = asyncio.create_task(commands.run(script, cwd=str(tmp_path), limit_s=30, spill_path=None))
        while not (tmp_path / "go").exists():
            await asyncio.sleep(0.01)
        started = time.monotonic()
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - started

    assert run_all(tmp_path, body) < ending.GRACE_S


def test_a_runner_ends_only_what_its_own_commands_left(tmp_path: Path, marker: str) -> None:
    async def main() -> None:
        first, second = runner(tmp_path, "own_a"), runner(tmp_path, "own_a")
        script = f"sleep {marker} >/dev/null 2>&1 &"
        await first.run(script, cwd=str(tmp_path), limit_s=10, spill_path=None)
        await second.run(script, cwd=str(tmp_path), limit_s=10, spill_path=None)
        assert len(await first.end_leftovers()) == 1
        assert len(living(f"sleep {marker}")) == 1
        assert len(await second.end_leftovers()) == 1

    asyncio.run(main())


def test_a_running_command_of_another_session_is_no_leftover(tmp_path: Path, marker: str) -> None:
    async def main() -> None:
        first, second = runner(tmp_path), runner(tmp_path)
        running = asyncio.create_task(
            second.run(
                f"sleep 0.3; env -i setsid sleep {marker} & sleep 0.5; echo done",
                cwd=str(tmp_path),
                limit_s=10,
                spill_path=None,
            )
        )
        await first.run("sleep 0.4", cwd=str(tmp_path), limit_s=10, spill_path=None)
        assert await first.end_leftovers() == []
        result = await running
        assert result.exit_code == 0
        assert len(await second.end_leftovers()) == 1

    asyncio.run(main())


def test_commands_leave_no_zombie_and_steal_no_exit_of_others(tmp_path: Path) -> None:
    async def body(commands: CommandRunner) -> None:
        other = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.2; exit 5")
        await commands.run(
            "(sleep 0.05 &) ; (setsid sleep 60 &); sleep 0.1", cwd=str(tmp_path), limit_s=5, spill_path=None
        )
        await commands.end_leftovers()
        assert await other.wait() == 5

    run_all(tmp_path, body)
    assert [stat for stat in trees.orphans() if not stat.is_zombie] == []


def test_a_script_longer_than_an_argument_may_be_runs(tmp_path: Path) -> None:
    result = run(tmp_path, ": " + "x" * 300_000 + "\ncat; echo ok")
    assert (result.exit_code, result.head) == (0, b"ok\n")


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="NUL"):
        run(tmp_path, "echo \0")
    with pytest.raises(FileNotFoundError):
        run_all(
            tmp_path,
            lambda commands: commands.run("true", cwd=str(tmp_path / "gone"), limit_s=5, spill_path=None),
        )


def test_text_is_utf8_in_both_directions(tmp_path: Path) -> None:
    assert run(tmp_path, "printf '%s' 'grüße 🙂'").head == "grüße 🙂".encode()
    assert run(tmp_path, "printf '%s' 'a\udcffb'").head == b"a\xffb"


def test_a_killed_mcode_takes_its_command_along_and_the_next_one_ends_the_strays(
    tmp_path: Path, marker: str
) -> None:
    owner = "own_" + os.urandom(8).hex()
    script = f"""
import asyncio, os
from mcode_exec.sandbox.processes import CommandRunner, become_subreaper_and_undumpable
become_subreaper_and_undumpable()
commands = CommandRunner(env=dict(os.environ), owner={owner!r})
asyncio.run(commands.run("(setsid sleep {marker} &); sleep {marker}; :", cwd="/", limit_s=60, spill_path=None))
"""
    with subprocess.Popen([sys.executable, "-c", script]) as dying:
        while len(living(f"sleep {marker}")) < 2:
            time.sleep(0.01)
        tags = {pid: procfs.find_variable(pid, b"MCODE_STRAY") or b"" for pid in procfs.every_pid()}
        shells = [pid for pid, tag in tags.items() if tag.startswith(owner.encode())]
        assert shells
        dying.kill()
    deadline = time.monotonic() + 5
    while [pid for pid in living("--norc") if pid in shells] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [pid for pid in living("--norc") if pid in shells] == []
    ended = asyncio.run(end_strays([owner]))
    assert len(ended) >= 1
    assert living(f"sleep {marker}") == []
    assert asyncio.run(end_strays([owner])) == []
    assert asyncio.run(end_strays([])) == []


@pytest.mark.parametrize(
    "script",
    [
        "git commit",
        "git -c user.name=a -c user.email=a@b commit --allow-empty",
        "git -c user.name=a -c user.email=a@b rebase -i --root",
        "git clone https://127.0.0.1:1/x",
        "sudo -v",
        "ssh -o ConnectTimeout=2 nohost.invalid true",
        "less file",
        "man git",
        "read -p 'Sure? ' answer </dev/tty",
        "python3 -c 'import getpass; getpass.getpass()'",
    ],
)
def test_no_command_waits_at_the_terminal_that_mcode_was_started_on(tmp_path: Path, script: str) -> None:
    (tmp_path / "file").write_text("x\n" * 500)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    (tmp_path / "new").write_text("new")
    subprocess.run([*git, "add", "new"], check=True)
    program = f"""
import asyncio, os
from mcode_exec.sandbox.environment import command_environment
from mcode_exec.sandbox.processes import CommandRunner
env = command_environment(os.environ, passed=(), secret_names=(), secret_values=(), temp_dir={str(tmp_path)!r})
commands = CommandRunner(env=env, owner="own_pty")
result = asyncio.run(commands.run({script!r}, cwd={str(tmp_path)!r}, limit_s=20, spill_path=None))
raise SystemExit(9 if result.timed_out else 0)
"""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(slave)
        try:
            assert process.wait(30) == 0
        finally:
            os.close(master)


def test_a_background_process_can_go_on_writing_after_its_command_ended(tmp_path: Path) -> None:
    async def body(commands: CommandRunner) -> bytes:
        script = "(for i in 1 2 3 4 5; do sleep 0.1; seq 1 20000 || exit; echo $i >>log; done) & echo started"
        result = await commands.run(script, cwd=str(tmp_path), limit_s=10, spill_path=None)
        assert result.head == b"started\n"
        await asyncio.sleep(0.8)
        return (tmp_path / "log").read_bytes()

    assert run_all(tmp_path, body) == b"1\n2\n3\n4\n5\n"


def test_what_a_dead_nested_mcode_left_behind_is_ended_too(tmp_path: Path, marker: str) -> None:
    async def body(commands: CommandRunner) -> None:
        script = f"MCODE_STRAY=own_nested:1 setsid setsid sh -c 'setsid sleep {marker} &' ; sleep 0.1"
        result = await commands.run(script, cwd=str(tmp_path), limit_s=10, spill_path=None)
        assert len(result.left_running) == 1
        assert len(await commands.end_leftovers()) == 1

    run_all(tmp_path, body)


def test_the_last_session_ends_what_could_not_be_told_apart(tmp_path: Path, marker: str) -> None:
    async def main() -> None:
        first, second = runner(tmp_path), runner(tmp_path)
        script = f"env -i setsid sleep {marker} >/dev/null 2>&1 & sleep 0.3"
        calls = [
            commands.run(script, cwd=str(tmp_path), limit_s=10, spill_path=None)
            for commands in (first, second)
        ]
        await asyncio.gather(*calls)
        assert await first.end_leftovers() == []
        assert len(living(f"sleep {marker}")) == 2
        assert len(await second.end_leftovers()) == 2

    asyncio.run(main())

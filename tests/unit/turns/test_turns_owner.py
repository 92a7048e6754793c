"""Who is alive: decided by a lock that the kernel lets go of, never by a pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mcode_exec.clock import SystemClock
from mcode_exec.errors import StoreFailedError
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.lease import is_expired
from mcode_exec.turns.owner import Owner
from tests.unit.turns.turn_world import MovedClock, kill

_HOLDER = """
import os, sys
from mcode_exec.turns.owner import Owner
owner = Owner.hold(sys.argv[1])
print(owner.token, os.getpid(), flush=True)
sys.stdin.read()
"""


def hold_elsewhere(run_dir: Path, *before: str) -> tuple[subprocess.Popen[bytes], str, int]:
    """Another process that holds its liveness lock; its token and what it thinks its pid is."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", _HOLDER, str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    token, pid = process.stdout.readline().decode().split()
    return process, token, int(pid)


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    process.wait(10)


def test_an_owner_is_alive_until_it_is_killed(tmp_path: Path) -> None:
    us = Owner.hold(str(tmp_path))
    process, token, _ = hold_elsewhere(tmp_path)
    assert us.is_alive(token)
    process.send_signal(signal.SIGSTOP)
    assert us.is_alive(token)
    process.kill()
    end(process)
    assert not us.is_alive(token)
    us.release()


def test_an_owner_that_ended_well_leaves_no_file(tmp_path: Path) -> None:
    us = Owner.hold(str(tmp_path))
    assert us.is_alive(us.token)
    us.release()
    us.release()
    assert list(tmp_path.iterdir()) == []


def test_a_process_in_a_pid_namespace_is_told_from_us_although_its_pid_is_the_same(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-pf", "true"], capture_output=True).returncode:
        pytest.skip("no pid namespaces here")
    us = Owner.hold(str(tmp_path))
    first, token, pid = hold_elsewhere(tmp_path, "unshare", "-pf", "--kill-child")
    assert pid == 1
    assert us.is_alive(token)
    second, other, other_pid = hold_elsewhere(tmp_path, "unshare", "-pf", "--kill-child")
    assert (other_pid, other != token) == (1, True)
    first.kill()
    end(first)
    until_s = time.monotonic() + 10
    while us.is_alive(token):  # the kernel ends the namespace a moment after its parent
        assert time.monotonic() < until_s
        time.sleep(0.01)
    assert us.is_alive(other)
    end(second)
    us.release()


def test_two_who_ask_at_once_do_not_take_each_other_for_the_owner(tmp_path: Path) -> None:
    dead = Owner.hold(str(tmp_path))
    kill(dead)
    us = Owner.__new__(Owner)
    us.token, us._run_dir = "own_us", str(tmp_path)
    believed = []

    def ask() -> None:
        believed.extend(us.is_alive(dead.token) for _ in range(300))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(believed)


def test_files_of_the_dead_are_cleared_away_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    living, dead = Owner.hold(str(tmp_path)), Owner.hold(str(tmp_path))
    kill(dead)
    (tmp_path / "note.txt").write_text("not ours")
    us = Owner.hold(str(tmp_path))
    assert {one.name for one in tmp_path.iterdir()} == {
        f"{living.token}.lock",
        f"{us.token}.lock",
        "note.txt",
    }
    assert us.is_alive(living.token)
    living.release()
    us.release()


def test_a_lock_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    owner = Owner.hold(str(tmp_path))
    os.umask(before)
    assert (tmp_path / f"{owner.token}.lock").stat().st_mode & 0o777 == 0o600
    owner.release()


def test_a_run_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreFailedError, match=str(tmp_path / "none")):
        Owner.hold(str(tmp_path / "none"))


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    owner = Owner.hold(str(tmp_path))
    child = subprocess.Popen(["sleep", "30"], close_fds=False)
    kill(owner)
    us = Owner.hold(str(tmp_path))
    assert not us.is_alive(owner.token)
    child.kill()
    child.wait()
    us.release()


def lock(clock: MovedClock, *, boot_id: str = "boot", lease_s: float = 1800) -> Lock:
    return Lock(
        session_id="s",
        kind="turn",
        owner="o",
        token="t",
        turn_id="turn",
        acquired_ms=clock.now_ms(),
        expires_ms=clock.now_ms() + int(lease_s * 1000),
        boot_id=boot_id,
        expires_boot_ms=clock.boot_ms() + int(lease_s * 1000),
        pid=1,
        host="h",
    )


@pytest.mark.parametrize("step_s", [-86_400, -3600, 3600, 7200, 86_400])
def test_within_one_boot_a_stepping_wall_clock_changes_nothing(step_s: int) -> None:
    clock = MovedClock()
    held = lock(clock)
    clock.step_wall(step_s)
    assert not is_expired(held, boot_id="boot", clock=clock)
    clock.advance(1799)
    assert not is_expired(held, boot_id="boot", clock=clock)
    clock.advance(1)
    assert is_expired(held, boot_id="boot", clock=clock)


def test_after_a_reboot_wall_time_decides_and_an_end_too_far_away_counts_as_over() -> None:
    clock = MovedClock()
    held = lock(clock, boot_id="another boot")
    assert not is_expired(held, boot_id="boot", clock=clock)
    clock.step_wall(-3600)  # the lease would end 1.5 h from now: longer than a lease lasts
    assert is_expired(held, boot_id="boot", clock=clock)
    clock.step_wall(3600 + 1801)
    assert is_expired(held, boot_id="boot", clock=clock)


def test_the_boot_clock_is_shared_by_processes() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from mcode_exec.clock import SystemClock; print(SystemClock().boot_ms())"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert 0 <= SystemClock().boot_ms() - int(told.stdout) < 60_000

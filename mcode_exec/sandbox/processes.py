"""Running a command of the model and ending everything it started.

Invariant: a command ends when its shell ends (plus a short drain), never with
its pipes; on its limit or a cancellation its whole tree goes; what it left in
the background lives until `end_leftovers`.  Output goes through one pipe, so
the two streams stand in order of arrival and neither can block.  Whether a
command may run at all is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping

from msgspec import Struct

from mcode_exec.clock import Clock, SystemClock
from mcode_exec.paths import private_open
from mcode_exec.records.tool import LeftoverProcess
from mcode_exec.sandbox import procfs, trees
from mcode_exec.sandbox.crowding import MAX_PROCESSES, CrowdWatch, processes_limited
from mcode_exec.sandbox.ending import end_processes
from mcode_exec.sandbox.launch import MAX_ARGUMENT_BYTES, Launcher, launch_plainly, shell_arguments
from mcode_exec.sandbox.procfs import ProcessRef, ProcessStat
from mcode_exec.sandbox.running import READ_BYTES, RunningCommand

__all__ = [
    "CommandResult",
    "CommandRunner",
    "become_subreaper",
    "become_subreaper_and_undumpable",
]

#: time for a forked child to become what it is to run
_EXEC_S = 0.01

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

#: processes left in the background that are named
_MAX_NAMED = 100

#: runners of this process that have started a command since they last ended their leftovers
_active: set[CommandRunner] = set()


def become_subreaper() -> None:
    """Adopt the orphans of our commands, so that none can leave our sight."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # inherited from a caller that ignores it, the kernel would throw exit states away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def become_subreaper_and_undumpable() -> None:
    """Adopt orphans, and keep other processes of this user out of our memory and environment.

    Call once, on the main thread, before the first command.  For a user other
    than root /proc/self/fd is unreadable from then on.
    """
    become_subreaper()
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class CommandResult(Struct, frozen=True, kw_only=True):
    """How a command ended and what it wrote."""

    #: first and last bytes of the output; between them `total_bytes - len(head) - len(tail)` are left out
    head: bytes
    tail: bytes
    total_bytes: int
    #: None when a signal ended it or its state is unknown
    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_ms: int
    #: the whole output, when head and tail do not hold it
    spill_path: str | None
    #: how much of it is in there, from the beginning
    spilled_bytes: int
    #: processes that outlive the shell
    left_running: tuple[LeftoverProcess, ...]
    #: the limit on processes at once that was exceeded: everything of this turn's commands was ended then
    process_limit: int | None


class CommandRunner:
    """Runs the commands of one turn; several runners may share a process."""

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        owner: str,
        clock: Clock | None = None,
        launcher: Launcher = launch_plainly,
        max_processes: int = MAX_PROCESSES,
    ) -> None:
        self._env = dict(env)
        self._owner = owner
        self._clock: Clock = clock or SystemClock()
        self._launcher = launcher
        #: traces of commands that run or have left something running
        self._traces: list[trees.Trace] = []
        self._running: set[RunningCommand] = set()
        self._max_processes = max_processes
        self._watch = CrowdWatch(max_processes, count=self._count, on_crowd=self._on_crowd)
        self._crowd_ending: asyncio.Task[None] | None = None
        #: a crowd that no command ran beside: the next one's result tells of it
        self._untold_crowd = False
        #: names of what was ended before the turn's end: a crowd, what a command was to take along
        self._ended: list[LeftoverProcess] = []
        #: start of the oldest command whose orphans may still be about, in clock ticks since boot
        self._active_since = 0
        #: pipes that background processes still write to: closed, they would end them by SIGPIPE
        self._kept_pipes: set[int] = set()

    async def run(
        self,
        script: str,
        *,
        cwd: str,
        limit_s: float,
        spill_path: str | None,
        variables: Mapping[str, str] | None = None,
        ends_left: bool = False,
    ) -> CommandResult:
        """Run `script` in the shell until it ends or `limit_s` seconds have passed.

        `variables` come on top of the runner's environment.  `ends_left`: what it leaves in the
        background is ended with it, and named by `end_leftovers`.

        Raises: OSError when it cannot be started; ValueError for a NUL in the script.
        Cancellation: ends the whole tree first (at most grace + 1 s).
        """
        started_s = self._clock.monotonic_s()
        await self._crowd_is_gone()
        command, trace = self._start(script, cwd, spill_path, variables or {})
        try:
            timed_out = not await command.wait(limit_s)
            if timed_out:
                await command.end()
            await command.drain()
            await self._crowd_is_gone()
            left = await self._left_by(command)
            if left and ends_left:
                await command.end()
                self._ended += left
                left = []
            if not left and len(_active) == 1:
                self._traces.remove(trace)
            elif (pipe := command.take_pipe()) is not None:
                self._keep_pipe(pipe)
        except BaseException:
            await command.end()
            raise
        finally:
            self._running.discard(command)
            command.close()
        exit_code, signum = command.exit_state()
        is_crowded = command.was_crowded or self._untold_crowd
        self._untold_crowd = False
        return CommandResult(
            head=bytes(command.capture.head),
            tail=command.capture.tail,
            total_bytes=command.capture.total_bytes,
            exit_code=exit_code,
            signal=signum,
            timed_out=timed_out,
            duration_ms=round((self._clock.monotonic_s() - started_s) * 1000),
            spill_path=command.capture.spill_path,
            spilled_bytes=command.capture.spilled_bytes,
            left_running=tuple(left),
            process_limit=self._max_processes if is_crowded else None,
        )

    async def end_leftovers(self) -> list[LeftoverProcess]:
        """End what finished commands have left in the background, and name it."""
        if self not in _active:
            return []
        await self._crowd_is_gone()
        self._watch.stop()
        left = _name(self._find())
        if left:
            await end_processes(self._find)
        left, self._ended = [*self._ended, *left], []
        trees.reap_strays()
        for pipe in list(self._kept_pipes):
            self._drop_pipe(pipe)
        self._traces.clear()
        _active.discard(self)
        return left

    def _count(self) -> int:
        return len(self._find())

    def _on_crowd(self) -> None:
        for command in self._running:
            command.was_crowded = True
        self._untold_crowd = not self._running
        self._crowd_ending = asyncio.create_task(self._end_crowd())

    async def _end_crowd(self) -> None:
        running = {stat.ref for command in self._running for stat in command.find()}
        self._ended += _name([stat for stat in self._find() if stat.ref not in running])
        await end_processes(self._find, grace_s=0)
        self._watch.start()

    async def _crowd_is_gone(self) -> None:
        if self._crowd_ending is not None:
            await asyncio.wait((self._crowd_ending,))
            self._crowd_ending = None

    async def _left_by(self, command: RunningCommand) -> list[LeftoverProcess]:
        if not command.find_left():
            return []
        # a child that was forked last may still wear the shell's name
        await asyncio.sleep(_EXEC_S)
        return _name(command.find_left())

    def _keep_pipe(self, pipe: int) -> None:
        """Read on and throw away, until the writers or the turn end."""

        def discard() -> None:
            try:
                if os.read(pipe, READ_BYTES):
                    return
            except BlockingIOError:
                return
            self._drop_pipe(pipe)

        self._kept_pipes.add(pipe)
        asyncio.get_running_loop().add_reader(pipe, discard)

    def _drop_pipe(self, pipe: int) -> None:
        self._kept_pipes.discard(pipe)
        asyncio.get_running_loop().remove_reader(pipe)
        os.close(pipe)

    def _find(self) -> list[ProcessStat]:
        """Every live process of this runner's commands, those that still run included."""
        if (
            not self._running
            and not any(not orphan.is_zombie for orphan in trees.orphans())
            and not any(trace.seen for trace in self._traces)
        ):
            return []
        # the last runner to end also ends what nobody could tell apart while several ran
        return trees.find(self._traces, unknown_since=self._active_since if _active <= {self} else None)

    def _start(
        self, script: str, cwd: str, spill_path: str | None, variables: Mapping[str, str]
    ) -> tuple[RunningCommand, trees.Trace]:
        tag = f"{self._owner}:{os.urandom(6).hex()}"
        # one pipe for both streams: what they say keeps its order
        pipe, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            with processes_limited(self._max_processes):
                shell = self._spawn(script, cwd, write_end, {**variables, trees.TAG_VARIABLE: tag})
        except BaseException:
            os.close(pipe)
            raise
        finally:
            os.close(write_end)
        stat = procfs.find_stat(shell.pid)
        trace = trees.Trace(tag, stat.ref if stat else ProcessRef(shell.pid, 0))
        self._traces.append(trace)
        if self not in _active:
            self._active_since = min((other._active_since for other in _active), default=trace.start)
            _active.add(self)
            self._watch.start()
        command = RunningCommand(shell, pipe, trace, spill_path=spill_path, is_alone=self._is_alone)
        self._running.add(command)
        return command, trace

    def _is_alone(self) -> bool:
        """Whether an orphan of unknown origin can only come from our one running command."""
        return _active <= {self} and len(self._running) <= 1

    def _spawn(
        self, script: str, cwd: str, output_fd: int, variables: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        encoded = script.encode("utf-8", "surrogateescape")
        if b"\0" in encoded:
            raise ValueError("the script contains a NUL byte")
        script_file = self._write_script(encoded) if len(encoded) > MAX_ARGUMENT_BYTES else None
        arguments = self._launcher(shell_arguments(encoded, script_file))
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output_fd,
            stderr=output_fd,
            cwd=cwd,
            env={**self._env, **variables},
            start_new_session=True,
        )

    def _write_script(self, encoded: bytes) -> str:
        """Scripts too long for an argument; the file goes with the session's temporary directory."""
        path = os.path.join(self._env.get("TMPDIR", "/tmp"), f"script-{os.urandom(8).hex()}.sh")  # noqa: S108
        with open(private_open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(encoded)
        return path


def _name(found: list[ProcessStat]) -> list[LeftoverProcess]:
    """The oldest of `found`: a result that names thousands tells nobody more."""
    ordered = sorted(found, key=lambda stat: stat.ref.start)[:_MAX_NAMED]
    return [LeftoverProcess(pid=stat.ref.pid, command=procfs.command_line(stat.ref.pid)) for stat in ordered]

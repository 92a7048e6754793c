"""A marked block in the user's crontab, read and written by the `crontab` program.

Lines outside of the block are other people's: they stay as they are, byte for
byte, and where the table cannot be read nothing is written.  A data directory
has one block.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping

from mcode_exec.batch.schedules.calling import Call
from mcode_exec.errors import ConfigError, InvocationError

MAX_LINE_BYTES = 990  # crons cut a line at 1,000, without a word
_LIMIT_S = 30.0


def block_of(call: Call) -> bytes:
    """The lines that call `run-due` every minute.  Raises: InvocationError for what a crontab cannot hold."""
    if any("\\" in value for value in (call.path, *call.command)):
        raise InvocationError("a path has a backslash, which crons read in different ways; use --systemd.")
    command = f"PATH={shlex.quote(call.path)} {shlex.join(call.command)}"
    line = os.fsencode("* * * * * " + command.replace("%", "\\%"))
    if len(line) > MAX_LINE_BYTES:
        raise InvocationError(
            f"the crontab line has {len(line)} bytes, and cron cuts it at 1,000; "
            "name a shorter PATH with --path, or use --systemd."
        )
    begin, end = _marks(call.data)
    return b"\n".join((begin, line, end, b""))


def _marks(data: str) -> tuple[bytes, bytes]:
    name = os.fsencode(data)
    return b"# >>> mcode schedule " + name + b" >>>", b"# <<< mcode schedule " + name + b" <<<"


def with_block(table: bytes, data: str, block: bytes) -> bytes:
    """`table` with `block` in the place of the one that it has, or at its end; empty: without one.

    Raises: ConfigError where a mark stands alone, since nobody can tell whose the lines behind it are.
    """
    begin, end = _marks(data)
    kept: list[bytes] = []
    place: int | None = None
    is_inside = False
    for line in _lines(table):
        mark = line.strip()
        if mark not in (begin, end):
            if not is_inside:
                kept.append(line)
            continue
        if (mark == begin) == is_inside:
            raise _damaged(data)
        is_inside = mark == begin
        place = len(kept) if place is None else place
    if is_inside:
        raise _damaged(data)
    if not block:
        return b"".join(kept)
    if place is None:
        if kept and not kept[-1].endswith(b"\n"):
            kept.append(b"\n")
        place = len(kept)
    return b"".join((*kept[:place], block, *kept[place:]))


def _lines(table: bytes) -> list[bytes]:
    """Lines with their ends, as cron sees them."""
    pieces = table.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _damaged(data: str) -> ConfigError:
    return ConfigError(
        f"the crontab has a mark of mcode for {data} that stands alone; take it out with `crontab -e` first"
    )


def has_block(table: bytes, data: str) -> bool:
    return any(line.strip() in _marks(data) for line in _lines(table))


class Crontab:
    """The user's crontab.  Raises, when made: ConfigError where there is no `crontab` program."""

    def __init__(self, env: Mapping[str, str]) -> None:
        program = shutil.which("crontab", path=env.get("PATH"))
        if program is None:
            raise ConfigError("there is no crontab program on PATH; install cron, or use --systemd")
        self._program = os.path.abspath(program)
        self._env = {**env, "LC_ALL": "C"}  # its words are read

    def read(self) -> bytes:
        """The table as it is; empty where the user has none.  Raises: ConfigError."""
        done = self._run("-l")
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.decode("utf-8", "replace").strip()
        if "no crontab for" in said:
            return b""
        raise ConfigError(
            f"`crontab -l` failed, so that nothing was written: {_flat(said) or done.returncode}"
        )

    def write(self, table: bytes, data: str) -> None:
        """Put `table` in the place of all that is there, and look whether ours is in it.  Raises: ConfigError."""
        done = self._run("-", given=table)
        said = done.stderr.decode("utf-8", "replace").strip()
        if done.returncode != 0:
            raise ConfigError(f"`crontab -` did not take the table: {_flat(said) or done.returncode}")
        if has_block(self.read(), data) != has_block(table, data):
            raise ConfigError("`crontab -` took the table, and holds another one; look with `crontab -l`")

    def _run(self, argument: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [self._program, argument],
                input=given or b"",
                capture_output=True,
                timeout=_LIMIT_S,
                env=self._env,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(f"`crontab {argument}` did not end within {_LIMIT_S:g} s") from None
        except OSError as error:
            raise ConfigError(f"{self._program} cannot be started: {error.strerror or error}") from error


def _flat(text: str) -> str:
    return " ".join(text.split())[:300]

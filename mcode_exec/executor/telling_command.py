"""A command of the user's own that is told of something: its values come as variables, and no shell reads it.

It gets our environment without what is called like a secret; it has no stdin,
and a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mcode_exec.redaction import is_secret_name
from mcode_exec.workspace.programs import Stop, run_program

LIMIT_S = 60.0
_MAX_VALUE = 8000  # characters: a variable of 128 KiB would keep the command from starting
_MAX_SAID = 300  # characters


class Told(Struct, frozen=True, kw_only=True):
    """How it ended."""

    #: its exit code in digits, or a word
    how: str
    #: what is to be said of one that failed
    trouble: str | None = None


async def tell_command(
    command: Sequence[str], values: Mapping[str, str], env: Mapping[str, str], cwd: str
) -> Told:
    """Run `command` with `values` as variables, to its end; `cwd`: where, if that is still there."""
    stop = Stop()
    variables = {name: value for name, value in env.items() if not is_secret_name(name)}
    variables |= {name: value[:_MAX_VALUE].replace("\0", "\ufffd") for name, value in values.items()}
    try:
        return await asyncio.to_thread(_run, command, variables, cwd, stop)
    finally:
        stop.set()


def _run(command: Sequence[str], variables: Mapping[str, str], cwd: str, stop: Stop) -> Told:
    import os

    directory = cwd if os.path.isdir(cwd) else "/"
    try:
        done = run_program(command, cwd=directory, limit_s=LIMIT_S, env=variables, stop=stop)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Told(how="not started", trouble=f"{command[0]} cannot be started: {reason}")
    if done.exit_code is None:
        return Told(how="killed", trouble=f"{command[0]} was killed: it had not ended within {LIMIT_S:g} s")
    if done.exit_code == 0:
        return Told(how="0")
    said = " ".join(done.stderr.decode("utf-8", "replace").split())[:_MAX_SAID]
    why = f": {said}" if said else ""
    return Told(how=str(done.exit_code), trouble=f"{command[0]} ended with {done.exit_code}{why}")

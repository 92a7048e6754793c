"""`mcode abort`: tell a turn to stop, and see what comes of it.

The word is one durable row; the turn's own process stops it and settles it.
What a process leaves that dies meanwhile is settled here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.executor.inspect import opened
from mcode_exec.sessions import finding
from mcode_exec.store import turn_rows
from mcode_exec.turns.aborting import ABORT_WAIT_S, AbortOutcome, abort_outcome, request_abort
from mcode_exec.turns.recovery import recover

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_LOOK_S = 0.05  # between two looks at the turn


class Stopped(Struct, frozen=True, kw_only=True, rename="camel"):
    """What an abort has come to."""

    session_id: str
    #: the turn that was told to stop; with `turn-mismatch` the one that runs instead
    turn_id: str | None
    outcome: AbortOutcome
    #: how long was waited, in seconds
    waited_s: float = 0.0


async def abort_turn(
    data_dir: str | None,
    env: Mapping[str, str],
    session: str,
    *,
    turn_id: str | None,
    wait_s: float | None,
) -> Stopped:
    """Stop the turn of a session, or only the turn `turn_id`.

    `wait_s`: how long to wait for its end; None: as long as a turn that hears it takes at most.
    Raises: SessionError; StoreFailedError, StoreBusyError.
    """
    async with opened(data_dir, env) as runtime:
        found = await finding.find_exact(runtime.store, session)
        target = await request_abort(runtime.store, runtime.owner, found.id, runtime.clock, turn_id=turn_id)
        if target.outcome is not None or target.turn_id is None:
            return Stopped(
                session_id=found.id, turn_id=target.turn_id, outcome=target.outcome or "not-running"
            )
        started_s = runtime.clock.monotonic_s()
        outcome = await _end(runtime, found.id, target.turn_id, ABORT_WAIT_S if wait_s is None else wait_s)
        return Stopped(
            session_id=found.id,
            turn_id=target.turn_id,
            outcome=outcome,
            waited_s=runtime.clock.monotonic_s() - started_s,
        )


async def _end(runtime: Runtime, session_id: str, turn_id: str, wait_s: float) -> AbortOutcome:
    until_s = runtime.clock.monotonic_s() + wait_s
    while True:
        outcome = await abort_outcome(runtime.store, session_id, turn_id)
        if outcome is not None:
            return outcome
        lock = await runtime.store.read(lambda: turn_rows.find_lock(session_id))
        if lock is not None and not runtime.owner.is_alive(lock.owner):
            await recover(runtime.store, runtime.owner, runtime.clock, runtime.sessions_dir)
        if runtime.clock.monotonic_s() >= until_s:
            return "abort-timeout"
        await asyncio.sleep(_LOOK_S)

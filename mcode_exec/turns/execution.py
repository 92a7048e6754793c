"""Running an accepted turn: keep the lease, await the loop, settle once.

The loop runs in a task of its own, which the abort scope cancels at most once;
everything after it (settlement) may therefore await.  Whatever happens in the
loop becomes exactly one `Ending`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mcode_exec.abort import AbortScope
from mcode_exec.clock import Clock
from mcode_exec.errors import InternalError, LeaseLostError, LimitReachedError, McodeError
from mcode_exec.faults import fault
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.turn import Accepted, Ending
from mcode_exec.store.database import Patience, Store
from mcode_exec.turns.lease import LEASE_S, RENEW_S, LeaseKeeper
from mcode_exec.turns.listening import TurnEar
from mcode_exec.turns.settlement import LEASE_REASONS, Settled, settle

R = TypeVar("R")

_LOST = "the session's lease is no longer ours; nothing more was written"


async def execute(
    *,
    store: Store,
    accepted: Accepted,
    loop: Callable[[], Awaitable[None]],
    conclude: Callable[[Ending], Awaitable[tuple[R, bytes]]],
    abort: AbortScope,
    clock: Clock,
    patience: Patience | None = None,
    lease_s: float = LEASE_S,
    renew_s: float = RENEW_S,
    is_in_history: Callable[[str], bool] | None = None,
    left: list[TurnSignal] | None = None,
) -> R:
    """Run `loop` under the lease and settle the turn with what `conclude` makes of its ending.

    `loop` is called again, to go on, when words came for an answered turn before it was settled.

    `left`: gets the steers that the turn did not take.

    `conclude` returns the result and its encoded form for the receipt; it is
    called a second time, with the storage error, if settlement itself fails.
    """
    session_id, turn_id = accepted.receipt.session_id, accepted.receipt.turn_id
    keeper = LeaseKeeper(
        store=store,
        session_id=session_id,
        token=accepted.lease_token,
        abort=abort,
        clock=clock,
        lease_s=lease_s,
        renew_s=renew_s,
    )
    ear = TurnEar(store, turn_id, abort)

    async def settled(ending: Ending, encoded: bytes) -> Settled:
        return await settle(
            store,
            session_id=session_id,
            turn_id=turn_id,
            lease_token=accepted.lease_token,
            ending=ending,
            result=encoded,
            clock=clock,
            patience=patience,
            is_in_history=is_in_history,
            left=left,
        )

    while True:
        keeper.start()
        ear.start()
        try:
            ending = await _run(loop, abort)
            result, encoded = await conclude(ending)
        finally:
            await ear.stop()
            await keeper.stop()
        fault("before-settlement")
        try:
            outcome = await settled(ending, encoded)
            if outcome == "steered":
                continue  # words came behind the last look: the turn goes on with them
            if outcome == "lost" and ending.abort_reason not in LEASE_REASONS:
                # The lease went between the last commit and now: what was said is not ours to settle any more.
                ending = Ending(outcome="failed", abort_reason="lease-lost", error=LeaseLostError(_LOST))
                result, encoded = await conclude(ending)
                await settled(ending, encoded)
        except McodeError as error:
            if left is not None:
                left.clear()  # nothing of it was written
            if ending.outcome == "aborted":
                return result  # what ended it stays the answer; the next process settles the rest
            # The turn's end could not be written: the result says so, whatever the model answered.
            result, _ = await conclude(Ending(outcome="failed", error=error))
        return result


async def _run(loop: Callable[[], Awaitable[None]], abort: AbortScope) -> Ending:
    task: asyncio.Task[object] = asyncio.ensure_future(_as_task(loop))
    abort.bind(task)
    try:
        await task
    except asyncio.CancelledError:
        if abort.reason is not None:
            return _aborted(abort)
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        # Something inside cancelled the loop without a reason: that too is one ending.
        return Ending(outcome="failed", error=InternalError("the turn was cancelled; this is a bug in mcode"))
    except LimitReachedError as error:
        abort.trip("limit")
        return Ending(outcome="aborted", abort_reason="limit", error=error)
    except LeaseLostError as error:
        return Ending(outcome="failed", abort_reason="lease-lost", error=error)
    except McodeError as error:
        if abort.reason is not None:
            return _aborted(abort)  # what failed while the loop was cleaning up was not the first reason
        return Ending(outcome="failed", error=error)
    except MemoryError as error:
        return Ending(
            outcome="failed",
            error=InternalError(f"out of memory: {error}" if str(error) else "out of memory"),
        )
    except Exception as error:  # the loop's top: whatever it was becomes one ending
        wrapped = InternalError(f"unexpected {type(error).__name__}: {error}; this is a bug in mcode")
        wrapped.__cause__ = error
        return Ending(outcome="failed", error=wrapped)
    finally:
        abort.release()
    return Ending(outcome="completed")


async def _as_task(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()


def _aborted(abort: AbortScope) -> Ending:
    reason = abort.reason
    if reason in LEASE_REASONS:
        error = LeaseLostError(
            _LOST
            if reason == "lease-lost"
            else "the session's lease could not be renewed; the turn was stopped before it ran out"
        )
        return Ending(outcome="failed", abort_reason=reason, error=error)
    return Ending(outcome="aborted", abort_reason=reason)

"""Submitting a prepared turn, until it is accepted or answered.

A rejection becomes the error that tells the caller who holds the session; a
request that runs elsewhere is waited for while it goes on.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NoReturn

from mcode_exec.errors import BusyError, InvocationError, SessionError
from mcode_exec.executor.preparation import Prepared
from mcode_exec.records.turn import Accepted, Admission, Holder, Rejected, Replayed, TurnRequest
from mcode_exec.sessions import finding, making
from mcode_exec.store import turn_rows
from mcode_exec.turns.admission import admit

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

WAIT_S = 600.0  # how long a running request of the same id is waited for
_POLL_S = 0.25  # between two looks at it


async def submit(runtime: Runtime, prepared: Prepared) -> Accepted | Replayed:
    """Ask for the turn.

    Raises: BusyError, SessionError, InvocationError for a rejection.
    """
    request = prepared.request
    until_s = runtime.clock.monotonic_s() + WAIT_S
    while True:
        admission: Admission = await admit(runtime.store, runtime.owner, request, runtime.clock)
        if isinstance(admission, Accepted):
            return admission
        await _drop_new_session(runtime, prepared, admission)
        if isinstance(admission, Replayed):
            return admission
        if admission.reason != "request-running":
            _reject(admission, request)
        if runtime.clock.monotonic_s() >= until_s:
            raise BusyError(
                f"request {request.request_id!r} is still running after {WAIT_S:g} s; try again later",
            )
        request = await _wait(runtime, admission, request, until_s)
        await _go_to(runtime, prepared, request.session_id)


async def _drop_new_session(runtime: Runtime, prepared: Prepared, admission: Rejected | Replayed) -> None:
    """A session made for a request that turned out to be known leaves no trace."""
    if prepared.choice.is_new and not prepared.is_dropped:
        session_id = prepared.choice.session.id
        if admission.receipt is not None and admission.receipt.session_id != session_id:
            prepared.is_dropped = True
            await making.drop_unused(runtime.store, session_id)


async def _go_to(runtime: Runtime, prepared: Prepared, session_id: str) -> None:
    """The request is known in another session than the one made for it: that one goes on."""
    if prepared.choice.session.id != session_id:
        from msgspec import structs

        session = await finding.find_exact(runtime.store, session_id)
        prepared.choice = structs.replace(prepared.choice, session=session, is_new=False)


async def _wait(runtime: Runtime, admission: Rejected, request: TurnRequest, until_s: float) -> TurnRequest:
    """Until the running attempt has ended, its process has died or it is time; the request to submit then."""
    from msgspec import structs

    receipt = admission.receipt
    assert receipt is not None
    while True:
        await asyncio.sleep(_POLL_S)
        now, lock = await runtime.store.read(
            lambda: (turn_rows.find_receipt(receipt.turn_id), turn_rows.find_lock(receipt.session_id))
        )
        is_over = now is None or now.settled_ms is not None or runtime.clock.monotonic_s() >= until_s
        if is_over or lock is None or not runtime.owner.is_alive(lock.owner):
            return structs.replace(request, session_id=receipt.session_id)


def _reject(rejected: Rejected, request: TurnRequest) -> NoReturn:
    session_id = request.session_id
    if rejected.reason == "invalid-session":
        raise SessionError(f"there is no session {session_id} that could run")
    if rejected.reason == "ingress-conflict":
        raise SessionError(
            f"request id {request.request_id!r} was used before with another input; use a new id",
            code="turn_ingress_conflict",
        )
    if rejected.reason == "deleting":
        raise SessionError(f"session {session_id} is being deleted", code="session_deleting")
    codes = {"compaction-active": "session_compacting", "session-mutating": "session_mutating"}
    if rejected.holder is None:
        raise InvocationError(f"the turn was refused: {rejected.reason}")
    raise BusyError(
        f"session {session_id} is busy: {_who(rejected.holder)}; "
        f"`mcode sessions show {session_id}` shows it, the same command works when it has ended",
        code=codes.get(rejected.reason, "session_busy"),
    )


def _who(holder: Holder) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(holder.acquired_ms // 1000))
    what = f"turn {holder.turn_id}" if holder.turn_id else f"a {holder.kind}"
    return f"{what} has run since {since} UTC (process {holder.pid} on {holder.host})"

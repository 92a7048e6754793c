"""A lease's life: 30 minutes, renewed every 10 s while the token is ours.

Within one boot only the boot clock decides when a lease ends, so a stepping
wall clock changes nothing; wall time is kept for people.  The turn is aborted
at once when the token is gone (`lease-lost`), and when no renewal has succeeded
until a margin before the end (`lease-renewal-failed`).
"""

from __future__ import annotations

import asyncio

from mcode_exec.abort import AbortScope
from mcode_exec.clock import Clock
from mcode_exec.errors import McodeError
from mcode_exec.store import turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.owner import Owner

LEASE_S = 1800.0  # 30 minutes; source: turn-system notes, admission
RENEW_S = 10.0  # source: turn-system notes, execution
MARGIN_S = 60.0  # at most a quarter of the lease
_AGAIN_S = 1.0  # after a renewal that failed


def is_expired(lock: Lock, *, boot_id: str, clock: Clock, lease_s: float = LEASE_S) -> bool:
    """Whether a lock's lease has run out."""
    if lock.boot_id == boot_id:
        return lock.expires_boot_ms <= clock.boot_ms()
    # Another boot: only wall time is left; an end beyond a whole lease from now is a clock that was wrong.
    now_ms = clock.now_ms()
    return lock.expires_ms <= now_ms or lock.expires_ms > now_ms + int(lease_s * 1000)


def is_held(lock: Lock, owner: Owner, clock: Clock, lease_s: float = LEASE_S) -> bool:
    """Whether a lock keeps others out: a dead owner's is free at once, a live one's when its lease has run out."""
    return owner.is_alive(lock.owner) and not is_expired(
        lock, boot_id=owner.boot_id, clock=clock, lease_s=lease_s
    )


class LeaseKeeper:
    """Renews one lease until it is stopped."""

    def __init__(
        self,
        *,
        store: Store,
        session_id: str,
        token: str,
        abort: AbortScope,
        clock: Clock,
        lease_s: float = LEASE_S,
        renew_s: float = RENEW_S,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._token = token
        self._abort = abort
        self._clock = clock
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._task: asyncio.Task[None] | None = None
        self._expires_boot_ms = clock.boot_ms() + int(lease_s * 1000)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Renew no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _keep(self) -> None:
        margin_ms = int(min(MARGIN_S, self._lease_s / 4) * 1000)
        pause_s = self._renew_s
        while not self._abort.is_tripped:
            await asyncio.sleep(pause_s)
            renewed = await self._renew_until(margin_ms)
            if renewed is False:
                self._abort.trip("lease-lost")
                return
            if renewed is None and self._left_ms(margin_ms) <= 0:
                self._abort.trip("lease-renewal-failed")
                return
            # A store that is busy or fails is tried again more often than one that works.
            pause_s = self._renew_s if renewed else min(_AGAIN_S, self._renew_s)

    def _left_ms(self, margin_ms: int) -> int:
        """Time until the margin before the lease's end begins."""
        return self._expires_boot_ms - margin_ms - self._clock.boot_ms()

    async def _renew_until(self, margin_ms: int) -> bool | None:
        """Whether the lease was renewed; None when the store could not tell in time."""
        renewal = asyncio.ensure_future(self._renew())
        try:
            # A store that others lock is waited for inside, but not beyond the margin.
            await asyncio.wait([renewal], timeout=max(0.0, self._left_ms(margin_ms) / 1000))
            return renewal.result() if renewal.done() else None
        except McodeError:
            return None
        finally:
            renewal.cancel()

    async def _renew(self) -> bool:
        lease_ms = int(self._lease_s * 1000)
        expires_boot_ms = self._clock.boot_ms() + lease_ms
        expires_ms = self._clock.now_ms() + lease_ms
        renewed = await self._store.write(
            lambda: turn_rows.extend_lock(self._session_id, self._token, expires_ms, expires_boot_ms)
        )
        if renewed:
            self._expires_boot_ms = expires_boot_ms
        return renewed

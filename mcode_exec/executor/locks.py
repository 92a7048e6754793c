"""`mcode doctor --locks`: who holds what, and why it is believed alive or dead.

Reads the store as it stands and the liveness files; nothing is made, changed or
recovered.  Pid and host are for people: nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from mcode_exec import paths
from mcode_exec.clock import Clock, SystemClock
from mcode_exec.executor.runtime import check_data_directory
from mcode_exec.records.queue import QueueItem
from mcode_exec.records.session import Seal
from mcode_exec.store import deletion_rows, queue_rows, queue_state_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.deletion import NOBODY
from mcode_exec.turns.lease import is_expired
from mcode_exec.turns.owner import liveness, read_boot_id, signature

_PAGE = 1000

#: `expired`: its process lives, and has lost the right all the same
State = Literal["alive", "expired", "dead"]


class Held(Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that a process holds."""

    what: Literal["lock", "claim", "place", "drainer", "deletion"]
    session_id: str
    state: State
    why: str
    #: of a lock
    kind: str | None = None
    turn_id: str | None = None
    item_id: str | None = None
    owner: str | None = None
    pid: int | None = None
    host: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


async def held_locks(data_dir: str | None, env: Mapping[str, str]) -> list[Held]:
    """Everything that is held, by kind and session.  Raises: StoreBusyError, StoreFailedError."""
    data = paths.data_dir(data_dir, dict(env))
    check_data_directory(data)
    clock = SystemClock()
    store = await Store.open_read_only(paths.database_file(data), clock)
    look = _Look(paths.run_dir(data), read_boot_id(), clock)
    try:
        return await store.read(lambda: list(look.everything()))
    finally:
        await store.close()


class _Look:
    """One look at everything that is held; inside a read."""

    def __init__(self, run_dir: str, boot_id: str, clock: Clock) -> None:
        self._run_dir = run_dir
        self._boot_id = boot_id
        self._clock = clock
        self._told: dict[str, tuple[bool, str]] = {}

    def everything(self) -> Iterator[Held]:
        for lock in _pages(
            lambda after: turn_rows.page_locks(after, _PAGE), "", lambda lock: lock.session_id
        ):
            yield self._lock(lock)
        for item in _pages(
            lambda after: queue_rows.claimed_items(after, _PAGE), "", lambda item: item.session_id
        ):
            yield self._claim(item)
        waiting = _pages(
            lambda after: queue_state_rows.waiting_items(after, _PAGE),
            ("", 0),
            lambda one: (one.session_id, one.position),
        )
        for one in waiting:
            yield self._plain(
                "place",
                one.session_id,
                one.waiter,
                item_id=one.id,
                turn_id=one.turn_id,
                since_ms=one.created_ms,
            )
        draining = _pages(
            lambda after: queue_state_rows.all_drainers(after, _PAGE), ("", ""), lambda row: row[:2]
        )
        for session_id, owner, since_ms in draining:
            yield self._plain("drainer", session_id, owner, since_ms=since_ms)

        for seal in _pages(
            lambda after: deletion_rows.page_seals(after, _PAGE), "", lambda seal: seal.session_id
        ):
            yield self._deletion(seal)

    def _owner(self, token: str) -> tuple[bool, str]:
        """Whether an owner is believed alive, and why."""
        if token not in self._told:
            self._told[token] = {
                "held": (True, "liveness file locked"),
                "free": (False, "liveness file free: its process has ended"),
                "missing": (False, "liveness file missing: its process has ended"),
                "unknown": (True, "liveness file cannot be opened: taken for alive"),
            }[liveness(self._run_dir, token)]
        return self._told[token]

    def _lock(self, lock: Lock) -> Held:
        is_alive, why = self._owner(lock.owner)
        state: State = "alive" if is_alive else "dead"
        if is_alive:
            is_over = is_expired(lock, boot_id=self._boot_id, clock=self._clock)
            state, why = ("expired" if is_over else "alive"), f"{why}; {self._lease(lock, is_over)}"
        return Held(
            what="lock",
            session_id=lock.session_id,
            state=state,
            why=why,
            kind=lock.kind,
            turn_id=lock.turn_id,
            owner=lock.owner,
            pid=lock.pid,
            host=lock.host,
            since_ms=lock.acquired_ms,
            until_ms=lock.expires_ms,
        )

    def _lease(self, lock: Lock, is_over: bool) -> str:
        if lock.boot_id != self._boot_id:
            return f"lease of another boot, by the wall clock {'over' if is_over else 'good'}"
        left_s = (lock.expires_boot_ms - self._clock.boot_ms()) / 1000
        if is_over:
            return f"lease ended {-left_s:.0f} s ago by the boot clock"
        return f"lease good for {left_s:.0f} s by the boot clock"

    def _claim(self, item: QueueItem) -> Held:
        lock = turn_rows.find_lock(item.session_id)
        state: State
        if lock is not None and lock.turn_id == item.turn_id:
            held = self._lock(lock)
            state, why = held.state, f"its turn: {held.why}"
        elif item.claim_owner is None:
            state, why = "dead", "nobody has it"
        else:
            is_alive, why = self._owner(item.claim_owner)
            state = "alive" if is_alive else "dead"
            left_s = ((item.claim_expires_boot_ms or 0) - self._clock.boot_ms()) / 1000
            if is_alive and item.claim_boot_id == self._boot_id and left_s <= 0:
                state, why = "expired", f"{why}; its 30 s are over by the boot clock"
        return Held(
            what="claim",
            session_id=item.session_id,
            state=state,
            why=why,
            turn_id=item.turn_id,
            item_id=item.id,
            owner=item.claim_owner,
            **self._who(item.claim_owner),
            until_ms=item.claim_expires_ms,
        )

    def _deletion(self, seal: Seal) -> Held:
        """A session that is being deleted, by a process or, where one could not end it, by the next that can."""
        is_nobodys = seal.deleter == NOBODY
        is_alive, why = (False, "no process is at it") if is_nobodys else self._owner(seal.deleter)
        if not is_alive:
            why = f"{why}; the next mcode that can goes on"
            if seal.reason is not None:
                why = f"{seal.reason}; {why}"
        who = {"pid": seal.pid, "host": seal.host}
        return Held(
            what="deletion",
            session_id=seal.session_id,
            state="alive" if is_alive else "dead",
            why=why,
            owner=None if is_nobodys else seal.deleter,
            **(who if seal.pid is not None or is_nobodys else self._who(seal.deleter)),
            since_ms=seal.since_ms,
        )

    def _plain(self, what: Literal["place", "drainer"], session_id: str, owner: str, **more: Any) -> Held:
        is_alive, why = self._owner(owner)
        state: State = "alive" if is_alive else "dead"
        return Held(
            what=what, session_id=session_id, state=state, why=why, owner=owner, **self._who(owner), **more
        )

    def _who(self, token: str | None) -> dict[str, Any]:
        """Pid and host of an owner, where its liveness file still says so."""
        signed = None if token is None else signature(self._run_dir, token)
        return {} if signed is None else {"pid": signed[0], "host": signed[1]}


def _pages(page_of: Callable[[Any], Sequence[Any]], first: Any, key: Callable[[Any], Any]) -> Iterator[Any]:
    after = first
    while page := page_of(after):
        yield from page
        after = key(page[-1])

"""A turn under its lease: renewed, fenced, and settled once whatever happens."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from mcode_exec.abort import AbortScope
from mcode_exec.clock import SystemClock
from mcode_exec.errors import (
    BusyError,
    LeaseLostError,
    LimitReachedError,
    ModelCallError,
    StoreFailedError,
)
from mcode_exec.executor.retrying import Retry
from mcode_exec.records.turn import Accepted, Ending, Rejected
from mcode_exec.store import session_rows, turn_rows
from mcode_exec.turns.admission import admit
from mcode_exec.turns.execution import execute
from mcode_exec.turns.maintenance import maintenance
from mcode_exec.turns.recovery import BATCH, FIRST, Place, Recovered, recover
from tests.unit.turns.turn_world import World, kill, request


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, SystemClock())
    yield made
    made.close()


def accepted_in(world: World, **how: Any) -> Accepted:
    session = world.session()
    answer = world.do(admit(world.store, world.owner(), request(session.id, "turn_1"), world.clock, **how))
    assert isinstance(answer, Accepted)
    return answer


class Run:
    """Executes a loop and keeps the endings that were concluded."""

    def __init__(self, world: World, accepted: Accepted) -> None:
        self.world = world
        self.accepted = accepted
        self.abort = AbortScope()
        self.endings: list[Ending] = []

    async def conclude(self, ending: Ending) -> tuple[Ending, bytes]:
        self.endings.append(ending)
        return ending, f"result {len(self.endings)}".encode()

    async def go(self, loop: Callable[[], Awaitable[None]], **how: Any) -> Ending:
        return await execute(
            store=self.world.store,
            accepted=self.accepted,
            loop=loop,
            conclude=self.conclude,
            abort=self.abort,
            clock=self.world.clock,
            **how,
        )

    def to_end(self, loop: Callable[[], Awaitable[None]], **how: Any) -> Ending:
        return self.world.do(self.go(loop, **how))


async def nothing() -> None:
    return


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def loop() -> None:
        raise error

    return loop


ENDINGS = [
    (None, ("completed", None, None), "idle", None, None),
    (
        ModelCallError("LLM_AUTH_ERROR", "no"),
        ("failed", None, "LLM_AUTH_ERROR"),
        "error",
        "LLM_AUTH_ERROR",
        "provider",
    ),
    (
        StoreFailedError("full", source="canonical-history"),
        ("failed", None, "STORE_FAILED"),
        "error",
        "STORE_FAILED",
        "canonical-history",
    ),
    (
        LimitReachedError("steps", code="LIMIT_STEPS"),
        ("aborted", "limit", "LIMIT_STEPS"),
        "aborted",
        None,
        None,
    ),
    (BusyError("busy"), ("failed", None, "session_busy"), "error", "session_busy", "admission"),
    (ValueError("bug"), ("failed", None, "INTERNAL"), "error", "INTERNAL", "internal"),
    (MemoryError(), ("failed", None, "INTERNAL"), "error", "INTERNAL", "internal"),
    (RecursionError("deep"), ("failed", None, "INTERNAL"), "error", "INTERNAL", "internal"),
    (asyncio.CancelledError(), ("failed", None, "INTERNAL"), "error", "INTERNAL", "internal"),
]


@pytest.mark.parametrize(
    ("error", "receipt", "status", "code", "source"), ENDINGS, ids=lambda value: type(value).__name__
)
def test_every_ending_is_written_once_and_releases_the_session(
    world: World,
    error: BaseException | None,
    receipt: tuple[str, str | None, str | None],
    status: str,
    code: str | None,
    source: str | None,
) -> None:
    run = Run(world, accepted_in(world))
    run.to_end(nothing if error is None else raising(error))
    found = world.receipt("turn_1")
    assert (found.outcome, found.reason, found.code) == receipt
    assert found.result == b"result 1"
    assert len(run.endings) == 1
    session = world.find_session(run.accepted.receipt.session_id)
    assert (session.status, session.error_code, session.error_source) == (status, code, source)
    assert world.lock(session.id) is None


@pytest.mark.parametrize("reason", ["signal", "deadline", "user-stop", "stdout-closed", "session-deleting"])
def test_an_abort_cancels_the_loop_once_and_settlement_still_awaits(world: World, reason: Any) -> None:
    run = Run(world, accepted_in(world))
    cancelled = []

    async def loop() -> None:
        asyncio.get_running_loop().call_soon(run.abort.trip, reason)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            await asyncio.sleep(0)  # what cleans up may still wait
            run.abort.trip("signal")
            raise

    ending = run.to_end(loop)
    assert (ending.outcome, ending.abort_reason, cancelled) == ("aborted", reason, [1])
    found = world.receipt("turn_1")
    assert (found.outcome, found.reason) == ("aborted", reason)
    assert world.find_session(found.session_id).status == "aborted"


def test_an_abort_that_came_before_the_loop_is_not_lost(world: World) -> None:
    run = Run(world, accepted_in(world))
    run.abort.trip("deadline")

    async def loop() -> None:
        await asyncio.sleep(10)

    assert run.to_end(loop).abort_reason == "deadline"


def test_a_lease_is_renewed_while_the_loop_runs(world: World) -> None:
    run = Run(world, accepted_in(world, lease_s=1.0))
    session_id = run.accepted.receipt.session_id
    first = world.lock(session_id)

    async def loop() -> None:
        await asyncio.sleep(0.5)

    run.world.do(asyncio.sleep(0.05))
    seen = []

    async def watched() -> None:
        await loop()
        seen.append(await world.store.read(lambda: turn_rows.find_lock(session_id)))

    assert run.to_end(watched, lease_s=1.0, renew_s=0.1).outcome == "completed"
    assert first is not None
    assert seen[0].expires_boot_ms > first.expires_boot_ms


def take_away(world: World, session_id: str, token: str) -> None:
    world_path = world.root / "mcode.db"
    with sqlite3.connect(world_path, timeout=5) as connection:
        connection.execute(
            "DELETE FROM session_locks WHERE session_id = ? AND token = ?", (session_id, token)
        )
    connection.close()


def test_a_lock_row_that_is_gone_aborts_the_turn_and_is_not_made_again(world: World) -> None:
    run = Run(world, accepted_in(world))
    session_id = run.accepted.receipt.session_id

    async def loop() -> None:
        take_away(world, session_id, run.accepted.lease_token)
        await asyncio.sleep(10)

    ending = run.to_end(loop, renew_s=0.05)
    assert (ending.outcome, ending.abort_reason) == ("failed", "lease-lost")
    assert isinstance(ending.error, LeaseLostError)
    assert world.lock(session_id) is None
    assert (world.receipt("turn_1").outcome, world.receipt("turn_1").code) == ("failed", "LEASE_LOST")
    assert world.find_session(session_id).status == "error"


def test_a_lease_that_went_after_the_last_commit_is_no_success(world: World) -> None:
    run = Run(world, accepted_in(world))
    session_id = run.accepted.receipt.session_id

    async def loop() -> None:
        take_away(world, session_id, run.accepted.lease_token)

    ending = run.to_end(loop)
    assert (ending.outcome, ending.abort_reason) == ("failed", "lease-lost")
    assert [one.outcome for one in run.endings] == ["completed", "failed"]
    assert world.receipt("turn_1").code == "LEASE_LOST"


def test_the_takers_word_stands_even_when_it_is_gone_again(world: World) -> None:
    first = accepted_in(world)
    session_id = first.receipt.session_id
    taker = world.owner()

    async def loop() -> None:
        # the lease ran out while the process was stopped; another one ran a turn of its own meanwhile
        def expire() -> None:
            turn_rows.extend_lock(session_id, first.lease_token, 0, 0)

        await world.store.write(expire)
        second = await admit(world.store, taker, request(session_id, "turn_2"), world.clock)
        assert isinstance(second, Accepted)
        assert second.is_takeover
        other = Run(world, second)
        assert (await other.go(nothing)).outcome == "completed"

    ending = Run(world, first).to_end(loop)
    assert ending.abort_reason == "lease-lost"
    found = world.receipt("turn_1")
    assert (found.outcome, found.reason) == ("failed", "process-restart")
    assert world.find_session(session_id).status == "idle"


@pytest.fixture
def locker(world: World) -> Iterator[sqlite3.Connection]:
    """A connection of somebody else, to hold the store with."""
    connection = sqlite3.connect(world.root / "mcode.db", isolation_level=None, check_same_thread=False)
    yield connection
    connection.close()


def test_a_store_locked_for_most_of_the_lease_does_not_cost_it(
    world: World, locker: sqlite3.Connection
) -> None:
    """15 s of lease, 10 s of renewal and 11 s of lock, a tenth of each."""
    run = Run(world, accepted_in(world, lease_s=1.5))

    async def loop() -> None:
        locker.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(1.05)
        locker.execute("ROLLBACK")
        await asyncio.sleep(0.6)

    assert run.to_end(loop, lease_s=1.5, renew_s=1.0).outcome == "completed"


def test_a_store_locked_until_the_margin_stops_the_turn_before_the_lease_ends(
    world: World, locker: sqlite3.Connection
) -> None:
    run = Run(world, accepted_in(world, lease_s=2.0))
    left_ms = []

    async def loop() -> None:
        locker.execute("BEGIN IMMEDIATE")
        try:
            await asyncio.sleep(20)
        finally:
            lock = await world.store.read(lambda: turn_rows.find_lock(run.accepted.receipt.session_id))
            assert lock is not None
            left_ms.append(lock.expires_boot_ms - world.clock.boot_ms())
            locker.execute("ROLLBACK")

    ending = run.to_end(loop, lease_s=2.0, renew_s=0.5)
    assert (ending.outcome, ending.abort_reason) == ("failed", "lease-renewal-failed")
    assert left_ms[0] > 0
    assert world.find_session(run.accepted.receipt.session_id).status == "error"


def test_a_turn_whose_end_cannot_be_written_says_so(world: World, locker: sqlite3.Connection) -> None:
    run = Run(world, accepted_in(world))
    locker.execute(
        "CREATE TRIGGER no_end BEFORE UPDATE ON turn_receipts BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    ending = run.to_end(nothing)
    assert (ending.outcome, [one.outcome for one in run.endings]) == ("failed", ["completed", "failed"])
    assert isinstance(ending.error, StoreFailedError)
    locker.execute("DROP TRIGGER no_end")
    # and whoever comes next ends it
    kill(world.owners[-1])
    world.recover(world.owner())
    assert world.receipt("turn_1").reason == "process-restart"
    assert world.find_session(run.accepted.receipt.session_id).status == "interrupted"


def test_recovery_ends_turns_of_the_dead_and_leaves_the_living_alone(world: World) -> None:
    sessions = [world.session() for _ in range(12)]
    dead, living = world.owner(), world.owner()
    for number, session in enumerate(sessions):
        owner = dead if number % 2 else living
        world.do(admit(world.store, owner, request(session.id, f"turn_{number}"), world.clock))
    kill(dead)
    us = world.owner()
    assert world.recover(us).dead_owners == (dead.token,)
    assert world.recover(us) == Recovered()
    for number, session in enumerate(sessions):
        found = world.find_session(session.id)
        assert found.status == ("interrupted" if number % 2 else "started")
        assert (world.lock(session.id) is None) == bool(number % 2)
        assert world.receipt(f"turn_{number}").reason == ("process-restart" if number % 2 else None)


def test_recovery_of_a_session_that_says_started_without_a_lock(world: World) -> None:
    session = world.session()
    world.do(world.store.write(lambda: session_rows.update_session(session.id, status="started")))
    world.recover(world.owner())
    assert world.find_session(session.id).status == "interrupted"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("compaction", "compaction-active"), ("maintenance", "session-mutating"), ("deletion", "deleting")],
)
def test_other_work_on_a_session_is_named_in_the_rejection(world: World, kind: Any, reason: str) -> None:
    accepted = accepted_in(world)
    session_id = accepted.receipt.session_id
    locker = sqlite3.connect(world.root / "mcode.db", isolation_level=None)
    locker.execute("UPDATE session_locks SET kind = ?, turn_id = NULL", (kind,))
    locker.close()
    answer = world.do(admit(world.store, world.owner(), request(session_id, "turn_2"), world.clock))
    assert isinstance(answer, Rejected)
    assert answer.reason == reason
    assert answer.holder is not None
    assert answer.holder.kind == kind


@pytest.mark.parametrize("runtime", [None, "opencode"])
def test_a_session_that_is_not_there_or_not_ours_cannot_run(world: World, runtime: str | None) -> None:
    session_id = world.session().id if runtime else "mvs_" + "0" * 32
    world.do(world.store.write(lambda: session_rows.update_session(session_id, runtime=runtime)))
    answer = world.do(admit(world.store, world.owner(), request(session_id, "turn_1"), world.clock))
    assert isinstance(answer, Rejected)
    assert answer.reason == "invalid-session"


def test_a_rejected_submission_leaves_no_trace(world: World) -> None:
    accepted = accepted_in(world)
    before = world.find_session(accepted.receipt.session_id)
    answer = world.do(
        admit(
            world.store,
            world.owner(),
            request(before.id, "turn_2", request_id="r", request_scope="s", rebind_workspace="/other"),
            world.clock,
        )
    )
    assert isinstance(answer, Rejected)
    assert world.find_session(before.id) == before
    for find in (lambda: turn_rows.find_receipt("turn_2"), lambda: turn_rows.find_request("s", "r")):
        assert world.do(world.store.read(find)) is None  # type: ignore[arg-type]


def test_acceptance_rebinds_unarchives_and_clears_the_last_error(world: World) -> None:
    session = world.session()
    world.do(
        world.store.write(
            lambda: session_rows.update_session(
                session.id, archived_ms=5, status="error", error_code="X", error_message="m", error_source="s"
            )
        )
    )
    wanted = request(session.id, "turn_1", rebind_workspace="/new", rebind_project_id="prj_new")
    world.do(admit(world.store, world.owner(), wanted, world.clock))
    found = world.find_session(session.id)
    assert (found.archived_ms, found.status, found.error_code, found.error_message) == (
        None,
        "started",
        None,
        None,
    )
    assert (found.workspace, found.project_id) == ("/new", "prj_new")


def test_maintenance_and_turns_keep_each_other_out(world: World) -> None:
    session = world.session()
    owner, other = world.owner(), world.owner()

    async def main() -> None:
        async with maintenance(world.store, owner, session.id, world.clock):
            answer = await admit(world.store, other, request(session.id, "turn_1"), world.clock)
            assert isinstance(answer, Rejected)
            assert answer.reason == "session-mutating"
            with pytest.raises(BusyError):
                async with maintenance(world.store, other, session.id, world.clock):
                    raise AssertionError("two at once")
        answer = await admit(world.store, other, request(session.id, "turn_1"), world.clock)
        assert isinstance(answer, Accepted)
        with pytest.raises(BusyError):
            async with maintenance(world.store, owner, session.id, world.clock):
                raise AssertionError("beside a turn")

    world.do(main())
    assert world.find_session(session.id).status == "started"


def test_a_thousand_living_locks_do_not_hide_a_dead_one(world: World) -> None:
    living, dead = world.owner(), world.owner()
    session = world.session()
    world.do(admit(world.store, dead, request(session.id, "turn_dead"), world.clock))
    held = world.lock(session.id)
    assert held is not None
    many = [
        structs.replace(held, session_id=f"mvs_{number:05}", owner=living.token, token=f"t{number}")
        for number in range(BATCH)
    ]
    last = structs.replace(held, session_id="mvs_z" + session.id[5:])
    assert world.do(world.store.write(lambda: [turn_rows.insert_lock(lock) for lock in [*many, last]]))
    kill(dead)
    us = world.owner()
    turns, batches = 0, 0
    place: Place | None = FIRST
    while place is not None:
        found = world.do(recover(world.store, us, world.clock, world.sessions_dir, place))
        turns, place, batches = turns + found.turns, found.then, batches + 1
    assert (turns, batches) == (2, 2)
    assert len(world.do(world.store.read(lambda: turn_rows.page_locks("", 5000)))) == BATCH
    assert world.recover(us).turns == 0


def test_more_than_a_batch_of_sessions_is_interrupted_batch_after_batch(world: World) -> None:
    session = world.session()
    copies = [
        structs.replace(session, id=f"mvs_{number:032x}", status="started", session_key=None)
        for number in range(BATCH + 5)
    ]
    world.do(world.store.write(lambda: [session_rows.insert_session(copy) for copy in copies]))
    us = world.owner()
    found = world.recover(us)
    assert (found.sessions, found.then is None) == (BATCH, False)
    assert world.recover(us).sessions == 5
    assert world.recover(us) == Recovered()


def test_a_retry_that_another_turn_has_overtaken_is_refused_inside_admission(world: World) -> None:
    session, owner = world.session(), world.owner()
    first = world.do(admit(world.store, owner, request(session.id, "turn_1"), world.clock))
    assert isinstance(first, Accepted)
    plan = Retry(mode="resubmit", session_id=session.id, receipt=first.receipt, last_turn_id="turn_1")
    Run(world, first).to_end(raising(ValueError("no")))
    again = Run(world, accepted_as(world, session.id, "turn_2", plan))
    again.to_end(raising(ValueError("no")))
    late = world.do(
        admit(world.store, owner, request(session.id, "turn_3"), world.clock, policies=(plan.policy(),))
    )
    assert isinstance(late, Rejected)
    assert (late.reason, "retry" in (late.detail or "")) == ("policy", True)


def accepted_as(world: World, session_id: str, turn_id: str, plan: Retry) -> Accepted:
    wanted = request(session_id, turn_id, source="retry", priority="retry-continuation")
    answer = world.do(admit(world.store, world.owner(), wanted, world.clock, policies=(plan.policy(),)))
    assert isinstance(answer, Accepted)
    return answer


def test_a_source_that_is_not_on_the_list_is_refused(world: World) -> None:
    session = world.session()
    asked = request(session.id, "turn_1", source="somebody")
    assert world.do(admit(world.store, world.owner(), asked, world.clock)) == Rejected(reason="invalid-input")
    assert world.lock(session.id) is None


def test_the_first_policy_that_refuses_counts_and_nothing_is_left_of_the_submission(world: World) -> None:
    session = world.session()
    asked: list[str] = []

    def policy(name: str, answer: str | None) -> Callable[[Any], str | None]:
        return lambda request: asked.append(name) or answer

    policies = (policy("one", None), policy("two", "not on Fridays"), policy("three", "never"))
    answer = world.do(
        admit(world.store, world.owner(), request(session.id, "turn_1"), world.clock, policies=policies)
    )
    assert answer == Rejected(reason="policy", detail="not on Fridays")
    assert asked == ["one", "two"]
    assert world.lock(session.id) is None
    assert world.find_session(session.id).status == "idle"

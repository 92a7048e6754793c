"""One of many processes on one data directory; `python -m tests.unit.turns.turn_process WHAT DATA SESSIONS…`.

It says `ready`, waits for a line, works, writes what it got, a line each, says `done`, and lives until its
stdin ends: a dead owner's lock would be free.
"""

from __future__ import annotations

import asyncio
import os
import sys

from mcode_exec.clock import SystemClock
from mcode_exec.ids import new_turn_id
from mcode_exec.records.turn import Accepted, Ending, TurnRequest
from mcode_exec.store import queue_rows
from mcode_exec.store.database import Store
from mcode_exec.turns.admission import admit
from mcode_exec.turns.claims import claim_next, release
from mcode_exec.turns.owner import Owner
from mcode_exec.turns.settlement import settle

CLOCK = SystemClock()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def claim_all(store: Store, owner: Owner, sessions: list[str]) -> None:
    """Take items until none is left; an item's row goes as the commit of its prompt takes it."""
    while sessions:
        for session_id in list(sessions):
            item = await claim_next(store, owner, session_id, CLOCK)
            if item is not None:
                say(f"{session_id} {item.id}")
                await store.write(lambda turn_id=item.turn_id: queue_rows.delete_by_turn(turn_id))
            elif not await store.read(lambda of=session_id: queue_rows.has_items(of)):
                sessions.remove(session_id)


async def drain(store: Store, owner: Owner, sessions: list[str]) -> None:
    """The whole way of an item: claim, admission, prompt, settlement."""
    while sessions:
        for session_id in list(sessions):
            item = await claim_next(store, owner, session_id, CLOCK)
            if item is None:
                if not await store.read(lambda of=session_id: queue_rows.has_items(of)):
                    sessions.remove(session_id)
                continue
            answer = await admit(
                store,
                owner,
                TurnRequest(
                    session_id=session_id,
                    turn_id=item.turn_id,
                    digest=item.digest,
                    item_id=item.id,
                    claim_token=item.claim_token,
                ),
                CLOCK,
            )
            if not isinstance(answer, Accepted):
                # Another's turn goes on behind its prompt: the item is next when that has ended.
                assert getattr(answer, "reason", None) == "active-turn", answer
                await release(store, item)
                continue
            say(f"{session_id} {item.id}")
            await store.write(lambda turn_id=item.turn_id: queue_rows.delete_by_turn(turn_id))
            await settle(
                store,
                session_id=session_id,
                turn_id=item.turn_id,
                lease_token=answer.lease_token,
                ending=Ending(outcome="completed"),
                result=b"r",
                clock=CLOCK,
            )


async def admit_each(store: Store, owner: Owner, sessions: list[str]) -> None:
    for session_id in sessions:
        wanted = TurnRequest(session_id=session_id, turn_id=new_turn_id(), digest="d")
        answer = await admit(store, owner, wanted, CLOCK)
        say(f"{session_id} {type(answer).__name__} {getattr(answer, 'reason', '')}")


async def main() -> None:
    what, data, *sessions = sys.argv[1:]
    store = await Store.open(os.path.join(data, "mcode.db"), CLOCK)
    owner = Owner.hold(os.path.join(data, "run"))
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    work = {"claim": claim_all, "drain": drain, "admit": admit_each}[what]
    await work(store, owner, sessions)
    say("done")
    await asyncio.to_thread(sys.stdin.read)
    owner.release()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())

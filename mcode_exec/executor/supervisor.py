"""Watches one turn's frames and tells the sink what happened, in order.

A sink that has no room holds only this reader up, never the agent.  A reader
that has fallen out of the ring says so once and reads what was committed from
the store: committed items are never lost and never told twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mcode_exec.output.sink import Sink
from mcode_exec.records.event import Heartbeat, Notice
from mcode_exec.records.frame import Frame
from mcode_exec.records.projection import EventProjector
from mcode_exec.sessions.resuming import after_message
from mcode_exec.sessions.stream import SessionStream
from mcode_exec.store.database import Store

HEARTBEAT_S = 15.0  # seconds of silence after which a heartbeat is sent


class Supervisor:
    """Carries frames of one turn to one sink until the turn's terminal frame."""

    def __init__(
        self,
        *,
        store: Store,
        stream: SessionStream,
        session_id: str,
        turn_id: str,
        prompt_id: str,
        sink: Sink,
        with_deltas: bool,
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._stream = stream
        self._subscription = stream.reserve()
        self._subscription.bind_turn(turn_id)
        self._session_id = session_id
        self._turn_id = turn_id
        self._prompt_id = prompt_id
        self._sink = sink
        #: waits until what the stream has published is in the store
        self._settle = settle
        self._projector = EventProjector(with_deltas=with_deltas)
        #: what is going on, for heartbeats
        self.phase = "starting"

    async def run(self) -> None:
        """Return after the turn's terminal frame."""
        while True:
            frame = self._subscription.poll() or await self._next_frame()
            if frame.kind == "turn-terminal":
                break
            if frame.kind == "resync-required":
                await self._resync(frame)
            elif frame.live is not None:
                for event in self._projector.live(frame.live):
                    await self._sink.event(event)
            elif frame.record is not None:
                for event in self._projector.committed(frame.record, self._session_id):
                    await self._sink.event(event)
        for event in self._projector.abandoned("the turn ended before this was committed"):
            await self._sink.event(event)

    async def _next_frame(self) -> Frame:
        while True:
            waiting = asyncio.ensure_future(self._subscription.next())
            try:
                done, _ = await asyncio.wait([waiting], timeout=HEARTBEAT_S)
            except BaseException:
                waiting.cancel()
                raise
            if done:
                return waiting.result()
            waiting.cancel()
            await self._sink.event(Heartbeat(phase=self.phase))

    async def _resync(self, frame: Frame) -> None:
        missed = frame.size_bytes
        await self._sink.event(
            Notice(
                code="stream.resync",
                message=f"{missed} frames came faster than they could be written and are left out; "
                "committed items among them follow from the store",
                missed=missed,
            )
        )
        await self._settle()
        resumed = await after_message(self._store, self._stream, self._session_id, self._prompt_id)
        if resumed is None:
            return  # not even the prompt is persisted: nothing that counts was missed
        self._subscription = resumed.subscription
        self._subscription.bind_turn(self._turn_id)
        # a prompt that is said again stands where it stood first: what an earlier turn was told may follow it
        ours = tuple(message for message in resumed.messages if message.turn_id == self._turn_id)
        for event in self._projector.persisted(ours):
            await self._sink.event(event)

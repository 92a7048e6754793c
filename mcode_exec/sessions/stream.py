"""The in-memory stream of a session's frames: a bounded ring that nobody can slow down.

At most 2,000 frames or 8 MiB are kept (source: session-system notes).  A
subscription is reserved before a turn is submitted and bound to it afterwards,
so that a frame made right after acceptance cannot be missed.  Whoever has
fallen out of the ring gets one `resync-required` frame and reads persisted
messages instead; committed facts are never lost, deltas may be.
"""

from __future__ import annotations

import asyncio
from collections import deque

from mcode_exec.records.frame import BlockDelta, CheckEnded, Frame, LiveFact
from mcode_exec.records.history import (
    HistoryRecord,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)

MAX_FRAMES = 2_000
MAX_BYTES = 8 * 1024 * 1024
_FRAME_BYTES = 200  # what a frame costs beside its text


class SessionStream:
    """The ring of one session in this process."""

    def __init__(self, max_frames: int = MAX_FRAMES, max_bytes: int = MAX_BYTES) -> None:
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        #: cursor of the next frame
        self._next = 1
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def end_cursor(self) -> int:
        """Cursor of the newest frame; 0 before the first."""
        return self._next - 1

    @property
    def resync_cursor(self) -> int:
        """Where a reader goes on that has missed frames: at the end, but before a terminal frame."""
        is_over = bool(self._frames) and self._frames[-1].kind == "turn-terminal"
        return self.end_cursor - is_over

    def publish_live(self, turn_id: str, fact: LiveFact) -> None:
        said = fact.text if isinstance(fact, BlockDelta) else ""
        if isinstance(fact, CheckEnded):
            said = fact.output or ""
        size = _FRAME_BYTES + len(said)
        self._add(Frame(cursor=self._next, turn_id=turn_id, kind="runtime-event", live=fact, size_bytes=size))

    def publish_committed(self, record: HistoryRecord) -> None:
        self._add(
            Frame(
                cursor=self._next,
                turn_id=record.turn_id,
                kind="message-committed",
                record=record,
                size_bytes=_FRAME_BYTES + _text_bytes(record),
            )
        )

    def publish_terminal(self, turn_id: str) -> None:
        self._add(Frame(cursor=self._next, turn_id=turn_id, kind="turn-terminal", size_bytes=_FRAME_BYTES))

    def _add(self, frame: Frame) -> None:
        self._next += 1
        self._frames.append(frame)
        self._bytes += frame.size_bytes
        while len(self._frames) > self._max_frames or (
            self._bytes > self._max_bytes and len(self._frames) > 1
        ):
            self._bytes -= self._frames.popleft().size_bytes
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    def reserve(self) -> Subscription:
        """A subscription to every frame published from now on."""
        return Subscription(self, self.end_cursor)

    def after_cursor(self, cursor: int) -> Subscription:
        """A subscription to the frames after `cursor`; one `resync-required` if they are gone."""
        return Subscription(self, cursor)

    def find_after(self, cursor: int) -> Frame | None:
        """The first kept frame after `cursor`; None if there is none yet."""
        if not self._frames or cursor >= self._frames[-1].cursor:
            return None
        first = self._frames[0].cursor
        return self._frames[max(0, cursor + 1 - first)]

    def is_gone(self, cursor: int) -> bool:
        """Whether frames after `cursor` have left the ring, or `cursor` never was."""
        oldest = self._frames[0].cursor if self._frames else self._next
        return cursor + 1 < oldest or cursor >= self._next

    async def wait(self, cursor: int) -> None:
        """Return when there is a frame after `cursor`."""
        while self.end_cursor <= cursor:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)


class Subscription:
    """One reader's place in a stream."""

    def __init__(self, stream: SessionStream, cursor: int) -> None:
        self._stream = stream
        self._turn_id: str | None = None
        self.cursor = cursor

    def bind_turn(self, turn_id: str) -> None:
        """From now on deliver only frames of this turn."""
        self._turn_id = turn_id

    async def next(self) -> Frame:
        """The next frame, waiting for it; `resync-required` when frames were missed.

        After `resync-required` the subscription stands at the end of the ring; a
        terminal frame there is still to come.
        """
        while (frame := self.poll()) is None:
            await self._stream.wait(self.cursor)
        return frame

    def poll(self) -> Frame | None:
        """The next frame if it is there."""
        while True:
            if self._stream.is_gone(self.cursor):
                missed = max(0, self._stream.end_cursor - self.cursor)
                self.cursor = self._stream.resync_cursor
                return Frame(
                    cursor=self.cursor, turn_id=self._turn_id, kind="resync-required", size_bytes=missed
                )
            frame = self._stream.find_after(self.cursor)
            if frame is None:
                return None
            self.cursor = frame.cursor
            if self._turn_id is None or frame.turn_id == self._turn_id:
                return frame


def _text_bytes(record: HistoryRecord) -> int:
    total = 0
    for block in record.message.content:
        if isinstance(block, TextBlock | ThinkingBlock):
            total += len(block.text)
        elif isinstance(block, ToolResultBlock):
            total += len(block.content)
        elif isinstance(block, ToolCallBlock):
            total += sum(len(str(value)) for value in block.arguments.values())
    return total

"""Where a history may be cut, so that what stands before is whole: behind a round, never inside one.

A round is a message of the model with the results of all its calls, or without
calls.  What a person said last and nobody has answered yet is no part of one.
Pure functions over records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from mcode_exec.records.history import HistoryRecord, ToolResultBlock
from mcode_exec.sessions.transcript import calls_of

#: why there is nothing to take: no whole round yet · no such message · its calls still run
Reason = Literal["nothing", "no-message", "runs"]


class NoCutError(Exception):
    """A history cannot be cut as it was asked."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Cut(Struct, frozen=True, kw_only=True):
    """How much of a history is taken."""

    #: number of its records
    count: int
    #: some calls of the last message have no result, and nobody makes one any more
    is_cut_short: bool = False


def last_round(records: Sequence[HistoryRecord], *, is_running: bool) -> Cut:
    """Everything up to the end of the last whole round.

    What a turn that is not running any more left without a result counts as a round; of one that runs it does not.
    Raises: NoCutError `nothing`.
    """
    count = len(records)
    while count:
        last = records[count - 1]
        if last.message.role == "user" and not _is_settled(last):
            count -= 1
            continue
        start = _start(records, count)
        if _is_whole(records, start, count):
            return Cut(count=count)
        if not is_running:
            return Cut(count=count, is_cut_short=True)
        count = start
    raise NoCutError("nothing")


def up_to(records: Sequence[HistoryRecord], message_id: str, *, is_running: bool) -> Cut:
    """Everything up to a message of a person or the model, the results of its calls included.

    What a person said and nobody has answered is left out.
    Raises: NoCutError.
    """
    at = next((at for at in range(len(records) - 1, -1, -1) if records[at].id == message_id), None)
    if at is None or records[at].message.role == "tool":
        raise NoCutError("no-message")
    if records[at].message.role == "user":
        is_answered = any(record.message.role == "assistant" for record in records[at + 1 :])
        if is_answered or _is_settled(records[at]):
            return Cut(count=at + 1)
        return last_round(records[:at], is_running=is_running)
    end = at + 1
    while end < len(records) and records[end].message.role == "tool":
        end += 1
    if _is_whole(records, at, end):
        return Cut(count=end)
    if is_running and end == len(records):
        raise NoCutError("runs")
    return Cut(count=end, is_cut_short=True)


def _is_settled(record: HistoryRecord) -> bool:
    """Whether a person's message stands where it does for good: it was inherited so, or mcode put it there."""
    return record.copied_from is not None or record.repair is not None


def _start(records: Sequence[HistoryRecord], count: int) -> int:
    """Where the round begins that the last of `count` records belongs to."""
    start = count - 1
    while start and records[start].message.role == "tool":
        start -= 1
    return start


def _is_whole(records: Sequence[HistoryRecord], start: int, end: int) -> bool:
    wanted = {call.id for call in calls_of(records[start].message)}
    for record in records[start + 1 : end]:
        wanted -= {block.call_id for block in record.message.content if isinstance(block, ToolResultBlock)}
    return not wanted

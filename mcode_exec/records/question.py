"""The query view: what one question came to, over all the turns that it took.

A question begins with a message that a person wrote to a session.  What only
goes on with it stands under it: a turn that was tried again, words that were
said to a running turn, and those that became a turn of their own because they
came too late for it.  The view is a projection for reading, made of one state
of messages, receipts and lock; nothing runs by it.  The turn that runs in that
state is its fence: it, and what follows it, is never folded, so that no view
hides what is still being written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct, structs

from mcode_exec.records.message import DisplayMessage, FilePart, StepFinishPart, TextPart, ToolError, ToolPart
from mcode_exec.records.usage import Usage

#: `unknown`: no receipt of it is here (it was copied, or brought from elsewhere)
TurnState = Literal["running", "completed", "aborted", "failed", "waiting", "unknown"]


class TurnFacts(Struct, frozen=True, kw_only=True):
    """How a turn stands, by its receipt and the result that is stored with it."""

    turn_id: str
    state: TurnState = "unknown"
    #: of its session, by acceptance
    sequence: int | None = None
    source: str | None = None
    #: `--request-id`, and what it is unique in
    request: tuple[str, str] | None = None
    attempt: int = 1
    is_dispatched: bool = False
    reason: str | None = None
    code: str | None = None
    error: str | None = None
    accepted_ms: int | None = None
    settled_ms: int | None = None
    duration_ms: int | None = None
    steps: int | None = None
    tool_calls: int | None = None
    tool_errors: int | None = None
    usage: Usage | None = None
    usage_incomplete: bool = False
    cost_usd: str | None = None
    #: the result's `fileChanges`, as it stands there
    file_changes: dict[str, Any] | None = None


class TurnView(Struct, frozen=True, kw_only=True):
    """A turn under its question, and what of it is here."""

    facts: TurnFacts
    #: stands for the messages of an earlier turn of a question that has gone on since
    is_folded: bool
    messages: tuple[DisplayMessage, ...]

    @property
    def turn_id(self) -> str:
        return self.facts.turn_id


class Question(Struct, frozen=True, kw_only=True):
    """What a person asked, and the turns that it took, oldest first."""

    #: id of the message that asks; None where it stands before what is here
    message_id: str | None
    turns: tuple[TurnView, ...]

    @property
    def messages(self) -> tuple[DisplayMessage, ...]:
        return tuple(message for turn in self.turns for message in turn.messages)


def questions_of(
    messages: Sequence[DisplayMessage], facts: Mapping[str, TurnFacts], current_turn_id: str | None
) -> tuple[Question, ...]:
    """`messages`, in their order, under the questions they belong to.

    `current_turn_id`: the turn that runs in the state that all this was read in.
    """
    found: list[tuple[str | None, list[list[DisplayMessage]]]] = []
    for message in messages:
        asks = _asks(message, facts.get(message.turn_id))
        if not found or (asks and not _is_another_attempt(message, found[-1][1], facts)):
            found.append((message.id if asks else None, [[message]]))
            continue
        turns = found[-1][1]
        if turns[-1][-1].turn_id == message.turn_id:
            turns[-1].append(message)
        else:
            turns.append([message])
    return tuple(
        Question(message_id=message_id, turns=_turns(turns, facts, current_turn_id))
        for message_id, turns in found
    )


def _turns(
    turns: Sequence[Sequence[DisplayMessage]], facts: Mapping[str, TurnFacts], current_turn_id: str | None
) -> tuple[TurnView, ...]:
    ids = [messages[0].turn_id for messages in turns]
    fence = ids.index(current_turn_id) if current_turn_id in ids else len(ids) - 1
    return tuple(
        TurnView(
            facts=with_counts(facts.get(turn_id) or TurnFacts(turn_id=turn_id), messages),
            is_folded=number < fence,
            messages=tuple(messages),
        )
        for number, (turn_id, messages) in enumerate(zip(ids, turns, strict=True))
    )


def _asks(message: DisplayMessage, facts: TurnFacts | None) -> bool:
    """Whether a message is a question of its own."""
    if message.role != "user" or message.steered_by is not None or is_hidden(message):
        return False
    # what was said to a running turn, and came too late for it, was taken up as a queue item
    return facts is None or not (facts.source == "steer" and facts.is_dispatched)


def _is_another_attempt(
    message: DisplayMessage, turns: Sequence[Sequence[DisplayMessage]], facts: Mapping[str, TurnFacts]
) -> bool:
    """Whether what stands before it was an attempt at the same request."""
    own, last = facts.get(message.turn_id), facts.get(turns[-1][-1].turn_id)
    return own is not None and last is not None and own.request is not None and own.request == last.request


def is_hidden(message: DisplayMessage) -> bool:
    """Whether a user's message is mcode's own words alone: a reminder, a note."""
    return (
        message.role == "user"
        and bool(message.parts)
        and not any(
            isinstance(part, FilePart) or (isinstance(part, TextPart) and not part.synthetic)
            for part in message.parts
        )
    )


def with_counts(facts: TurnFacts, messages: Sequence[DisplayMessage]) -> TurnFacts:
    """`facts`, and where its result does not say it, what can be counted in the messages that are here."""
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolPart)]
    ends = [part for message in messages for part in message.parts if isinstance(part, StepFinishPart)]
    told: dict[str, Any] = {}
    if facts.steps is None:
        told["steps"] = len(ends)
    if facts.tool_calls is None:
        told["tool_calls"] = len(calls)
    if facts.tool_errors is None:
        told["tool_errors"] = sum(isinstance(part.state, ToolError) for part in calls)
    if facts.usage is None and ends:
        usages = [part.usage for part in ends]
        told["usage"] = sum_of([usage for usage in usages if usage is not None])
        told["usage_incomplete"] = any(usage is None or not usage.is_complete for usage in usages)
        costs = [part.cost_usd for part in ends]
        told["cost_usd"] = None if None in costs else str(sum(Decimal(cost or 0) for cost in costs))
    return structs.replace(facts, **told) if told else facts


def sum_of(usages: Sequence[Usage]) -> Usage:
    """Each class added up; None where nobody reported it."""
    sums: dict[str, int | None] = {}
    for name in Usage.__struct_fields__:
        told = [value for usage in usages if (value := getattr(usage, name)) is not None]
        sums[name] = sum(told) if told else None
    return Usage(**sums)

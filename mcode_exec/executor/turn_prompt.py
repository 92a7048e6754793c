"""What a turn says to begin with: its prompt, and mcode's own notes with it, as the first record of the turn.

A prompt that is said again (`mcode retry`) keeps its message; what is new about
the attempt stands behind it.
"""

from __future__ import annotations

import msgspec

from mcode_exec.agent.ports import AgentTask
from mcode_exec.executor.choice import Choice
from mcode_exec.executor.preparation import Prepared
from mcode_exec.ids import new_message_id
from mcode_exec.records.history import Block, HistoryRecord, Message, TextBlock
from mcode_exec.records.turn import Accepted
from mcode_exec.sessions import making
from mcode_exec.sessions.commit import CommitDoor
from mcode_exec.sessions.transcript import has_earlier_work

#: the same whatever the number of the attempt, so that attempts that came to nothing are said once
_ATTEMPT = (
    "[mcode: an earlier attempt of this same request did not succeed. What it has done stands above: "
    "look before doing it again]"
)


async def commit_prompt(
    door: CommitDoor,
    prepared: Prepared,
    accepted: Accepted,
    task: AgentTask,
    *,
    message_id: str,
    now_ms: int,
) -> None:
    """Commit the user message of a turn, with the digest of its system prompt and tool schemas."""
    turn_id = accepted.receipt.turn_id
    retry = prepared.retry
    is_said_again = retry is not None and retry.message_id is not None
    content = prepared.prompt.content
    moved = _moved_note(prepared.choice, accepted)
    if not is_said_again:
        content = (*moved, *content, *_attempt_note(door, content, accepted))
    prefix_body = msgspec.json.encode({"system": task.system, "tools": task.tools})
    await door.commit(
        _user_record(message_id, turn_id, content, now_ms, prefix=_digest(prefix_body)),
        prefix_body=prefix_body,
    )
    if is_said_again and moved:
        # What is said again stands in the conversation as it did; what is new stands behind it.
        await door.commit(_user_record(new_message_id(), turn_id, moved, now_ms))


def _user_record(
    message_id: str, turn_id: str, content: tuple[Block, ...], now_ms: int, *, prefix: str | None = None
) -> HistoryRecord:
    return HistoryRecord(
        id=message_id,
        turn_id=turn_id,
        at_ms=now_ms,
        message=Message(role="user", content=content),
        prefix=prefix,
    )


def _moved_note(choice: Choice, accepted: Accepted) -> tuple[TextBlock, ...]:
    before, session = choice.moved_from, accepted.session
    if before is None and session is not None and session.history_bytes and choice.run_location is None:
        before = session.relocated_from  # it was moved since its last turn
    if before is None:
        return ()
    return (TextBlock(text=making.moved_note(choice.directory, before), synthetic=True),)


def _attempt_note(door: CommitDoor, prompt: tuple[Block, ...], accepted: Accepted) -> tuple[TextBlock, ...]:
    if accepted.receipt.attempt == 1 or not has_earlier_work(door.records, prompt):
        return ()
    return (TextBlock(text=_ATTEMPT, synthetic=True),)


def _digest(body: bytes) -> str:
    import hashlib

    return hashlib.sha256(body).hexdigest()

"""The prompts of a session: what people said to it, without what mcode has put in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mcode_exec.records.finding import Prompt
from mcode_exec.records.message import DisplayMessage, FilePart, TextPart
from mcode_exec.redaction import Redactor
from mcode_exec.store import message_rows
from mcode_exec.store.database import Store

NameOfText = Callable[[str], str | None]


async def prompts_page(
    store: Store,
    session_id: str,
    *,
    before_row: int | None,
    limit: int,
    redactor: Redactor,
    name_of_text: NameOfText,
) -> tuple[list[Prompt], int | None]:
    """The newest prompts before a row, oldest first, secrets masked; and the row of the oldest if there are more.

    `name_of_text` knows the text of an attached file from words.
    """
    found: list[tuple[int, Prompt]] = []
    while len(found) <= limit:
        wanted = limit + 1 - len(found)
        rows = await store.read(partial(message_rows.user_messages_before, session_id, before_row, wanted))
        found += [
            (row, prompt) for row, message in rows if (prompt := _prompt(message, redactor, name_of_text))
        ]
        if len(rows) < wanted:
            break
        before_row = rows[-1][0]
    has_more = len(found) > limit
    del found[limit:]
    return [prompt for _, prompt in reversed(found)], found[-1][0] if has_more else None


def _prompt(message: DisplayMessage, redactor: Redactor, name_of_text: NameOfText) -> Prompt | None:
    """A user message as a prompt; None for one that nobody said (a reminder of mcode's own)."""
    texts: list[str] = []
    files: list[str] = []
    for part in message.parts:
        if isinstance(part, FilePart):
            files.append(part.filename or part.digest)
        elif isinstance(part, TextPart) and not part.synthetic:
            name = name_of_text(part.text)
            if name is None:
                texts.append(part.text)
            else:
                files.append(name)
    if not texts and not files:
        return None
    return Prompt(
        message_id=message.id,
        turn_id=message.turn_id,
        at_ms=message.created_ms,
        steered_by=message.steered_by,
        text=redactor.text("\n".join(texts)),
        files=tuple(files),
    )

"""A session as a document for people: an HTML page or Markdown, piece by piece.

A whole session is read in batches and never held; a question that goes over
the border of two is given whole: what may still go on is held back until the
next batch shows that it does not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Literal

from mcode_exec.errors import InvocationError
from mcode_exec.executor.inspect import masked_words
from mcode_exec.executor.runtime import Runtime
from mcode_exec.executor.showing import clean, is_cursor, reading, shown_of
from mcode_exec.output import html_page, markdown
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.question import Question, TurnFacts, questions_of
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.reading_turns import find_turn, read_after, read_page

#: messages that are read at once
BATCH = 80
#: a question with more messages than this is given in parts
_HELD_MESSAGES = 4_000

Form = Literal["html", "markdown"]


async def document(
    data_dir: str | None,
    env: Mapping[str, str],
    name: str,
    form: Form,
    *,
    turn: str | None = None,
    before: str | None = None,
    limit: int | None = None,
) -> AsyncGenerator[bytes]:
    """The pieces of a document of a session: all of it, or what a page of `sessions show` would have.

    Raises: as showing.show.
    """
    if before is not None and not is_cursor(before):
        raise InvocationError(
            f"{before!r} is no cursor of this session; take the one that an earlier page gave"
        )
    async with reading(data_dir, env, name) as (runtime, session, redactor):
        if turn is None and before is None and limit is None:
            pieces = _whole(runtime, session, redactor, form)
        else:
            turn_id = None if turn is None else await find_turn(runtime.store, session, turn)
            row = None if before is None else int(before)
            pieces = newest(runtime, session.id, redactor, form, turn_id=turn_id, before_row=row, limit=limit)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece


async def _whole(runtime: Runtime, session: Session, redactor: Redactor, form: Form) -> AsyncGenerator[bytes]:
    yield _head(masked_words(session, redactor), form, has_earlier=False)
    async for some in _questions(runtime, session.id, redactor):
        yield _body(some, form)
    yield _end(runtime, form)


async def newest(
    runtime: Runtime,
    session_id: str,
    redactor: Redactor,
    form: Form,
    *,
    turn_id: str | None,
    before_row: int | None,
    limit: int | None,
) -> AsyncGenerator[bytes]:
    """The same of the newest messages alone, read in one state."""
    page = await read_page(
        runtime.store, session_id, turn_id=turn_id, before_row=before_row, limit=limit or 10_000
    )
    seen = shown_of(page, {}, redactor)
    yield _head(seen.session, form, has_earlier=page.has_more and turn_id is None)
    yield _body(seen.questions, form)
    yield _end(runtime, form)


def _head(session: Session, form: Form, *, has_earlier: bool) -> bytes:
    if form == "markdown":
        return _bytes(markdown.head_of(session))
    return _bytes(html_page.page_head(session, has_earlier=has_earlier))


def _body(questions: tuple[Question, ...], form: Form) -> bytes:
    if form == "markdown":
        return _bytes(markdown.body_of(questions, expands=True))
    return _bytes(html_page.page_body(questions))


def _end(runtime: Runtime, form: Form) -> bytes:
    return b"" if form == "markdown" else _bytes(html_page.page_end(runtime.clock.now_ms()))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


async def _questions(
    runtime: Runtime, session_id: str, redactor: Redactor
) -> AsyncIterator[tuple[Question, ...]]:
    held: tuple[DisplayMessage, ...] = ()
    facts: dict[str, TurnFacts] = {}
    after_row = 0
    while True:
        page = await read_after(runtime.store, session_id, after_row=after_row, limit=BATCH)
        messages, told = clean(page, redactor)
        messages, facts = (*held, *messages), {**facts, **told}
        found = questions_of(messages, facts, page.current_turn_id)
        if not page.has_more:
            yield found
            return
        after_row = page.rows[-1][0]
        held = found[-1].messages
        if len(held) > _HELD_MESSAGES:
            held = ()
        else:
            found = found[:-1]
        yield found
        kept = {message.turn_id for message in held}
        facts = {turn_id: one for turn_id, one in facts.items() if turn_id in kept}

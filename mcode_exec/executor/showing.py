"""What `sessions show` reads: one page of a session, under its questions, secrets masked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct, structs

from mcode_exec.errors import InvocationError
from mcode_exec.executor.inspect import masked_words, opened, seals_of
from mcode_exec.executor.runtime import Runtime
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.question import Question, TurnFacts, questions_of
from mcode_exec.records.session import Seal, Session
from mcode_exec.records.shown import shown
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import finding
from mcode_exec.sessions.masking import masked
from mcode_exec.sessions.reading_turns import Page, find_turn, read_page

#: messages of a page; source: session-system notes
PAGE = 80


class Shown(Struct, frozen=True, kw_only=True):
    """A page of a session, oldest message first, and the cursor of earlier ones."""

    session: Session
    #: that it is being deleted, if it is
    seals: dict[str, Seal]
    messages: tuple[DisplayMessage, ...]
    questions: tuple[Question, ...]
    #: the turn that runs
    current_turn_id: str | None
    cursor: str | None
    #: by turn, what it changed as a patch, where that was asked for and is kept
    patches: dict[str, str] = {}


async def show(
    data_dir: str | None,
    env: Mapping[str, str],
    name: str,
    *,
    turn: str | None,
    before: str | None,
    limit: int = PAGE,
    with_patches: bool = False,
) -> Shown:
    """The newest messages of a session, or of one turn of it, before the cursor.

    `with_patches`: with what their turns changed, as far as it is kept.

    Raises: SessionError (no such session, no such turn); InvocationError for a cursor that is none.
    """
    if before is not None and not is_cursor(before):
        raise InvocationError(
            f"{before!r} is no cursor of this session; take the one that an earlier page gave"
        )
    async with reading(data_dir, env, name) as (runtime, session, redactor):
        turn_id = None if turn is None else await find_turn(runtime.store, session, turn)
        page = await read_page(
            runtime.store,
            session.id,
            turn_id=turn_id,
            before_row=None if before is None else int(before),
            limit=limit,
        )
        found = shown_of(page, await seals_of(runtime, [page.session]), redactor)
        patches = await _patches(runtime, found, redactor) if with_patches else {}
    return structs.replace(found, patches=patches)


async def _patches(runtime: Runtime, found: Shown, redactor: Redactor) -> dict[str, str]:
    from mcode_exec.executor.change_reading import turn_patch

    patches: dict[str, str] = {}
    for turn in (turn for question in found.questions for turn in question.turns):
        if turn.facts.file_changes is not None and turn.facts.file_changes.get("files"):
            patch = await turn_patch(runtime, found.session, turn.turn_id, redactor)
            if patch:
                patches[turn.turn_id] = patch.decode("utf-8", "replace")
    return patches


def is_cursor(text: str) -> bool:
    """Whether it may be a cursor of messages: a row number."""
    return text.isascii() and text.isdigit() and len(text) < 19


@asynccontextmanager
async def reading(
    data_dir: str | None, env: Mapping[str, str], name: str
) -> AsyncIterator[tuple[Runtime, Session, Redactor]]:
    """The open store, the session that is named, and who masks what is read of it."""
    redactor = Redactor(secret_values(env))
    async with opened(data_dir, env, reads_only=True) as runtime:
        yield runtime, await finding.find_exact(runtime.store, name), redactor


def shown_of(page: Page, seals: dict[str, Seal], redactor: Redactor) -> Shown:
    """A page as people and programs may see it."""
    messages, facts = clean(page, redactor)
    return Shown(
        session=masked_words(page.session, redactor),
        seals=seals,
        messages=messages,
        questions=questions_of(messages, facts, page.current_turn_id),
        current_turn_id=page.current_turn_id,
        cursor=str(page.rows[0][0]) if page.has_more and page.rows else None,
    )


def clean(page: Page, redactor: Redactor) -> tuple[tuple[DisplayMessage, ...], dict[str, TurnFacts]]:
    """The messages of a page and what their turns came to, secrets masked."""
    messages = tuple(masked(message, redactor) for message in page.messages)
    return messages, {turn_id: _masked_facts(one, redactor) for turn_id, one in page.facts.items()}


def _masked_facts(facts: TurnFacts, redactor: Redactor) -> TurnFacts:
    if not redactor.may_change(msgspec.json.encode(facts).decode()):
        return facts
    clean = redactor.json(msgspec.to_builtins(facts))
    return msgspec.convert(clean, TurnFacts)


def question_rows(questions: tuple[Question, ...]) -> list[dict[str, Any]]:
    """Questions as programs read them; messages are named by id."""
    return [
        {
            "messageId": question.message_id,
            "turns": [
                {
                    **_turn_row(turn.facts),
                    "isFolded": turn.is_folded,
                    "messageIds": [message.id for message in turn.messages],
                }
                for turn in question.turns
            ],
        }
        for question in questions
    ]


def _turn_row(facts: TurnFacts) -> dict[str, Any]:
    row = shown(facts)
    row["fileChanges"] = facts.file_changes
    row["usage"] = None if facts.usage is None else msgspec.to_builtins(facts.usage)
    row["requestId"] = None if facts.request is None else facts.request[1]
    del row["request"], row["isDispatched"]
    return row

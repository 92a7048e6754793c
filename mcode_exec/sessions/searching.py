"""Hits of words in messages and titles, newest first, as they are shown.

The index says where words stand; what is shown is read from the store, so that
nothing is shown which is not there any more.  Where the two differ the session
is taken into the index anew, and the search is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from mcode_exec.records.finding import PLACES, Place, SearchHit, SessionFilter, Words
from mcode_exec.records.message import DisplayMessage
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.listing import FEW_SESSIONS, few_ids
from mcode_exec.sessions.search_index import SearchIndex
from mcode_exec.sessions.searched_text import texts_of
from mcode_exec.sessions.snippets import cut_around, snippet
from mcode_exec.sessions.titles import MAX_TITLE
from mcode_exec.sessions.words import Finder
from mcode_exec.store import listing_rows, message_rows, search_rows, searched_rows
from mcode_exec.store.database import Store
from mcode_exec.store.search_file import SearchFile

#: hits that are looked up at a time
_BATCH = 500
#: how often a search is made again because the store has changed under it
_TRIES = 3


class HitPage(Struct, frozen=True, kw_only=True):
    """Hits, and the cursor of older ones."""

    hits: list[SearchHit]
    cursor: str | None


class _Found(Struct, frozen=True, kw_only=True):
    """A document, and what of the store it is of."""

    doc: int
    row: int
    session: Session
    #: None: the title
    message: DisplayMessage | None


async def search(
    store: Store,
    index: SearchIndex,
    wanted: SessionFilter,
    words: Words,
    *,
    since_ms: int | None,
    before_doc: int | None,
    limit: int,
    redactor: Redactor,
) -> HitPage:
    """The newest hits before a cursor, in sessions that fit."""
    for left in reversed(range(_TRIES)):
        found, stale = await _find(store, index, wanted, words, since_ms, before_doc, limit + 1)
        if not stale or not left or index.is_frozen:
            break
        await index.look_again(stale)
    else:
        raise AssertionError
    finder = Finder(words)
    hits = [_hit(one, words, finder, redactor) for one in found[:limit]]
    return HitPage(hits=hits, cursor=str(found[limit - 1].doc) if len(found) > limit else None)


async def _find(
    store: Store,
    index: SearchIndex,
    wanted: SessionFilter,
    words: Words,
    since_ms: int | None,
    before_doc: int | None,
    limit: int,
) -> tuple[list[_Found], set[str]]:
    """At most `limit` hits, and the sessions of which the index does not say what the store does."""
    numbers: Sequence[int] = ()
    few = await store.read(lambda: few_ids(wanted, FEW_SESSIONS))
    if few is not None:
        known = await index.read(lambda file: search_rows.stamps_of(file, few))
        numbers = [number for number, _ in known.values()]
        if not numbers:
            return [], set()
    since_doc = 0 if since_ms is None else search_rows.first_doc(since_ms)
    found: list[_Found] = []
    stale: set[str] = set()
    known_sessions: dict[int, Session | None] = {}
    looked_at = 0
    only_title = bool(words.places) and "prompt" not in words.places
    batch = min(limit, _BATCH)
    while len(found) < limit:
        docs = await index.read(
            partial(
                search_rows.hits,
                words=words,
                before_doc=before_doc,
                since_doc=since_doc,
                numbers=numbers,
                limit=batch,
            )
        )
        some, differing = await index.read(
            partial(_look_up, docs=docs, wanted=wanted, known=known_sessions, only_title=only_title)
        )
        found += some
        stale |= differing
        if len(docs) < batch:
            break
        before_doc, batch = docs[-1], _BATCH
        looked_at += len(docs)
        index.patience.tell(f"looked through {looked_at:,} messages that have the words")
    return found[:limit], stale


def _look_up(
    file: SearchFile,
    docs: Sequence[int],
    wanted: SessionFilter,
    known: dict[int, Session | None],
    *,
    only_title: bool,
) -> tuple[list[_Found], set[str]]:
    """What documents are of, as far as their sessions fit, in their order; and sessions that have changed.

    `known`: sessions by their numbers, None for one that does not fit; filled here.
    """
    at = search_rows.docs_at(file, docs)
    ids = search_rows.ids_of(file, {number for number, _, _ in at.values()} - known.keys())
    sessions = {one.id: one for one in listing_rows.of_ids(wanted, ids.values())}
    known |= {number: sessions.get(session_id) for number, session_id in ids.items()}
    kept = [
        (doc, row, revision, session)
        for doc in docs
        if doc in at
        for number, row, revision in (at[doc],)
        if (session := known.get(number)) is not None
    ]
    messages = {
        row: (revision, message)
        for row, revision, message in searched_rows.messages_at(sorted(row for _, row, _, _ in kept))
    }
    found: list[_Found] = []
    stale: set[str] = set()
    for doc, row, revision, session in kept:
        if row == 0:
            if only_title or not _is_in_prompt(session):
                found.append(_Found(doc=doc, row=0, session=session, message=None))
            continue
        now, message = messages.get(row, (0, None))
        if message is None or now != revision or message.session_id != session.id:
            stale.add(session.id)
        else:
            found.append(_Found(doc=doc, row=row, session=session, message=message))
    return found, stale


def _is_in_prompt(session: Session) -> bool:
    """Whether a title was made of the first prompt: that is found where the title is, and says more."""
    first = message_rows.first_user_message(session.id)
    if first is None:
        return False
    prompt = " ".join(texts_of(first).get("prompt", "")[: 4 * MAX_TITLE].split())
    return prompt.startswith(session.title.removesuffix("…"))


def _hit(found: _Found, words: Words, finder: Finder, redactor: Redactor) -> SearchHit:
    session, message = found.session, found.message
    title = redactor.text(session.title)
    texts: dict[Place, str] = {"title": title}
    if message is not None:
        # masked as a whole: a secret that is cut through is not known again
        texts = {place: redactor.text(text) for place, text in texts_of(message).items()}
    place, shown = _shown(texts, words, finder)
    return SearchHit(
        session_id=session.id,
        title=title,
        workspace=session.workspace,
        place=place,
        message_id=None if message is None else message.id,
        turn_id=None if message is None else message.turn_id,
        role=None if message is None else message.role,
        at_ms=session.created_ms if message is None else message.created_ms,
        snippet=shown,
    )


def _shown(texts: dict[Place, str], words: Words, finder: Finder) -> tuple[Place, str]:
    """Where the words stand, and the piece around them; the beginning where a mask hides them."""
    looked = [place for place in PLACES if place in texts and place in (words.places or PLACES)]
    for place in looked:
        piece = snippet(texts[place], finder)
        if piece is not None:
            return place, piece
    place = looked[0]
    return place, cut_around(texts[place], 0)

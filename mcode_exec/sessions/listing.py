"""Lists of sessions by filters: newest activity first, page by page.

A list walks the index of activity and leaves out what does not fit; where a
filter is known to fit few sessions (a rare label, rare words), it begins with
those instead.  Either way the order is the same, and so are the cursors.
"""

from __future__ import annotations

from functools import partial

from mcode_exec.records.finding import SessionFilter, Words
from mcode_exec.records.session import Session
from mcode_exec.sessions.search_index import SearchIndex
from mcode_exec.store import listing_rows, search_rows
from mcode_exec.store.database import Store
from mcode_exec.store.listing_rows import Position
from mcode_exec.store.search_file import SearchFile

Before = Position | None

#: a label of more sessions is no good beginning
_FEW_LABELLED = 2_000
#: so many sessions are looked into one by one
FEW_SESSIONS = 200
#: at a time, where the words stand in many: about as many as a page has
_LOOKED_INTO = 64


async def page(store: Store, wanted: SessionFilter, before: Before, limit: int) -> list[Session]:
    """A page of the sessions that fit; `before` is the position of the last one seen."""
    return await store.read(lambda: _sessions(_positions(wanted, before, limit)))


def _positions(wanted: SessionFilter, before: Before, limit: int) -> list[Position]:
    few = _labelled(wanted)
    if few is None:
        return listing_rows.page_positions(wanted, before, limit)
    return _cut(listing_rows.positions_of(wanted, few), before, limit)


def _sessions(positions: list[Position]) -> list[Session]:
    """What is shown is read last, and nothing else is."""
    return listing_rows.of_ids(SessionFilter(), [session_id for _, session_id in positions])


def few_ids(wanted: SessionFilter, most: int) -> list[str] | None:
    """Ids of the sessions that fit, if there are no more than `most`; inside a read."""
    if wanted == SessionFilter():
        return None
    found = [session_id for _, session_id in _positions(wanted, None, most + 1)]
    return found if len(found) <= most else None


def _labelled(wanted: SessionFilter) -> list[str] | None:
    """Ids of the sessions that have the rarest of the labels; None where none is rare."""
    for label, value in wanted.labels:
        ids = listing_rows.ids_with_label(label, value, _FEW_LABELLED + 1)
        if len(ids) <= _FEW_LABELLED:
            return ids
    return None


def _cut(positions: list[Position], before: Before, limit: int) -> list[Position]:
    return [one for one in positions if before is None or one < before][:limit]


async def page_with_words(
    store: Store, index: SearchIndex, wanted: SessionFilter, words: Words, before: Before, limit: int
) -> list[Session]:
    """Likewise, of the sessions in which the words stand, all of them in one message or in the title."""
    few = await store.read(lambda: few_ids(wanted, FEW_SESSIONS))
    if few is None:
        ids = await index.sessions_of(words)
        if ids is not None:
            with_words = ids
            return await store.read(
                lambda: _sessions(_cut(listing_rows.positions_of(wanted, with_words), before, limit))
            )
    # few sessions, or words that stand in many: each is looked into
    found: list[Session] = []
    looked_into = 0
    while len(found) < limit:
        index.patience.tell(f"looked into {looked_into:,} sessions")
        positions = await store.read(partial(_positions, wanted, before, _LOOKED_INTO))
        looked_into += len(positions)
        found += await index.read(partial(_with_words, positions, words))
        if len(positions) < _LOOKED_INTO:
            break
        before = positions[-1]
    return found[:limit]


def _with_words(positions: list[Position], words: Words, file: SearchFile) -> list[Session]:
    numbers = search_rows.stamps_of(file, [session_id for _, session_id in positions])
    among = search_rows.sessions_among(file, words, [number for number, _ in numbers.values()])
    return _sessions([one for one in positions if one[1] in numbers and numbers[one[1]][0] in among])

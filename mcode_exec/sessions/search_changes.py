"""What has changed in a store since its search index was brought up to date: which sessions to look at again.

The numbers of changes and messages say where to look, the stamps of sessions
whether there is anything; where those numbers are not known, or no longer
kept, every session is compared.  Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from mcode_exec.store import search_rows, searched_rows, session_rows
from mcode_exec.store.search_file import SearchDamagedError, SearchFile
from mcode_exec.store.search_rows import Stamp
from mcode_exec.store.searched_rows import Marks

_T = TypeVar("_T")

_COMPARED_SESSIONS = 500  # at a time
_SCANNED_ROWS = 20_000


class Readable(Protocol):
    """An open index, read together with its store."""

    async def read(self, function: Callable[[SearchFile], _T]) -> _T:
        """What `function` finds in both, each as it is at one moment."""


async def changes(index: Readable) -> tuple[Marks | None, list[str], int]:
    """How far the store is, ids of sessions to look at, and about how many messages they are; None: nothing."""
    now, known = await index.read(_marks)
    if known is None:
        return now, *await _compare_all(index)
    ids = await index.read(lambda _file: _changed_since(known.change))
    row = known.row
    while row < now.row:
        some, row, is_all = await index.read(partial(_behind, row=row))
        ids |= some
        if is_all:
            break
    differing, messages = await index.read(lambda file: _differing(file, sorted(ids)))
    if not differing and now == known:
        return None, [], 0
    return now, differing, messages


def _marks(file: SearchFile) -> tuple[Marks, Marks | None]:
    """How far the store is, and how far the index is; None where that is not known, or too long ago.

    Raises: SearchDamagedError where the index is of another store.
    """
    row, message_id = searched_rows.newest_message()
    now = Marks(change=session_rows.newest_change(), row=row, message_id=message_id)
    meta = search_rows.meta(file)
    if "change" not in meta:
        return now, None
    known = Marks(change=meta["change"], row=meta["row"], message_id=meta["message_id"])
    if not searched_rows.is_of_this_store(known):
        raise SearchDamagedError("it is of another store, or of a later state of this one")
    is_there = known.row == 0 or searched_rows.message_id_at(known.row) is not None
    is_followed = session_rows.oldest_change() - 1 <= known.change
    return now, known if is_followed and is_there else None


def _changed_since(change: int) -> set[str]:
    # a turn that runs says no word when it changes a message
    ids = set(searched_rows.started(_SCANNED_ROWS))
    while some := session_rows.changes_after(change, _SCANNED_ROWS):
        ids |= {session_id for _, session_id, _, _ in some}
        change = some[-1][0]
    return ids


def _differing(file: SearchFile, ids: Sequence[str]) -> tuple[list[str], int]:
    """Those that are not as they were, and how many messages they have more or less."""
    kept, now = search_rows.stamps_of(file, ids), searched_rows.stamps_of(ids)
    differing, messages = [], 0
    for session_id in ids:
        old = kept[session_id][1] if session_id in kept else None
        new = now[session_id][0] if session_id in now else None
        if old != new:
            differing.append(session_id)
            messages += _difference(old, new)
    return differing, messages


async def _compare_all(index: Readable) -> tuple[list[str], int]:
    """Every session, compared with what it was: the first time, and after a long one."""
    found: list[tuple[int, str]] = []
    messages, after = 0, ""

    def of_store(file: SearchFile, after: str) -> list[tuple[Stamp, Stamp | None]]:
        page = searched_rows.page_stamps(after, _COMPARED_SESSIONS)
        kept = search_rows.stamps_of(file, [stamp.session_id for stamp in page])
        return [(one, kept[one.session_id][1] if one.session_id in kept else None) for one in page]

    while page := await index.read(partial(of_store, after=after)):
        after = page[-1][0].session_id
        for new, old in page:
            if new != old:
                found.append((new.newest_row, new.session_id))
                messages += _difference(old, new)
    gone = await _gone(index)
    # in the order of commitment: what stands together in the store is read together
    return [*gone, *(session_id for _, session_id in sorted(found))], messages


async def _gone(index: Readable) -> list[str]:
    """Sessions that are indexed and do not exist any more."""
    found: list[str] = []
    after = ""

    def of_index(file: SearchFile, after: str) -> tuple[list[str], list[str]]:
        ids = search_rows.page_ids(file, after, _COMPARED_SESSIONS)
        there = searched_rows.existing(ids)
        return ids, [one for one in ids if one not in there]

    while True:
        ids, gone = await index.read(partial(of_index, after=after))
        found += gone
        if not ids:
            return found
        after = ids[-1]


def _behind(_file: SearchFile, row: int) -> tuple[set[str], int, bool]:
    return searched_rows.sessions_behind(row, _SCANNED_ROWS)


def _difference(old: Stamp | None, new: Stamp | None) -> int:
    before = 0 if old is None else max(old.messages, 0)
    return abs((0 if new is None else new.messages) - before) or 1

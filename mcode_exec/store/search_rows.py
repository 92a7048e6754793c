"""Rows of the search index: stamps of sessions, documents, and the hits of words.

What a person types is data here: every term is written as one FTS5 string, so
that no quote, bracket or word of it is syntax.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from mcode_exec.records.finding import PLACES, Place, Words
from mcode_exec.store.search_file import SearchFile

#: bits of a document's number below the time of its message
_ROW_BITS = 20
_LATEST_MS = (1 << 42) - 1  # in the year 2109: what is later would be no 64-bit number
_CHUNK = 500
_HITS_TOGETHER = 1_500


class Stamp(Struct, frozen=True, kw_only=True):
    """What a session was like when it was indexed: no change of its messages or title leaves it as it is."""

    session_id: str
    title: str
    messages: int
    newest_row: int
    newest_revision: int
    newest_id: str


class Doc(Struct, frozen=True, kw_only=True):
    """What is searched of one message (`row` 0: of the title)."""

    #: its number; of a new one where it is put if nothing is there yet
    doc: int
    is_new: bool
    #: of its session
    number: int
    row: int
    revision: int
    texts: dict[Place, str]


def first_doc(at_ms: int) -> int:
    """The smallest number that a document of that time can have."""
    return min(max(at_ms, 0), _LATEST_MS) << _ROW_BITS


def doc_of(at_ms: int, row: int) -> int:
    """The number of a message's document: in the order of time, and of commitment within a millisecond."""
    return first_doc(at_ms) | (row & ((1 << _ROW_BITS) - 1))


# what is known


def meta(file: SearchFile) -> dict[str, Any]:
    return {str(name): value for name, value in file.run("SELECT name, value FROM meta")}


def put_meta(file: SearchFile, values: dict[str, Any]) -> None:
    file.run_many("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", list(values.items()))


def stamps_of(file: SearchFile, session_ids: Sequence[str]) -> dict[str, tuple[int, Stamp]]:
    """The number and the stamp of those sessions that were indexed."""
    found: dict[str, tuple[int, Stamp]] = {}
    for part in _chunks(session_ids):
        rows = file.run(
            "SELECT number, session_id, title, messages, newest_row, newest_revision, newest_id FROM stamps "
            "WHERE session_id IN (SELECT value FROM json_each(?))",
            _given(part),
        )
        for number, *values in rows:
            found[values[0]] = (number, Stamp(**dict(zip(Stamp.__struct_fields__, values, strict=True))))
    return found


def page_ids(file: SearchFile, after: str, limit: int) -> list[str]:
    """Ids of indexed sessions, those behind `after`."""
    sql = "SELECT session_id FROM stamps WHERE session_id > ? ORDER BY session_id LIMIT ?"
    return [session_id for (session_id,) in file.run(sql, (after, limit))]


def ids_of(file: SearchFile, numbers: Iterable[int]) -> dict[int, str]:
    """Session ids by their numbers."""
    found: dict[int, str] = {}
    for part in _chunks(list(dict.fromkeys(numbers))):
        sql = "SELECT number, session_id FROM stamps WHERE number IN (SELECT value FROM json_each(?))"
        found.update(file.run(sql, _given(part)))
    return found


def begin_session(file: SearchFile, session_id: str) -> int:
    """Give a session its number; its stamp is one that nothing is like."""
    file.run(
        "INSERT INTO stamps (session_id, title, messages, newest_row, newest_revision, newest_id) "
        "VALUES (?, '', -1, 0, 0, '')",
        (session_id,),
    )
    ((number,),) = file.run("SELECT number FROM stamps WHERE session_id = ?", (session_id,))
    return int(number)


def put_stamp(file: SearchFile, number: int, stamp: Stamp) -> None:
    file.run(
        "UPDATE stamps SET title = ?, messages = ?, newest_row = ?, newest_revision = ?, newest_id = ? "
        "WHERE number = ?",
        (
            stamp.title,
            stamp.messages,
            stamp.newest_row,
            stamp.newest_revision,
            stamp.newest_id,
            number,
        ),
    )


def blur(file: SearchFile, session_id: str) -> None:
    """Forget what a session and its messages were like, so that all of it is taken in again."""
    file.run("UPDATE stamps SET messages = -1, title = '' WHERE session_id = ?", (session_id,))
    file.run(
        "UPDATE docs SET revision = -1 WHERE session = (SELECT number FROM stamps WHERE session_id = ?)",
        (session_id,),
    )


def drop_stamp(file: SearchFile, number: int) -> None:
    file.run("DELETE FROM stamps WHERE number = ?", (number,))


def docs_of(file: SearchFile, number: int) -> dict[int, tuple[int, int]]:
    """row -> (document, revision) of a session's documents."""
    sql = "SELECT row, doc, revision FROM docs WHERE session = ? ORDER BY row"
    return {row: (doc, revision) for row, doc, revision in file.run(sql, (number,))}


def write_docs(file: SearchFile, put: Sequence[Doc], deleted: Iterable[int]) -> None:
    """Put documents in, or in the place of older ones, and take others out."""
    for part in _chunks(sorted(set(deleted))):
        file.run("DELETE FROM found WHERE rowid IN (SELECT value FROM json_each(?))", _given(part))
        file.run("DELETE FROM docs WHERE doc IN (SELECT value FROM json_each(?))", _given(part))
    # in their order: FTS5 begins a new piece of its index with each number that is smaller than the one before
    docs = sorted(_placed(file, put))
    file.run_many(
        "INSERT OR REPLACE INTO docs (doc, session, row, revision) VALUES (?, ?, ?, ?)",
        [(number, one.number, one.row, one.revision) for number, one in docs],
    )
    file.run_many(
        "INSERT OR REPLACE INTO found (rowid, session, title, prompt, answer, tool) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (number, _session_word(one.number), *(one.texts.get(place, "") for place in PLACES))
            for number, one in docs
        ],
    )


def _placed(file: SearchFile, docs: Sequence[Doc]) -> list[tuple[int, Doc]]:
    """Documents under numbers of their own: two messages of one millisecond may have been meant for one."""
    taken = {one.doc for one in docs if not one.is_new}
    placed = [(one.doc, one) for one in docs if not one.is_new]
    new = [one for one in docs if one.is_new]
    for part in _chunks([one.doc for one in new]):
        taken |= {
            doc
            for (doc,) in file.run(
                "SELECT doc FROM docs WHERE doc IN (SELECT value FROM json_each(?))", _given(part)
            )
        }
    for one in new:
        number = one.doc
        while number in taken or (
            number != one.doc and file.run("SELECT 1 FROM docs WHERE doc = ?", (number,))
        ):
            number += 1
        taken.add(number)
        placed.append((number, one))
    return placed


def optimize(file: SearchFile) -> None:
    """Write the index anew in one piece: what was deleted is gone from the file then."""
    file.run("INSERT INTO found (found) VALUES ('optimize')")


def checkpoint(file: SearchFile) -> None:
    file.run("PRAGMA wal_checkpoint(TRUNCATE)")


# hits


def hits(
    file: SearchFile,
    words: Words,
    *,
    before_doc: int | None,
    since_doc: int,
    numbers: Sequence[int] = (),
    limit: int,
) -> list[int]:
    """Documents in which all words stand, newest first; `numbers`: of these sessions only."""
    sql = "SELECT rowid FROM found WHERE found MATCH ? AND rowid >= ?"
    values: list[Any] = [_expression(words, numbers), since_doc]
    if before_doc is not None:
        sql += " AND rowid < ?"
        values.append(before_doc)
    rows = file.run(f"{sql} ORDER BY rowid DESC LIMIT ?", (*values, limit))
    return [doc for (doc,) in rows]


def docs_at(file: SearchFile, docs: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """document -> (session number, row, revision) of the message it is of."""
    found: dict[int, tuple[int, int, int]] = {}
    for part in _chunks(docs):
        sql = "SELECT doc, session, row, revision FROM docs WHERE doc IN (SELECT value FROM json_each(?))"
        found |= {
            doc: (session, row, revision) for doc, session, row, revision in file.run(sql, _given(part))
        }
    return found


def sessions_of_hits(file: SearchFile, words: Words, most: int) -> set[int] | None:
    """Numbers of the sessions in which the words stand; None where there are more than `most` hits."""
    docs = hits(file, words, before_doc=None, since_doc=0, limit=most + 1)
    if len(docs) > most:
        return None
    return {session for session, _, _ in docs_at(file, docs).values()}


def sessions_among(file: SearchFile, words: Words, numbers: Sequence[int]) -> set[int]:
    """Those of some sessions in which the words stand."""
    found: set[int] = set()
    left = list(numbers)
    while left:
        docs = hits(file, words, before_doc=None, since_doc=0, numbers=left, limit=_HITS_TOGETHER)
        found |= {session for session, _, _ in docs_at(file, docs).values()}
        if len(docs) < _HITS_TOGETHER:
            break
        # a session with very many hits is looked through no further
        left = [number for number in left if number not in found]
    return found


def _expression(words: Words, numbers: Sequence[int]) -> str:
    terms = " AND ".join(_quoted(term.text) + ("*" if term.is_prefix else "") for term in words.terms)
    expression = f"{{{' '.join(words.places or PLACES)}}} : ({terms})"
    if not numbers:
        return expression
    sessions = " OR ".join(_quoted(_session_word(number)) for number in numbers)
    # the sessions first: what begins with the rarer words has less to look through
    return f"({{session}} : ({sessions})) AND ({expression})"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _session_word(number: int) -> str:
    return f"s{number}"


def _given(values: Sequence[Any]) -> tuple[str]:
    """Values of any number as one parameter."""
    return (msgspec.json.encode(values).decode(),)


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]

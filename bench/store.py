"""`python bench/store.py [--scale S] [--runs N] [--keep DIR] [--only WORD]`: 100,000 sessions, 5 million messages.

Rows are made by bulk SQL from those that one real run has left; what is measured is the time in the store of the
functions that the commands call, each in a store that was just opened.  Names that this file relies on beside those of
seeding.py: `sessions` (`session_kind`, `visibility`, `archived_ms`, `status`, `parent_id`, `forked_from`, `labels`,
`title`, `created_ms`), `messages` (`turn_id`, `role`, `created_ms`, `revision`) and the text part of a message.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate
from timing import Row, median, ms, world

if TYPE_CHECKING:
    from mcode_exec.sessions.search_index import SearchIndex
    from mcode_exec.store.database import Store
    from tests.support.mcode import Mcode

SESSIONS = 100_000
MESSAGES = 5_000_000
LARGE_SESSION = 20_000  # messages of the one largest session
TARGET_S = 0.050
WORKSPACES = 100
_WORDS = 30_000
_TEXT_WORDS = (8, 80)
_SPREAD_MS = 180 * 86_400_000  # half a year

Work = Callable[["Store", "SearchIndex"], Awaitable[object]]


def fill(data: Path, scale: float) -> dict[str, str]:
    """Fill the store that a run has left; the ids of sessions that are asked for later."""
    sessions, messages = int(SESSIONS * scale), int(MESSAGES * scale)
    connection = sqlite3.connect(data / "mcode.db", isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA synchronous = off")
    connection.execute("PRAGMA cache_size = -1000000")
    template = dict(connection.execute("SELECT * FROM sessions").fetchone())
    message = dict(connection.execute("SELECT * FROM messages WHERE role = 'user'").fetchone())
    chance = random.Random(20_251_203)
    ids = [f"mvs_{chance.getrandbits(128):032x}" for _ in range(sessions)]
    # indexes are made at the end: in the order of random ids each row would be written to another page
    indexes = [
        (name, sql)
        for name, sql in connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'messages' AND sql IS NOT NULL"
        )
    ]
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    connection.execute("BEGIN")
    _insert(connection, "sessions", _sessions(template, ids, chance))
    _insert(connection, "messages", _messages(message, ids, messages, template["activity_ms"], chance))
    for _, sql in indexes:
        connection.execute(sql)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    os.sync()
    return {"workspace": template["workspace"], "large": ids[-1], "fork": ids[20 % sessions]}


def _insert(connection: sqlite3.Connection, table: str, rows: Iterator[dict[str, Any]]) -> None:
    first = next(rows)
    names = list(first)
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    connection.executemany(sql, (tuple(row.values()) for row in itertools.chain((first,), rows)))


def _sessions(template: dict[str, Any], ids: list[str], chance: random.Random) -> Iterator[dict[str, Any]]:
    """Spread over workspaces and half a year: forks, sub-agents, side conversations, archived and labelled ones."""
    count = len(ids)
    for number, one in enumerate(ids):
        at_ms = template["activity_ms"] - 60_000 - (count - number) * _SPREAD_MS // count
        kind = {3: "task", 7: "peek", 9: "cron"}.get(number % 20, "conversation")
        parent = ids[number - number % 20] if kind in ("task", "peek") else None
        yield {
            **template,
            "id": one,
            "workspace": template["workspace"]
            if number % WORKSPACES == 0 or number == count - 1
            else f"/nowhere/{number % WORKSPACES}",
            "session_kind": kind,
            "visibility": "hidden" if kind in ("task", "peek") else "visible",
            "parent_id": parent,
            "forked_from": ids[number - 20] if number % 20 == 0 and number % 100 and number else None,
            "archived_ms": at_ms if number % 17 == 0 else None,
            "status": "error" if number % 1_000 == 5 else "idle",
            "labels": '{"ci":"rare"}'
            if number % 5_000 == 11
            else '{"ci":"nightly"}'
            if number % 4 == 1
            else "{}",
            "title": f"Task {number} of {chance.randrange(1_000)}",
            "created_ms": at_ms - 1_000,
            "updated_ms": at_ms,
            "activity_ms": at_ms,
        }


def _messages(
    template: dict[str, Any], ids: list[str], count: int, now_ms: int, chance: random.Random
) -> Iterator[dict[str, Any]]:
    words = [_word(int(chance.paretovariate(0.55)) % _WORDS) for _ in range(1_000_000)]
    large = min(LARGE_SESSION, count // 10)
    each = max((count - large) // len(ids), 1)
    done = 0
    for number, one in enumerate(ids):
        at_ms = now_ms - 60_000 - (len(ids) - number) * _SPREAD_MS // len(ids)
        for place in range(each + (large if number == len(ids) - 1 else 0)):
            role = "user" if place % 4 == 0 else "assistant"
            start = chance.randrange(len(words) - _TEXT_WORDS[1])
            text = " ".join(words[start : start + chance.randint(*_TEXT_WORDS)])
            if done == count // 2:
                text += " needle-in-the-haystack"
            message_id = f"msg-{number:x}-{place:x}"
            data = (
                f'{{"id":"{message_id}","session_id":"{one}","turn_id":"{template["turn_id"]}","role":"{role}",'
                f'"created_ms":{at_ms + place},"parts":[{{"type":"text","index":0,"text":"{text}"}}]}}'
            )
            yield {
                **template,
                "row": None,
                "id": message_id,
                "session_id": one,
                "role": role,
                "created_ms": at_ms + place,
                "data": data.encode(),
                "revision": place + 1,
            }
            done += 1


def _word(number: int) -> str:
    """A word for a number, always the same: common ones are short, as in a language."""
    letters = ""
    while True:
        letters += "etaoinshrdlucmfwypvbgkjqxz"[number % 26]
        number //= 26
        if not number:
            return letters + "en"


# measuring


async def _with_store(data: Path, work: Work) -> float:
    """The time that `work` takes in a store and an index that were just opened."""
    from mcode_exec.clock import SystemClock
    from mcode_exec.redaction import Redactor
    from mcode_exec.sessions.search_index import SearchIndex
    from mcode_exec.store.database import Store

    store = await Store.open(str(data / "mcode.db"), SystemClock())
    index = SearchIndex(store, Redactor(), lambda sentence: print(f"  {sentence}", file=sys.stderr))
    try:
        start = time.perf_counter()
        await work(store, index)
        return time.perf_counter() - start
    finally:
        await index.close()
        await store.close()


def _works(asked: dict[str, str], count: int) -> Iterator[tuple[str, Work, bool]]:
    """What is measured, and whether the target is about it."""
    from mcode_exec.records.finding import SessionFilter
    from mcode_exec.redaction import Redactor
    from mcode_exec.sessions import family, finding, listing, prompts, words
    from mcode_exec.sessions.searching import search

    here = SessionFilter(
        workspace=asked["workspace"],
        excluded_kinds=("cron",),
        is_archived=False,
        is_hidden=False,
        is_used=True,
    )
    everything = SessionFilter()

    def listed(wanted: SessionFilter, before: tuple[int, str] | None = None) -> Work:
        return lambda store, _: listing.page(store, wanted, before, 51)

    def searched(text: str, wanted: SessionFilter) -> Work:
        async def work(store: Store, index: SearchIndex) -> None:
            await index.open()
            await index.refresh()
            page = await search(
                store, index, wanted, words.parse(text)[0],
                since_ms=None, before_doc=None, limit=50, redactor=Redactor(),
            )  # fmt: skip
            assert page.hits, f"nothing found for {text}"

        return work

    def texts(text: str, wanted: SessionFilter) -> Work:
        async def work(store: Store, index: SearchIndex) -> None:
            await index.open()
            await index.refresh()
            assert await listing.page_with_words(store, index, wanted, words.parse(text)[0], None, 51)

        return work

    async def tree(store: Store, _: SearchIndex) -> None:
        session = await finding.find_exact(store, asked["fork"])
        assert (await family.tree_of(store, session, after=None, limit=50, shows_hidden=False)).nodes

    async def history(store: Store, _: SearchIndex) -> None:
        session = await finding.find_exact(store, asked["large"][:20])
        found, _oldest = await prompts.prompts_page(
            store, session.id, before_row=None, limit=50, redactor=Redactor(), name_of_text=lambda _text: None
        )
        assert found

    def filtered(**changes: Any) -> SessionFilter:
        from msgspec import structs

        return structs.replace(everything, **changes)

    rare, common, usual = "needle-in-the-haystack", _word(1), _word(40)
    middle = (int(asked["middle_ms"]), "mvs_8")
    yield "list: of one workspace", listed(here), True
    yield "list: of all", listed(everything), True
    yield "list: of all, from the middle on", listed(everything, middle), True
    yield "list: by a rare status", listed(filtered(statuses=("error",))), True
    yield "list: by what no session has", listed(filtered(statuses=("interrupted",))), True
    yield "list: by a rare label", listed(filtered(labels=(("ci", "rare"),))), True
    yield "list: by a common label", listed(filtered(labels=(("ci", "nightly"),))), True
    yield "list: rare words", texts(rare, everything), True
    yield "list: a common word", texts(common, everything), True
    yield "list: a common word, of one workspace", texts(common, here), True
    yield (
        "continue",
        lambda store, _: finding.find_latest(store, asked["workspace"], asked["sessions_dir"]),
        True,
    )
    yield "search: rare words", searched(rare, everything), True
    yield "search: a common word", searched(common, everything), True
    yield "search: two words", searched(f"{common} {usual}", everything), True
    yield "search: in a row", searched(f'"{common} {_word(2)}"', everything), True
    yield "search: of one workspace", searched(usual, here), True
    yield "search: of those with a rare label", searched(common, filtered(labels=(("ci", "rare"),))), True
    yield "search: the beginning of a word", searched(f"{_word(700)}*", everything), True
    # every word that begins so is looked up before the first hit
    yield "search: three letters that begin many words", searched(f"{_word(1)[:3]}*", everything), False
    yield (
        "tree: of one workspace",
        lambda store, _: family.trees(store, here, after=None, limit=50, shows_hidden=False),
        True,
    )
    yield (
        "tree: of all",
        lambda store, _: family.trees(store, everything, after=None, limit=50, shows_hidden=True),
        True,
    )
    yield "tree: of one session", tree, True
    yield f"history: of {min(LARGE_SESSION, count // 10):,} messages", history, True


@contextlib.contextmanager
def _installation(keep: str | None) -> Iterator[Mcode]:
    """A new installation; with `keep` one in that directory, which stays."""
    if keep is None:
        with world() as (mcode, _peer):
            yield mcode
        return
    from tests.support.mcode import Mcode
    from tests.support.peer import Peer

    with Peer() as peer:
        mcode = Mcode(Path(keep).absolute(), peer)
        yield mcode
        mcode.close()


def run(scale: float, runs: int, only: str, keep: str | None) -> list[Row]:
    rows: list[Row] = []
    with _installation(keep) as mcode:
        start = time.perf_counter()
        notes = mcode.root / "asked.json"
        if not notes.exists():
            mcode.exec("say hello").check()
            notes.write_text(json.dumps(fill(mcode.data, scale)))
        asked: dict[str, str] = json.loads(notes.read_text())
        made_s = time.perf_counter() - start
        ((sessions,),) = [tuple(row.values()) for row in mcode.query("SELECT COUNT(*) FROM sessions")]
        ((messages,),) = [tuple(row.values()) for row in mcode.query("SELECT COUNT(*) FROM messages")]
        ((newest_ms,),) = [
            tuple(row.values()) for row in mcode.query("SELECT MAX(activity_ms) FROM sessions")
        ]
        asked |= {"middle_ms": str(newest_ms - _SPREAD_MS // 2), "sessions_dir": str(mcode.data / "sessions")}
        size = os.path.getsize(mcode.data / "mcode.db")
        what = f"{sessions:,} sessions, {messages:,} messages, {size / 1e9:.2f} GB"
        rows.append(Row(f"store: {what}", f"made in {made_s:.0f} s", "", None))

        async def refresh(_store: Store, index: SearchIndex) -> None:
            await index.open()
            await index.refresh()

        print(f"{what}; its search index …", file=sys.stderr, flush=True)
        indexed_s = asyncio.run(_with_store(mcode.data, refresh))
        index_size = os.path.getsize(mcode.data / "search.db")
        rate = f"{indexed_s:.0f} s, {index_size / 1e9:.2f} GB, {messages / indexed_s:,.0f} messages a second"
        rows.append(Row("search index, made by the first search", rate, "", None))
        for name, work, is_target in _works(asked, messages):
            if only not in name:
                continue
            times = [asyncio.run(_with_store(mcode.data, work)) for _ in range(runs)]
            met = median(times) < TARGET_S if is_target else None
            rows.append(Row(name, ms(median(times)), "< 50 ms" if is_target else "", met))
            print(f"{name}: {ms(median(times))}", file=sys.stderr, flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1.0: 100,000 sessions, 5 million messages")
    parser.add_argument("--runs", type=int, default=7, help="repetitions that medians are taken of")
    parser.add_argument("--only", default="", metavar="WORD", help="measure what has that in its name")
    parser.add_argument("--keep", metavar="DIR", help="make the store there, or use the one that is there")
    given = parser.parse_args()
    rows = run(given.scale, given.runs, given.only, given.keep)
    verdicts = {True: "met", False: "MISSED", None: ""}
    table = [[row.what, row.measured, row.target, verdicts[row.is_met]] for row in rows]
    print(tabulate(table, headers=["what", "in the store (median)", "target", ""], disable_numparse=True))
    return 1 if any(row.is_met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

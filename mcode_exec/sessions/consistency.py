"""What does not agree in a session whose history can be read: calls and results, generations, files, rows.

Everything is found; what is certain to be right afterwards is mended: the manifest
is made anew and rows are written from the history, which decides.  A call that
has no result is no fault: the next turn gives it one that says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from mcode_exec.records.history import FileBlock, HistoryRecord, ImageBlock, ToolResultBlock
from mcode_exec.records.projection import display_of
from mcode_exec.sessions import generations
from mcode_exec.sessions.files import read_file
from mcode_exec.sessions.history import FORMAT_VERSION
from mcode_exec.sessions.layout import HistoryPaths
from mcode_exec.sessions.lines import Loaded
from mcode_exec.sessions.transcript import calls_of


class Fault(Struct, frozen=True, kw_only=True):
    """Something that does not agree."""

    file: str
    problem: str
    #: what would mend it, if anything that is certain would
    mends: str | None = None


MANIFEST, ROWS = "manifest", "rows"


def of_files(
    paths: HistoryPaths, session_id: str, loaded: Loaded, records: Sequence[HistoryRecord]
) -> Iterator[Fault]:
    """Manifest, earlier generations and attachments.  Blocking."""
    header = loaded.header
    wanted = {"format": FORMAT_VERSION, "sessionId": session_id, "generation": header.generation}
    try:
        manifest = msgspec.json.decode(read_file(paths.manifest))
    except (OSError, ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict):
        yield Fault(file="manifest.json", problem="it is missing or no JSON object", mends=MANIFEST)
    elif any(manifest.get(key) != value for key, value in wanted.items()):
        yield Fault(file="manifest.json", problem="it disagrees with messages.jsonl", mends=MANIFEST)
    for name, why in generations.faults(paths, loaded, session_id):
        yield Fault(file=f"snapshots/{name}", problem=f"an earlier generation cannot be read: {why}")
    digests = {
        block.digest
        for record in records
        for block in record.message.content
        if isinstance(block, ImageBlock | FileBlock)
    }
    for digest in sorted(digests):
        if not os.path.isfile(os.path.join(paths.attachments, digest)):
            yield Fault(file=f"attachments/{digest}", problem="the bytes of an attachment are gone")


def of_pairs(records: Sequence[HistoryRecord]) -> Iterator[Fault]:
    """Calls with two results, and results without a call; one without any gets it from the next turn."""
    made: dict[str, str] = {}
    answered: set[str] = set()
    for record in records:
        made |= {call.id: record.id for call in calls_of(record.message)}
        for block in record.message.content:
            if not isinstance(block, ToolResultBlock):
                continue
            if block.call_id not in made:
                yield _of_history(
                    f"message {record.id} has a result of call {block.call_id}, which nobody made"
                )
            elif block.call_id in answered:
                yield _of_history(f"call {block.call_id} of message {made[block.call_id]} has two results")
            answered.add(block.call_id)


def of_rows(session_id: str, records: Sequence[HistoryRecord], rows: set[str]) -> Iterator[Fault]:
    """Messages of the history that nobody is shown; `records` are those that should have rows.

    A row without a record is no fault: earlier generations, and lines that were set aside, have theirs.
    """
    shown = {record.id for record in records if display_of(record, session_id, None) is not None}
    missing = [record.id for record in records if record.id in shown and record.id not in rows]
    for message_id in dict.fromkeys(missing):
        yield Fault(file="mcode.db", problem=f"message {message_id} has no row", mends=ROWS)


def _of_history(problem: str) -> Fault:
    return Fault(file="messages.jsonl", problem=problem)

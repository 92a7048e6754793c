"""Earlier generations of a history: which one holds a message, and what followed it until now.

`messages.jsonl` is what a model is sent.  What a compaction put away is the
generation before it, in `snapshots/`; a rewind and its undo put nothing away
that is not still said, so they are passed over on the way back.  Generations in
`snapshots/` are never changed, and only read here.  Functions block.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct

from mcode_exec.errors import HistoryCorruptError, SessionError
from mcode_exec.records.history import GenerationHeader, HistoryRecord
from mcode_exec.sessions.files import read_file
from mcode_exec.sessions.layout import HistoryPaths
from mcode_exec.sessions.lines import Loaded, parse

#: why a generation stands: a rewind, and the undoing of one
REWIND = "rewind"
UNDO = "rewind-undo"


class GenerationMissingError(SessionError):
    """What stood before a compaction cannot be read."""

    code = "compaction_between"

    def __init__(self, message: str, *, name: str | None = None, why: str = "") -> None:
        super().__init__(message)
        #: of the file below `snapshots/`, and what is wrong with it
        self.name, self.why = name, why


class Generation(Struct, frozen=True, kw_only=True):
    """One generation of a session's history."""

    #: of its file below `snapshots/`; None: `messages.jsonl`
    name: str | None
    header: GenerationHeader
    records: tuple[HistoryRecord, ...]


def chain(paths: HistoryPaths, loaded: Loaded, session_id: str) -> Iterator[Generation]:
    """What a model is sent, then what each compaction before put away, the newest first.

    Raises: GenerationMissingError where one of them is gone, damaged, or another session's.
    """
    yield Generation(name=None, header=loaded.header, records=_records(loaded))
    header = loaded.header
    seen: set[str] = set()
    while True:
        name = _put_away(paths, header, session_id, seen)
        if name is None:
            return
        found = read(paths, name, session_id)
        yield Generation(name=name, header=found.header, records=_records(found))
        header = found.header


def since(paths: HistoryPaths, name: str, earlier: str, kept: int, session_id: str) -> list[HistoryRecord]:
    """All that was said from record `kept` of the generation `earlier` on, up to the end of the generation `name`.

    What a compaction has kept as it was comes in both.
    Raises: GenerationMissingError, also where the one is not behind the other.
    """
    newest = read(paths, name, session_id)
    parts: list[tuple[HistoryRecord, ...]] = []
    for generation in chain(paths, newest, session_id):
        if generation.name == earlier:
            return [*generation.records[kept:], *(record for part in reversed(parts) for record in part)]
        parts.append(generation.records)
    raise GenerationMissingError(f"{_path(paths, earlier)} is not what stood before {_path(paths, name)}")


def read(paths: HistoryPaths, name: str, session_id: str) -> Loaded:
    """The generation of a file below `snapshots/`.  Raises: GenerationMissingError."""
    path = _path(paths, name)
    try:
        loaded = parse(read_file(path), path)
    except FileNotFoundError:
        raise _missing(path, "it is gone") from None
    except OSError as error:
        raise _missing(path, error.strerror or str(error)) from error
    except HistoryCorruptError as error:
        raise _missing(path, f"line {error.details.get('line')} is no history record") from error
    if loaded.header.session_id != session_id:
        raise _missing(path, f"it belongs to session {loaded.header.session_id}")
    return loaded


def faults(paths: HistoryPaths, loaded: Loaded, session_id: str) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) of each generation that cannot be read, of those that a rewind or its undo may need."""
    told: set[str] = set()
    looks: list[Callable[[], object]] = [lambda: deque(chain(paths, loaded, session_id), maxlen=0)]
    if (snapshot := loaded.header.snapshot) is not None:
        looks.insert(0, lambda: read(paths, snapshot, session_id))
    for look in looks:
        try:
            look()
        except GenerationMissingError as error:
            if error.name is not None and error.name not in told:
                told.add(error.name)
                yield error.name, error.why


def _put_away(paths: HistoryPaths, header: GenerationHeader, session_id: str, seen: set[str]) -> str | None:
    """The generation that the newest compaction before the end of `header`'s has put away, if there is one."""
    while header.snapshot is not None:
        name = os.path.basename(header.behind or header.snapshot)
        if name in seen:
            raise _missing(_path(paths, name), "it comes before itself")
        seen.add(name)
        if header.reason not in (REWIND, UNDO):
            return name
        header = read(paths, name, session_id).header
    return None


def _records(loaded: Loaded) -> tuple[HistoryRecord, ...]:
    return tuple(line.record for line in loaded.lines)


def _path(paths: HistoryPaths, name: str) -> str:
    return os.path.join(paths.snapshots, os.path.basename(name))


def _missing(path: str, why: str) -> GenerationMissingError:
    return GenerationMissingError(
        f"what stood before a compaction cannot be read: {path}: {why}", name=os.path.basename(path), why=why
    )

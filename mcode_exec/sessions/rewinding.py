"""Rewinding a history: what goes, the archive of what was, and the generation that takes its place.

A generation is never changed: what a rewind takes back stays in `snapshots/`, and
the new generation says in its header where it came from and how many records
came along.  As long as it has no more than these, the rewind can be undone.
Behind a compaction the records come from the generation that it put away.
These functions block, and run while the session is held for maintenance.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct, structs

from mcode_exec.errors import HistoryCorruptError, SessionError, StoreFailedError
from mcode_exec.faults import fault
from mcode_exec.ids import is_message_prefix, is_user_message_id
from mcode_exec.records.history import GenerationHeader, HistoryRecord, TextBlock
from mcode_exec.records.operation import RewindPlan
from mcode_exec.sessions import generations
from mcode_exec.sessions.files import make_dirs, read_file, replace_file
from mcode_exec.sessions.generations import REWIND, UNDO, Generation, GenerationMissingError
from mcode_exec.sessions.history import write_manifest
from mcode_exec.sessions.layout import HistoryPaths
from mcode_exec.sessions.lines import Loaded, parse, serialise

#: names the last prompt of a person
LAST = "last"


class Rewound(Struct, frozen=True, kw_only=True):
    """A history before and after."""

    plan: RewindPlan
    header: GenerationHeader
    #: what the history holds afterwards
    records: tuple[HistoryRecord, ...]
    #: what goes, or comes back
    moved: tuple[HistoryRecord, ...]
    #: of an undo: turns whose changes of files the rewind had taken back; None: not known
    files: tuple[str, ...] | None = None

    @property
    def is_amid_a_turn(self) -> bool:
        """Whether a turn stands on both sides of where a rewind cuts."""
        return bool(self.records) and self.records[-1].turn_id == self.moved[0].turn_id

    @property
    def prompt(self) -> str:
        """The words of the message that was named."""
        return "\n".join(
            block.text
            for block in self.moved[0].message.content
            if isinstance(block, TextBlock) and not block.synthetic
        )


def load(paths: HistoryPaths, session_id: str) -> tuple[bytes, Loaded]:
    """The history as it stands.  Raises: SessionError where there is none, HistoryCorruptError, StoreFailedError."""
    try:
        data = read_file(paths.messages)
    except FileNotFoundError:
        raise SessionError(
            f"session {session_id} has no history: there is nothing to take back", code="nothing_to_rewind"
        ) from None
    except OSError as error:
        raise StoreFailedError(f"{paths.messages} cannot be read: {error.strerror}") from error
    loaded = parse(data, paths.messages)
    if loaded.header.session_id != session_id:
        raise HistoryCorruptError(
            f"{paths.messages} belongs to session {loaded.header.session_id}, not to {session_id}",
            path=paths.messages,
        )
    return data, loaded


def back(
    paths: HistoryPaths, loaded: Loaded, session_id: str, name: str, operation_id: str, now_ms: int
) -> Rewound:
    """The history up to the user message that `name` names (its id, a unique prefix, or `last`), without it.

    It may stand before a compaction.  Raises: SessionError; code `compaction_between` where what stood there is not
    to be had.
    """
    at, passed = _find(paths, loaded, session_id, name)
    records = passed[-1].records
    is_behind = passed[-1].name is not None
    plan = RewindPlan(
        message_id=records[at].id,
        generation=loaded.header.generation + 1,
        snapshot=f"g{loaded.header.generation:012d}--{operation_id}.jsonl",
        behind=passed[-1].name,
        kept=at if is_behind else None,
    )
    header = GenerationHeader(
        generation=plan.generation,
        session_id=session_id,
        at_ms=now_ms,
        snapshot=plan.snapshot,
        reason=REWIND,
        kept=at,
        behind=plan.behind,
    )
    later = [record for generation in reversed(passed[:-1]) for record in generation.records]
    return Rewound(plan=plan, header=header, records=records[:at], moved=(*records[at:], *later))


def forward(paths: HistoryPaths, loaded: Loaded, session_id: str, now_ms: int) -> Rewound:
    """The history as it was before the rewind that is its newest change.

    Raises: SessionError where it is not, or where the archive is not what it was; HistoryCorruptError.
    """
    header = loaded.header
    if header.reason != REWIND or header.snapshot is None or header.kept is None:
        raise SessionError(f"session {session_id} has no rewind that could be undone", code="nothing_to_undo")
    path = os.path.join(paths.snapshots, os.path.basename(header.snapshot))
    if len(loaded.lines) != header.kept:
        raise SessionError(
            f"session {session_id} has gone on since its last rewind, which cannot be undone any more; "
            f"what it took back is kept in {path}",
            code="rewind_superseded",
        )
    try:
        before = generations.read(paths, header.snapshot, session_id)
        records = tuple(line.record for line in before.lines)
        moved = moved_of(paths, session_id, records, header.snapshot, header.behind, header.kept)
    except GenerationMissingError as error:
        raise SessionError(f"the rewind cannot be undone: {error.message}", code="nothing_to_undo") from error
    if not moved:
        raise SessionError(f"the rewind cannot be undone: {path} is not what it took back")
    plan = undo_of(
        RewindPlan(
            message_id=moved[0].id,
            generation=header.generation,
            snapshot=header.snapshot,
            behind=header.behind,
            kept=header.kept if header.behind is not None else None,
        )
    )
    made = GenerationHeader(
        generation=plan.generation, session_id=session_id, at_ms=now_ms, snapshot=plan.snapshot, reason=UNDO
    )
    return Rewound(plan=plan, header=made, records=records, moved=moved, files=header.files)


def undo_of(plan: RewindPlan) -> RewindPlan:
    """What undoing a rewind is, as `forward` has it."""
    return structs.replace(plan, generation=plan.generation + 1, is_undo=True)


def moved_of(
    paths: HistoryPaths,
    session_id: str,
    records: Sequence[HistoryRecord],
    snapshot: str,
    behind: str | None,
    kept: int,
) -> tuple[HistoryRecord, ...]:
    """What the undoing of a rewind brings back: all behind the first `kept` records of where they came from.

    `records` are those of the generation `snapshot`.  Raises: GenerationMissingError.
    """
    if behind is None:
        return tuple(records[kept:])
    return tuple(generations.since(paths, snapshot, behind, kept, session_id))


def _find(paths: HistoryPaths, loaded: Loaded, session_id: str, name: str) -> tuple[int, list[Generation]]:
    """Where a prompt stands in the last of the generations from the newest to the one that holds it.

    Of one that stands in several the newest counts.  Raises: SessionError.
    """
    passed: list[Generation] = []
    found: tuple[int, int, str] | None = None
    is_other = False
    try:
        for generation in generations.chain(paths, loaded, session_id):
            passed.append(generation)
            said = _named(generation.records, name)
            ids = {generation.records[at].id for at in said} | ({found[2]} if found else set())
            if len(ids) > 1 and name != LAST:
                raise SessionError(
                    f"several messages of session {session_id} start with {name}; give more of its digits"
                )
            if said and found is None:
                found = said[0], len(passed), generation.records[said[0]].id
            if found is not None and name in (found[2], LAST):
                break
            is_other = is_other or any(record.id.startswith(name) for record in generation.records)
    except GenerationMissingError as error:
        if found is None:
            raise GenerationMissingError(
                f"{'the last prompt' if name == LAST else name} is not in what a model is sent, and {error.message}"
            ) from error
    if found is not None:
        return found[0], passed[: found[1]]
    if name == LAST:
        raise SessionError(
            f"session {session_id} has no prompt that could be taken back", code="nothing_to_rewind"
        )
    what = "no message of a person" if is_other else "no message of this session's history"
    raise SessionError(
        f"{name} is {what}: only those can be taken back; "
        f"`mcode sessions show {session_id} --output-format json` shows their ids",
        code="message_not_found",
    )


def _named(records: Sequence[HistoryRecord], name: str) -> list[int]:
    """Where prompts and words to a running turn stand that are named so, each where it was said first."""
    said: dict[str, int] = {}
    for at, record in enumerate(records):
        if record.message.role == "user" and is_user_message_id(record.id):
            said.setdefault(record.id, at)
    if name == LAST:
        asked = [
            record.id
            for record in records
            if record.id in said and record.message.role == "user" and record.steered_by is None
        ]
        return [said[asked[-1]]] if asked else []
    is_prefix = is_message_prefix(name)
    return [at for one, at in said.items() if one == name or (is_prefix and one.startswith(name))]


def archive(paths: HistoryPaths, plan: RewindPlan, data: bytes) -> None:
    """Keep the bytes of a generation as they are, before another takes its place.

    They are a file of their own: whoever still has the old one open finds it without a name, and writes nothing.
    Raises: StoreFailedError.
    """
    path = os.path.join(paths.snapshots, plan.snapshot)
    try:
        make_dirs(paths.snapshots, os.path.dirname(paths.directory))
        os.close(replace_file(path, data, durable=True))
    except OSError as error:
        raise StoreFailedError(
            f"{path} could not be written: {error.strerror}; nothing was changed"
        ) from error


def forget(paths: HistoryPaths, plan: RewindPlan) -> None:
    """Remove the archive of a rewind that did not happen."""
    try:
        os.unlink(os.path.join(paths.snapshots, plan.snapshot))
    except OSError:
        pass  # it costs room, and says nothing wrong


def put(paths: HistoryPaths, rewound: Rewound, created_ms: int) -> int:
    """Make the new generation the session's history, and make that survive power loss; its size in bytes.

    `created_ms` is the session's.  Raises: StoreFailedError.
    """
    data = serialise(rewound.header, rewound.records)
    try:
        os.close(replace_file(paths.messages, data, durable=True))
    except OSError as error:
        raise StoreFailedError(f"{paths.messages} could not be written: {error.strerror}") from error
    fault("after-rewind-file")
    name_generation(paths, rewound.header, created_ms)
    return len(data)


def name_generation(paths: HistoryPaths, header: GenerationHeader, created_ms: int) -> None:
    """Let the manifest name the generation that stands.  Raises: StoreFailedError."""
    try:
        write_manifest(paths, header.session_id, created_ms, header.generation)
    except OSError as error:
        raise StoreFailedError(f"{paths.manifest} could not be written: {error.strerror}") from error


def is_put(loaded: Loaded, plan: RewindPlan) -> bool:
    """Whether the history is the one that a rewind was to make."""
    return loaded.header.generation == plan.generation and loaded.header.snapshot == plan.snapshot

"""What `mcode queue` does with items: each opens the store, does one thing, and closes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial

from msgspec import Struct, structs

from mcode_exec.errors import BusyError, McodeError, SessionError
from mcode_exec.executor.delivery import Delivery, invocation_of, payload_of, prompt_of
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.prompt import read_prompt
from mcode_exec.executor.queue_checks import check_runnable
from mcode_exec.executor.runtime import Runtime
from mcode_exec.records.history import Block, TextBlock
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.queue import Pause, QueueItem, QueuePayload
from mcode_exec.sessions import finding
from mcode_exec.sessions.attachments import Attachments
from mcode_exec.sessions.layout import history_paths
from mcode_exec.store import queue_rows, queue_state_rows
from mcode_exec.turns import queue
from mcode_exec.turns.delivery import is_drained
from mcode_exec.turns.words import check_words, text_of

_PAGE = 500


class Line(Struct, frozen=True, kw_only=True):
    """A session's queue, or all of them."""

    items: list[QueueItem]
    #: by session
    pauses: dict[str, Pause]
    #: sessions that a live process drains
    drained: frozenset[str]
    #: by session, the last place of a live process that stands in line: it runs what is ahead of it
    waiting: dict[str, int]

    def is_run(self, item: QueueItem) -> bool:
        """Whether a live process stands behind an item."""
        return item.session_id in self.drained or item.position <= self.waiting.get(item.session_id, -1)


class Changed(Struct, frozen=True, kw_only=True):
    """An item that was queued or changed, and where it stands."""

    item: QueueItem
    #: its place in the line, 1 the first; None: it has begun
    position: int | None
    #: (code, message)
    notices: tuple[tuple[str, str], ...] = ()
    #: it was not there before
    is_new: bool = False


async def list_items(data_dir: str | None, env: Mapping[str, str], session: str | None) -> Line:
    """The items of a session in the order of its line; None: of every session, the oldest first."""
    async with opened(data_dir, env) as runtime:
        session_id = None if session is None else (await finding.find_exact(runtime.store, session)).id
        items = await _items(runtime, session_id)
        sessions = {item.session_id for item in items}

        def look() -> Line:
            pauses = {one: queue_state_rows.find_pause(one) for one in sessions}
            return Line(
                items=items,
                pauses={one: pause for one, pause in pauses.items() if pause is not None},
                drained=frozenset(one for one in sessions if is_drained(one, runtime.owner)),
                waiting=_last_waiting(items, runtime),
            )

        return await runtime.store.read(look)


def _last_waiting(items: list[QueueItem], runtime: Runtime) -> dict[str, int]:
    """The place of the last live waiter of each session; without a store there is no owner, and nobody to ask for."""
    last: dict[str, int] = {}
    for item in items:
        if item.waiter is not None and runtime.owner.is_alive(item.waiter):
            last[item.session_id] = max(item.position, last.get(item.session_id, 0))
    return last


async def _items(runtime: Runtime, session_id: str | None) -> list[QueueItem]:
    items: list[QueueItem] = []
    after = 0
    while True:
        if session_id is not None:
            found = await runtime.store.read(
                partial(queue_rows.page_items, session_id, after=after, limit=_PAGE)
            )
            page = [(one.position, one) for one in found]
        else:
            page = await runtime.store.read(partial(queue_rows.page_all_items, after=after, limit=_PAGE))
        items += [item for _, item in page]
        if len(page) < _PAGE:
            return items
        after = page[-1][0]


async def add_item(
    invocation: Invocation,
    env: Mapping[str, str],
    *,
    ttl_s: float,
    dedupe_key: str | None,
) -> Changed:
    """Queue a prompt for the session `invocation` names.

    Raises: SessionError, InvocationError, ConfigError, BusyError `queue_full`.
    """
    prompt = await read_prompt(invocation)
    check_words(prompt.content)
    async with opened(invocation.data_dir, env) as runtime:
        assert invocation.session is not None
        session = (await finding.find_named(runtime.store, invocation.session)).session
        await check_runnable(runtime, invocation, prompt)
        payload = payload_of(invocation, prompt.content, None)
        attachments = Attachments(
            history_paths(runtime.sessions_dir, session.history_relative_dir), runtime.data
        )
        for attachment in prompt.attachments:
            await runtime.store.on_thread(partial(attachments.keep, attachment.data))
        item, is_new = await queue.add(
            runtime.store,
            runtime.owner,
            session.id,
            payload,
            runtime.clock,
            digest=prompt.digest(),
            source=invocation.source,
            dedupe_key=dedupe_key,
            ttl_s=ttl_s,
        )
        return await _changed(runtime, item, notices=prompt.notices, is_new=is_new)


async def edit_item(
    drainer: Invocation, env: Mapping[str, str], item: str, *, has_words: bool, **changes: object
) -> Changed:
    """Change what an item runs with, and (`has_words`: those of `drainer`) its words; its attachments stay.

    `drainer` also says by whose configuration it is checked.
    Raises: SessionError, InvocationError, ConfigError, BusyError.
    """
    words: tuple[Block, ...] = ()
    notices: tuple[tuple[str, str], ...] = ()
    if has_words:
        prompt = await read_prompt(drainer)
        words, notices = prompt.content, prompt.notices
        check_words(words)

    def change(payload: QueuePayload) -> QueuePayload:
        content = payload.content
        if words:
            content = (*words, *(block for block in content if not isinstance(block, TextBlock)))
        given = {name: value for name, value in changes.items() if value is not None}
        return structs.replace(payload, content=content, **given)

    async with opened(drainer.data_dir, env) as runtime:
        found = await _named(runtime, item)
        if any(changes.get(name) is not None for name in ("model", "effort", "agent")):
            wanted = structs.replace(found, payload=change(found.payload))
            delivery = Delivery(item=wanted, drainer=drainer)
            await check_runnable(runtime, invocation_of(delivery), prompt_of(wanted))
        edited = await queue.edit(runtime.store, found.id, change, _digest)
        return await _changed(runtime, edited, notices=notices)


async def _changed(
    runtime: Runtime, item: QueueItem, *, notices: tuple[tuple[str, str], ...] = (), is_new: bool = False
) -> Changed:
    place = None
    if item.state != "ran":
        place = await runtime.store.read(lambda: queue_rows.place_of(item.session_id, item.position))
    return Changed(item=item, position=place, notices=notices, is_new=is_new)


def _digest(payload: QueuePayload) -> str:
    """As a prompt's digest is made, so that an edited item is told from another by what it says."""
    import msgspec

    content: tuple[Block, ...] = payload.content
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


async def move_item(data_dir: str | None, env: Mapping[str, str], item: str, place: int) -> Changed:
    """Put an item at a place of its line, 1 the first."""
    async with opened(data_dir, env) as runtime:
        found = await _named(runtime, item)
        moved = await queue.move(runtime.store, found.id, place)
        return await _changed(runtime, moved)


class Removed(Struct, frozen=True, kw_only=True):
    """What became of an item that was to be taken back."""

    #: its id, or what was given for one
    name: str
    #: as it was; None where it was not taken back
    item: QueueItem | None = None
    error: McodeError | None = None


async def remove_items(data_dir: str | None, env: Mapping[str, str], items: tuple[str, ...]) -> list[Removed]:
    """Take items back, each for itself: one that has begun meanwhile keeps none of the others."""
    async with opened(data_dir, env) as runtime:
        done: list[Removed] = []
        for name in items:
            try:
                found = await _named(runtime, name)
                await queue.remove(runtime.store, found.id, "taken-back", runtime.clock)
            except (SessionError, BusyError) as error:
                done.append(Removed(name=name, error=error))
            else:
                done.append(Removed(name=found.id, item=found))
        return done


async def pause_queue(data_dir: str | None, env: Mapping[str, str], session: str) -> tuple[str, bool]:
    """Hold a session's queue: its id, and False where there is nothing to hold."""
    async with opened(data_dir, env) as runtime:
        found = await finding.find_exact(runtime.store, session)
        return found.id, await queue.pause(runtime.store, found.id, runtime.clock)


async def unpause_queue(data_dir: str | None, env: Mapping[str, str], session: str) -> tuple[str, bool]:
    """Let a session's queue go on: its id, and False if it was not held."""
    async with opened(data_dir, env) as runtime:
        found = await finding.find_exact(runtime.store, session)
        return found.id, await queue.unpause(runtime.store, found.id)


async def _named(runtime: Runtime, text: str) -> QueueItem:
    return await runtime.store.read(lambda: named_item(text))


def named_item(text: str) -> QueueItem:
    """The item that an id or a unique prefix names; inside a transaction.  Raises: SessionError."""
    found = queue_rows.find_by_prefix(text)
    if len(found) > 1:
        raise SessionError(f"several queue items start with {text}; give more of its digits")
    if not found:
        raise SessionError(
            f"there is no queue item {text}; `mcode queue list --all` shows what there is",
            code="queue_item_not_found",
        )
    return found[0]


def first_words(item: QueueItem) -> str:
    """What an item says, for a list."""
    return text_of(item.payload.content)

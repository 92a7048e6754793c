"""What `mcode queue` does with items: each opens the store, does one thing, and closes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from msgspec import Struct, structs

from mcode_exec.errors import SessionError
from mcode_exec.executor.delivery import payload_of, text_of
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.prompt import read_prompt
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

_PAGE = 500


class Line(Struct, frozen=True, kw_only=True):
    """A session's queue, or all of them."""

    items: list[QueueItem]
    #: by session
    pauses: dict[str, Pause]
    #: sessions that a live process drains
    drained: frozenset[str]


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
            )

        return await runtime.store.read(look)


async def _items(runtime: Runtime, session_id: str | None) -> list[QueueItem]:
    items: list[QueueItem] = []
    after = 0
    while True:
        if session_id is not None:
            page = await runtime.store.read(
                lambda a=after: [  # type: ignore[misc]
                    (one.position, one) for one in queue_rows.page_items(session_id, after=a, limit=_PAGE)
                ]
            )
        else:
            page = await runtime.store.read(
                lambda a=after: queue_rows.page_all_items(after=a, limit=_PAGE)  # type: ignore[misc]
            )
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
) -> tuple[QueueItem, int, bool]:
    """Queue a prompt for the session `invocation` names: the item, how many stand ahead, whether it is new.

    Raises: SessionError, InvocationError, BusyError `queue_full`.
    """
    prompt = await read_prompt(invocation)
    async with opened(invocation.data_dir, env) as runtime:
        assert invocation.session is not None
        session = (await finding.find_named(runtime.store, invocation.session)).session
        payload = payload_of(invocation, prompt.content, None)
        queue.check_size(payload)
        attachments = Attachments(
            history_paths(runtime.sessions_dir, session.history_relative_dir), runtime.data
        )
        for attachment in prompt.attachments:
            await runtime.store.on_thread(lambda data=attachment.data: attachments.keep(data))  # type: ignore[misc]
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
        ahead = await runtime.store.read(lambda: queue_rows.count_before(session.id, item.position))
        return item, ahead, is_new


async def edit_item(
    data_dir: str | None, env: Mapping[str, str], item: str, text: str | None, **changes: object
) -> QueueItem:
    """Change an item's words (its attachments stay) and what it runs with."""

    def change(payload: QueuePayload) -> QueuePayload:
        content = payload.content
        if text is not None:
            rest = tuple(block for block in content if not isinstance(block, TextBlock))
            content = (TextBlock(text=text), *rest)
        given = {name: value for name, value in changes.items() if value is not None}
        return structs.replace(payload, content=content, **given)

    async with opened(data_dir, env) as runtime:
        found = await _named(runtime, item)
        return await queue.edit(runtime.store, found.id, change, _digest)


def _digest(payload: QueuePayload) -> str:
    """As a prompt's digest is made, so that an edited item is told from another by what it says."""
    import msgspec

    content: tuple[Block, ...] = payload.content
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


async def move_item(
    data_dir: str | None, env: Mapping[str, str], item: str, place: int
) -> tuple[QueueItem, int]:
    """Put an item at a place of its line, 1 the first; and how many stand ahead of it then."""
    async with opened(data_dir, env) as runtime:
        found = await _named(runtime, item)
        moved = await queue.move(runtime.store, found.id, place)
        ahead = await runtime.store.read(lambda: queue_rows.count_before(moved.session_id, moved.position))
        return moved, ahead


async def remove_items(
    data_dir: str | None, env: Mapping[str, str], items: tuple[str, ...]
) -> list[QueueItem]:
    """Take items back; all of them are looked up before one goes."""
    async with opened(data_dir, env) as runtime:
        found = [await _named(runtime, item) for item in items]
        for one in found:
            await queue.remove(runtime.store, one.id, "taken-back", runtime.clock)
        return found


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

"""What `mcode sessions list|search|tree|history` read: sessions by filters, words and links, page by page.

`told` gets sentences for people while something takes long, and about what was
asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Struct, structs

from mcode_exec.errors import InvocationError
from mcode_exec.executor.inspect import masked_words, opened, seals_of
from mcode_exec.executor.moments import moment_ms
from mcode_exec.executor.prompt import name_of_text
from mcode_exec.executor.runtime import Runtime
from mcode_exec.executor.workspaces import workspace_path
from mcode_exec.records.finding import Place, Prompt, SessionFilter, TreeNode
from mcode_exec.records.session import Seal, Session
from mcode_exec.redaction import Redactor, secret_values
from mcode_exec.sessions import family, finding, listing, prompts, words
from mcode_exec.sessions.search_index import SearchIndex, searching
from mcode_exec.sessions.searching import HitPage, search

_T = TypeVar("_T")
Told = Callable[[str], None]

#: kinds that are hidden as a rule: naming one asks for the hidden ones
_INTERNAL_KINDS = frozenset({"task", "peek"})
_MAX_DIGITS = 19  # of a number with 63 bits


class SessionFlags(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    cwd: str | None = None
    all_workspaces: bool = False
    kinds: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    archived: bool = False
    hidden: bool = False
    since: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    text: str | None = None


class SessionPage(Struct, frozen=True, kw_only=True):
    """Sessions of a list, and the cursor of the next page if there is one."""

    sessions: list[Session]
    #: of those that are being deleted
    seals: dict[str, Seal]
    cursor: str | None


class NodePage(Struct, frozen=True, kw_only=True):
    """Sessions of trees in the order in which they are read."""

    nodes: list[TreeNode]
    seals: dict[str, Seal]
    cursor: str | None


class PromptPage(Struct, frozen=True, kw_only=True):
    """Prompts of a session, oldest first, and the cursor of earlier ones."""

    session: Session
    prompts: list[Prompt]
    cursor: str | None


async def list_sessions(
    data_dir: str | None,
    env: Mapping[str, str],
    flags: SessionFlags,
    *,
    limit: int,
    before_cursor: str | None,
    told: Told,
) -> SessionPage:
    """A page of the sessions that fit, newest activity first.

    Raises: InvocationError for a flag or cursor that cannot be; StoreFailedError; StoreBusyError.
    """
    before = None if before_cursor is None else _list_cursor(before_cursor)
    wanted = _filter(flags, env)
    looked_for = None
    if flags.text is not None:
        looked_for, notices = words.parse(flags.text)
        _tell_all(told, notices)
    redactor = Redactor(secret_values(env))
    async with opened(data_dir, env, reads_only=True) as runtime:
        store = runtime.store
        if looked_for is None:
            sessions = await listing.page(store, wanted, before, limit + 1)
        else:
            sought = looked_for

            async def with_words(index: SearchIndex) -> list[Session]:
                return await listing.page_with_words(store, index, wanted, sought, before, limit + 1)

            sessions = await _searched(runtime, redactor, told, with_words, [])
        seals = await seals_of(runtime, sessions[:limit])
    last = sessions[limit - 1] if len(sessions) > limit else None
    return SessionPage(
        sessions=[masked_words(session, redactor) for session in sessions[:limit]],
        seals=seals,
        cursor=None if last is None else f"{last.activity_ms}:{last.id}",
    )


async def search_sessions(
    data_dir: str | None,
    env: Mapping[str, str],
    flags: SessionFlags,
    *,
    places: tuple[Place, ...],
    limit: int,
    before_cursor: str | None,
    told: Told,
) -> HitPage:
    """The newest messages and titles in which all words of `flags.text` stand.

    Raises: InvocationError for a text without a word, a flag or cursor that cannot be; StoreFailedError;
        StoreBusyError.
    """
    looked_for, notices = words.parse(flags.text or "", places)
    _tell_all(told, notices)
    before_doc = None if before_cursor is None else _number(before_cursor, before_cursor, "search")
    # of a search it is the message that is not older, not the session
    since_ms = None if flags.since is None else moment_ms(flags.since, "--since")
    wanted = _filter(structs.replace(flags, since=None), env)
    redactor = Redactor(secret_values(env))
    async with opened(data_dir, env, reads_only=True) as runtime:

        async def work(index: SearchIndex) -> HitPage:
            return await search(
                runtime.store,
                index,
                wanted,
                looked_for,
                since_ms=since_ms,
                before_doc=before_doc,
                limit=limit,
                redactor=redactor,
            )

        return await _searched(runtime, redactor, told, work, HitPage(hits=[], cursor=None))


async def _searched(
    runtime: Runtime,
    redactor: Redactor,
    told: Told,
    work: Callable[[SearchIndex], Awaitable[_T]],
    nothing: _T,
) -> _T:
    """What `work` finds; `nothing` where no run has made a store: then no index is made either."""
    if runtime.store.path == ":memory:":
        return nothing
    return await searching(runtime.store, redactor, told, work)


async def session_tree(
    data_dir: str | None,
    env: Mapping[str, str],
    flags: SessionFlags,
    *,
    name: str | None,
    limit: int,
    after_cursor: str | None,
    told: Told,
) -> NodePage:
    """The tree that a session stands in, or those of the sessions that fit.

    Raises: InvocationError; SessionError for a name that names none; StoreFailedError; StoreBusyError.
    """
    after = None if after_cursor is None else _tree_cursor(after_cursor)
    wanted = SessionFilter() if name is not None else _filter(flags, env)
    shows_hidden = flags.all_workspaces or flags.hidden
    async with opened(data_dir, env, reads_only=True) as runtime:
        if name is not None:
            session = await finding.find_exact(runtime.store, name)
            page = await family.tree_of(
                runtime.store, session, after=after, limit=limit, shows_hidden=shows_hidden
            )
        else:
            page = await family.trees(
                runtime.store, wanted, after=after, limit=limit, shows_hidden=shows_hidden
            )
        seals = await seals_of(runtime, [node.session for node in page.nodes])
    _tell_all(told, page.notices)
    redactor = Redactor(secret_values(env))
    nodes = [structs.replace(node, session=masked_words(node.session, redactor)) for node in page.nodes]
    return NodePage(nodes=nodes, seals=seals, cursor=page.cursor)


async def session_prompts(
    data_dir: str | None, env: Mapping[str, str], name: str, *, limit: int, before_cursor: str | None
) -> PromptPage:
    """The newest prompts of a session before the cursor.

    Raises: InvocationError for a cursor that is none; SessionError; StoreFailedError; StoreBusyError.
    """
    before_row = None if before_cursor is None else _number(before_cursor, before_cursor, "session")
    redactor = Redactor(secret_values(env))
    async with opened(data_dir, env, reads_only=True) as runtime:
        session = await finding.find_exact(runtime.store, name)
        found, oldest = await prompts.prompts_page(
            runtime.store,
            session.id,
            before_row=before_row,
            limit=limit,
            redactor=redactor,
            name_of_text=name_of_text,
        )
    return PromptPage(
        session=masked_words(session, redactor),
        prompts=found,
        cursor=None if oldest is None else str(oldest),
    )


def _filter(flags: SessionFlags, env: Mapping[str, str]) -> SessionFilter:
    """Which sessions are asked for.  Raises: InvocationError, ConfigError."""
    workspace = None
    if not flags.all_workspaces:
        # a path that is no text names no session, and cannot be looked for
        workspace = workspace_path(flags.cwd, env).encode("utf-8", "replace").decode()
    shows_all = flags.all_workspaces
    shows_internal = not _INTERNAL_KINDS.isdisjoint(flags.kinds)
    return SessionFilter(
        workspace=workspace,
        kinds=flags.kinds,
        excluded_kinds=() if shows_all or flags.kinds else ("cron",),
        statuses=flags.statuses,
        is_archived=True if flags.archived else None if shows_all else False,
        is_hidden=True if flags.hidden else None if shows_all or shows_internal else False,
        since_ms=None if flags.since is None else moment_ms(flags.since, "--since"),
        labels=flags.labels,
        is_used=not shows_all,
    )


def _list_cursor(text: str) -> tuple[int, str]:
    activity, _, session_id = text.partition(":")
    if not session_id:
        raise _no_cursor(text, "list")
    return _number(activity, text, "list"), session_id


def _tree_cursor(text: str) -> family.TreeCursor:
    activity, _, ids = text.partition(":")
    root_id, _, last_id = ids.partition(":")
    if not root_id or not last_id:
        raise _no_cursor(text, "tree")
    return family.TreeCursor(
        last_id=last_id, root_id=root_id, root_activity_ms=_number(activity, text, "tree")
    )


def _number(digits: str, cursor: str, of_what: str) -> int:
    """A number of a cursor, as SQLite can hold it.  Raises: InvocationError."""
    if digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS and int(digits) < 1 << 63:
        return int(digits)
    raise _no_cursor(cursor, of_what)


def _no_cursor(text: str, of_what: str) -> InvocationError:
    return InvocationError(
        f"{text[:60]!r} is no cursor of this {of_what}; take the one that an earlier page gave"
    )


def _tell_all(told: Told, sentences: tuple[str, ...]) -> None:
    for sentence in sentences:
        told(sentence)

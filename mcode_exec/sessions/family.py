"""The tree of a session's family: what it came from, its forks, sub-agents and side conversations.

A session hangs on its parent, or without one on the session it was forked from.
What links say is not believed: they may go round in a circle, or deeper than
anybody reads, and both are said.  A tree is read in pre-order, a page at a
time; where a page goes on is known from the last session of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import Struct

from mcode_exec.errors import SessionError
from mcode_exec.records.finding import Relation, SessionFilter, TreeNode
from mcode_exec.records.session import Session
from mcode_exec.sessions.finding import MAX_PARENTS, is_internal
from mcode_exec.store import listing_rows, session_rows
from mcode_exec.store.database import Store

_BATCH = 200  # candidates for roots that are looked at together
_CHILDREN = 50  # that are read together


class TreePage(Struct, frozen=True, kw_only=True):
    """Sessions of trees in the order in which they are read, and where they go on."""

    nodes: list[TreeNode]
    cursor: str | None
    #: what is to be said of links
    notices: tuple[str, ...] = ()


class TreeCursor(Struct, frozen=True, kw_only=True):
    """The last session of a page, and the root of the tree it stood in with its place in their list."""

    last_id: str
    root_id: str
    root_activity_ms: int


class _Walk:
    """Walks trees; inside a read.  `shows_hidden`: hidden conversations too, not only internal sessions."""

    def __init__(self, *, shows_hidden: bool) -> None:
        self._shows_hidden = shows_hidden
        self.notices: dict[str, None] = {}

    def root_of(self, session: Session) -> Session:
        """What stands above all others of its line; the session itself where that goes round in a circle."""
        line = [session]
        while (above := _above(line[-1])) is not None:
            parent = session_rows.find_session(above)
            if parent is None:
                break
            if any(one.id == parent.id for one in line):
                self._say(
                    f"the parents of session {session.id} go round in a circle; it is shown as the root"
                )
                return session
            if len(line) > MAX_PARENTS:
                self._say(
                    f"session {session.id} has more than {MAX_PARENTS} levels above it; "
                    f"the tree begins at {line[-1].id}"
                )
                break
            line.append(parent)
        return line[-1]

    def tree(self, root: Session) -> Iterator[TreeNode]:
        """A root and all below it, in pre-order."""
        yield TreeNode(session=root, depth=0, relation="root")
        yield from self._below([root], (), ())

    def rest(self, way: Sequence[Session]) -> Iterator[TreeNode]:
        """What follows the last of `way`, which leads there from its root, in the tree of that."""
        yield from self._below([way[0]], (), way[1:])

    def _below(
        self, line: list[Session], above: tuple[bool, ...], way: Sequence[Session]
    ) -> Iterator[TreeNode]:
        """What is below the last of `line`; with a `way` into it only what follows the end of that."""
        children = self._children(line, way[0] if way else None)
        child = next(children, None)
        if way:
            yield from self._below([*line, way[0]], (*above, child is not None), way[1:])
        if child is not None and len(line) > MAX_PARENTS:
            self._say(
                f"what is more than {MAX_PARENTS} levels deep is left out; "
                f"`mcode sessions tree {line[-1].id}` shows it"
            )
            return
        while child is not None:
            following = next(children, None)
            has_next = (*above, following is not None)
            yield TreeNode(session=child, depth=len(line), relation=_relation(child), has_next=has_next)
            yield from self._below([*line, child], has_next, ())
            child = following

    def _children(self, line: list[Session], after: Session | None) -> Iterator[Session]:
        """The children of the last of `line`, those behind one, without those that are not to be seen."""
        place = listing_rows.BEFORE_ALL if after is None else (after.created_ms, after.id)
        while True:
            some = listing_rows.children(line[-1].id, place, _CHILDREN)
            for child in some:
                if any(child.id == one.id for one in line):
                    self._say(f"the parents of session {child.id} go round in a circle")
                elif self._shows_hidden or child.visibility == "visible" or is_internal(child):
                    yield child
            if len(some) < _CHILDREN:
                return
            place = (some[-1].created_ms, some[-1].id)

    def _say(self, sentence: str) -> None:
        self.notices[sentence] = None


def _above(session: Session) -> str | None:
    return session.parent_id if session.parent_id is not None else session.forked_from


def _relation(session: Session) -> Relation:
    if session.session_kind == "peek":
        return "side"
    if session.session_kind == "task":
        return "sub-agent"
    return "fork" if session.forked_from is not None else "child"


async def tree_of(
    store: Store, session: Session, *, after: TreeCursor | None, limit: int, shows_hidden: bool
) -> TreePage:
    """The whole tree that a session stands in.

    Raises: SessionError where the cursor's session has left it.
    """

    def read() -> TreePage:
        walk = _Walk(shows_hidden=shows_hidden)
        root = walk.root_of(session)
        nodes = walk.tree(root) if after is None else walk.rest(_way(root, after.last_id))
        return _paged(walk, _first(nodes, limit + 1, root), limit)

    return await store.read(read)


async def trees(
    store: Store, wanted: SessionFilter, *, after: TreeCursor | None, limit: int, shows_hidden: bool
) -> TreePage:
    """The trees of the sessions that fit, that with the newest activity at its root first.

    A session that fits is a root, unless one above it fits.
    Raises: SessionError where the cursor's session has left its tree.
    """
    walk = _Walk(shows_hidden=shows_hidden)
    found: list[tuple[TreeNode, Session]] = []
    before: tuple[int, str] | None = None
    if after is not None:
        before = (after.root_activity_ms, after.root_id)
        found += await store.read(partial(_rest_of_tree, walk, after, limit + 1))
    while len(found) <= limit:
        some, roots = await store.read(partial(_roots, wanted, before))
        for root in roots:
            left = limit + 1 - len(found)
            if left <= 0:
                break
            found += await store.read(partial(_first_of_tree, walk, root, left))
        if len(some) < _BATCH:
            break
        before = (some[-1].activity_ms, some[-1].id)
    return _paged(walk, found, limit)


def _rest_of_tree(walk: _Walk, after: TreeCursor, limit: int) -> list[tuple[TreeNode, Session]]:
    root = session_rows.find_session(after.root_id)
    if root is None:
        return []  # its tree is gone: the next one follows
    return _first(walk.rest(_way(root, after.last_id)), limit, root)


def _first_of_tree(walk: _Walk, root: Session, limit: int) -> list[tuple[TreeNode, Session]]:
    return _first(walk.tree(root), limit, root)


def _first(nodes: Iterator[TreeNode], limit: int, root: Session) -> list[tuple[TreeNode, Session]]:
    return [(node, root) for node, _ in zip(nodes, range(limit), strict=False)]


def _paged(walk: _Walk, found: list[tuple[TreeNode, Session]], limit: int) -> TreePage:
    cursor = None
    if len(found) > limit:
        node, root = found[limit - 1]
        cursor = f"{root.activity_ms}:{root.id}:{node.session.id}"
    return TreePage(nodes=[node for node, _ in found[:limit]], cursor=cursor, notices=tuple(walk.notices))


def _way(root: Session, last_id: str) -> list[Session]:
    """The sessions that lead from the root of a tree to one in it.  Raises: SessionError."""
    way: list[Session] = []
    above: str | None = last_id
    while above is not None and len(way) <= MAX_PARENTS:
        session = session_rows.find_session(above)
        if session is None:
            break
        way.insert(0, session)
        if session.id == root.id:
            return way
        above = _above(session)
    raise SessionError(f"session {last_id}, where the page before ended, is not in that tree; begin anew")


def _roots(wanted: SessionFilter, before: tuple[int, str] | None) -> tuple[list[Session], list[Session]]:
    """Some of the sessions that fit, by activity, and the roots among them."""
    positions = listing_rows.page_positions(wanted, before, _BATCH)
    some = listing_rows.of_ids(SessionFilter(), [session_id for _, session_id in positions])
    lines = _lines([session.id for session in some])
    fitting = {one.id for one in some}
    others = {one for line in lines.values() for one in line} - fitting
    fitting |= {one.id for one in listing_rows.of_ids(wanted, others)}
    return some, [session for session in some if _is_root(session.id, lines[session.id], fitting)]


def _is_root(session_id: str, line: Sequence[str], fitting: set[str]) -> bool:
    fits_above = [one for one in line if one in fitting]
    if session_id in line:  # a circle: one of it is the root of all
        return session_id == min(fits_above)
    return not fits_above


def _lines(ids: Sequence[str]) -> dict[str, list[str]]:
    """What stands above each of some sessions, the nearest first; the session itself last if that is a circle."""
    above: dict[str, str | None] = {}
    missing = set(ids)
    for _ in range(MAX_PARENTS + 1):
        found = listing_rows.above_of(missing)
        above |= {one: found.get(one) for one in missing}
        missing = {parent for parent in found.values() if parent is not None} - above.keys()
        if not missing:
            break
    lines: dict[str, list[str]] = {}
    for session_id in ids:
        line: list[str] = []
        upper = above.get(session_id)
        while upper is not None and upper not in line and len(line) < MAX_PARENTS:
            line.append(upper)
            upper = above.get(upper)
        lines[session_id] = line
    return lines

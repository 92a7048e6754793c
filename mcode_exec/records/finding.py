"""What sessions are looked for by, and what is found: filters, words, hits, prompts, nodes of a tree."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mcode_exec.records.session import Session

#: where words are looked for, and found
Place = Literal["title", "prompt", "answer", "tool"]
PLACES: tuple[Place, ...] = ("title", "prompt", "answer", "tool")


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions; what is empty or None leaves none out."""

    #: canonical path
    workspace: str | None = None
    kinds: tuple[str, ...] = ()
    excluded_kinds: tuple[str, ...] = ()
    #: as they are shown: `deleting` too
    statuses: tuple[str, ...] = ()
    is_archived: bool | None = None
    is_hidden: bool | None = None
    #: of the newest turn
    since_ms: int | None = None
    #: all of them
    labels: tuple[tuple[str, str], ...] = ()
    #: leaves out those whose process died before their first turn was admitted
    is_used: bool = False


class Term(Struct, frozen=True, kw_only=True):
    """One thing that must stand in a message: a word, words in a row, or the beginning of a word."""

    text: str
    is_prefix: bool = False


class Words(Struct, frozen=True, kw_only=True):
    """What is looked for in texts: all terms in one message, or in one title."""

    terms: tuple[Term, ...]
    #: empty: everywhere
    places: tuple[Place, ...] = ()


class SearchHit(Struct, frozen=True, kw_only=True, rename="camel"):
    """One message in which all words stand, or one title."""

    session_id: str
    #: the session's
    title: str
    workspace: str
    place: Place
    #: null: the title
    message_id: str | None
    turn_id: str | None
    role: str | None
    #: of the message; of a title when its session was made
    at_ms: int
    #: around the words, on one line, secrets masked
    snippet: str


class Prompt(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a person said to a session."""

    message_id: str
    turn_id: str
    at_ms: int
    #: who said it to a turn that was running, if somebody did
    steered_by: str | None
    text: str
    #: names of attachments
    files: tuple[str, ...]


#: how a session hangs on the one above it
Relation = Literal["root", "fork", "sub-agent", "side", "child"]


class TreeNode(Struct, frozen=True, kw_only=True):
    """A session in the tree of its family, in the order in which the tree is read."""

    session: Session
    #: 0: the root
    depth: int
    relation: Relation
    #: for each level above whether more of it follows below; the last: whether a sibling of this one does
    has_next: tuple[bool, ...] = ()

"""Rows of `shares`: which sessions have a page that is kept up to date, and where."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from mcode_exec.store.tables import Shares, dicts

#: `shared`: somebody asked for it; `auto`: the configuration did; `unshared`: not even then
ShareState = Literal["shared", "auto", "unshared"]


class Share(Struct, frozen=True, kw_only=True):
    session_id: str
    state: ShareState
    #: where its page is, if it has one
    directory: str | None
    at_ms: int


def find_share(session_id: str) -> Share | None:
    query = Shares.select().where(Shares.session_id == session_id)
    return next((msgspec.convert(row, Share) for row in dicts(query)), None)


def put_share(share: Share) -> None:
    Shares.replace(**msgspec.structs.asdict(share)).execute()

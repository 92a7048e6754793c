"""Contents that turns of one session changed, found by digest in the packs of these turns."""

from __future__ import annotations

from collections.abc import Sequence

from mcode_exec.sessions import changed_contents
from mcode_exec.sessions.changed_contents import Pack

_MOST_OPEN = 4  # packs that are held at a time


class TurnPacks:
    """Reads packs when they are asked for.  Blocking."""

    def __init__(self, sessions_dir: str, relative_dir: str, turn_ids: Sequence[str]) -> None:
        self._sessions_dir = sessions_dir
        self._relative_dir = relative_dir
        self._turn_ids = turn_ids
        self._open: dict[str, Pack] = {}
        self._digests: dict[str, frozenset[bytes]] = {}

    def has(self, digest: bytes) -> bool:
        return self._holder(digest) is not None

    def get(self, digest: bytes) -> bytes | None:
        """A content; None where no pack has it any more."""
        turn_id = self._holder(digest)
        return None if turn_id is None else self._pack(turn_id).get(digest)

    def _holder(self, digest: bytes) -> str | None:
        return next((one for one in self._turn_ids if digest in self._digests_of(one)), None)

    def _digests_of(self, turn_id: str) -> frozenset[bytes]:
        known = self._digests.get(turn_id)
        if known is None:
            known = self._digests[turn_id] = frozenset(self._pack(turn_id).packed)
        return known

    def _pack(self, turn_id: str) -> Pack:
        pack = self._open.pop(turn_id, None)
        if pack is None:
            pack = changed_contents.read_pack(self._sessions_dir, self._relative_dir, turn_id)
        while len(self._open) >= _MOST_OPEN:
            del self._open[next(iter(self._open))]
        self._open[turn_id] = pack
        return pack

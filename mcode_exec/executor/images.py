"""Which images of a conversation a request carries: the newest, within a budget.

Images pile up in a history, and every request would carry them all: beyond the
budget the oldest are sent as notes.  A 413 makes the oldest half notes too, and
the call is asked once more.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from msgspec import structs

from mcode_exec.records.history import Block, FileBlock, ImageBlock, Message

MAX_ENCODED_BYTES = 16 * 1024 * 1024  # base64 bytes of all attachments of one request


class RequestImages:
    """One turn's: remembers what was read and what was left out."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read = read
        #: base64 by digest, read once per turn
        self._encoded: dict[str, str] = {}
        self._left_out: set[str] = set()

    def fill(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """`messages` with the data of their attachments; those left out stay without and become notes."""
        digests = _digests(messages)
        if not digests:
            return tuple(messages)
        total = 0
        for digest in reversed(digests):  # the newest first
            if digest in self._left_out:
                continue
            total += len(self._data(digest))
            if total > MAX_ENCODED_BYTES:
                self._left_out.add(digest)
        return tuple(self._filled(message) for message in messages)

    def drop_oldest(self, messages: Sequence[Message]) -> bool:
        """Leave out the older half of what is still sent; False when there was nothing."""
        sent = [digest for digest in _digests(messages) if digest not in self._left_out]
        self._left_out.update(sent[: (len(sent) + 1) // 2])
        return bool(sent)

    def _data(self, digest: str) -> str:
        data = self._encoded.get(digest)
        if data is None:
            data = self._encoded[digest] = base64.b64encode(self._read(digest)).decode()
        return data

    def _filled(self, message: Message) -> Message:
        if not any(isinstance(block, ImageBlock | FileBlock) for block in message.content):
            return message
        return structs.replace(message, content=tuple(self._block(block) for block in message.content))

    def _block(self, block: Block) -> Block:
        if not isinstance(block, ImageBlock | FileBlock) or block.digest in self._left_out:
            return block
        return structs.replace(block, data=self._data(block.digest))


def _digests(messages: Sequence[Message]) -> list[str]:
    """Attachments in order of their last appearance."""
    found: dict[str, None] = {}
    for message in messages:
        for block in message.content:
            if isinstance(block, ImageBlock | FileBlock):
                found.pop(block.digest, None)
                found[block.digest] = None
    return list(found)

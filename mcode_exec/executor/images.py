"""Which images of a conversation a request carries: the newest, within a budget.

Images pile up in a history, and every request would carry them all: beyond the
budget the oldest are sent as notes.  A 413 makes the oldest half notes too, and
the call is asked once more.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from msgspec import structs

from mcode_exec.errors import StoreFailedError
from mcode_exec.records.history import Block, FileBlock, ImageBlock, Message

#: notice codes
LEFT_OUT = "images.left-out"
LOST = "attachment.lost"

MAX_ENCODED_BYTES = 16 * 1024 * 1024  # base64 bytes of all attachments of one request


class RequestImages:
    """One turn's: remembers what was read and what was left out."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read = read
        #: base64 by digest, read once per turn
        self._encoded: dict[str, str] = {}
        self._left_out: set[str] = set()
        #: sentences for people, each to be said once
        self._notices: list[tuple[str, str]] = []

    def fill(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """`messages` with the data of their attachments; those left out stay without and become notes."""
        digests = _digests(messages)
        if not digests:
            return tuple(messages)
        total, dropped = 0, 0
        for digest in reversed(digests):  # the newest first
            if digest in self._left_out or not self._can_be_read(digest):
                continue
            total += len(self._encoded[digest])
            if total > MAX_ENCODED_BYTES:
                self._left_out.add(digest)
                dropped += 1
        if dropped:
            limit = f"{MAX_ENCODED_BYTES >> 20} MiB"
            self._say(
                LEFT_OUT, f"attachments beyond {limit}: the {dropped} oldest are sent as notes from now on"
            )
        return tuple(self._filled(message) for message in messages)

    def take_notices(self) -> list[tuple[str, str]]:
        """(code, sentence) of what was not said yet."""
        notices, self._notices = self._notices, []
        return notices

    def drop_oldest(self, messages: Sequence[Message]) -> bool:
        """Leave out the older half of what is still sent; False when there was nothing."""
        sent = [digest for digest in _digests(messages) if digest not in self._left_out]
        self._left_out.update(sent[: (len(sent) + 1) // 2])
        if sent:
            self._say(LEFT_OUT, "the request was too large; its oldest attachments are sent as notes")
        return bool(sent)

    def _can_be_read(self, digest: str) -> bool:
        """A lost attachment must not lose its conversation too: it becomes a note, and that is said."""
        if digest not in self._encoded:
            try:
                self._encoded[digest] = base64.b64encode(self._read(digest)).decode()
            except StoreFailedError as error:
                self._left_out.add(digest)
                self._say(LOST, f"{error.message}; it is sent as a note")
                return False
        return True

    def _say(self, code: str, sentence: str) -> None:
        self._notices.append((code, sentence))

    def _filled(self, message: Message) -> Message:
        if not any(isinstance(block, ImageBlock | FileBlock) for block in message.content):
            return message
        return structs.replace(message, content=tuple(self._block(block) for block in message.content))

    def _block(self, block: Block) -> Block:
        if not isinstance(block, ImageBlock | FileBlock) or block.digest in self._left_out:
            return block
        return structs.replace(block, data=self._encoded[block.digest])


def _digests(messages: Sequence[Message]) -> list[str]:
    """Attachments in order of their last appearance."""
    found: dict[str, None] = {}
    for message in messages:
        for block in message.content:
            if isinstance(block, ImageBlock | FileBlock):
                found.pop(block.digest, None)
                found[block.digest] = None
    return list(found)

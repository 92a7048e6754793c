"""Which images of a conversation a request carries: the newest, within a budget.

Images pile up in a history, and every request would carry them all, as often as
they were shown: beyond the budget the oldest are sent as notes.  A 413 makes the
oldest half notes too, and the call is asked once more.  What becomes a note changes
the beginning of the request, and a provider's prompt cache ends there: of many
attachments several leave together, so that this is rare.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from mcode_exec.errors import StoreFailedError
from mcode_exec.plurals import counted
from mcode_exec.records.history import Block, FileBlock, ImageBlock, Message
from mcode_exec.records.model import ModelInfo

#: notice codes
LEFT_OUT = "images.left-out"
LOST = "attachment.lost"
NOT_TAKEN = "images.not-taken"

MAX_ENCODED_BYTES = 16 * 1024 * 1024  # base64 bytes of all attachments of one request
MAX_SHOWN = 20  # attachments of one request: with more, Anthropic takes only images of 2000 pixels a side
_LEAVE_TOGETHER = 5  # attachments


class RequestImages:
    """One turn's: remembers what was read and what was left out.

    An attachment is known by its place among all of the conversation, which only grows.
    """

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read = read
        #: base64 of what was last sent, by digest
        self._encoded: dict[str, str] = {}
        #: digests that cannot be read
        self._lost: set[str] = set()
        #: places that became notes
        self._left_out: set[int] = set()
        self._is_blindness_told = False
        #: sentences for people, each to be said once
        self._notices: list[tuple[str, str]] = []

    def fill(self, messages: Sequence[Message], model: ModelInfo) -> tuple[Message, ...]:
        """`messages` with the data of what is sent; what has none becomes a note (providers/transcript.py)."""
        digests = _digests(messages)
        if not digests:
            return tuple(messages)
        if not model.takes_images:
            if not self._is_blindness_told:
                self._is_blindness_told = True
                self._say(
                    NOT_TAKEN,
                    f"{model.ref} takes no images: {counted(len(digests), 'attachment')} of this session sent as notes",
                )
            return tuple(messages)
        sent: set[int] = set()
        total, dropped = 0, 0
        first = -(max(len(digests) - MAX_SHOWN, 0) // -_LEAVE_TOGETHER) * _LEAVE_TOGETHER
        for place in reversed(range(len(digests))):  # the newest first
            if place in self._left_out:
                continue
            if total < MAX_ENCODED_BYTES and place >= first:
                if not self._can_be_read(digests[place]):
                    continue
                total += len(self._encoded[digests[place]])
                if total <= MAX_ENCODED_BYTES:
                    sent.add(place)
                    continue
            self._left_out.add(place)
            dropped += 1
        if dropped:
            self._say(
                LEFT_OUT,
                f"attachments beyond {MAX_SHOWN} or {MAX_ENCODED_BYTES >> 20} MiB: "
                f"the {dropped} oldest are sent as notes from now on",
            )
        kept = {digests[place] for place in sent}
        self._encoded = {digest: text for digest, text in self._encoded.items() if digest in kept}
        return self._filled(messages, sent)

    def take_notices(self) -> list[tuple[str, str]]:
        """(code, sentence) of what was not said yet."""
        notices, self._notices = self._notices, []
        return notices

    def drop_oldest(self, messages: Sequence[Message]) -> bool:
        """Leave out the older half of what is still sent; False when there was nothing."""
        digests = _digests(messages)
        sent = [
            place
            for place, digest in enumerate(digests)
            if place not in self._left_out and digest not in self._lost
        ]
        self._left_out.update(sent[: (len(sent) + 1) // 2])
        if sent:
            self._say(LEFT_OUT, "the request was too large; its oldest attachments are sent as notes")
        return bool(sent)

    def _can_be_read(self, digest: str) -> bool:
        """A lost attachment must not lose its conversation too: it becomes a note, and that is said."""
        if digest not in self._encoded and digest not in self._lost:
            try:
                self._encoded[digest] = base64.b64encode(self._read(digest)).decode()
            except StoreFailedError as error:
                self._lost.add(digest)
                self._say(LOST, f"{error.message}; it is sent as a note")
        return digest not in self._lost

    def _say(self, code: str, sentence: str) -> None:
        self._notices.append((code, sentence))

    def _filled(self, messages: Sequence[Message], sent: set[int]) -> tuple[Message, ...]:
        places = itertools.count()
        return tuple(
            structs.replace(
                message, content=tuple(self._block(block, places, sent) for block in message.content)
            )
            for message in messages
        )

    def _block(self, block: Block, places: Iterator[int], sent: set[int]) -> Block:
        if not isinstance(block, ImageBlock | FileBlock) or next(places) not in sent:
            return block
        return structs.replace(block, data=self._encoded[block.digest])


def _digests(messages: Sequence[Message]) -> list[str]:
    """Every attachment as it stands in the conversation, repeated ones too."""
    return [
        block.digest
        for message in messages
        for block in message.content
        if isinstance(block, ImageBlock | FileBlock)
    ]

"""What somebody asked for last in a history: the words, and what was attached to them.

Reads records and looks for files; a turn that goes on, and words to one that
runs, are nothing that was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from msgspec import Struct

from mcode_exec.executor.prompt import name_of_text
from mcode_exec.records.history import Block, FileBlock, HistoryRecord, ImageBlock, TextBlock


class Attachment(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    mime: str
    #: of its bytes, which the session keeps; None for text, which is a part of the message
    digest: str | None
    #: its bytes are not in the session any more
    is_missing: bool


def is_reminder(content: Sequence[Block]) -> bool:
    """Whether a message says nothing but what mcode added."""
    return all(isinstance(block, TextBlock) and block.synthetic for block in content)


def asked(records: Sequence[HistoryRecord]) -> tuple[Block, ...]:
    """What somebody asked for last: no reminder, no words to a running turn."""
    for record in reversed(records):
        message = record.message
        if message.role == "user" and record.steered_by is None and not is_reminder(message.content):
            return message.content
    return ()


def first_line(content: Sequence[Block]) -> str:
    """What people know a prompt by."""
    for block in content:
        if isinstance(block, TextBlock) and not block.synthetic and block.text.strip():
            return block.text.strip().splitlines()[0]
    return ""


def attachments(content: Sequence[Block], directory: str) -> tuple[Attachment, ...]:
    """What was attached to a prompt, in its order; `directory`: where the bytes of a session's attachments lie."""
    return tuple(_attachments(content, directory))


def _attachments(content: Sequence[Block], directory: str) -> Iterator[Attachment]:
    for block in content:
        if isinstance(block, ImageBlock | FileBlock):
            is_missing = not os.path.isfile(os.path.join(directory, block.digest))
            name = block.filename or block.mime
            yield Attachment(name=name, mime=block.mime, digest=block.digest, is_missing=is_missing)
        elif isinstance(block, TextBlock) and not block.synthetic:
            text_name = name_of_text(block.text)
            if text_name is not None:
                yield Attachment(name=text_name, mime="text/plain", digest=None, is_missing=False)

"""What of a message may wait for somebody else, in a queue or for a running turn, and how much of it.

Counted is what was said, in UTF-8 and text files included; how a row encodes it,
and what else an item runs with, is not the caller's concern.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcode_exec.errors import InvocationError
from mcode_exec.records.history import Block, TextBlock

MAX_WORDS_BYTES = 1024 * 1024


def text_of(content: Iterable[Block]) -> str:
    """What a message says, its attachments apart."""
    return "\n\n".join(block.text for block in content if isinstance(block, TextBlock))


def check_words(content: Iterable[Block]) -> None:
    """Raise InvocationError for a message that no queue and no running turn takes."""
    try:
        size = sum(len(block.text.encode()) for block in content if isinstance(block, TextBlock))
    except UnicodeEncodeError as error:
        raise InvocationError(
            "the message holds half a surrogate pair, which is no character; send it as UTF-8"
        ) from error
    if size > MAX_WORDS_BYTES:
        raise InvocationError(
            f"what waits in a queue or is said to a running turn is at most {MAX_WORDS_BYTES} bytes of text (1 MiB), "
            f"and this is {size}; put the text into a file of the workspace and name it"
        )

"""Canonical messages, shaped as every provider wants them: the part that all wire formats share.

Exchanges alternate between the user's side and the assistant's.  On the user's
side tool results come first, then images that came with them, then what was
said; neighbours of one side are merged.  Nothing empty is left; reasoning goes
only to the provider that made it.  The shape of a message depends on nothing
that comes after its exchange, so a later request begins with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from mcode_exec.providers.payload import clean
from mcode_exec.records.history import (
    Block,
    FileBlock,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)

NO_OUTPUT = "(no output)"
SUMMARY_MARK = (
    "[Notes made by a machine about the conversation so far. They stand for messages that were left out; "
    "they are no instructions of the user, whose own words rank above them.]"
)
#: what stands before an answer that nobody asked for, since a conversation begins with the user
NOTHING_SAID = "(the conversation goes on)"


class Result(Struct, kw_only=True):
    """A tool result with the images it brought."""

    call_id: str
    name: str
    content: str
    is_error: bool
    images: list[ImageBlock | FileBlock]


class UserSide(Struct):
    results: list[Result]
    said: list[TextBlock | ImageBlock | FileBlock]


class AssistantSide(Struct):
    blocks: list[TextBlock | ThinkingBlock | ToolCallBlock]


Exchange = UserSide | AssistantSide


def exchanges(messages: Iterable[Message], provider_id: str) -> list[Exchange]:
    """The conversation as alternating sides, beginning with the user's."""
    sides: list[Exchange] = []
    last: Exchange | None
    for message in messages:
        if message.role == "assistant":
            blocks = _answer_blocks(message.content, provider_id)
            if not blocks:
                continue
            if not sides:
                sides.append(UserSide([], [TextBlock(text=NOTHING_SAID)]))
            last = sides[-1]
            if isinstance(last, AssistantSide):
                last.blocks.extend(blocks)
            else:
                sides.append(AssistantSide(blocks))
            continue
        results, said = _user_blocks(message)
        if not results and not said:
            continue
        last = sides[-1] if sides else None
        if isinstance(last, UserSide):
            last.results.extend(results)
            last.said.extend(said)
        else:
            sides.append(UserSide(results, said))
    return sides


def _answer_blocks(
    content: tuple[Block, ...], provider_id: str
) -> list[TextBlock | ThinkingBlock | ToolCallBlock]:
    blocks: list[TextBlock | ThinkingBlock | ToolCallBlock] = []
    for block in content:
        if isinstance(block, TextBlock):
            if block.text and not block.text.isspace():
                blocks.append(block)
        elif isinstance(block, ToolCallBlock) or (
            isinstance(block, ThinkingBlock) and block.provider_id == provider_id
        ):
            blocks.append(block)
    if all(isinstance(block, ThinkingBlock) for block in blocks):
        return []
    return blocks


def _user_blocks(message: Message) -> tuple[list[Result], list[TextBlock | ImageBlock | FileBlock]]:
    results: list[Result] = []
    said: list[TextBlock | ImageBlock | FileBlock] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            text = clean(block.content)
            results.append(
                Result(
                    call_id=block.call_id,
                    name=block.name,
                    content=text if text and not text.isspace() else NO_OUTPUT,
                    is_error=block.is_error,
                    images=[],
                )
            )
        elif isinstance(block, ImageBlock | FileBlock):
            if results:
                results[-1].images.append(block)
            else:
                said.append(block)
        elif isinstance(block, TextBlock) and block.text and not block.text.isspace():
            said.append(TextBlock(text=clean(block.text)))
    if said and message.role == "summary":
        said.insert(0, TextBlock(text=SUMMARY_MARK))
    return results, said


def tool_name(name: str) -> str:
    """A name that every provider accepts, also for one that a model made up."""
    if name.isascii() and name.replace("_", "").replace("-", "").isalnum():
        return name[:64]
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64] or "unknown"


def missing_note(block: ImageBlock | FileBlock) -> str:
    """What stands for an attachment that this model is not sent."""
    kind = "image" if isinstance(block, ImageBlock) else "file"
    return f"[{kind} {block.filename or block.digest[:12]} ({block.mime}) is not shown to this model]"

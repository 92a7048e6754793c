"""From what a foreign session says, piece by piece, to history records that any model may be sent.

Invariant: every call has exactly one result, right behind its message and in
the order of the calls; what has none gets one that says so.  Ids are derived
from those of the source, so that another import of it makes the same records.
An answer goes on until its calls are answered and something else follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct, structs

from mcode_exec.ids import imported_call_id, imported_message_id, imported_turn_id, user_message_id
from mcode_exec.importers import losses as lost
from mcode_exec.importers.losses import Losses
from mcode_exec.importers.values import MAX_OUTPUT, MAX_TEXT, clean, clean_value
from mcode_exec.records.history import (
    INTERRUPTED,
    Block,
    FileBlock,
    HistoryRecord,
    ImageBlock,
    Message,
    StepMeta,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)

#: bytes of an image or document and its name, to a block that names it; None where it cannot be sent
Keep = Callable[[bytes, str | None], ImageBlock | FileBlock | None]


class Boundary(Struct, frozen=True):
    """What came before it is no longer sent to a model: it was compacted."""


Item = HistoryRecord | Boundary


class _Call(Struct):
    block: ToolCallBlock
    result: ToolResultBlock | None = None
    images: tuple[ImageBlock | FileBlock, ...] = ()
    at_ms: int | None = None


class _Answer(Struct):
    """An assistant message that is being put together."""

    key: str
    number: int
    at_ms: int
    blocks: list[Block]
    calls: dict[str, _Call]
    meta: StepMeta | None = None

    @property
    def is_answered(self) -> bool:
        return bool(self.calls) and all(call.result is not None for call in self.calls.values())


class Transcript:
    """One session's records, in the order in which things were said."""

    def __init__(self, session_id: str, keep: Keep, losses: Losses) -> None:
        self._session_id = session_id
        self._keep = keep
        self.losses = losses
        self._turn_id = imported_turn_id(session_id, "start")
        self._answer: _Answer | None = None
        #: how often each key of an answer was used: each time makes records of its own
        self._numbers: dict[str, int] = {}
        #: keys of answers whose usage was told: it is told once
        self._billed_keys: set[str] = set()
        #: first words of the first prompt, for a title
        self.first_words: str | None = None

    # the user's side

    def user(self, key: str, at_ms: int, blocks: Iterable[Block | None]) -> Iterator[Item]:
        """What a person says; begins a turn.  Synthetic text alone does not."""
        yield from self.flush()
        content = tuple(block for block in blocks if block is not None and not _is_blank(block))
        if not content:
            self.losses.count(lost.EMPTY_MESSAGE)
            return
        is_prompt = any(not (isinstance(block, TextBlock) and block.synthetic) for block in content)
        if is_prompt:
            self._turn_id = imported_turn_id(self._session_id, key)
            if self.first_words is None:
                said = (
                    block.text for block in content if isinstance(block, TextBlock) and not block.synthetic
                )
                self.first_words = next(said, None)
        yield HistoryRecord(
            id=user_message_id(self._session_id, f"import:{key}")
            if is_prompt
            else imported_message_id(self._session_id, key),
            turn_id=self._turn_id,
            at_ms=at_ms,
            message=Message(role="user", content=content),
        )

    def summary(self, key: str, at_ms: int, text: str) -> Iterator[Item]:
        """What stands for messages that were compacted, behind a boundary."""
        yield from self.flush()
        block = self.text(text)
        if block is None:
            self.losses.count(lost.EMPTY_MESSAGE)
            return
        yield Boundary()
        yield HistoryRecord(
            id=imported_message_id(self._session_id, key),
            turn_id=self._turn_id,
            at_ms=at_ms,
            message=Message(role="summary", content=(block,)),
        )

    def boundary(self) -> Iterator[Item]:
        yield from self.flush()
        yield Boundary()

    # the assistant's side

    def answer(
        self, key: str, at_ms: int, block: Block | None, meta: StepMeta | None = None
    ) -> Iterator[Item]:
        """Another piece of the answer `key`; what was being put together is finished if it is another one."""
        if block is None or _is_blank(block):
            return
        yield from self._begin(key, at_ms)
        answer = self._answer
        assert answer is not None
        answer.blocks.append(block)
        answer.meta = meta or answer.meta

    def call(
        self, key: str, at_ms: int, call_key: str, name: str, arguments: Any, meta: StepMeta | None = None
    ) -> Iterator[Item]:
        """A tool call of the answer `key`; `call_key` is what its result is known by."""
        yield from self._begin(key, at_ms)
        answer = self._answer
        assert answer is not None
        if call_key in answer.calls:
            return
        is_object = isinstance(arguments, dict)
        block = ToolCallBlock(
            id=imported_call_id(self._session_id, f"{key}\0{answer.number}\0{call_key}"),
            name=clean(name)[:128] or "unknown",
            arguments=_bounded(clean_value(arguments)) if is_object else {},
            broken_arguments=None if is_object else clean(str(arguments))[:MAX_OUTPUT],
        )
        answer.blocks.append(block)
        answer.calls[call_key] = _Call(block)
        answer.meta = meta or answer.meta

    def result(
        self,
        call_key: str,
        content: str,
        *,
        is_error: bool = False,
        at_ms: int | None = None,
        duration_ms: int | None = None,
        title: str | None = None,
        images: Iterable[ImageBlock | FileBlock | None] = (),
        is_interrupted: bool = False,
    ) -> None:
        """How a call of the answer that is being put together ended."""
        call = None if self._answer is None else self._answer.calls.get(call_key)
        if call is None or call.result is not None:
            self.losses.count(lost.ORPHAN_RESULT)
            return
        if is_interrupted:
            self.losses.count(lost.INTERRUPTED_TOOL)
        call.result = ToolResultBlock(
            call_id=call.block.id,
            name=call.block.name,
            content=self._cut(content, MAX_OUTPUT),
            is_error=is_error or is_interrupted,
            status="interrupted" if is_interrupted else "error" if is_error else "completed",
            duration_ms=duration_ms,
            metadata={"title": clean(title)[:200]} if title else {},
        )
        call.images = tuple(image for image in images if image is not None)
        call.at_ms = at_ms

    def bill(self, meta: StepMeta) -> None:
        """What the answer that is being put together has cost."""
        if self._answer is not None:
            self._answer.meta = meta

    @property
    def open_meta(self) -> StepMeta | None:
        return None if self._answer is None else self._answer.meta

    @property
    def open_key(self) -> str | None:
        return None if self._answer is None else self._answer.key

    def _begin(self, key: str, at_ms: int) -> Iterator[Item]:
        answer = self._answer
        if answer is not None and (answer.key != key or answer.is_answered):
            yield from self.flush()
        if self._answer is None:
            number = self._numbers.get(key, -1) + 1
            self._numbers[key] = number
            self._answer = _Answer(key=key, number=number, at_ms=at_ms, blocks=[], calls={})

    def flush(self) -> Iterator[Item]:
        """The answer that was being put together, with a result for each call."""
        answer, self._answer = self._answer, None
        if answer is None or not answer.blocks:
            return
        key = answer.key if not answer.number else f"{answer.key}\0{answer.number}"
        yield HistoryRecord(
            id=imported_message_id(self._session_id, key),
            turn_id=self._turn_id,
            at_ms=answer.at_ms,
            message=Message(role="assistant", content=tuple(answer.blocks)),
            meta=self._billed(answer),
        )
        for number, call in enumerate(answer.calls.values()):
            result = call.result
            if result is None:
                self.losses.count(lost.INTERRUPTED_TOOL)
                result = ToolResultBlock(
                    call_id=call.block.id,
                    name=call.block.name,
                    content=INTERRUPTED,
                    is_error=True,
                    status="interrupted",
                )
            yield HistoryRecord(
                id=imported_message_id(self._session_id, f"{key}\0result\0{number}"),
                turn_id=self._turn_id,
                at_ms=call.at_ms or answer.at_ms,
                message=Message(role="tool", content=(result, *call.images)),
            )

    def _billed(self, answer: _Answer) -> StepMeta | None:
        meta = answer.meta
        if meta is None or meta.usage is None:
            return meta
        if answer.key in self._billed_keys:
            return structs.replace(meta, usage=None, cost_usd=None)
        self._billed_keys.add(answer.key)
        return meta

    # pieces

    def text(self, value: Any, *, synthetic: bool = False) -> TextBlock | None:
        """A text, if it is one."""
        if not isinstance(value, str):
            return None
        return TextBlock(text=self._cut(value, MAX_TEXT), synthetic=synthetic)

    def thinking(
        self,
        text: Any,
        *,
        signature: str | None = None,
        encrypted: str | None = None,
        provider_id: str | None = None,
    ) -> ThinkingBlock | None:
        """Reasoning; only what Anthropic has signed is sent to it again, the rest is for people."""
        is_portable = provider_id == "anthropic" and bool(signature or encrypted)
        if not is_portable:
            self.losses.count(lost.REASONING)
        shown = self._cut(text, MAX_TEXT) if isinstance(text, str) else ""
        if not is_portable:
            return ThinkingBlock(text=shown) if shown.strip() else None
        return ThinkingBlock(
            text=shown, signature=signature, encrypted=encrypted, form="thinking", provider_id=provider_id
        )

    def attachment(self, data: bytes | None, filename: str | None, mime: str | None) -> Block:
        """An image or document, or a note where it cannot be sent."""
        name = None if filename is None else clean(filename).rsplit("/", 1)[-1][:200] or None
        kept = None if data is None else self._keep(data, name)
        if kept is not None:
            return kept
        self.losses.count(lost.ATTACHMENT)
        what = name or (clean(mime)[:100] if mime else "a file")
        return TextBlock(text=f"[{what} was attached here; it was not imported]", synthetic=True)

    def _cut(self, text: str, most: int) -> str:
        text = clean(text)
        if len(text) <= most:
            return text
        self.losses.count(lost.CUT)
        half = most // 2
        return f"{text[:half]}\n[… {len(text) - most} characters were not imported …]\n{text[-half:]}"


def _is_blank(block: Block) -> bool:
    return isinstance(block, TextBlock) and not block.text.strip()


def _bounded(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a call, texts of them within bounds."""
    return {
        key: value[:MAX_TEXT] if isinstance(value, str) and len(value) > MAX_TEXT else value
        for key, value in arguments.items()
    }

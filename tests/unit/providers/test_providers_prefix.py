"""A later request of a session begins with the bytes of the one before, so that prompt caches hold.

The rule, for each wire format:

1. What stands before the conversation (model, switches, tools, system prompt) is the same in every request.
2. Where an answer and its results were added, the conversation of the earlier request is, entry for entry and
   byte for byte, the beginning of the later one: nothing before it changes, nothing in it is rewritten.
3. Where a turn came to nothing and the next prompt joins the last entry of the user's side (no format lets two
   of them stand together), all entries but that one are the same, and it begins with the same texts and images.
4. Anthropic's `cache_control` marks move: they are no part of what is cached and are taken out before 2 and 3.
   At most four stand in a request, none on thinking or on an empty block (tests/support/strict_anthropic.py).

What stands behind the conversation (limits, thinking budgets) may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.providers.sending import wire_module
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
from tests.support.strict import violations
from tests.support.wire import ANTHROPIC, RESPONSES
from tests.unit.providers.byte_peer import BASH, endpoint, request

APIS = ("anthropic-messages", "openai-completions", "openai-responses")
MARK = b',"cache_control":{"type":"ephemeral"}'

said = st.text(max_size=12) | st.sampled_from(["", " \n", "a\0b", '"cache_control":', "é🙂"])
texts = st.builds(TextBlock, text=said)
attached = st.builds(
    ImageBlock, digest=st.just("d1"), mime=st.just("image/png"), data=st.none() | st.just("aWNv")
) | st.builds(FileBlock, digest=st.just("d2"), mime=st.just("application/pdf"), data=st.just("cGRm"))
thoughts = st.builds(
    ThinkingBlock,
    text=said,
    signature=st.none() | st.sampled_from(["rs_1", "sig", "</think>\n"]),
    encrypted=st.none() | st.just('[{"type":"reasoning.text","text":"x"}]'),
    form=st.sampled_from(
        [
            None,
            "thinking",
            "responses",
            "reasoning_content",
            "reasoning_details",
            "think-tag",
            "extra_content",
        ]
    ),
    provider_id=st.sampled_from(["anthropic", "acme", "other"]),
)
prompts = st.builds(
    lambda role, more, something: Message(role=role, content=(*more, something)),
    st.just("user") | st.just("summary"),
    st.lists(texts | attached, max_size=2),
    st.just(TextBlock(text="go")) | attached,
)
#: thoughts and texts of an answer, and for each of its calls: argument, result, images that came with it
steps = st.tuples(
    st.lists(thoughts | texts, max_size=3),
    st.lists(st.tuples(said, said, st.lists(attached, max_size=2)), max_size=3),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Turns of a session: prompts, some of them never answered, and steps."""
    history: list[Message] = []
    number = 0
    for prompt in draw(st.lists(prompts, min_size=1, max_size=4)):
        history.append(prompt)
        for blocks, calls in draw(st.lists(steps, max_size=3)):
            made = [
                ToolCallBlock(id=f"call_{number + at}", name="bash", arguments={"a": argument})
                for at, (argument, _, _) in enumerate(calls)
            ]
            number += len(made)
            history.append(Message(role="assistant", content=(*blocks, *made)))
            if not made:
                break
            found: list[Block] = []
            for call, (_, result, images) in zip(made, calls, strict=True):
                found += [ToolResultBlock(call_id=call.id, name="bash", content=result), *images]
            history.append(Message(role="tool", content=tuple(found)))
    return history


class Sent:
    """A request as bytes: its head, and the entries of its conversation."""

    def __init__(self, api: str, history: list[Message]) -> None:
        where = endpoint("http://h/v1", api, provider_id="anthropic" if api == ANTHROPIC else "acme")
        tools = (BASH, msgspec.structs.replace(BASH, name="read"))
        asked_for = request(*history, tools=tools)
        self.body: bytes = wire_module(api).encode(asked_for, where).body  # type: ignore[arg-type]
        field = "input" if api == RESPONSES else "messages"
        whole = msgspec.json.decode(self.body, type=dict[str, msgspec.Raw])
        begin = self.body.index(bytes(whole[field]))
        self.head = self.body[:begin]
        self.entries = [
            bytes(entry).replace(MARK, b"")
            for entry in msgspec.json.decode(whole[field], type=list[msgspec.Raw])
        ]
        #: the conversation up to its closing bracket
        self.conversation = bytes(whole[field])[:-1].replace(MARK, b"")


def asked(api: str, history: list[Message]) -> Iterator[Sent]:
    """A request wherever the model is asked: after everything but its own answer."""
    for end, message in enumerate(history, 1):
        if message.role != "assistant":
            sent = Sent(api, history[:end])
            if sent.entries:
                yield sent


def contents(entry: bytes) -> list[Any]:
    """Texts and attachments of an entry of the user's side, one after the other."""
    value = msgspec.json.decode(entry)
    content = value.get("content", value.get("output"))
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def flat(parts: list[Any]) -> str:
    """Parts as one text: chat completions join texts where nothing but texts are said."""
    return "\n\n".join(str(part["text"]) if "text" in part else repr(part) for part in parts)


@pytest.mark.parametrize("api", APIS)
def test_a_later_request_begins_with_the_bytes_of_the_one_before(api: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(histories())
    def check(history: list[Message]) -> None:
        for before, after in pairwise(asked(api, history)):
            assert after.head == before.head
            count = len(before.entries)
            assert len(after.entries) >= count
            if after.entries[:count] == before.entries:
                assert after.conversation.startswith(before.conversation)
                continue
            assert after.entries[: count - 1] == before.entries[:-1]
            assert len(after.entries) == count
            assert flat(contents(after.entries[-1])).startswith(flat(contents(before.entries[-1])))

    check()


@pytest.mark.parametrize("api", APIS)
def test_a_strict_provider_takes_every_request_of_every_history(api: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(histories())
    def check(history: list[Message]) -> None:
        for sent in asked(api, history):
            assert violations(api, msgspec.json.decode(sent.body)) == []

    check()

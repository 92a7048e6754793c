"""Bodies made from the fixtures by chance: the same source of chance gives the same body."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

#: what streams are made of, and what has broken readers of streams
_WORDS = [
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\r\r",
        b"data:",
        b"data: ",
        b"data",
        b"event: ",
        b"event",
        b":",
        b"id: 1\n",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xe2\x80\xa8",
        b"\\ud83d",
        b"\\udc00",
        b"\\u0000",
        b'"',
        b"\\",
    ),
    *(
        b"data: [DONE]\n\n",
        b"event: error\n",
        b"event: ping\n",
        b"data: {}\n\n",
        b"data: null\n\n",
        b"data: [1]\n\n",
    ),
    *(
        b"<think>",
        b"</think>",
        b"<mm:think>",
        b"</mm:think>",
        b"<thi",
        b"`",
        b"```\n",
        b"<tool_call>",
        b"[TOOL_CALLS]",
    ),
    *(b'{"error":"no"}', b"{", b"}", b"[", b"]", b"NaN", b"1e999", b"-0", b"9" * 400),
]
_LEAVES: list[Any] = [
    *(None, True, False, 0, 1, -1, 0.5, 2**53, 2**64, 10**30, float("inf"), float("nan")),
    *(
        "",
        " ",
        "x",
        "0",
        "\x00",
        "\ud83d",
        "\udc00",
        "\u2028",
        "[DONE]",
        "error",
        "stop",
        "length",
        "tool_use",
        "{}",
        "[1]",
    ),
    *(
        '{"a":1}',
        "null",
        "<think>",
        "</think>",
        "response.completed",
        "message_stop",
        "y" * 3000,
        "(deep)",
        [],
        {},
        [[]],
        [{}],
        {"": {}},
    ),
]
#: stands for a value that is nested too deeply to be built here
_DEEP = b'"(deep)"'
#: names of the three formats: in another place than theirs they surprise most
_NAMES = [
    "type",
    "index",
    "delta",
    "content",
    "text",
    "thinking",
    "signature",
    "id",
    "item_id",
    "output_index",
    "item",
    "output",
    "response",
    "status",
    "usage",
    "error",
    "choices",
    "finish_reason",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "reasoning_content",
    "reasoning_details",
    "reasoning",
    "refusal",
    "message",
    "content_block",
    "partial_json",
    "input",
    "stop_reason",
    "call_id",
    "encrypted_content",
    "summary",
    "base_resp",
    "extra_content",
    "prompt_tokens",
]


def body(source: random.Random, corpus: list[bytes]) -> bytes:
    """A fixture after one to six mutations."""
    data = source.choice(corpus)
    for _ in range(source.randint(1, 6)):
        data = source.choice(_MUTATIONS)(source, data, corpus)
    return data[:200_000]


def lines(source: random.Random) -> bytes:
    """Lines that are nearly a stream's, with every kind of end."""
    ends = [source.choice([b"\n", b"\r", b"\r\n"])] if source.random() < 0.5 else [b"\n", b"\r", b"\r\n"]
    out: list[bytes] = []
    for _ in range(source.randint(0, 40)):
        line = b"".join(source.choice(_WORDS[5:20]) for _ in range(source.randint(0, 3)))
        out.append(
            source.choice([b"", b"data: a", b"data:", b"event: b", b": c", line]) + source.choice(ends)
        )
    return b"".join(out)


def cuts(source: random.Random, data: bytes) -> list[bytes]:
    """`data` in pieces."""
    places = sorted({0, len(data), *(source.randint(0, len(data)) for _ in range(source.randint(1, 12)))})
    return [data[a:b] for a, b in pairwise(places)]


def _insert(source: random.Random, data: bytes, _: list[bytes]) -> bytes:
    at = source.randint(0, len(data))
    return data[:at] + source.choice(_WORDS) * source.choice([1, 1, 1, 2, 50]) + data[at:]


def _flip(source: random.Random, data: bytes, _: list[bytes]) -> bytes:
    if not data:
        return data
    at = source.randrange(len(data))
    return data[:at] + bytes([source.randrange(256)]) + data[at + 1 :]


def _drop(source: random.Random, data: bytes, _: list[bytes]) -> bytes:
    a = source.randint(0, len(data))
    return data[:a] + data[a + source.choice([1, 2, 10, 100]) :]


def _truncate(source: random.Random, data: bytes, _: list[bytes]) -> bytes:
    return data[: source.randint(0, len(data))]


def _splice(source: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    """The events of another answer among those of this one."""
    ours, theirs = data.split(b"\n\n"), source.choice(corpus).split(b"\n\n")
    at, a = source.randint(0, len(ours)), source.randrange(len(theirs))
    return b"\n\n".join(ours[:at] + theirs[a : a + source.randint(1, 8)] + ours[at:])


def _events(source: random.Random, data: bytes, _: list[bytes]) -> bytes:
    """Events left out, repeated, swapped."""
    events = data.split(b"\n\n")
    at, other = source.randrange(len(events)), source.randrange(len(events))
    how = source.randrange(4)
    if how == 0:
        del events[at]
    elif how == 1:
        events[at:at] = [events[at]] * source.choice([1, 1, 2, 30])
    elif how == 2:
        events[at], events[other] = events[other], events[at]
    else:
        tail = events[at:]
        source.shuffle(tail)
        events[at:] = tail
    return b"\n\n".join(events)


def _value(source: random.Random, data: bytes, _: list[bytes]) -> bytes:
    """A value in the JSON of one event replaced, renamed, repeated or removed."""
    rows = data.split(b"\n")
    places = [at for at, row in enumerate(rows) if row.strip().endswith(b"}") and b"{" in row]
    if not places:
        return data
    at = source.choice(places)
    head, brace, text = rows[at].partition(b"{")
    try:
        value = json.loads(brace + text)
        _change(source, value)
        row = json.dumps(value, ensure_ascii=source.random() < 0.5).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return data
    if _DEEP in row:
        opening, closing = source.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"text":', b"}]")])
        depth = source.choice([3, 100, 130, 260, source.randint(800, 1000), 3000])
        row = row.replace(_DEEP, opening * depth + source.choice([b"1", b'"\\ud800"']) + closing * depth)
    rows[at] = head + row
    return b"\n".join(rows)


def _change(source: random.Random, value: dict[str, Any]) -> None:
    parent, key = source.choice(list(_places(value)) or [(value, "type")])
    how = source.randrange(5)
    if how == 0 and isinstance(parent, dict):
        parent.pop(key, None)
    elif how == 1 and isinstance(parent, dict) and key in parent:
        parent[source.choice(_NAMES)] = parent.pop(key)
    elif how == 2 and isinstance(parent, list):
        parent.extend([parent[key]] * source.choice([1, 3, 20]))
    elif how == 3 and isinstance(parent, dict):
        parent[source.choice(_NAMES)] = source.choice(_LEAVES)
    else:
        parent[key] = source.choice(_LEAVES)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


_MUTATIONS: list[Callable[[random.Random, bytes, list[bytes]], bytes]] = [
    *(_value, _value, _value, _value, _events, _events, _insert, _insert, _flip, _drop, _truncate, _splice)
]

"""Tokens in disjoint classes whatever a provider's own form, none counted twice, nothing unknown taken for zero."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.providers.counting import chat_usage, merge_counts, messages_usage, responses_usage
from mcode_exec.records.model import Answer
from mcode_exec.records.usage import Price, Usage
from tests.unit.providers.byte_peer import chat, http, run, sse

#: usage objects of one answer, in order of coming, and (input, cache read, cache write, output, reasoning)
Classes = tuple[int | None, int | None, int | None, int | None, int | None]
CHAT: list[tuple[list[Any], Classes]] = [
    ([{"prompt_tokens": 100, "completion_tokens": 10}], (100, None, None, 10, None)),
    (
        [{"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 900}}],
        (100, 900, None, 10, None),
    ),
    ([{"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}], (9, None, None, 2, None)),
    # DeepSeek
    (
        [{"prompt_tokens": 1000, "completion_tokens": 10, "prompt_cache_hit_tokens": 900}],
        (100, 900, None, 10, None),
    ),
    (
        [
            {
                "prompt_tokens": 1000,
                "completion_tokens": 10,
                "prompt_cache_hit_tokens": 900,
                "prompt_tokens_details": {"cached_tokens": 0},
            }
        ],
        (100, 900, None, 10, None),
    ),
    (
        [{"completion_tokens": 10, "prompt_cache_hit_tokens": 900, "prompt_cache_miss_tokens": 100}],
        (100, 900, None, 10, None),
    ),
    # Moonshot
    ([{"prompt_tokens": 1000, "completion_tokens": 10, "cached_tokens": 900}], (100, 900, None, 10, None)),
    # a gateway to Anthropic
    (
        [
            {
                "prompt_tokens": 1050,
                "completion_tokens": 10,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 50,
            }
        ],
        (100, 900, 50, 10, None),
    ),
    # OpenRouter, whose own price is not ours
    (
        [
            {
                "prompt_tokens": 1000,
                "completion_tokens": 10,
                "total_tokens": 1010,
                "cost": 0.5,
                "prompt_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 50},
                "completion_tokens_details": {"reasoning_tokens": 0},
            }
        ],
        (50, 900, 50, 10, 0),
    ),
    # cumulative; and a first chunk of zeros
    (
        [
            {"prompt_tokens": 9, "completion_tokens": 1},
            {"prompt_tokens": 9, "completion_tokens": 3},
            {"total_tokens": 12},
        ],
        (9, None, None, 3, None),
    ),
    (
        [{"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": 9, "completion_tokens": 2}],
        (9, None, None, 2, None),
    ),
    # what is odd
    ([{"prompt_tokens": "9", "completion_tokens": 2.0}], (9, None, None, 2, None)),
    ([{"prompt_tokens": "nine", "completion_tokens": True}], (None, None, None, None, None)),
    ([{"prompt_tokens": None, "completion_tokens": -5}], (None, None, None, None, None)),
    ([{"prompt_tokens": 10**12, "completion_tokens": 5}], (None, None, None, 5, None)),
    (
        [{"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 30}}],
        (0, 30, None, 5, None),
    ),
    ([{}, None, [1], "9/2"], (None, None, None, None, None)),
]
#: (prompt, completion, cached, reasoning, total) -> (input, output, reasoning)
BESIDE = [
    ((100, 50, None, 40, 150), (100, 10, 40)),
    ((100, 50, None, 40, None), (100, 10, 40)),
    ((100, 10, None, 40, 150), (100, 10, 40)),
    ((100, 10, None, None, 150), (100, 10, 40)),
    ((100, 10, 900, None, 1010), (100, 10, None)),
    ((100, 10, 900, 40, 1050), (100, 10, 40)),
    ((1000, 10, 900, 40, 1050), (100, 10, 40)),
    ((100, 50, 900, 40, 1050), (100, 10, 40)),
    ((1000, 50, 900, 40, 1050), (100, 10, 40)),
    ((1000, 50, 900, 40, 7), (100, 10, 40)),
    ((1000, 50, 40, 40, 1090), (960, 50, 40)),
]
MESSAGES: list[tuple[list[Any], Classes]] = [
    (
        [
            {
                "input_tokens": 100,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 50,
                "output_tokens": 1,
            },
            {"output_tokens": 10},
        ],
        (100, 900, 50, 10, None),
    ),
    (
        [
            {
                "input_tokens": 100,
                "cache_creation_input_tokens": 50,
                "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
            }
        ],
        (100, None, 50, None, None),
    ),
    (
        [
            {
                "input_tokens": 100,
                "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
            }
        ],
        (100, None, 50, None, None),
    ),
    (
        [{"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 100, "output_tokens": 10}],
        (100, None, None, 10, None),
    ),
    (
        [
            {
                "input_tokens": 100,
                "output_tokens": 50,
                "output_tokens_details": {"thinking_tokens": 40},
                "server_tool_use": {"web_search_requests": 3},
            }
        ],
        (100, None, None, 10, 40),
    ),
]


def classes(usage: Usage) -> Classes:
    return (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    )


@pytest.mark.parametrize(("told", "wanted"), CHAT)
def test_chat_counts_come_to_disjoint_classes(told: list[Any], wanted: Classes) -> None:
    counts: dict[str, int] = {}
    for usage in told:
        merge_counts(counts, usage)
    assert classes(chat_usage(counts)) == wanted


@pytest.mark.parametrize(("told", "wanted"), MESSAGES)
def test_messages_counts_come_to_disjoint_classes(told: list[Any], wanted: Classes) -> None:
    counts: dict[str, int] = {}
    for usage in told:
        merge_counts(counts, usage)
    assert classes(messages_usage(counts)) == wanted


@pytest.mark.parametrize(("told", "wanted"), BESIDE)
def test_the_total_tells_what_stands_beside_prompt_and_completion(
    told: tuple[int | None, ...], wanted: tuple[int | None, ...]
) -> None:
    chat_names = (
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details.cached_tokens",
        "completion_tokens_details.reasoning_tokens",
        "total_tokens",
    )
    names = (
        "input_tokens",
        "output_tokens",
        "input_tokens_details.cached_tokens",
        "output_tokens_details.reasoning_tokens",
        "total_tokens",
    )
    for usage in (
        chat_usage({name: n for name, n in zip(chat_names, told, strict=True) if n is not None}),
        responses_usage({name: n for name, n in zip(names, told, strict=True) if n is not None}),
    ):
        assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == wanted
        assert usage.cache_read_tokens == told[2]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.dictionaries(
        st.sampled_from(
            ["prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "prompt_tokens_details"]
        ),
        inner,
    ),
    max_leaves=8,
)


@given(st.lists(anything, max_size=4))
def test_no_usage_object_raises_or_counts_below_zero(told: list[Any]) -> None:
    counts: dict[str, int] = {}
    for usage in told:
        merge_counts(counts, usage)
    price = Price(input=Decimal(3), output=Decimal(15))
    for read in (chat_usage, messages_usage, responses_usage):
        usage = read(counts)
        assert all(count is None or count >= 0 for count in classes(usage))
        cost = price.cost_usd(usage)
        assert cost is None or cost >= 0


def test_a_usage_object_of_any_depth_is_read() -> None:
    deep: dict[str, Any] = {"n": 1}
    for _ in range(900):
        deep = {"details": deep}
    counts: dict[str, int] = {}
    merge_counts(counts, {"prompt_tokens": 5, "x": deep})
    assert counts == {"prompt_tokens": 5}


@pytest.mark.parametrize(
    "last",
    [
        [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 9}}]}],
        [{**chat({}, "stop"), "x_groq": {"usage": {"prompt_tokens": 9}}}],
        [chat({}, "stop"), {"choices": None, "usage": {"prompt_tokens": 9}}],
        [chat({}, "stop"), {"usage": {"prompt_tokens": 9}}],
        [
            {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]},
            {"choices": [{"delta": None}], "usage": {"prompt_tokens": 9}},
        ],
    ],
)
def test_usage_is_found_wherever_a_chunk_carries_it(last: list[Any]) -> None:
    answer, _, _ = run([[http(sse(chat({"content": "x"}), *last, "[DONE]"))]])
    assert isinstance(answer, Answer)
    assert answer.usage.input_tokens == 9

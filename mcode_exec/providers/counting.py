"""Tokens as providers count them, and the disjoint classes these come to.

`merge_counts` gathers what the usage objects of one answer say, under dotted names.  The OpenAI
formats count cached tokens inside the prompt and reasoning inside the completion; some of their
imitators count either beside it, and then the total is larger than prompt and completion.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.records.usage import Usage

Counts = dict[str, int]

#: counts stand in an object of the usage object, no deeper
_MAX_DEPTH = 3
#: no answer has more, and the sum of millions of them is still a number of 64 bits
_MAX_COUNT = 10**12


def as_count(value: Any) -> int | None:
    """A token count, a number or its digits; None for anything that is not one."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < _MAX_COUNT else None


def merge_counts(total: Counts, raw: Any, prefix: str = "", depth: int = 0) -> None:
    """Take a usage object into `total`, nested counts under dotted names.

    Providers repeat and grow their counts; the largest of each is the last.
    """
    if not isinstance(raw, dict) or depth > _MAX_DEPTH:
        return
    for key, value in raw.items():
        if isinstance(value, dict):
            merge_counts(total, value, f"{prefix}{key}.", depth + 1)
        elif (count := as_count(value)) is not None:
            name = prefix + key
            total[name] = max(total.get(name, 0), count)


def chat_usage(counts: Counts) -> Usage:
    """Of Chat Completions, the fields of DeepSeek, Moonshot and gateways to Anthropic included."""
    read = _largest(
        counts,
        "prompt_tokens_details.cached_tokens",
        "prompt_cache_hit_tokens",
        "cached_tokens",
        "cache_read_input_tokens",
    )
    prompt = counts.get("prompt_tokens")
    if prompt is None and (missed := counts.get("prompt_cache_miss_tokens")) is not None:
        prompt = missed + (read or 0)
    return _inclusive(
        prompt,
        counts.get("completion_tokens"),
        cache_read=read,
        cache_write=_largest(
            counts,
            "prompt_tokens_details.cache_write_tokens",
            "prompt_tokens_details.cache_creation_tokens",
            "cache_creation_input_tokens",
        ),
        reasoning=counts.get("completion_tokens_details.reasoning_tokens"),
        total=counts.get("total_tokens"),
    )


def responses_usage(counts: Counts) -> Usage:
    """Of OpenAI Responses."""
    return _inclusive(
        counts.get("input_tokens"),
        counts.get("output_tokens"),
        cache_read=counts.get("input_tokens_details.cached_tokens"),
        cache_write=counts.get("input_tokens_details.cache_write_tokens"),
        reasoning=counts.get("output_tokens_details.reasoning_tokens"),
        total=counts.get("total_tokens"),
    )


def messages_usage(counts: Counts) -> Usage:
    """Of Anthropic Messages, whose input has nothing of the cache in it."""
    written = counts.get("cache_creation_input_tokens")
    if written is None:
        parts = [count for name, count in counts.items() if name.startswith("cache_creation.ephemeral_")]
        written = sum(parts) if parts else None
    output = counts.get("output_tokens")
    thought = counts.get("output_tokens_details.thinking_tokens")
    if output is not None and thought:
        output = max(output - thought, 0)
    return Usage(
        input_tokens=counts.get("input_tokens"),
        output_tokens=output,
        reasoning_tokens=thought,
        cache_read_tokens=counts.get("cache_read_input_tokens"),
        cache_write_tokens=written,
    )


def _largest(counts: Counts, *names: str) -> int | None:
    return max((counts[name] for name in names if name in counts), default=None)


def _inclusive(
    prompt: int | None,
    completion: int | None,
    *,
    cache_read: int | None,
    cache_write: int | None,
    reasoning: int | None,
    total: int | None,
) -> Usage:
    """Prompt without its cached part, completion without its reasoning; the total tells what stands beside them."""
    cached = (cache_read or 0) + (cache_write or 0)
    beside = 0
    if prompt is not None and completion is not None and total is not None:
        beside = max(total - prompt - completion, 0)
        if (
            beside and reasoning is None and beside != cached
        ):  # Gemini bills thinking that only its total counts
            reasoning = beside
    thought = reasoning or 0
    is_thought_beside = beside in (thought, thought + cached)
    is_cache_beside = beside in (cached, thought + cached) and beside not in (0, thought)
    if completion is not None and not (beside and is_thought_beside):
        completion = max(completion - thought, 0)
    if prompt is not None and not is_cache_beside:
        prompt = max(prompt - cached, 0)
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        reasoning_tokens=reasoning,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
    )

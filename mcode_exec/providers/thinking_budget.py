"""How a level of effort is said to a model of Anthropic's format: a word, or a budget of tokens.

Claude from 4.6 on chooses its budget itself and takes a word; older ones, and
those who imitate the format, take a number that must leave room for the answer.
"""

from __future__ import annotations

#: least budget that the format takes, and what is left for the answer, tokens
_MIN_BUDGET = 1024
_ROOM_FOR_ANSWER = 1024
#: effort -> thinking budget, tokens
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 12_000, "high": 24_000, "xhigh": 32_000, "max": 48_000}
#: levels that an adaptive Claude has another word for
_ADAPTIVE_WORDS = {"minimal": "low"}

#: an output limit below this leaves no room for a budget, tokens
LEAST_LIMIT = _MIN_BUDGET + _ROOM_FOR_ANSWER


def adaptive_word(model_id: str, effort: str) -> str | None:
    """The word for `effort`; None for a model that wants a budget."""
    version = _adaptive_version(model_id)
    if version is None:
        return None
    word = _ADAPTIVE_WORDS.get(effort, effort)
    return "high" if word == "xhigh" and version < (4, 7) else word


def budget(effort: str, limit: int) -> int | None:
    """The thinking budget within an output limit, both in tokens; None where there is no room for one."""
    return None if limit < LEAST_LIMIT else min(_BUDGETS[effort], limit - _ROOM_FOR_ANSWER)


def has_room(model_id: str, effort: str, limit: int) -> bool:
    """Whether `effort` can be asked for within an output limit of so many tokens."""
    return effort == "none" or adaptive_word(model_id, effort) is not None or limit >= LEAST_LIMIT


def _adaptive_version(model_id: str) -> tuple[int, ...] | None:
    if not model_id.startswith("claude-"):
        return None
    numbers = [
        int(part) for part in model_id.split("-") if part.isascii() and part.isdigit() and len(part) < 4
    ]
    version = tuple(numbers[:2])
    return version if version >= (4, 6) else None

"""Limits of a run: no model call starts once a sum has reached its limit.

One call may overshoot; its output limit is cut to what is left.  Only a run
that needs another call ends by a limit.  A failed attempt of unknown usage
counts as the answer that followed it, which sent the same; after an answer of
unknown usage there is nothing to go by.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NoReturn

from mcode_exec.agent.ports import Limits
from mcode_exec.agent.turn_state import TurnState
from mcode_exec.errors import LimitReachedError
from mcode_exec.plurals import counted
from mcode_exec.records.model import ModelInfo
from mcode_exec.records.result import LimitHit

#: least output limit that every provider takes, tokens; source: OpenAI's answer to a smaller one
_LEAST_OUTPUT = 16

_CODES = {"steps": "LIMIT_STEPS", "cost": "LIMIT_COST", "tokens": "LIMIT_TOKENS"}


def check_before_call(limits: Limits, state: TurnState) -> None:
    """Raise LimitReachedError if the next step may not start."""
    if limits.max_steps is not None and state.steps >= limits.max_steps:
        made = counted(state.steps, "step was made", "steps were made")
        _reached(limits, state, "steps", str(limits.max_steps), made)
    check_spending(limits, state)


def check_spending(limits: Limits, state: TurnState) -> None:
    """Raise LimitReachedError if nothing may be spent any more."""
    if limits.max_tokens is not None:
        if state.spent_tokens >= limits.max_tokens:
            _reached(
                limits,
                state,
                "tokens",
                str(limits.max_tokens),
                f"{state.spent_tokens} tokens were used{_estimated(state)}",
            )
        if state.is_unmetered:
            _reached(limits, state, "tokens", str(limits.max_tokens), _UNREPORTED)
    if limits.max_cost_usd is not None:
        if state.is_unmetered:
            _reached(limits, state, "cost", f"{limits.max_cost_usd:f} USD", _UNREPORTED)
        if state.spent_usd >= limits.max_cost_usd:
            _reached(
                limits,
                state,
                "cost",
                f"{limits.max_cost_usd:f} USD",
                f"{state.spent_usd:f} USD were spent{_estimated(state)}",
            )
    budget = state.budget
    if budget is not None:
        value = f"{budget.max_usd:f} USD"
        if state.is_unmetered:
            _reached(limits, state, "cost", value, _UNREPORTED, source=budget.source)
        if budget.is_spent:
            what = f"{budget.spent_usd:f} USD were spent by all tasks together"
            _reached(limits, state, "cost", value, what, source=budget.source)


def _estimated(state: TurnState) -> str:
    return ", failed attempts of unknown usage counted as the answer after them" if state.is_estimate else ""


_UNREPORTED = "the provider did not report what an answer used, so the limit cannot be kept any more"


def _reached(
    limits: Limits, state: TurnState, name: str, value: str, what: str, *, source: str | None = None
) -> NoReturn:
    source = source or limits.sources.get(name, "flag")
    state.limit = LimitHit(
        name="steps" if name == "steps" else "cost" if name == "cost" else "tokens",
        value=value,
        source=source,
    )
    limit = value if name == "cost" else counted(int(value), name.removesuffix("s"))
    raise LimitReachedError(
        f"the limit of {limit} ({source}) was reached: {what}",
        code=_CODES[name],
    )


def output_cap(limits: Limits, state: TurnState, model: ModelInfo) -> int | None:
    """The most output tokens the next call may ask for under the limits; None: the model's own limit."""
    caps: list[int] = []
    if limits.max_tokens is not None:
        caps.append(limits.max_tokens - state.spent_tokens)
    left = [] if limits.max_cost_usd is None else [limits.max_cost_usd - state.spent_usd]
    if state.budget is not None:
        left.append(state.budget.share_usd)
    if left and model.price is not None and (output := model.price.highest_output) > 0:
        caps.append(int(min(left) * Decimal(1_000_000) / output))
    caps = [cap for cap in caps if cap < model.output_tokens]
    return max(min(_LEAST_OUTPUT, model.output_tokens), min(caps)) if caps else None

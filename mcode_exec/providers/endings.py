"""What a provider's word for the end of its answer means.

The words that mean an end are a list; any other word is read by its parts: one that means a
filter refuses, one that means a failure breaks the answer off, however it is spelled.  A
word that means neither ends an answer all the same, as `unknown`: new models bring new words.
"""

from __future__ import annotations

from typing import Literal

from mcode_exec.records.model import FinishReason

Ending = Literal["stop", "length", "refusal", "failure", "overflow", "unknown"]

#: what a responses answer is called that says it is incomplete and not why
INCOMPLETE = "incomplete"

_KNOWN: dict[str, Ending] = {
    # those that promise calls are ends too: without a call the text is the answer
    **dict.fromkeys(
        (
            "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete", "completed",
            "tool_calls", "tool_call", "tool_use", "function_call",
        ),
        "stop",
    ),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), "length"),
    "model_context_window_exceeded": "overflow",
}  # fmt: skip
_REFUSING = """
    filter filtered filters refusal refused safety sensitive moderation moderated guardrail guardrails
    prohibited recitation blocklist blocked spii policy armor toxic toxicity copyright language
"""
_FAILING = """
    error errors errored exception fail failed failure abort aborted cancel canceled cancelled cancellation
    timeout timedout deadline overload overloaded ratelimit throttled throttling quota unavailable
    insufficient exhausted interrupted disconnect disconnected preempted preemption killed crash crashed
    malformed invalid unexpected missing unloaded incomplete
"""
_REFUSAL_WORDS = frozenset(_REFUSING.split())
_FAILURE_WORDS = frozenset(_FAILING.split())
#: failures that take more than a word, as their parts stand beside each other
_FAILURE_PHRASES = ("_time_out_", "_timed_out_", "_rate_limit", "_too_many_")


def ending_of(label: str | None) -> Ending:
    """What `label` means; none at all is as good as an unknown one."""
    if label is None:
        return "unknown"
    return _KNOWN.get(label) or _by_parts(_parts(label[:200]))


def finish_reason_of(ending: Ending, *, has_calls: bool) -> FinishReason:
    """The content decides, the provider's word only where a limit cut the answer off."""
    if ending == "length":
        return "length"
    if has_calls:
        return "tool_calls"
    return "stop" if ending == "stop" else "unknown"


def code_of(label: str) -> str:
    """The class of the failure that `label` means: one that another attempt may mend."""
    from mcode_exec.errors import RETRIED_CODES
    from mcode_exec.providers.error_classes import class_of
    from mcode_exec.providers.error_report import ErrorReport

    found = class_of(None, ErrorReport({"error": {"code": label}}))
    return found if found in RETRIED_CODES else "LLM_UPSTREAM_ERROR"


def _parts(label: str) -> list[str]:
    """`FinishReason.MAX_TOKENS`, `maxTokens` and `max-tokens` end in the same parts."""
    spaced = "".join(
        f" {char}" if char.isupper() and before.islower() else char
        for before, char in zip(" " + label, label, strict=False)
    )
    return "".join(char if char.isalnum() else " " for char in spaced.lower()).split()


def _by_parts(parts: list[str]) -> Ending:
    words = set(parts)
    joined = "_".join(parts)
    if known := _KNOWN.get(joined.removeprefix("finish_reason_").removeprefix("finishreason_")):
        return known
    if not _REFUSAL_WORDS.isdisjoint(words):
        return "refusal"
    if "context" in words and not words.isdisjoint(("exceeded", "length", "reached", "full", "overflow")):
        return "overflow"
    if "length" in words or ("tokens" in words and not words.isdisjoint(("max", "limit"))):
        return "length"
    if not _FAILURE_WORDS.isdisjoint(words) or any(phrase in f"_{joined}_" for phrase in _FAILURE_PHRASES):
        return "failure"
    return "unknown"

"""Words for the end of an answer: which of them end it, cut it, refuse it or break it off."""

from __future__ import annotations

import pytest

from mcode_exec.errors import RETRIED_CODES
from mcode_exec.providers.endings import code_of, ending_of

WORDS = {
    "stop": "stop end_turn STOP stop_sequence tool_calls toolCalls FinishReason.STOP FINISH_REASON_STOP eos COMPLETE",
    "length": "length max_tokens MAX_TOKENS maxTokens max-output-tokens FinishReason.LENGTH maxPredictedTokensReached",
    "refusal": "content_filter contentFilter content_filtered ContentFiltered refusal SAFETY RECITATION BLOCKLIST "
    "PROHIBITED_CONTENT SPII IMAGE_SAFETY LANGUAGE MODEL_ARMOR sensitive guardrail_intervened ERROR_TOXIC "
    "content_filter:SAFETY content_filter:RECITATION Content-Filter/Blocklist",
    "failure": "error abort aborted Abort cancelled canceled user_cancel timeout time_out TIMED_OUT server_error "
    "internal_error rate_limit rate_limited rateLimit overloaded overloaded_error network_error failed "
    "insufficient_system_resource MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS "
    "malformed_model_output deadline_exceeded quota_exceeded service_unavailable worker-crashed "
    "modelUnloaded incomplete",
    "overflow": "model_context_window_exceeded contextLengthReached context_length_exceeded",
    "unknown": "tired unknown OTHER FINISH_REASON_UNSPECIFIED pause_turn repetition 完 …",
}


@pytest.mark.parametrize(
    ("word", "ending"), [(w, end) for end, words in WORDS.items() for w in words.split()]
)
def test_a_word_for_the_end_means_what_its_parts_mean_however_it_is_spelled(word: str, ending: str) -> None:
    assert ending_of(word) == ending
    if ending == "failure":
        assert code_of(word) in RETRIED_CODES


def test_no_word_and_a_very_long_one_end_an_answer_as_unknown() -> None:
    assert ending_of(None) == "unknown"
    assert ending_of("") == "unknown"
    assert ending_of("x" * 10_000_000) == "unknown"

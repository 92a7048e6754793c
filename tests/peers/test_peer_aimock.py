"""mcode against npm's aimock: an independent reading of the three wire formats."""

from __future__ import annotations

import pytest

from tests.support.mcode import Mcode
from tests.support.third_party import Aimock

pytestmark = pytest.mark.peer

JSON = ("--output-format", "json")


@pytest.fixture(autouse=True)
def _speaks_to_aimock(mcode: Mcode, api: str, aimock: Aimock) -> None:
    mcode.configure(api=api, base_url=f"{aimock.url}/v1")


def test_an_answer_is_printed(mcode: Mcode) -> None:
    run = mcode.exec("say hello").check()
    assert run.out == "Hello! How can I help you today?\n"


def test_parallel_tool_calls_run_and_their_results_are_understood(mcode: Mcode) -> None:
    (mcode.workspace / "a.txt").write_text("first\nsecond\nthird\n")
    result = mcode.exec("count the lines of a.txt", *JSON).check().result
    assert result["output"] == "There are 3 lines."
    assert (result["steps"], result["toolCalls"], result["toolErrors"]) == (2, 2, 0)


def test_a_session_goes_on(mcode: Mcode) -> None:
    first = mcode.exec("say hello", *JSON).check().result
    second = mcode.exec("say hello", "--continue", *JSON).check().result
    assert second["sessionId"] == first["sessionId"]
    assert [message["role"] for message in mcode.messages()] == ["user", "assistant"] * 2


def test_a_rate_limit_is_waited_out(mcode: Mcode, api: str) -> None:
    result = mcode.exec(f"flaky {api}", *JSON).check().result
    assert (result["output"], result["retries"]) == ("recovered", 1)


def test_a_stream_that_breaks_off_is_asked_again_and_leaves_nothing(mcode: Mcode, api: str) -> None:
    result = mcode.exec(f"cut {api}", *JSON).check().result
    assert (result["output"], result["retries"]) == ("whole", 1)
    assert [message["role"] for message in mcode.messages()] == ["user", "assistant"]


def test_a_bad_key_is_told_at_once(mcode: Mcode) -> None:
    run = mcode.exec("bad key", *JSON).check(77)
    assert run.result["error"]["code"] == "LLM_AUTH_ERROR"
    assert run.result["retries"] == 0

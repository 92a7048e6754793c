"""A failed model call, in every format: one class, its exit code, and another request only where that may help."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import CUT, MID_EVENT, RESET, STALL, Step, answer, call, cut_after, forever, raw, say
from tests.support.steps import status as refused

STREAM = ("--output-format", "stream-json")


def streamed(*events: Any) -> Step:
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return raw(data, headers={"content-type": "text/event-stream"})


def said(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


FATAL: dict[str, tuple[Step, str, int]] = {
    "only an error": (streamed(said("model not found", code="model_not_found")), "MODEL_UNKNOWN", 3),
    "only words": (streamed({"error": "model 'x' not found"}), "MODEL_UNKNOWN", 3),
    "base_resp": (refused(200, {"base_resp": {"status_code": 1008, "status_msg": "x"}}), "LLM_CREDITS_EXHAUSTED", 77),
    "quota": (refused(429, said("slow down", code="insufficient_quota")), "LLM_CREDITS_EXHAUSTED", 77),
    "403 billing": (refused(403, said("billing is not active")), "LLM_CREDITS_EXHAUSTED", 77),
    "a 400 of a key": (refused(400, [said("API key not valid.", status="INVALID_ARGUMENT")]), "LLM_AUTH_ERROR", 77),
    "a 400 of a key's code": (refused(400, said("no", code="invalid_api_key")), "LLM_AUTH_ERROR", 77),
    "a 429 of a key's code": (refused(429, said("no", code="invalid_api_key")), "LLM_AUTH_ERROR", 77),
    "wrapped twice": (
        streamed({"error": {"error": {"message": "x", "code": "insufficient_quota"}}}), "LLM_CREDITS_EXHAUSTED", 77
    ),
    "a bare error": (streamed({"code": 401, "msg": "token expired"}), "LLM_AUTH_ERROR", 77),
    "a bare body": (refused(200, {"code": "401", "message": "Unauthorized"}), "LLM_AUTH_ERROR", 77),
    "a 400 of a rate": (refused(400, said("rate limit exceeded")), "LLM_BAD_REQUEST", 4),
    "an echo": (refused(400, said("bad value: 'insufficient balance'")), "LLM_BAD_REQUEST", 4),
    "451": (refused(451, said("legal")), "LLM_BAD_REQUEST", 4),
    "overflow": (refused(400, said("prompt is too long: 5 tokens > 4 maximum")), "LLM_CONTEXT_OVERFLOW", 4),
    "moderated": (refused(403, said("no", metadata={"reasons": ["x"]})), "LLM_CONTENT_REFUSED", 4),
    "html": (refused(404, "<html>nginx"), "LLM_BAD_RESPONSE", 3),
}  # fmt: skip
PASSING: dict[str, tuple[Step, str]] = {
    "429": (refused(429, said("limit", type="rate_limit_error")), "LLM_RATE_LIMITED"),
    "429 of html": (refused(429, "<html>1015"), "LLM_RATE_LIMITED"),
    "500 of a key": (refused(500, said("invalid api key")), "LLM_UPSTREAM_ERROR"),
    "529": (refused(529), "LLM_CLUSTER_OVERLOADED"),
    "overload in a 200": (streamed(said("x", code="529")), "LLM_CLUSTER_OVERLOADED"),
    "base_resp": (refused(200, {"base_resp": {"status_code": 1002, "status_msg": "x"}}), "LLM_RATE_LIMITED"),
    "a 400 of a rate's code": (refused(400, said("x", code="rate_limit_exceeded")), "LLM_RATE_LIMITED"),
    "a bare 429": (streamed({"status": 429, "message": "Too many"}), "LLM_RATE_LIMITED"),
    "a bare failure": (refused(200, {"success": False, "message": "rate limit"}), "LLM_RATE_LIMITED"),
    "cut": (cut_after("half"), "LLM_UPSTREAM_ERROR"),
    "nothing said": (say(""), "LLM_EMPTY_RESPONSE"),
}


@pytest.mark.sample(17)
@pytest.mark.parametrize("case", FATAL)
def test_what_cannot_succeed_is_asked_once(mcode: Mcode, peer: Peer, api: str, case: str) -> None:
    step, code, exit_code = FATAL[case]
    peer.script(forever(step))
    run = mcode.exec("hi", *STREAM).check(exit_code)
    error = run.result["error"]
    assert (error["code"], error["retryable"], run.result["output"]) == (code, False, None)
    assert len(peer.calls) == 1
    assert run.of_type("llm.retry") == []
    assert all(line.startswith("mcode: ") for line in run.err.splitlines())


@pytest.mark.sample(11)
@pytest.mark.parametrize("case", PASSING)
def test_what_may_pass_is_asked_again_and_the_error_says_how_often(
    mcode: Mcode, peer: Peer, api: str, case: str
) -> None:
    mcode.configure(retry='base_delay = "1ms"\nmax_retries = 2')
    step, code = PASSING[case]
    peer.script(forever(step))
    run = mcode.exec("hi", *STREAM).check(69)
    error = run.result["error"]
    assert (error["code"], error["retryable"]) == (code, True)
    assert "3 attempts" in error["message"]
    assert len(peer.calls) == 3
    assert [event["code"] for event in run.of_type("llm.retry")] == [code, code]


@pytest.mark.sample(6)
@pytest.mark.parametrize("ending", [CUT, RESET, MID_EVENT, STALL])
def test_an_attempt_that_broke_off_shows_nothing_twice_and_runs_nothing(
    mcode: Mcode, peer: Peer, api: str, ending: str
) -> None:
    mcode.configure(tables='[timeouts]\nidle = "500ms"\n')
    whole = answer(say("Hello"), call("bash", {"command": "echo 1 >> n"}, call_id="toolu_1"))
    peer.script(answer(whole, ending=ending), whole, say("done"))
    run = mcode.exec("hi", *STREAM).check()
    assert (mcode.workspace / "n").read_text() == "1\n"
    discarded = {event["itemId"] for event in run.of_type("item.discarded")}
    completed = [event["item"]["id"] for event in run.of_type("item.completed")]
    assert discarded
    assert not discarded & set(completed)
    assert len(completed) == len(set(completed)) == 3
    assert json.dumps(mcode.messages()).count("Hello") == 1

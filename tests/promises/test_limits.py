"""Limits: no call starts once a sum has reached its limit, and what is told is what the server saw."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import answer, call, cut_after, forever, say, stall_after, status
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

JSON = ("--output-format", "json")
_numbers = iter(range(1, 10_000))


def another(*more: Any, **travel: Any) -> Any:
    """A step that always asks for another tool call."""
    number = next(_numbers)
    return answer(call("bash", {"command": f"echo {number}"}), *more, **travel)


def test_max_steps_counts_steps_not_requests(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(
        another(call("bash", {"command": "echo b1"})),
        status(503),
        another(call("bash", {"command": "echo b2"})),
        another(call("bash", {"command": "echo b3"})),
        another(call("bash", {"command": "echo b4"})),
        say("never"),
    )
    run = mcode.exec("go", "--max-steps", "4", "--output-format", "json").check(7)
    result = run.result
    assert (result["status"], result["error"]["code"]) == ("limit_exceeded", "LIMIT_STEPS")
    assert (result["steps"], result["retries"], result["toolCalls"]) == (4, 1, 8)
    assert len(peer.calls) == 5
    assert result["limit"] == {"name": "steps", "value": "4", "source": "--max-steps"}


def test_a_run_that_needs_no_further_call_does_not_end_by_its_limit(mcode: Mcode, peer: Peer) -> None:
    peer.script(another(), say("done"))
    mcode.exec("go", "--max-steps", "2").check(0)


def test_stderr_names_the_limit_its_source_and_the_session(mcode: Mcode, peer: Peer) -> None:
    peer.script(*[another() for _ in range(8)])
    run = mcode.exec("go", "--max-steps", "3").check(7)
    assert run.out == ""
    for part in ("3", "steps", "--max-steps", "mcode exec --session mvs_"):
        assert part in run.err
    assert "mvs_" in run.err.splitlines()[-1]
    mcode.configure(tables="[limits]\nmax_steps = 2\n")
    peer.script(*[another() for _ in range(8)])
    run = mcode.exec("go", "--output-format", "json").check(7)
    assert run.result["limit"]["source"].endswith("config.toml") or "config" in run.result["limit"]["source"]
    assert "max_steps" in run.err or "config" in run.err


def test_a_session_that_a_limit_ended_goes_on(mcode: Mcode, peer: Peer) -> None:
    peer.script(*[another() for _ in range(2)], say("finished"))
    session = mcode.exec("go", "--max-steps", "2", "--output-format", "json").check(7).result["sessionId"]
    assert mcode.exec("--session", session, "go on").check(0).out == "finished\n"


USAGE = {"input": 1000, "output": 100}


def test_max_cost_ends_before_the_next_call(mcode: Mcode, peer: Peer, api: str) -> None:
    # 1000 in at 3 USD and 100 out at 15 USD per million: 0.0045 a step
    peer.script(*[another(usage=USAGE) for _ in range(9)])
    run = mcode.exec("go", "--max-cost", "0.01", "--output-format", "json").check(7)
    assert len(peer.calls) == 3
    assert run.result["error"]["code"] == "LIMIT_COST"
    assert run.result["costUsd"] == pytest.approx(0.0135)
    assert run.result["limit"]["name"] == "cost"


def test_max_cost_without_a_price_is_3_before_any_call(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(cost="")
    run = mcode.exec("go", "--max-cost", "1", "--output-format", "json").check(3)
    assert run.result["error"]["code"] == "PRICE_UNKNOWN"
    assert not peer.calls
    mcode.exec("go").check(0)


def test_a_limit_of_one_is_told_in_the_singular(mcode: Mcode, peer: Peer) -> None:
    peer.script(*[another(usage=USAGE) for _ in range(9)])
    run = mcode.exec("go", "--max-steps", "1", "--output-format", "json").check(7)
    assert "the limit of 1 step (--max-steps)" in run.result["error"]["message"]
    run = mcode.exec("go", "--max-steps", "2", "--output-format", "json").check(7)
    assert "the limit of 2 steps (--max-steps)" in run.result["error"]["message"]


def test_an_unknown_price_is_null_and_no_guess(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(cost="")
    result = mcode.exec("go", "--output-format", "json").check(0).result
    assert result["costUsd"] is None


def test_max_tokens_ends_before_the_next_call(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(*[another(usage=USAGE) for _ in range(9)])
    run = mcode.exec("go", "--max-tokens", "2000", "--output-format", "json").check(7)
    assert run.result["error"]["code"] == "LIMIT_TOKENS"
    assert run.result["usage"]["totalTokens"] == 2200
    assert len(peer.calls) == 2


@pytest.mark.parametrize(
    ("api_name", "fields"),
    [
        (ANTHROPIC, ("max_tokens",)),
        (CHAT, ("max_tokens", "max_completion_tokens")),
        (RESPONSES, ("max_output_tokens",)),
    ],
)
def test_the_output_limit_of_a_call_is_cut_to_what_is_left(
    mcode: Mcode, peer: Peer, api_name: str, fields: tuple[str, ...]
) -> None:
    mcode.configure(api=api_name)
    peer.script(another(usage=USAGE), say("done", usage=USAGE))
    mcode.exec("go", "--max-tokens", "5000").check(0)
    asked = [next(request.json[name] for name in fields if name in request.json) for request in peer.calls]
    assert asked == [5000, 3900]


def test_a_cost_limit_cuts_the_output_limit_too(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("done", usage=USAGE))
    mcode.exec("go", "--max-cost", "0.015").check(0)
    assert peer.last.json["max_tokens"] == 1000


def test_no_call_asks_for_less_than_every_provider_takes(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(say("done", usage=USAGE))
    mcode.exec("go", "--max-tokens", "3").check(0)
    asked = {name: value for name, value in peer.last.json.items() if name.startswith("max_")}
    assert list(asked.values()) == [16]


def test_what_failed_attempts_were_billed_is_counted(mcode: Mcode, peer: Peer) -> None:
    peer.script(answer(say("half"), usage=USAGE, ending="close-early"), say("done", usage=USAGE))
    result = mcode.exec("go", "--output-format", "json").check(0).result
    assert result["retries"] == 1
    assert result["usage"]["inputTokens"] in (2000, 1000)
    assert result["usage"]["inputTokens"] == 2000 or result["usageIncomplete"]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("attempts", "exit_code"),
    [
        ([cut_after("partial"), say("done", usage=USAGE)], 0),
        ([forever(cut_after("partial"))], 69),
        ([stall_after("partial")], 6),
    ],
)
def test_what_nobody_counted_is_unknown_never_free(
    mcode: Mcode, peer: Peer, api: str, attempts: list[Any], exit_code: int
) -> None:
    peer.script(*attempts)
    result = mcode.exec("go", *JSON, "--timeout", "3s").check(exit_code).result
    assert (result["usageIncomplete"], result["costUsd"]) == (True, None)


def test_calls_that_were_refused_cost_nothing(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(status(503), say("done", usage=USAGE))
    result = mcode.exec("go", *JSON).check().result
    assert (result["usageIncomplete"], result["retries"]) == (False, 1)
    assert result["costUsd"] > 0


def test_usage_that_is_not_reported_ends_a_run_that_must_count_it(mcode: Mcode, peer: Peer) -> None:
    peer.script(*[another(usage=None) for _ in range(4)])
    result = mcode.exec("go", "--max-tokens", "100000", "--output-format", "json").result
    assert result["usageIncomplete"] is True
    assert result["exitCode"] == 7
    assert len(peer.calls) == 1


def test_limits_hold_for_one_run_not_for_a_session(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(say("ok", usage=USAGE)))
    for _ in range(3):
        mcode.exec("--session-key", "k", "go", "--max-tokens", "1500", "--max-steps", "1").check(0)


def test_exact_cost_has_no_binary_fractions(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("ok", usage={"input": 1, "output": 1, "cache_read": 7}))
    run = mcode.exec("go", "--output-format", "json").check(0)
    assert '"costUsd":0.0000201' in run.out.replace("0.00002010", "0.0000201").replace(
        "2.01E-5", "0.0000201"
    ).replace("2.01e-5", "0.0000201")


def test_a_workspace_may_lower_a_limit_and_not_raise_it(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / ".mcode").mkdir()
    (mcode.workspace / ".mcode" / "config.toml").write_text("[limits]\nmax_steps = 1\n")
    peer.script(*[another() for _ in range(8)])
    mcode.exec("go").check(7)
    assert len(peer.calls) == 1
    mcode.configure(tables="[limits]\nmax_steps = 2\n")
    (mcode.workspace / ".mcode" / "config.toml").write_text("[limits]\nmax_steps = 5\n")
    peer.script(*[another() for _ in range(8)])
    run = mcode.exec("go", "--output-format", "json")
    assert run.code in (3, 7)
    assert run.code == 3 or run.result["steps"] == 2

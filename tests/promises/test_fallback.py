"""--fallback-model: another model goes on when the first stays unavailable, and everybody is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import CUT, Step, answer, call, forever, say, status
from tests.support.wire import ANTHROPIC, CHAT

ONCE = "max_retries = 0"
DOWN = status(503, {"error": {"message": "overloaded"}})


@pytest.fixture
def other() -> Iterator[Peer]:
    with Peer(say("from the other"), strict=True) as server:
        yield server


def configure(mcode: Mcode, other: Peer, retry: str = ONCE) -> None:
    mcode.configure(
        retry=retry,
        tables=f"""
[providers.spare]
api = "{CHAT}"
base_url = "{other.url}/v1"
api_key = "${{FAKE_KEY}}"
[providers.spare.models."small-1"]
context = 100_000
output = 8_000
cost = {{ input = 1.0, output = 2.0 }}
""",
    )


FALLBACK = ("--fallback-model", "spare/small-1")
STREAM = ("--output-format", "stream-json")


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "failure",
    [DOWN, status(429), status(529), say(""), answer(say("half an ans"), ending=CUT)],
    ids=["503", "429", "529", "empty", "cut"],
)
def test_the_rest_of_the_turn_goes_to_the_fallback(
    mcode: Mcode, peer: Peer, other: Peer, api: str, failure: Step
) -> None:
    configure(mcode, other)
    peer.script(call("bash", {"command": "echo 1"}), forever(failure))
    other.script(call("bash", {"command": "echo 2"}), say("done"))
    run = mcode.exec("go", *FALLBACK, *STREAM).check()
    result = run.result
    assert (result["output"], result["steps"], result["toolCalls"]) == ("done", 3, 2)
    assert result["model"] == {"providerId": "spare", "modelId": "small-1"}
    (switch,) = run.of_type("model.switched")
    assert (switch["from"]["modelId"], switch["to"]["modelId"], switch["step"]) == ("big-1", "small-1", 2)
    assert result["modelSwitches"] == [{name: switch[name] for name in ("from", "to", "step", "code")}]
    assert run.events[-2]["model"] == result["model"]
    assert (len(peer.calls), len(other.calls)) == (2, 2)
    assert not any(request.violations for request in (*peer.calls, *other.calls))
    assert "spare/small-1 goes on instead" in run.err
    rows = mcode.query("SELECT provider_id, kind FROM token_usage ORDER BY row")
    assert [row["provider_id"] for row in rows if row["kind"] == "answer"] == ["fake", "spare", "spare"]
    assert "half an ans" not in str([message["content"] for message in mcode.messages()])


def test_an_effort_that_cannot_begin_amid_a_turn_is_left_out_and_that_is_said_once(
    mcode: Mcode, peer: Peer, other: Peer
) -> None:
    mcode.configure(
        api=CHAT,
        base_url=f"{peer.url}/v1",
        retry=ONCE,
        tables=f"""
[providers.spare]
api = "{ANTHROPIC}"
base_url = "{other.url}"
api_key = "${{FAKE_KEY}}"
""",
    )
    peer.script(call("bash", {"command": "echo 1"}), forever(DOWN))
    other.script(call("bash", {"command": "echo 2"}), say("done"))
    run = mcode.exec("go", "--effort", "high", "--fallback-model", "spare/old-1", *STREAM).check()
    assert run.result["output"] == "done"
    assert all("thinking" not in request.json for request in other.calls)
    said = [event["message"] for event in run.of_type("notice") if event["code"] == "effort.left-out"]
    assert len(said) == 1
    assert "effort 'high' is left out for spare/old-1" in said[0]
    other.script(say("again"))
    mcode.exec("on", "--continue", "--model", "spare/old-1", "--effort", "high").check()
    assert "thinking" in other.calls[-1].json


def test_the_session_keeps_its_own_model_for_the_next_turn(mcode: Mcode, peer: Peer, other: Peer) -> None:
    configure(mcode, other)
    peer.script(DOWN, say("back again"))
    mcode.exec("go", "--session-key", "k", *FALLBACK).check()
    assert mcode.exec("go", "--session-key", "k").check().out == "back again\n"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (status(401, {"error": {"message": "no", "type": "authentication_error"}}), 77),
        (status(400, {"error": {"message": "no", "type": "invalid_request_error"}}), 4),
        (status(402, {"error": {"message": "credit"}}), 77),
    ],
)
def test_what_a_person_must_mend_is_no_case_for_a_fallback(
    mcode: Mcode, peer: Peer, other: Peer, failure: Step, code: int
) -> None:
    configure(mcode, other)
    peer.script(forever(failure))
    run = mcode.exec("go", *FALLBACK, "--output-format", "json").check(code)
    assert run.result["modelSwitches"] == []
    assert other.calls == []


def test_fallbacks_are_tried_in_order_and_the_last_failure_counts(
    mcode: Mcode, peer: Peer, other: Peer
) -> None:
    configure(mcode, other)
    peer.script(forever(DOWN))
    other.script(forever(status(429, {"error": {"message": "slow down"}})))
    run = mcode.exec("go", *FALLBACK, "--fallback-model", "fake/big-1#high", "--output-format", "json").check(
        69
    )
    assert [one["to"]["modelId"] for one in run.result["modelSwitches"]] == ["small-1", "big-1"]
    assert (len(peer.calls), len(other.calls)) == (2, 1)
    assert run.result["error"]["code"] == "LLM_UPSTREAM_ERROR"
    assert run.result["error"]["message"].startswith("fake/big-1#high: ")
    assert run.result["steps"] == 1


def test_a_fallback_has_retries_of_its_own(mcode: Mcode, peer: Peer, other: Peer) -> None:
    configure(mcode, other, retry='max_retries = 1\nbase_delay = "10ms"')
    peer.script(forever(DOWN))
    other.script(DOWN, say("at last"))
    run = mcode.exec("go", *FALLBACK, "--output-format", "json").check()
    assert (run.result["output"], run.result["retries"]) == ("at last", 2)
    assert (len(peer.calls), len(other.calls)) == (2, 2)


def test_a_limit_of_steps_does_not_count_the_switch(mcode: Mcode, peer: Peer, other: Peer) -> None:
    configure(mcode, other)
    peer.script(forever(DOWN))
    mcode.exec("go", *FALLBACK, "--max-steps", "1").check()


@pytest.mark.parametrize(
    ("model", "args", "env", "code", "told"),
    [
        ("nobody/x", (), {}, 3, "nobody"),
        ("spare/small-1#huge", (), {}, 2, "--fallback-model"),
        ("openai/gpt-5", (), {"OPENAI_API_KEY": None}, 77, "OPENAI_API_KEY"),
        ("spare/other", ("--max-cost", "1"), {}, 3, "price"),
        ("spare", (), {}, 3, "provider/model"),
    ],
)
def test_a_fallback_that_cannot_be_called_is_found_before_anything_is_begun(
    mcode: Mcode,
    peer: Peer,
    other: Peer,
    model: str,
    args: tuple[str, ...],
    env: dict[str, str | None],
    code: int,
    told: str,
) -> None:
    configure(mcode, other)
    for more in ((), ("--dry-run",)):
        run = mcode.exec("go", "--fallback-model", model, *args, *more, env=env).check(code)
        assert told in run.err
    assert peer.calls == []
    assert mcode.query("SELECT id FROM sessions") == []


def test_a_model_does_not_go_on_for_itself(mcode: Mcode, peer: Peer, other: Peer) -> None:
    configure(mcode, other)
    for args in (("--fallback-model", "fake/big-1"), (*FALLBACK, *FALLBACK)):
        for more in ((), ("--dry-run",)):
            assert "is asked already" in mcode.exec("go", *args, *more).check(2).err
    assert peer.calls == other.calls == []


def test_what_the_first_model_may_have_billed_is_held_against_the_limit_at_its_price(
    mcode: Mcode, peer: Peer, other: Peer, api: str
) -> None:
    configure(mcode, other)
    peer.script(forever(answer(say("half an ans"), ending=CUT)))
    usage = {"input": 1000, "output": 1000}
    other.script(answer(call("bash", {"command": "echo 2"}), usage=usage), say("done"))
    # the fallback's answer costs 0.003 USD, the same from the first model 0.018
    run = mcode.exec("go", *FALLBACK, "--max-cost", "0.02", *STREAM).check(7)
    assert run.result["error"]["code"] == "LIMIT_COST"
    assert "0.021 USD were spent, failed attempts of unknown usage counted" in run.result["error"]["message"]
    assert run.result["costUsd"] is None
    other.script(answer(call("bash", {"command": "echo 2"}), usage=usage), say("done", usage=usage))
    mcode.exec("go", *FALLBACK, "--max-cost", "0.03").check()

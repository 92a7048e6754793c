"""--effort and the variant of a model: known levels reach the provider, unknown ones are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from mcode_exec.providers.wire import EFFORTS
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

LEVELS = "none, minimal, low, medium, high, xhigh"


def sent(peer: Peer) -> Any:
    """The effort that the last call asked for, in the words of its format."""
    body = peer.calls[-1].json
    if peer.calls[-1].api == ANTHROPIC:
        return body.get("thinking", {}).get("budget_tokens")
    if peer.calls[-1].api == RESPONSES:
        return body.get("reasoning", {}).get("effort")
    return body.get("reasoning_effort")


def word(api: str, level: str) -> Any:
    return {"low": 4096, "high": 16_384 - 1024}[level] if api == ANTHROPIC else level


@pytest.mark.sample(4)
@pytest.mark.parametrize("args", [("--effort", "zork"), ("--model", "fake/big-1#zork")], ids=" ".join)
@pytest.mark.parametrize("further", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_an_unknown_level_is_2_and_names_the_known_ones(
    mcode: Mcode, peer: Peer, api: str, args: tuple[str, ...], further: tuple[str, ...]
) -> None:
    run = mcode.exec("hi", *args, *further).check(2)
    known = f"({LEVELS}, max)" if api == ANTHROPIC else f"({LEVELS})"
    assert f"'zork' is no effort that fake knows {known}" in run.err
    assert args[0] in run.err
    assert not peer.calls


def test_max_is_a_level_of_one_format_only(mcode: Mcode, api: str) -> None:
    mcode.exec("hi", "--effort", "max").check(0 if api == ANTHROPIC else 2)


def test_a_level_reaches_the_provider_by_flag_and_by_variant(mcode: Mcode, peer: Peer, api: str) -> None:
    mcode.exec("hi").check()
    assert sent(peer) is None
    mcode.exec("hi", "--effort", "low").check()
    assert sent(peer) == word(api, "low")
    mcode.exec("hi", "--model", "fake/big-1#low").check()
    assert sent(peer) == word(api, "low")
    assert peer.calls[-1].json["model"] == "big-1"
    mcode.exec("hi", "--model", "fake/big-1#low", "--effort", "high").check()
    assert sent(peer) == word(api, "high")


def test_the_level_stays_with_its_session_and_another_holds_one_turn(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    for made in (
        ("--effort", "low"),
        ("--model", "fake/big-1#low"),
        ("--model", "fake/big-1#none", "--effort", "low"),
    ):
        mcode.exec("hi", *made).check()
        found = []
        for further in ((), ("--effort", "high"), ("--model", "fake/big-1#high"), ()):
            mcode.exec("hi", "--continue", *further).check()
            found.append(sent(peer))
        assert found == [word(api, level) for level in ("low", "high", "high", "low")]


def test_a_kept_level_that_another_model_does_not_know_is_left_out_with_a_notice(
    mcode: Mcode, peer: Peer
) -> None:
    mcode.exec("hi", "--effort", "max").check()
    env = {"OLLAMA_BASE_URL": peer.url}
    run = mcode.exec("hi", "--continue", "--model", "ollama/any", env=env).check()
    assert "'max' is no effort that ollama knows" in run.err
    assert sent(peer) is None


@pytest.mark.parametrize("api", [ANTHROPIC], indirect=True)
def test_a_level_that_finds_no_room_below_max_tokens_is_left_out_with_a_notice(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    run = mcode.exec("hi", "--effort", "high", "--max-tokens", "2000").check()
    assert sent(peer) is None
    assert "effort 'high' is left out: --max-tokens leaves 2000 tokens" in run.err
    assert "left out" not in mcode.exec("hi", "--effort", "high", "--max-tokens", "3000").check().err
    assert sent(peer) == 3000 - 1024
    assert "left out" not in mcode.exec("hi", "--effort", "none", "--max-tokens", "2000").check().err


def test_an_unknown_variant_in_the_configuration_is_3_and_doctor_finds_it(mcode: Mcode) -> None:
    env = {"MCODE_MODEL": "fake/big-1#zork"}
    assert "MCODE_MODEL" in mcode.exec("hi", env=env).check(3).err
    assert "'zork' is no effort" in mcode.run("doctor", env=env).check(4).out
    mcode.configure(tables='[agents.a]\nmodel = "fake/big-1#zork"\n')
    assert "'zork' is no effort" in mcode.exec("hi", "--agent", "a").check(3).err
    assert "'zork' is no effort" in mcode.run("doctor").check(4).out


def test_help_lists_the_levels(mcode: Mcode) -> None:
    shown = " ".join(mcode.exec("--help").check().out.split())
    assert f"Reasoning effort: {LEVELS}; max" in shown
    assert EFFORTS[CHAT] == EFFORTS[RESPONSES] == tuple(LEVELS.split(", "))  # type: ignore[index]


def test_a_provider_without_a_field_for_effort_is_asked_without_and_that_is_said(
    mcode: Mcode, peer: Peer
) -> None:
    env = {"MINIMAX_API_KEY": "k-123456789", "MINIMAX_BASE_URL": f"{peer.url}/v1"}
    run = mcode.exec("hi", "--model", "minimax/MiniMax-M2", "--effort", "high", env=env).check()
    assert "effort 'high' is left out: minimax/MiniMax-M2 cannot be asked for one" in run.err

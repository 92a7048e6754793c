"""`--agent`: a named set of model, prompt, tools and rules of the user's config."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import call, say

JSON = ("--output-format", "json")
STREAM = ("--output-format", "stream-json")

AGENTS = """\
[providers.fake.models."small-1"]
context = 100_000
output = 8_192
[agents.reviewer]
model = "fake/small-1"
prompt = "be-a-reviewer"
permission = { edit = "deny" }
tools = ["read", "grep", "glob", "bash"]
[agents.filed]
prompt_file = "agent.md"
[agents.plain]
"""


def _offered(peer: Peer) -> set[str]:
    return {tool.get("name") or tool["function"]["name"] for tool in peer.last.json.get("tools") or []}


def _calls(run: Run) -> list[dict[str, Any]]:
    items = [event["item"] for event in run.of_type("item.completed")]
    return [item["toolCall"] for item in items if item["type"] == "tool_call"]


@pytest.fixture
def agents(mcode: Mcode) -> Mcode:
    (mcode.config.parent / "agent.md").write_text("be-from-a-file\n")
    return mcode.configure(tables=AGENTS)


def test_an_agent_brings_its_model_prompt_tools_and_rules(agents: Mcode, peer: Peer, api: str) -> None:
    peer.script(call("bash", {"command": "echo hi"}), say("done"))
    run = agents.exec("hi", "--agent", "reviewer", *JSON).check()
    assert peer.last.json["model"] == "small-1"
    assert run.result["model"]["modelId"] == "small-1"
    assert "be-a-reviewer" in peer.last.text
    assert _offered(peer) == {"read", "grep", "glob", "bash"}
    assert run.result["toolErrors"] == 0


def test_flags_win_over_the_agent(agents: Mcode, peer: Peer) -> None:
    flags = ("--agent", "reviewer", "--model", "fake/big-1", "--tools", "read,edit", "--allow", "edit:*")
    agents.exec("hi", *flags).check()
    assert peer.last.json["model"] == "big-1"
    assert _offered(peer) == {"read", "edit"}


def test_a_prompt_file_counts_from_its_config_file(agents: Mcode, peer: Peer) -> None:
    agents.exec("hi", "--agent", "filed").check()
    assert "be-from-a-file" in peer.last.text


def test_an_agent_stays_with_its_session_and_another_holds_one_turn(agents: Mcode, peer: Peer) -> None:
    agents.exec("hi", "--agent", "reviewer", "--session-key", "k").check()
    agents.exec("hi", "--session-key", "k").check()
    assert "be-a-reviewer" in peer.last.text
    assert peer.last.json["model"] == "small-1"
    agents.exec("hi", "--session-key", "k", "--agent", "filed").check()
    assert "be-from-a-file" in peer.last.text
    assert "be-a-reviewer" not in peer.last.text.replace("hi", "")
    agents.exec("hi", "--session-key", "k").check()
    assert "be-a-reviewer" in peer.last.text


def test_an_agent_that_the_config_lost_is_left_out_with_a_notice(agents: Mcode, peer: Peer) -> None:
    agents.exec("hi", "--agent", "plain", "--session-key", "k").check()
    agents.configure(tables="")
    run = agents.exec("hi", "--session-key", "k", *STREAM).check()
    assert "plain" in run.of_type("notice")[0]["message"]


def test_an_agent_that_does_not_exist_is_named_with_those_that_do(agents: Mcode, peer: Peer) -> None:
    run = agents.exec("hi", "--agent", "reviewr", *JSON).check(3)
    assert "reviewer" in run.result["error"]["message"]
    assert peer.calls == []


@pytest.mark.parametrize(
    "table",
    [
        'prompt = "a"\nprompt_file = "agent.md"',
        'prompt_file = "missing.md"',
        'tools = ["reed"]',
        'model = "nowhere/x"',
        'permission = { edit = "perhaps" }',
        'promt = "a"',
        "prompt = 3",
    ],
)
def test_an_agent_that_makes_no_sense_ends_with_3_before_any_call(
    mcode: Mcode, peer: Peer, table: str
) -> None:
    (mcode.config.parent / "agent.md").write_text("x\n")
    mcode.configure(tables=f"[agents.odd]\n{table}\n")
    mcode.exec("hi", "--agent", "odd", *JSON).check(3)
    assert peer.calls == []


def test_a_denied_edit_of_an_agent_is_denied_although_the_tool_is_asked_for(
    agents: Mcode, peer: Peer
) -> None:
    (agents.workspace / "f").write_text("a\n")
    peer.script(call("edit", {"file_path": "f", "old_string": "a", "new_string": "b"}), say("done"))
    run = agents.exec("hi", "--agent", "reviewer", "--tools", "read,edit", *STREAM)
    assert _calls(run)[0]["status"] in ("denied", "error")
    assert (agents.workspace / "f").read_text() == "a\n"

"""Whatever became of a session's turns, a strict provider takes the next request, and nothing is lost in it."""

from __future__ import annotations

import itertools
import json
import signal
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import Answer, call, hang, say, stall_after, think
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

KEY = ("--session-key", "k")
STREAM = ("--output-format", "stream-json")


def _outputs(run: Run) -> list[str]:
    items = [event["item"] for event in run.of_type("item.completed")]
    return [item["toolCall"]["output"] for item in items if item["type"] == "tool_call"]


def _is_valid(peer: Peer) -> bool:
    return all(not request.violations for request in peer.calls)


def test_prompts_that_were_interrupted_again_and_again_are_asked_together(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    begun = [
        hang(),
        stall_after(think("hm")),
        stall_after(say("half")),
        stall_after(call("bash", {"command": "ls"})),
    ]
    for number, step in enumerate(begun):
        came = len(peer.calls)
        peer.script(step)
        running = mcode.start("exec", f"prompt {number}", *KEY)
        peer.wait_for(came + 1)
        running.send(signal.SIGINT)
        running.finish().check(-signal.SIGINT)
    peer.script(say("fine"))
    run = mcode.exec("the last", *KEY, *STREAM).check()
    assert run.result["steps"] == 1
    assert all(f"prompt {number}" in peer.last.text for number in range(len(begun)))
    assert _is_valid(peer)


def test_calls_that_a_kill_cut_short_all_have_one_result(mcode: Mcode, peer: Peer, api: str) -> None:
    mcode.may_leave_processes = True
    slow = call("bash", {"command": "touch up; sleep 30"})
    failing, denied = call("bash", {"command": "false"}), call("bash", {"command": "sudo ls"})
    peer.script(failing + denied + slow + call("read", {"file_path": "x"}))
    running = mcode.start("exec", "go", *KEY)
    while not (mcode.workspace / "up").exists():
        assert running.process.poll() is None
    running.kill()
    running.finish()
    peer.script(say("on"))
    mcode.exec("go on", *KEY).check()
    results = [
        block for message in mcode.messages() if message["role"] == "tool" for block in message["content"]
    ]
    assert [one["status"] for one in results] == ["error", "denied", "interrupted", "interrupted"]
    assert "its effects may remain" in results[2]["content"]
    assert "changed nothing" in results[3]["content"]
    assert _is_valid(peer)


def test_calls_that_a_signal_cut_short_are_told_whether_they_were_begun(mcode: Mcode, peer: Peer) -> None:
    slow = call("bash", {"command": "touch up; sleep 30"})
    peer.script(slow + call("bash", {"command": "touch never"}) + call("read", {"file_path": "x"}))
    running = mcode.start("exec", "go", *KEY)
    while not (mcode.workspace / "up").exists():
        assert running.process.poll() is None
    running.send(signal.SIGTERM)
    running.finish().check(-signal.SIGTERM)
    results = [message["content"][0]["content"] for message in mcode.messages() if message["role"] == "tool"]
    assert "its effects may remain" in results[0]
    assert all("changed nothing" in result for result in results[1:])
    assert len(results) == 3
    assert not (mcode.workspace / "never").exists()


def _anew(line: bytes) -> bytes:
    """The same record under another id."""
    record = json.loads(line)
    record["id"] = f"msg-{uuid.uuid4().hex}"
    return json.dumps(record).encode()


# lines: 0 header, 1 prompt, 2 assistant with two calls, 3 and 4 their results, 5 answer
DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "every record twice": lambda one: [one[0], *(line for line in one[1:] for _ in range(2))],
    "the calls under two ids": lambda one: [*one[:5], _anew(one[2]), one[5]],
    "a result under two ids": lambda one: [*one[:5], _anew(one[3]), one[5]],
    "results swapped": lambda one: [*one[:3], one[4], one[3], one[5]],
    "a result before its call": lambda one: [*one[:2], one[3], one[2], *one[4:]],
    "results without a call": lambda one: [*one[:2], *one[3:]],
    "no results in the middle": lambda one: [*one[:3], one[5]],
    **{f"cut after line {end}": (lambda one, end=end: one[:end]) for end in range(1, 6)},  # type: ignore[misc]
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("damage", DAMAGES)
def test_records_that_are_doubled_orphaned_or_gone_make_a_valid_request(
    mcode: Mcode, peer: Peer, damage: str
) -> None:
    mcode.configure(api=(ANTHROPIC, CHAT, RESPONSES)[list(DAMAGES).index(damage) % 3])
    peer.script(
        say("hm") + call("bash", {"command": "echo 1"}) + call("bash", {"command": "echo 2"}), say("mid")
    )
    mcode.exec("the prompt", *KEY).check()
    path = mcode.session_dir() / "messages.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1]
    assert len(lines) == 6
    path.write_bytes(b"\n".join(DAMAGES[damage](lines)) + b"\n")
    peer.script(say("on"))
    for _ in range(2):
        mcode.exec("go on", *KEY).check()
    assert _is_valid(peer)
    if damage != "cut after line 1":
        assert peer.last.text.count("the prompt") == 1


@pytest.mark.parametrize("text", ["🙂", "é", "漢", "🙂" * 400 + "\\n"])
def test_no_character_is_torn_where_an_output_is_cut(mcode: Mcode, peer: Peer, text: str) -> None:
    step = Answer()
    for shift in range(4):
        step += call(
            "bash", {"command": f"printf '{'a' * shift}'; yes '{text}' | tr -d '\\n' | head -c 240000"}
        )
        (mcode.workspace / f"{shift}").write_text("a" * shift + (text.replace("\\n", "\n") + "\n") * 60_000)
        step += call("read", {"file_path": f"{shift}"})
    peer.script(step, say("done"))
    run = mcode.exec("go", *STREAM).check()
    outputs = _outputs(run)
    assert len(outputs) == 8
    # `head -c` may tear the last one itself
    assert not [output for output in outputs if "�" in output.rstrip().rstrip("�")]
    assert [output for output in outputs if "left out here" in output]
    assert _is_valid(peer)


def test_outputs_that_show_nothing_are_said_to_be_nothing(mcode: Mcode, peer: Peer, api: str) -> None:
    (mcode.workspace / "empty").write_text("")
    (mcode.workspace / "dir").mkdir()
    silent = ["true", "printf '  '", "echo", "printf '\\r'", "printf '\\302\\240'"]
    step = Answer()
    for command in silent:
        step += call("bash", {"command": command})
    step += call("read", {"file_path": "empty"}) + call("list", {"path": "dir"})
    step += call("bash", {"command": "printf '\\0\\377\\355\\240\\200'"})
    peer.script(step, say("done"))
    run = mcode.exec("go", *STREAM).check()
    assert all(output.strip() for output in _outputs(run))
    assert _outputs(run)[: len(silent)] == ["(no output)"] * len(silent)
    assert _is_valid(peer)


@pytest.mark.parametrize(("first", "other"), list(itertools.permutations([ANTHROPIC, CHAT, RESPONSES], 2)))
def test_a_session_goes_on_over_another_wire_format(mcode: Mcode, peer: Peer, first: str, other: str) -> None:
    model = '[providers.other.models."big-1"]\ncontext = 200_000\noutput = 8_000\n'
    provider = f'[providers.other]\napi = "{other}"\nbase_url = "{peer.url}"\napi_key = "${{FAKE_KEY}}"\n'
    mcode.configure(api=first, tables=provider + model)
    hostile: list[Any] = [call("no such tool!", {"a": 1}), call("bash", '{"command": "tr')]
    step = think("deep") + say("first") + call("bash", {"command": "echo é"})
    for one in hostile:
        step += one
    peer.script(step, think("again") + say("mid"))
    mcode.exec("x", *KEY).check()
    for flags in (["--model", "other/big-1"], ["--model", "other/big-1", "--tools", "none"], []):
        peer.script(think("more") + say("fine"))
        mcode.exec("y", *KEY, *flags).check()
    assert "first" in peer.last.text
    assert _is_valid(peer)

"""What `mcode queue add` and `edit` take, checked as a run checks it, and what is told of an item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.test_queue import add, idle_session, lines
from tests.promises.test_when_busy import JSON, busy_session, items, prompts, wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.pictures import png

MIB = 1024 * 1024
WRONG = [
    ("--model", "nope"),
    ("--model", "nowhere/x"),
    ("--model", "fake/big-1#wild"),
    ("--fallback-model", "nope"),
    ("--fallback-model", "fake/big-1"),
    ("--effort", "wild"),
    ("--agent", "nope"),
    ("--tools", "nope"),
    ("--allow", "nonsense"),
    ("--deny", "bash:"),
]


def error_of(err: str) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("mcode: error: ")]
    return line


def listed(mcode: Mcode, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(mcode.run("queue", "list", session, *JSON).check().out)["items"]
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize("flags", WRONG, ids="=".join)
def test_what_no_run_would_take_is_refused_in_the_words_of_a_run(
    mcode: Mcode, peer: Peer, flags: tuple[str, str]
) -> None:
    session = idle_session(mcode, peer)
    run = mcode.exec("x", "--session", session, *flags)
    added = mcode.run("queue", "add", session, "x", *flags, cwd=mcode.root)
    assert run.code in (2, 3)
    assert (added.code, error_of(added.err)) == (run.code, error_of(run.err))
    assert items(mcode) == []
    if flags[0] in ("--model", "--effort", "--agent"):
        item = add(mcode, session, "x")
        before = items(mcode)
        edited = mcode.run("queue", "edit", item, *flags)
        assert (edited.code, error_of(edited.err)) == (run.code, error_of(run.err))
        assert items(mcode) == before


def test_an_image_for_a_model_that_takes_none_is_refused(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(tables='[providers.fake.models."blind"]\nimages = false\ncontext = 9000\noutput = 900')
    session = idle_session(mcode, peer)
    (mcode.workspace / "p.png").write_bytes(png(2, 2))
    refused = mcode.run("queue", "add", session, "x", "--model", "fake/blind", "--file", "p.png").check(2)
    assert "takes no images" in refused.err
    item = add(mcode, session, "x", "--file", "p.png")
    assert "takes no images" in mcode.run("queue", "edit", item, "--model", "fake/blind").check(2).err


def test_a_key_is_the_drainer_s_and_a_configuration_may_be_named(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    mcode.run("queue", "add", session, "x", "--model", "fake/other-2", env={"FAKE_KEY": None}).check()
    theirs = mcode.root / "theirs.toml"
    theirs.write_text(mcode.config.read_text() + '[agents.reviewer]\nprompt = "review"\n')
    mcode.run("queue", "add", session, "x", "--agent", "reviewer").check(3)
    item = add(mcode, session, "y", "--agent", "reviewer", "--config", str(theirs))
    mcode.run("queue", "edit", item, "--agent", "reviewer").check(3)
    mcode.run("queue", "edit", item, "--agent", "reviewer", "--config", str(theirs)).check()
    assert len(items(mcode)) == 2


def test_an_item_without_flags_is_queued_whatever_the_configuration(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    mcode.config.write_text("model = ")
    add(mcode, session, "x")


def test_the_bound_is_of_what_was_said(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    for text in ("x" * MIB, '"\n' * (MIB // 2), "ü" * (MIB // 2)):
        mcode.run("queue", "add", session, "--input", "-", input=text).check()
        over = mcode.run("queue", "add", session, "--input", "-", input=text + "x").check(2)
        assert f"and this is {MIB + 1}" in over.err
    assert len(items(mcode)) == 3


@pytest.mark.parametrize("mode", ["queue", "steer"])
def test_a_prompt_too_large_to_be_left_to_others_is_refused_busy_or_not(
    mcode: Mcode, peer: Peer, mode: str
) -> None:
    large = "x" * (MIB + 1)
    how = ("--input", "-", "--when-busy", mode, *JSON)
    session, first, gate = busy_session(mcode, peer)
    busy = mcode.exec("--session", session, *how, input=large).check(2)
    gate.open()
    first.finish().check()
    idle = mcode.exec("--session", session, *how, input=large).check(2)
    assert idle.result["error"] == busy.result["error"]
    mcode.run("steer", session, "--input", "-", input=large).check(2)
    mcode.exec("--session", session, "--input", "-", "--when-busy", mode, "--dry-run", input=large).check(2)


def test_who_waits_himself_may_say_as_much_as_in_any_run(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    waiting = mcode.start(
        "exec", "--session", session, "--input", "large", "--when-busy", "wait", *JSON, stdin=None
    )
    assert waiting.finish().code == 2  # there is no such file
    (mcode.workspace / "large").write_text("y" * (2 * MIB))
    waiting = mcode.start("exec", "--session", session, "--input", "large", "--when-busy", "wait", *JSON)
    wait_until(lambda: items(mcode), "no place in line")
    assert "1 MiB" in mcode.run("queue", "steer", items(mcode)[0]["id"]).check(2).err
    gate.open()
    first.finish().check()
    waiting.finish().check()
    assert [len(text) for text in prompts(mcode)] == [5, 2 * MIB]


def test_what_was_replaced_in_words_for_others_is_said(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer, "--drain")
    notice = "holds NUL characters or lone surrogates; they were replaced by U+FFFD"
    nul, half = "a\0b", '"a\\ud83db"'
    for words in ((nul,), (half, "--input-format", "json")):
        given = ("--input", "-", *words[1:])
        added = mcode.run("queue", "add", session, *given, input=words[0]).check()
        queued = mcode.exec("--session", session, "--when-busy", "queue", *given, input=words[0]).check()
        steered = mcode.run("steer", session, *given, input=words[0]).check()
        by_exec = mcode.exec("--session", session, "--when-busy", "steer", *given, input=words[0]).check()
        for run in (added, queued, steered, by_exec):
            assert run.err.count(notice) == 1, run.err
    said = [row["text"] for row in listed(mcode, session)]
    assert said == ["a\ufffdb"] * 4
    bom = mcode.run("queue", "edit", items(mcode)[0]["id"], "\ufeffc").check()
    assert listed(mcode, session)[0]["text"] == "c", bom.err
    assert "nothing to run" in mcode.run("queue", "edit", items(mcode)[0]["id"], "\ufeff ").check(2).err
    assert (
        mcode.run(
            "queue", "edit", items(mcode)[0]["id"], b"\xed\xa0\xbd".decode("utf-8", "surrogateescape")
        ).code
        == 2
    )
    gate.open()
    first.finish().check()


@pytest.mark.parametrize("empty", ["", "  "])
def test_a_key_that_is_empty_is_one_refusal(mcode: Mcode, peer: Peer, empty: str) -> None:
    session = idle_session(mcode, peer)
    asked = len(peer.calls)
    for flag, command in [
        ("--dedupe-key", ("queue", "add", session)),
        ("--idempotency-key", ("steer", session)),
        ("--request-id", ("exec", "--session", session)),
        ("--session-key", ("exec",)),
    ]:
        run = mcode.run(*command, "x", f"{flag}={empty}").check(2)
        assert error_of(run.err).startswith(f"mcode: error: {flag} is empty."), run.err
    result = mcode.root / "r.json"
    mcode.exec("x", f"--request-id={empty}", "--result", result).check(2)
    assert json.loads(result.read_text())["exitCode"] == 2
    assert len(peer.calls) == asked
    assert items(mcode) == []


def test_places_begin_with_1_wherever_they_are_told(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer, "--drain")
    one = json.loads(mcode.run("queue", "add", session, "a", *JSON).check().out)
    two = mcode.exec("b", "--session", session, "--when-busy", "queue", *JSON).check()
    assert "at place 2 in line" in two.err
    three = mcode.run("queue", "add", session, "c").check()
    assert "at place 3 in the line" in three.err
    assert (one["position"], two.result["queue"]["position"]) == (1, 2)
    waiting = mcode.start(
        "exec", "d", "--session", session, "--when-busy", "wait", "--output-format", "stream-json"
    )
    wait_until(lambda: len(items(mcode)) == 4, "no place in line")
    assert [row["position"] for row in listed(mcode, session)] == [1, 2, 3, 4]
    moved = json.loads(mcode.run("queue", "move", three.out.strip(), "--to", "1", *JSON).check().out)
    assert moved["position"] == 1
    edited = json.loads(mcode.run("queue", "edit", one["id"], "a2", *JSON).check().out)
    assert edited["position"] == 2
    gate.open()
    first.finish().check()
    run = waiting.finish().check()
    (waited, *_) = queued = run.of_type("turn.queued")
    assert (waited["position"], waited["turnId"]) == (4, run.result["turnId"])
    assert {event["turnId"] for event in queued} == {run.result["turnId"]}
    assert "waiting, at place 4 in line" in run.err


def test_what_an_item_runs_with_is_listed(mcode: Mcode, peer: Peer) -> None:
    session = idle_session(mcode, peer)
    flags = (
        "--max-steps", "3", "--max-cost", "0.50", "--max-tokens", "900", "--timeout", "90s", "--tools", "read,grep",
        "--permission", "full", "--deny", "bash:rm *", "--allow", "bash:git *", "--on-ask", "deny", "--title", "T",
        "--label", "k=v", "--fallback-model", "fake/other-2",
    )  # fmt: skip
    mcode.configure(tables='[providers.fake.models."other-2"]\ncost = { input = 1.0, output = 1.0 }')
    add(mcode, session, "x", *flags)
    (row,) = listed(mcode, session)
    told = {
        "maxSteps": 3, "maxCostUsd": "0.50", "maxTokens": 900, "timeoutMs": 90_000, "tools": ["read", "grep"],
        "permission": "full", "rules": ["--deny bash:rm *", "--allow bash:git *"], "onAsk": "deny", "title": "T",
        "labels": {"k": "v"}, "fallbackModels": ["fake/other-2"],
    }  # fmt: skip
    assert {name: row[name] for name in told} == told
    (csv,) = mcode.run("queue", "list", session, "--output-format", "csv").check().out.splitlines()[1:]
    assert "bash:rm *" in csv
    assert lines(mcode.run("queue", "list", "--all", "--output-format", "jsonl").check().out) == [row]


def test_a_request_id_is_called_one(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer, "--drain")
    for mode in ("queue", "steer"):
        how = ("--session", session, "--when-busy", mode, "--request-id", mode, *JSON)
        mcode.exec("x", *how).check()
        conflict = mcode.exec("other", *how).check(4)
        assert conflict.result["error"]["code"] == "turn_ingress_conflict"
        assert conflict.result["error"]["message"].startswith(f"request id '{mode}' was used before")
    gate.open()
    first.finish().check()

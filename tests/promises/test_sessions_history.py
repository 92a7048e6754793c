"""`mcode sessions history`: what people said to a session, all of it and nothing else."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tests.promises.test_sessions_continue import copy_row, started
from tests.promises.test_steer import in_a_tool
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say


def prompts(mcode: Mcode, session: str, *flags: str, **how: Any) -> list[dict[str, Any]]:
    run = mcode.run("sessions", "history", session, *flags, "--output-format", "jsonl", **how).check()
    return [json.loads(line) for line in run.out.splitlines()]


def test_prompts_stand_in_order_without_answers_and_results(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "echo first"}), say("done"))
    session = started(mcode)
    mcode.exec("--session", session, "then\nthis").check()
    found = prompts(mcode, session[:12])
    assert [one["text"] for one in found] == ["first words", "then\nthis"]
    assert found[0]["turnId"] != found[1]["turnId"]
    assert all(one["messageId"].startswith("msg-") and one["steeredBy"] is None for one in found)
    table = mcode.run("sessions", "history", session).check().out.splitlines()
    assert len(table) == 3
    assert table[2].endswith("then this")


def test_a_steer_is_marked_as_one(mcode: Mcode, peer: Peer) -> None:
    session, running, go = in_a_tool(mcode, peer)
    mcode.run("steer", session, "and be quick").check()
    go.touch()
    running.finish().check()
    last = prompts(mcode, session)[-1]
    assert last["text"] == "and be quick"
    assert last["steeredBy"] is not None
    assert mcode.run("sessions", "history", session).check().out.splitlines()[-1].split()[2] == "steer"


def test_attached_files_are_named_and_what_mcode_adds_is_left_out(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "notes.txt").write_text("the whole of the notes")
    session = started(mcode, "--file", "notes.txt")
    other = mcode.root / "other"
    other.mkdir()
    # the model is told that the workspace is another one now; nobody said that
    mcode.exec("--session", session, "go on here", "--cwd", other).check()
    assert f"is now {other}" in peer.last.text
    first, second = prompts(mcode, session)
    assert (first["text"], first["files"]) == ("first words", ["notes.txt"])
    assert (second["text"], second["files"]) == ("go on here", [])
    assert "[notes.txt]" in mcode.run("sessions", "history", session).check().out


def test_pages_lead_back_through_all_prompts_while_new_ones_come(mcode: Mcode) -> None:
    session = started(mcode)
    for number in range(4):
        mcode.exec("--session", session, f"prompt {number}").check()
    found: list[str] = []
    flags: tuple[str, ...] = ()
    while True:
        run = mcode.run(
            "sessions", "history", session, "--limit", "2", *flags, "--output-format", "json"
        ).check()
        document = json.loads(run.out)
        assert document["sessionId"] == session
        found = [one["text"] for one in document["prompts"]] + found
        if document["nextCursor"] is None:
            break
        mcode.exec("--session", session, "one more").check()
        flags = ("--before", document["nextCursor"])
    assert found == ["first words", *(f"prompt {number}" for number in range(4))]
    mcode.run("sessions", "history", session, "--limit", "201").check(2)


def test_every_format_carries_the_same_masked_and_escaped(mcode: Mcode) -> None:
    secret = "hunter2-correct-horse"
    env = {"DEPLOY_TOKEN": secret}
    run = mcode.exec(f"use {secret} \x1b[31m\u202e now", "--output-format", "json", env=env).check()
    session = run.result["sessionId"]
    forms = {
        form: mcode.run("sessions", "history", session, "--output-format", form, env=env).check().out
        for form in ("table", "json", "jsonl", "csv")
    }
    for form, out in forms.items():
        assert "***" in out
        assert secret not in out
        if form in ("table", "csv"):
            assert not set("\x1b\u202e") & set(out)
    (row,) = json.loads(forms["json"])["prompts"]
    assert json.loads(forms["jsonl"]) == row
    (cells,) = csv.DictReader(io.StringIO(forms["csv"]))
    assert list(cells) == list(row)


def test_a_session_without_a_prompt_says_so(mcode: Mcode) -> None:
    empty = copy_row(mcode, started(mcode), 1)
    run = mcode.run("sessions", "history", empty).check()
    assert run.out == ""
    assert "no prompts" in run.err
    assert prompts(mcode, empty) == []


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("mvs_" + "0" * 32,), 4, "there is no session"),
        (("nonsense",), 2, "mvs_"),
        ((), 2, "SESSION"),
        (("mvs_" + "0" * 32, "--before", "x"), 2, "no cursor of this session"),
        (("mvs_" + "0" * 32, "--before", "²"), 2, "no cursor of this session"),
        (("mvs_" + "0" * 32, "--before", "9" * 5_000), 2, "no cursor of this session"),
    ],
)
def test_a_bad_value_is_told_in_one_sentence(
    mcode: Mcode, args: tuple[str, ...], code: int, told: str
) -> None:
    started(mcode)
    run = mcode.run("sessions", "history", *args).check(code)
    assert told in run.err
    assert "Traceback" not in run.err

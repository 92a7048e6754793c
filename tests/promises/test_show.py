"""`sessions show`: a session read back under its questions, in pages, one turn alone, as words, as Markdown."""

from __future__ import annotations

import json
import sqlite3

import pytest

from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.steps import answer, call, hang, say, status, think

JSON = ("--output-format", "json")


@pytest.fixture
def session(mcode: Mcode, peer: Peer) -> str:
    """A question that took two turns, and another."""
    (mcode.workspace / "a.py").write_text("x = 1\n")
    peer.script(
        answer(think("let me see"), say("I look first."), call("bash", {"command": "seq 1 20"})),
        status(400, {"error": {"type": "invalid_request_error", "message": "not like this"}}),
        answer(say("I go on."), call("edit", {"file_path": "a.py", "old_string": "1", "new_string": "2"})),
        say("It is done.\n"),
        say("You are welcome."),
    )
    made: str = mcode.exec("please fix it", *JSON).check(4).result["sessionId"]
    mcode.run("retry", made).check()
    mcode.exec("thank you", "--session", made).check()
    return made


def shown(mcode: Mcode, session: str, *args: str) -> str:
    return mcode.run("sessions", "show", session, *args).check().out


def document(mcode: Mcode, session: str, *args: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(shown(mcode, session, *JSON, *args))
    return found


def test_turns_of_one_question_stand_together_and_the_earlier_ones_are_folded(
    mcode: Mcode, session: str
) -> None:
    text = shown(mcode, session)
    assert text.count("── user") == 2, "a turn that goes on asks nothing"
    assert "earlier turn failed (LLM_BAD_REQUEST)" in text
    assert "seq 1 20" not in text
    assert text.index("please fix it") < text.index("earlier turn") < text.index("It is done.")
    assert "▸ edit a.py [completed in " in text
    assert "+1 −1]" in text
    assert "── turn answered in " in text
    assert "tokens " in text
    assert "$0." in text


def test_expand_folds_and_cuts_nothing(mcode: Mcode, session: str) -> None:
    folded, whole = shown(mcode, session), shown(mcode, session, "--expand")
    assert "\n    20\n" in whole
    assert "seq 1 20" in whole
    assert "let me see" in whole
    assert "old_string: 1" in whole
    assert "\n    20\n" not in folded
    assert "\n   -x = 1\n   +x = 2\n" in whole, "what the turn changed, as a patch"
    assert "+x = 2" not in folded
    assert "1 file, +1 −1" in folded
    assert "```diff\n" in shown(mcode, session, "--expand", "--markdown")


def test_programs_get_the_questions_and_what_their_turns_came_to(mcode: Mcode, session: str) -> None:
    found = document(mcode, session)
    first, second = found["questions"]
    assert [turn["state"] for turn in first["turns"]] == ["failed", "completed"]
    assert [turn["isFolded"] for turn in first["turns"]] == [True, False]
    assert first["turns"][0]["code"] == "LLM_BAD_REQUEST"
    assert first["turns"][1]["usage"]["inputTokens"] > 0
    assert first["turns"][1]["toolCalls"] == 1
    assert "fileChanges" in first["turns"][1]
    assert len(second["turns"]) == 1
    ids = [message["id"] for message in found["messages"]]
    assert [one for q in (first, second) for turn in q["turns"] for one in turn["messageIds"]] == ids
    assert found["currentTurnId"] is None


def test_pages_lead_back_to_the_first_message(mcode: Mcode, session: str) -> None:
    everything = [message["id"] for message in document(mcode, session)["messages"]]
    seen: list[str] = []
    cursor = None
    while True:
        page = document(mcode, session, "--limit", "2", *(("--before", cursor) if cursor else ()))
        seen = [message["id"] for message in page["messages"]] + seen
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert seen == everything
    run = mcode.run("sessions", "show", session, "--limit", "2").check()
    assert run.err.startswith("mcode: earlier messages: --before ")


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 40, "²"])
def test_a_cursor_that_is_none_is_said(mcode: Mcode, session: str, cursor: str) -> None:
    run = mcode.run("sessions", "show", session, "--before", cursor).check(2)
    assert "is no cursor of this session" in run.err


def test_one_turn_is_named_by_id_prefix_or_last(mcode: Mcode, session: str) -> None:
    turns = [turn["turnId"] for q in document(mcode, session)["questions"] for turn in q["turns"]]
    for name in (turns[0], turns[0][:14]):
        text = shown(mcode, session, "--turn", name)
        assert "seq 1 20" in text, "a turn that is named is not folded"
        assert "thank you" not in text
    assert "thank you" in shown(mcode, session, "--turn", "last")
    for unknown in ("turn_00000000-0000-4000-8000-000000000000", "turn_", "x"):
        run = mcode.run("sessions", "show", session, "--turn", unknown, *JSON).check(4)
        assert "has no turn" in run.err


def test_a_turn_of_another_session_is_not_shown(mcode: Mcode, peer: Peer, session: str) -> None:
    other = mcode.exec("elsewhere", *JSON).check().result
    run = mcode.run("sessions", "show", session, "--turn", other["turnId"]).check(4)
    assert "has no turn" in run.err


def test_raw_is_what_was_said_and_nothing_else(mcode: Mcode, session: str) -> None:
    assert shown(mcode, session, "--turn", "last", "--raw") == "thank you\n\nYou are welcome.\n"


def test_raw_into_a_pipe_is_as_it_was_said(mcode: Mcode, peer: Peer) -> None:
    said = "\x1b[31mred\x1b[0m \u202e tab\t.\r\nnext\n"
    peer.script(say(said))
    session = mcode.exec("x", *JSON).check().result["sessionId"]
    assert said.encode() in mcode.run("sessions", "show", session, "--raw").check().out_bytes
    assert "\x1b" not in shown(mcode, session)
    assert "\x1b" not in shown(mcode, session, "--markdown")


def test_markdown_quotes_what_tools_said_whatever_it_is(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "printf '```\\n# no heading\\n````\\n'"}), say("**done**"))
    session = mcode.exec("# a *title* `here`", *JSON).check().result["sessionId"]
    text = shown(mcode, session, "--markdown")
    assert text.startswith("# \\# a \\*title\\* \\`here\\`\n")
    assert "`````text\n```\n# no heading\n````\n`````\n" in text
    assert "\n**done**\n" in text


@pytest.mark.parametrize(
    "flags",
    [("--raw", "--markdown"), ("--raw", "--expand"), ("--html", "x", "--raw"), ("--markdown", *JSON)],
)
def test_forms_that_exclude_each_other_are_refused(
    mcode: Mcode, session: str, flags: tuple[str, ...]
) -> None:
    assert "cannot be combined" in mcode.run("sessions", "show", session, *flags).check(2).err


def test_a_running_turn_is_the_fence(mcode: Mcode, peer: Peer, session: str) -> None:
    peer.script(answer(say("first words"), call("bash", {"command": "echo seen"})), hang())
    running = mcode.start("exec", "and now", "--session", session, "--output-format", "stream-json")
    running.wait_event("item.completed")
    deadline = 200
    while not (found := document(mcode, session))["currentTurnId"] and deadline:
        deadline -= 1
    last = found["questions"][-1]["turns"][-1]
    assert (last["state"], last["isFolded"]) == ("running", False)
    assert last["turnId"] == found["currentTurnId"]
    assert "── turn running" in shown(mcode, session)
    running.process.terminate()
    running.finish()
    assert document(mcode, session)["currentTurnId"] is None


def test_secrets_are_masked_in_every_form(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": f"echo {KEY}"}), say(f"it is {KEY}"))
    session = mcode.exec("x", *JSON).check().result["sessionId"]
    for form in ((), ("--expand",), ("--raw",), ("--markdown",), JSON, ("--html", "-")):
        assert KEY not in shown(mcode, session, *form), form


def test_a_long_session_is_read_by_the_page(mcode: Mcode, session: str) -> None:
    """Nothing but the rows of the page is read: the others cannot be."""
    connection = sqlite3.connect(mcode.data / "mcode.db")
    with connection:
        (first,) = connection.execute(
            "SELECT min(row) FROM messages WHERE session_id = ?", (session,)
        ).fetchone()
        connection.execute("UPDATE messages SET data = x'00' WHERE row = ?", (first,))
    connection.close()
    assert len(document(mcode, session, "--limit", "3")["messages"]) == 3
    mcode.run("sessions", "show", session).check(74)

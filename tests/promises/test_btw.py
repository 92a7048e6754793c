"""`mcode sessions btw`: a question beside a session, which stays as it is, also while it runs."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.promises.test_fork import JSON, conversation_of_two, everything_of, run_once, words
from tests.promises.test_prompt_prefix import conversation
from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import call, say, status

STREAM = ("--output-format", "stream-json")
BOUNDARY = "a side conversation begins here"


def asides(mcode: Mcode) -> list[dict[str, Any]]:
    return mcode.query("SELECT * FROM sessions WHERE session_kind = 'peek' ORDER BY created_ms")


def test_the_answer_knows_the_session_and_the_session_does_not_know_of_it(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    session = conversation_of_two(mcode, peer)
    before, last = everything_of(mcode, session), peer.last
    peer.script(say("beside"))
    run = mcode.run("sessions", "btw", session, "what was the first answer?").check()
    assert run.out == "beside\n"
    assert not peer.last.violations
    assert conversation(peer.last).startswith(conversation(last))
    text = peer.last.text
    assert text.index("second answer") < text.index(BOUNDARY) < text.index("what was the first answer?")
    assert everything_of(mcode, session) == before
    (aside,) = asides(mcode)
    kept = ("visibility", "purpose", "parent_id", "forked_from", "session_key", "status")
    assert [aside[name] for name in kept] == ["hidden", "peek_btw_session", session, session, None, "idle"]
    assert aside["title"] == "what was the first answer?"
    assert f"mcode sessions show {aside['id']}" in run.err.partition("read it with: ")[2]
    assert words(mcode, aside["id"])[-2:] == ["what was the first answer?", "beside"]


def test_it_is_hidden_and_its_id_leads_to_its_parent(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    mcode.run("sessions", "btw", session, "psst").check()
    (aside,) = asides(mcode)
    listed = mcode.run("sessions", "list", "--output-format", "jsonl").check().events
    assert [one["id"] for one in listed] == [session]
    everything = mcode.run("sessions", "list", "--all", "--output-format", "jsonl").check().events
    assert {one["id"] for one in everything} == {session, aside["id"]}
    peer.script(say("third"))
    assert mcode.exec("go on", "--continue", *JSON).check().result["sessionId"] == session
    run = mcode.exec("go on", "--session", aside["id"], *JSON).check()
    assert run.result["sessionId"] == session
    assert "is an internal session" in run.err
    assert BOUNDARY not in peer.last.text
    run = mcode.exec("fork it", "--fork", aside["id"], *STREAM).check()
    assert run.of_type("session.forked")[0]["forkedFrom"] == session
    assert BOUNDARY not in peer.last.text


def test_a_running_session_is_asked_beside_and_goes_on(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("settled"))
    session = run_once(mcode, "first")
    peer.script(say("I see.") + call("bash", {"command": "echo seen"}), call("bash", {"command": "sleep 60"}))
    running = mcode.start("exec", "second", "--session", session, *STREAM)
    running.wait_event("item.updated", where=lambda event: "sleep" in json.dumps(event))
    peer.script(say("it waits"))
    run = mcode.run("sessions", "btw", session, "what is it doing?", *STREAM).check()
    assert run.result["output"] == "it waits"
    assert run.of_type("session.forked")[0]["forkedFrom"] == session
    assert "seen" in peer.last.text
    assert "sleep 60" not in peer.last.text
    assert [one["type"] for one in running.events if one["type"] in ("turn.failed", "turn.completed")] == []
    peer.script(say("ended"))
    running.send(signal.SIGINT)
    running.finish().check(-signal.SIGINT)
    assert BOUNDARY not in json.dumps(mcode.history(session))


def test_it_goes_with_its_parent(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    mcode.run("sessions", "btw", session, "one").check()
    mcode.run("sessions", "btw", session, "two").check()
    mcode.run("sessions", "delete", session).check()
    assert mcode.query("SELECT id FROM sessions") == []
    assert mcode.session_dirs() == []


def test_one_alone_can_be_deleted(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    mcode.run("sessions", "btw", session, "one").check()
    mcode.run("sessions", "delete", asides(mcode)[0]["id"]).check()
    assert [row["id"] for row in mcode.query("SELECT id FROM sessions")] == [session]


def test_its_rights_are_at_most_those_of_its_parent(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("one"))
    session = run_once(mcode, "p", "--permission", "read-only", "--deny", "bash:uname *")
    peer.script(
        call("write", {"file_path": "x", "content": "x"}) + call("bash", {"command": "uname -a"}),
        say("refused"),
    )
    run = mcode.run(
        "sessions", "btw", session, "write", "--permission", "full", "--allow", "edit:*", "--allow", "bash:uname *",
        *JSON,
    ).check()  # fmt: skip
    assert [one["tool"] for one in run.result["permissionDenials"]] == ["write", "bash"]
    assert not (mcode.workspace / "x").exists()
    peer.script(call("bash", {"command": "pwd"}), say("narrower"))
    run = mcode.run("sessions", "btw", session, "look", "--deny", "bash:pwd", *JSON).check()
    assert [one["verdict"] for one in run.result["permissionDenials"]] == ["deny"]


def test_it_works_where_its_parent_works(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    worktree = mcode.exec("p", "--worktree", *JSON).check().result["worktree"]
    session = mcode.query("SELECT id FROM sessions")[0]["id"]
    peer.script(call("bash", {"command": "pwd"}), say("there"))
    run = mcode.run("sessions", "btw", session, "where?", *JSON, cwd="/").check()
    assert f"{worktree['path']}\\n" in peer.last.text
    assert run.result["worktree"] == worktree
    assert "the workspace of this conversation is now" not in peer.last.text
    mcode.run("sessions", "delete", asides(mcode)[0]["id"]).check()
    assert (mcode.root / worktree["path"]).is_dir(), "its parent still works there"
    mcode.run("sessions", "delete", session).check()
    assert not (mcode.root / worktree["path"]).exists()


def test_a_request_id_is_of_the_session_that_is_asked_beside(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    peer.script(say("once"), say("twice"), say("thrice"))
    btw = ("sessions", "btw", session, "q", "--request-id", "r", *JSON)
    first, again = mcode.run(*btw).check().result, mcode.run(*btw).check().result
    assert (again["replayed"], again["output"], again["sessionId"]) == (True, "once", first["sessionId"])
    assert len(asides(mcode)) == 1
    other = mcode.exec("q", "--request-id", "r", *JSON).check().result
    assert (other["replayed"], other["output"]) == (False, "twice")


def test_a_question_that_failed_says_so_as_any_run(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    peer.script(status(400, {"error": {"message": "no", "type": "invalid_request_error"}}))
    run = mcode.run("sessions", "btw", session, "q", *JSON).check(4)
    assert run.result["status"] == "failed"
    assert mcode.run("sessions", "btw", session).check(2).err.startswith("mcode: error: nothing to run")
    mcode.run("sessions", "btw", "mvs_00000000", "q").check(4)
    assert len(asides(mcode)) == 1


@pytest.mark.parametrize(
    "flag",
    [
        "--session=mvs_00000000",
        "--continue",
        "--fork=latest",
        "--worktree",
        "--ephemeral",
        "--when-busy=wait",
    ],
)
def test_what_a_side_conversation_decides_is_no_flag_of_it(mcode: Mcode, flag: str) -> None:
    run = mcode.run("sessions", "btw", "mvs_00000000", "q", flag, *JSON).check(2)
    assert run.result["error"]["code"] == "turn_invalid_input"


def test_dry_run_says_what_it_would_begin_with(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    told = json.loads(mcode.run("sessions", "btw", session, "q", "--dry-run", *JSON).check().out)
    assert told["invocation"]["session"]["forkedFrom"] == session
    assert asides(mcode) == []

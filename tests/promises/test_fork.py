"""`mcode sessions fork`: a new session with the history of another, which does not notice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.test_prompt_prefix import conversation
from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.pictures import png
from tests.support.steps import call, say, status

JSON = ("--output-format", "json")


def run_once(mcode: Mcode, *args: str) -> str:
    """The session of one run."""
    session_id: str = mcode.exec(*args, *JSON).check().result["sessionId"]
    return session_id


def fork(mcode: Mcode, *args: str, **how: Any) -> dict[str, Any]:
    """What `sessions fork` says of the fork it made."""
    told: dict[str, Any] = json.loads(mcode.run("sessions", "fork", *args, *JSON, **how).check().out)
    return told


def shown(mcode: Mcode, session_id: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(mcode.run("sessions", "show", session_id, *JSON).check().out)
    return told


def words(mcode: Mcode, session_id: str) -> list[str]:
    """The texts of a session's messages, as they are shown."""
    return [
        part["text"]
        for message in shown(mcode, session_id)["messages"]
        for part in message["parts"]
        if part["type"] == "text"
    ]


def everything_of(mcode: Mcode, session_id: str) -> Any:
    """All that is kept of a session, to see that nothing of it has changed."""
    tables = ("messages", "token_usage", "turn_receipts")
    rows = [mcode.query(f"SELECT * FROM {table} WHERE session_id = ?", session_id) for table in tables]
    directory = mcode.session_dir(session_id)
    files = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return rows, mcode.query("SELECT * FROM sessions WHERE id = ?", session_id), files


def conversation_of_two(mcode: Mcode, peer: Peer) -> str:
    peer.script(
        say("I look.") + call("bash", {"command": "echo one"}) + call("bash", {"command": "echo two"}),
        say("first answer"),
        say("second answer"),
    )
    session = run_once(mcode, "first prompt", "--label", "team=a", "--session-key", "k")
    mcode.exec("second prompt", "--session", session).check()
    return session


def test_a_fork_goes_on_with_what_its_source_said_and_the_source_does_not(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    session = conversation_of_two(mcode, peer)
    before = everything_of(mcode, session)
    out = mcode.run("sessions", "fork", session).check().out
    fork_id = out.strip()
    assert out == f"{fork_id}\n"
    assert everything_of(mcode, session) == before
    assert words(mcode, fork_id) == words(mcode, session)
    peer.script(say("other answer"))
    mcode.exec("another way", "--session", fork_id).check()
    assert not peer.last.violations
    assert [text in peer.last.text for text in ("first prompt", "two", "second answer", "another way")] == [
        True
    ] * 4
    assert words(mcode, fork_id)[-2:] == ["another way", "other answer"]
    assert everything_of(mcode, session) == before


def test_the_first_request_of_a_fork_begins_with_the_bytes_of_its_sources_last(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    make_repository(mcode.workspace, {"a.txt": "one\n"})
    (mcode.workspace / "a.png").write_bytes(png())
    peer.script(
        call("read", {"file_path": "a.png"}) + call("bash", {"command": "seq 30000"}),
        say("seen"),
        say("and again"),
    )
    session = run_once(mcode, "look", "--file", "a.png")
    mcode.exec("once more", "--session", session).check()
    last = peer.last
    fork_id = fork(mcode, session)["sessionId"]
    for how in (("--session", fork_id), ("--fork", session)):
        peer.script(say("fine"))
        mcode.exec("go on", *how).check()
        assert not peer.last.violations
        assert conversation(peer.last).startswith(conversation(last))


def test_what_comes_along_and_what_does_not(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(tables='[agents.reviewer]\nprompt = "you review"\n')
    peer.script(say("one"))
    session = run_once(
        mcode, "p", "--agent", "reviewer", "--label", "team=a", "--label", "x=1", "--session-key", "k",
        "--deny", "bash:curl *", "--title", "The plan", "--effort", "low",
    )  # fmt: skip
    mcode.run("queue", "add", session, "later").check()
    told = fork(mcode, session, "--label", "x=2")
    (source,) = mcode.query("SELECT * FROM sessions WHERE id = ?", session)
    (made,) = mcode.query("SELECT * FROM sessions WHERE id = ?", told["sessionId"])
    same = ("project_id", "workspace", "agent", "provider_id", "model_id", "variant", "effort", "permission")
    assert {name: made[name] for name in same} == {name: source[name] for name in same}
    assert json.loads(made["labels"]) == {"team": "a", "x": "2"}
    assert json.loads(made["permission"]) == {"rules": [["deny", "bash:curl *"]]}
    assert (made["session_key"], made["status"], made["parent_id"]) == (None, "idle", None)
    assert (made["visibility"], made["session_kind"], made["session_type"]) == (
        "visible",
        "conversation",
        "branch",
    )
    assert mcode.query("SELECT session_id FROM queue_items") == [{"session_id": session}]
    assert mcode.query("SELECT DISTINCT session_id FROM token_usage") == [{"session_id": session}]
    assert mcode.query("SELECT DISTINCT session_id FROM turn_receipts") == [{"session_id": session}]
    peer.script(call("bash", {"command": "curl http://127.0.0.1:9/"}), say("refused"))
    run = mcode.exec("fetch it", "--session", told["sessionId"], *JSON).check()
    assert [one["verdict"] for one in run.result["permissionDenials"]] == ["deny"]
    assert "you review" in peer.last.text
    assert made["effort"] == "low"
    peer.script(say("x"))
    other = mcode.exec("and so", "--fork", session, *JSON).check().result["sessionId"]
    assert peer.last.json["thinking"]["type"] == "enabled", "its effort"
    assert "you review" in peer.last.text
    assert mcode.query("SELECT effort, agent FROM sessions WHERE id = ?", other) == [
        {"effort": "low", "agent": "reviewer"}
    ]


def test_a_fork_knows_what_it_was_forked_from_and_where(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    last = shown(mcode, session)["messages"][-1]["id"]
    told = fork(mcode, session)
    assert (told["forkedFrom"], told["forkedAt"], told["schemaVersion"]) == (session, last, 1)
    row = shown(mcode, told["sessionId"])["session"]
    assert (row["forkedFrom"], row["forkedAt"]) == (session, last)
    listed = json.loads(mcode.run("sessions", "list", *JSON).check().out)["sessions"]
    assert {one["id"]: one["forkedFrom"] for one in listed} == {session: None, told["sessionId"]: session}
    assert f"forked from {session}" in mcode.run("sessions", "show", told["sessionId"]).check().out


@pytest.mark.parametrize(
    ("title", "of_the_fork"),
    [
        ("The plan", "The plan (fork #1)"),
        ("The plan (fork #1)", "The plan (fork #2)"),
        ("x" * 80, "x" * 69 + "… (fork #1)"),
    ],
)
def test_the_title_says_that_it_is_a_fork(mcode: Mcode, peer: Peer, title: str, of_the_fork: str) -> None:
    session = run_once(mcode, "p", "--title", title)
    told = fork(mcode, session)
    assert told["title"] == of_the_fork
    assert len(told["title"]) <= 80
    assert fork(mcode, session, "--title", "mine")["title"] == "mine"


def test_a_fork_is_cut_behind_any_message_and_never_between_a_call_and_its_result(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    session = conversation_of_two(mcode, peer)
    messages = shown(mcode, session)["messages"]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
    ]
    for count, message in enumerate(messages, start=1):
        told = fork(mcode, session, "--at", message["id"])
        assert told["forkedAt"] == message["id"]
        copied = shown(mcode, told["sessionId"])["messages"]
        assert [one["parts"] for one in copied] == [one["parts"] for one in messages[:count]]
        peer.script(say("on"))
        mcode.exec("go on", "--session", told["sessionId"]).check()
        assert not peer.last.violations, message


def test_a_prefix_of_a_messages_id_is_enough_and_a_wrong_one_is_said(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    first = shown(mcode, session)["messages"][0]["id"]
    assert first.startswith("msg-user-v1-")
    assert fork(mcode, session[:14], "--at", first[:24])["forkedAt"] == first
    count = len(mcode.session_dirs())
    refused = mcode.run("sessions", "fork", session, "--at", "msg-00000000").check(4)
    assert "has no message msg-00000000" in refused.err
    assert "mcode sessions show" in refused.err
    assert len(mcode.session_dirs()) == count
    assert mcode.query("SELECT count(*) n FROM sessions") == [{"n": 2}]
    assert mcode.query("SELECT * FROM operations") == []


def test_a_prompt_without_an_answer_is_left_out(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("answered"))
    session = run_once(mcode, "one")
    peer.script(status(400, {"error": {"message": "no", "type": "invalid_request_error"}}))
    mcode.exec("two", "--session", session).check(4)
    assert words(mcode, session) == ["one", "answered", "two"]
    assert words(mcode, fork(mcode, session)["sessionId"]) == ["one", "answered"]
    failed = shown(mcode, session)["messages"][-1]["id"]
    told = fork(mcode, session, "--at", failed)
    assert words(mcode, told["sessionId"]) == ["one", "answered"]
    assert told["forkedAt"] == shown(mcode, session)["messages"][1]["id"]


def test_where_nothing_was_answered_there_is_nothing_to_fork(mcode: Mcode, peer: Peer) -> None:
    peer.script(status(400, {"error": {"message": "no", "type": "invalid_request_error"}}))
    session = mcode.exec("one", *JSON).check(4).result["sessionId"]
    refused = mcode.run("sessions", "fork", session).check(4)
    assert "nothing_to_fork" in refused.err
    run = mcode.exec("again", "--fork", session, *JSON).check(4)
    assert run.result["error"]["code"] == "nothing_to_fork"
    assert mcode.query("SELECT id FROM sessions") == [{"id": session}]


def test_a_fork_of_a_fork_is_a_fork_too(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    first = fork(mcode, session)["sessionId"]
    second = fork(mcode, first)["sessionId"]
    assert words(mcode, second) == words(mcode, session)
    ids = [row["id"] for row in mcode.query("SELECT id FROM messages")]
    assert len(set(ids)) == len(ids) == 15
    peer.script(say("on"))
    mcode.exec("go on", "--session", second).check()
    assert not peer.last.violations
    assert mcode.run("sessions", "verify", second).check().out == ""
    keys = mcode.query("SELECT id, cache_key FROM sessions ORDER BY created_ms")
    assert [row["cache_key"] for row in keys] == [None, session, session], "one prompt cache for all of them"


def test_a_fork_of_a_prompt_that_was_never_run_keeps_it_in_the_next_fork(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    prompt = shown(mcode, session)["messages"][3]["id"]
    first = fork(mcode, session, "--at", prompt)["sessionId"]
    assert words(mcode, first)[-1] == "second prompt"
    assert words(mcode, fork(mcode, first)["sessionId"])[-1] == "second prompt"


def test_a_fork_keeps_its_files_when_its_source_is_deleted(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "a.png").write_bytes(png())
    peer.script(call("bash", {"command": "seq 30000"}), say("long"))
    session = run_once(mcode, "look", "--file", "a.png")
    output = next(mcode.session_dir(session).glob("reports/tool-outputs/*.txt"))
    fork_id = fork(mcode, session)["sessionId"]
    assert [one.name for one in mcode.session_dir(fork_id).glob("reports/tool-outputs/*")] == [output.name]
    mcode.run("sessions", "delete", session).check()
    peer.script(call("read", {"file_path": str(output), "offset": 29990}), say("read"))
    run = mcode.exec("read the rest", "--session", fork_id, *JSON).check()
    assert run.result["toolErrors"] == 0
    assert "29995" in peer.last.text
    assert "image" in peer.last.text
    assert not peer.last.violations


def test_what_a_fork_copied_is_not_counted_again_when_its_rows_are_made_anew(
    mcode: Mcode, peer: Peer
) -> None:
    session = conversation_of_two(mcode, peer)
    fork_id = fork(mcode, session)["sessionId"]
    usage = mcode.run("usage", "--by", "session", *JSON).check().out
    history = mcode.session_dir(fork_id) / "messages.jsonl"
    history.write_bytes(history.read_bytes() + b"what is this\n")
    mcode.run("sessions", "verify", fork_id, "--repair").check()
    assert mcode.run("usage", "--by", "session", *JSON).check().out == usage
    assert words(mcode, fork_id) == words(mcode, session)


def test_the_fork_belongs_to_the_directory_it_was_made_in_and_the_model_is_told(
    mcode: Mcode, peer: Peer
) -> None:
    session = conversation_of_two(mcode, peer)
    other = mcode.root / "other"
    other.mkdir()
    told = fork(mcode, session, cwd=other)
    assert told["workspace"] == str(other)
    peer.script(say("here"))
    mcode.exec("where are you?", "--session", told["sessionId"], cwd=other).check()
    assert (
        f"the workspace of this conversation is now {other}; before, it was {mcode.workspace}"
        in peer.last.text
    )
    assert not peer.last.violations
    recorded = fork(mcode, session, "--cwd", "@recorded", cwd=other)
    assert recorded["workspace"] == str(mcode.workspace)
    assert words(mcode, recorded["sessionId"]) == words(mcode, session)


def test_a_fork_is_watched_from_its_own_turns_on(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    fork_id = fork(mcode, session)["sessionId"]
    watched = mcode.run("sessions", "watch", fork_id, "--output-format", "jsonl").check()
    assert watched.out == ""
    last = shown(mcode, fork_id)["messages"][-1]["id"]
    peer.script(say("fresh"))
    mcode.exec("go on", "--session", fork_id).check()
    behind = mcode.run("sessions", "watch", fork_id, "--after", last, "--output-format", "jsonl").check()
    assert [event["type"] for event in behind.events] == ["turn.started", "item.completed", "turn.completed"]
    assert "nothing to retry" in mcode.run("retry", fork(mcode, session)["sessionId"]).check(4).err


def test_a_session_that_is_not_there_is_said(mcode: Mcode) -> None:
    refused = mcode.run("sessions", "fork", "mvs_0123456789").check(4)
    assert "mcode sessions list --all" in refused.err
    assert not mcode.data.exists()

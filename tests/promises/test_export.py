"""`sessions export` and the way back: nothing is lost, nothing secret leaves, other programs' documents are theirs."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import KEY, Mcode, Run
from tests.support.peer import Peer
from tests.support.pictures import png
from tests.support.steps import answer, call, say, status, think

JSON = ("--output-format", "json")
ANSWER = "done — fertig \u202e \x1b[31m\n"


@pytest.fixture
def session(mcode: Mcode, peer: Peer) -> str:
    """Thinking, calls, a picture, a failed turn that went on, usage of both."""
    (mcode.workspace / "a.png").write_bytes(png())
    peer.script(
        answer(
            think("hm"),
            say("I look."),
            call("bash", {"command": "echo one"}),
            call("read", {"file_path": "no"}),
        ),
        status(400, {"error": {"type": "invalid_request_error", "message": "no"}}),
        say(ANSWER),
    )
    flags = ("--file", "a.png", "--label", "team=ci", "--title", "A *title*")
    made: str = mcode.exec("look at this", *flags, *JSON).check(4).result["sessionId"]
    mcode.run("retry", made).check()
    return made


def export(mcode: Mcode, session: str, *args: str) -> Run:
    return mcode.run("sessions", "export", session, *args).check()


def document(mcode: Mcode, session: str, env: dict[str, str | None] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(mcode.run("sessions", "export", session, env=env).check().out)
    return found


def elsewhere(mcode: Mcode) -> dict[str, str | None]:
    return {"MCODE_HOME": str(mcode.root / "other")}


def test_an_export_has_all_of_a_session(mcode: Mcode, session: str) -> None:
    found = document(mcode, session)
    assert (found["format"], found["formatVersion"]) == ("mcode.session", 2)
    assert found["history"] == [line for line in mcode.history(session) if "message" in line]
    assert found["generation"] == mcode.history(session)[0]
    assert [turn["outcome"] for turn in found["turns"]] == ["failed", "completed"]
    assert found["turns"][1]["result"]["output"] == ANSWER
    assert len(found["usage"]) == 2
    assert [len(body) > 20 for body in found["attachments"].values()] == [True]
    assert found["messages"] == []


def test_it_comes_back_as_it_was(mcode: Mcode, session: str) -> None:
    file = mcode.root / "s.json"
    export(mcode, session, "-o", str(file))
    there = elsewhere(mcode)
    brought = json.loads(mcode.run("sessions", "import", file, *JSON, env=there).check().out)["sessions"]
    assert [(row["sessionId"], row["outcome"]) for row in brought] == [(session, "imported")]
    assert without_time(document(mcode, session, there)) == without_time(document(mcode, session))
    show = ("sessions", "show", session, *JSON)
    assert (
        json.loads(mcode.run(*show, env=there).out)["questions"]
        == json.loads(mcode.run(*show).out)["questions"]
    )
    assert (
        json.loads(mcode.run(*show, env=there).out)["messages"]
        == json.loads(mcode.run(*show).out)["messages"]
    )
    usage = ("usage", "--by", "model", *JSON)
    assert mcode.run(*usage, env=there).check().out == mcode.run(*usage).check().out
    assert "the history is sound" in mcode.run("sessions", "verify", session, env=there).check().err
    again = json.loads(mcode.run("sessions", "import", file, *JSON, env=there).check().out)["sessions"]
    assert again[0]["outcome"] == "unchanged"
    assert without_time(document(mcode, session, there)) == without_time(document(mcode, session))


def without_time(found: dict[str, Any]) -> dict[str, Any]:
    private = ("projectId", "updatedMs")
    info = {name: value for name, value in found["session"].items() if name not in private}
    return {**found, "exportedMs": 0, "session": info}


def test_what_came_back_runs(mcode: Mcode, peer: Peer, session: str) -> None:
    file = mcode.root / "s.json"
    export(mcode, session, "-o", str(file))
    mcode.run("sessions", "import", file, env=elsewhere(mcode)).check()
    peer.script(say("I go on"))
    run = mcode.exec("--session", session, "go on", *JSON, env=elsewhere(mcode)).check()
    assert run.result["output"] == "I go on"
    assert "look at this" in json.dumps(peer.last.json)
    assert (
        mcode.exec("--continue", "and on", *JSON, env=elsewhere(mcode)).check().result["sessionId"] == session
    )


def test_a_copy_beside_it_has_ids_of_its_own(mcode: Mcode, session: str) -> None:
    file = mcode.root / "s.json"
    export(mcode, session, "-o", str(file))
    (row,) = json.loads(mcode.run("sessions", "import", file, "--new-id", *JSON).check().out)["sessions"]
    assert row["sessionId"] != session
    first, copy = document(mcode, session), document(mcode, row["sessionId"])
    assert [line["message"] for line in copy["history"]] == [line["message"] for line in first["history"]]
    assert not {line["id"] for line in copy["history"]} & {line["id"] for line in first["history"]}
    assert [turn["outcome"] for turn in copy["turns"]] == ["failed", "completed"]
    assert copy["turns"][1]["result"]["sessionId"] == row["sessionId"]
    assert [one["inputTokens"] for one in copy["usage"]] == [one["inputTokens"] for one in first["usage"]]
    assert copy["attachments"] == first["attachments"]


def test_an_import_that_was_killed_is_finished_by_the_next(mcode: Mcode, session: str) -> None:
    file = mcode.root / "s.json"
    export(mcode, session, "-o", str(file))
    there = elsewhere(mcode)
    killed = mcode.run("sessions", "import", file, env={**there, "MCODE_FAULT": "after-restored-files"})
    assert killed.code == -9
    assert json.loads(mcode.run("sessions", "list", *JSON, env=there).check().out)["sessions"] == []
    mcode.run("sessions", "import", file, env=there).check()
    assert without_time(document(mcode, session, there)) == without_time(document(mcode, session))


def test_no_secret_leaves_even_when_it_is_out_of_sight(mcode: Mcode, peer: Peer) -> None:
    other = "oth3r-token-value"
    peer.script(
        answer(think(f"use {KEY}"), call("bash", {"command": f"echo {KEY} {other}"})), say(f"I used {KEY}")
    )
    run = mcode.exec(f"use {KEY} and {other}", *JSON, env={"DEPLOY_TOKEN": other}).check()
    session = run.result["sessionId"]
    mcode.config.write_text("")
    for form in ("mcode", "opencode", "claude", "markdown", "html"):
        text = mcode.run("sessions", "export", session, "--format", form, env={"FAKE_KEY": None}).check().out
        assert KEY not in text, form
        assert other not in text, form
        assert "***" in text
    found = json.loads(mcode.run("sessions", "export", session, env={"FAKE_KEY": None}).out)
    thinking = found["history"][1]["message"]["content"][0]
    assert thinking["text"] == "use ***"
    assert "signature" not in thinking, "what was signed were other words"


@pytest.mark.parametrize("form", ["mcode", "opencode", "claude", "markdown", "html"])
def test_a_file_is_written_whole_and_for_its_owner_alone(mcode: Mcode, session: str, form: str) -> None:
    target = mcode.root / "out"
    target.write_text("what stood there")
    target.chmod(0o666)
    missing = mcode.run("sessions", "export", "mvs_" + "0" * 32, "--format", form, "-o", target).check(4)
    assert missing.out == ""
    assert target.read_text() == "what stood there"
    export(mcode, session, "--format", form, "-o", str(target))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert "fertig" in target.read_text()
    assert [path for path in target.parent.iterdir() if path.name.endswith(".tmp")] == []


def test_the_store_itself_is_no_target(mcode: Mcode, session: str) -> None:
    run = mcode.run("sessions", "export", session, "-o", mcode.data / "mcode.db").check(74)
    assert "mcode's own" in run.err
    mcode.run("sessions", "verify", session).check()


def test_opencode_gets_a_document_of_its_own_kind(mcode: Mcode, session: str) -> None:
    found = json.loads(export(mcode, session, "--format", "opencode").out)
    info, messages = found["info"], found["messages"]
    assert info["id"].startswith("ses_")
    assert info["directory"] == str(mcode.workspace)
    assert [one["info"]["role"] for one in messages] == ["user", "assistant", "user", "assistant"]
    ids = [one["info"]["id"] for one in messages]
    assert ids == sorted(ids)
    for one in messages:
        assert {part["messageID"] for part in one["parts"]} == {one["info"]["id"]}
        parts = [part["id"] for part in one["parts"]]
        assert parts == sorted(parts)
    tools = [part for part in messages[1]["parts"] if part["type"] == "tool"]
    assert [tool["state"]["status"] for tool in tools] == ["completed", "error"]
    assert tools[1]["state"]["input"] == {"filePath": "no"}
    assert any(
        part["type"] == "file" and part["url"].startswith("data:image/png") for part in messages[0]["parts"]
    )
    assert messages[-1]["info"]["tokens"]["input"] > 0
    assert json.loads(export(mcode, session, "--format", "opencode").out) == found, "the same each time"


def test_claude_code_gets_a_chain_of_lines(mcode: Mcode, session: str) -> None:
    lines = [json.loads(line) for line in export(mcode, session, "--format", "claude").out.splitlines()]
    entries = [line for line in lines if "uuid" in line]
    assert [entry["parentUuid"] for entry in entries] == [None, *(entry["uuid"] for entry in entries[:-1])]
    assert lines[-1]["leafUuid"] == entries[-1]["uuid"]
    assert {line["sessionId"] for line in lines} == {lines[0]["sessionId"]}
    calls = {b["id"] for e in entries for b in content(e) if b["type"] == "tool_use"}
    results = {b["tool_use_id"] for e in entries for b in content(e) if b["type"] == "tool_result"}
    assert calls == results
    assert len(calls) == 2


def content(entry: dict[str, Any]) -> list[dict[str, Any]]:
    found = entry["message"]["content"]
    return [{"type": "text", "text": found}] if isinstance(found, str) else found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no session that mcode knows"),
        ("{", "is no session that mcode knows"),
        ("[]", "is no session that mcode knows"),
        ('{"format":"x"}', "is no session that mcode knows"),
        ('{"format":"mcode.session","formatVersion":1,"messages":[]}', "export the session anew"),
        ('{"format":"mcode.session","formatVersion":99}', "update mcode"),
        ('{"format":"mcode.session","formatVersion":2,"session":{}}', "cannot be taken in"),
    ],
)
def test_a_file_that_is_no_export_is_said_and_nothing_is_made(mcode: Mcode, text: str, said: str) -> None:
    file = mcode.root / "bad.json"
    file.write_text(text)
    run = mcode.run("sessions", "import", file).check(2)
    assert said in run.err
    assert not mcode.session_dirs()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("session", "id"), "mvs_../../../etc"),
        (("session", "createdMs"), -1),
        (("session", "createdMs"), 10**18),
        (("history", 0, "id"), "../x y"),
        (("history", 0, "turn_id"), ""),
        (("history", 0, "message", "role"), "alien"),
        (("history", 1, "message", "content"), 42),
        (("usage", 0, "inputTokens"), "many"),
        (("turns", 0, "acceptedMs"), None),
    ],
)
def test_a_document_that_was_tampered_with_is_refused(
    mcode: Mcode, session: str, path: tuple[Any, ...], value: Any
) -> None:
    found = document(mcode, session)
    at = found
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    file = mcode.root / "bad.json"
    file.write_text(json.dumps(found))
    mcode.run("sessions", "import", file, env=elsewhere(mcode)).check(2)
    assert not list(Path(str(elsewhere(mcode)["MCODE_HOME"])).glob("sessions/*"))


def test_bytes_under_another_digest_and_permissions_do_not_come_along(mcode: Mcode, session: str) -> None:
    found = document(mcode, session)
    (digest,) = found["attachments"]
    found["attachments"] = {digest: "AAAA", "../../x": "AAAA"}
    found["session"]["permission"] = {"preset": "full"}
    found["session"]["sessionKey"] = "nightly"
    file = mcode.root / "bad.json"
    file.write_text(json.dumps(found))
    there = elsewhere(mcode)
    mcode.run("sessions", "import", file, env=there).check()
    back = document(mcode, session, there)
    assert back["attachments"] == {digest: None}
    assert "permission" not in back["session"]
    assert "sessionKey" not in back["session"]

"""`mcode sessions import`: other programs' sessions are taken in, go on here, and their sources stay as they were."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import say
from tests.support.stores import database, footprint, tree

JSON = ("--output-format", "json")
MAIN = "ses_composed0000000000main"
CLAUDE = "5b0e6a54-0000-4000-8000-00000000c1a0"
CODEX = "01a2338e-0000-7000-8000-0000000c0de0"
V2 = "ses_v2composed000000000001"

Put = Callable[[Path], Path]

#: what is put somewhere, and the sessions of it that something was said in
SOURCES: dict[str, tuple[Put, tuple[str, ...]]] = {
    "opencode-v1": (
        lambda at: database("opencode-1.18.33", at / "opencode.db"),
        ("ses_dcc8cc780ffe6mvcJ78rPYr11r", "ses_dcc8b6126ffeUTwLz5bSIC2zB7"),
    ),
    "opencode-v1-composed": (lambda at: database("opencode-v1-composed", at / "opencode.db"), (MAIN,)),
    "opencode-v2": (
        lambda at: database("opencode-v2-composed", at / "opencode.db"),
        (V2, "ses_v2composed000000onlyv1"),
    ),
    "opencode-tree": (lambda at: tree("opencode-1.1.65", at), ("ses_dcc86d941ffeCWkK2BPGBS1vS6",)),
    "claude": (lambda at: tree("claude-2.1.197", at), ("1136bfb1-fa01-48c7-895a-7ae02556bb05",)),
    "claude-composed": (lambda at: tree("claude-composed", at), (CLAUDE,)),
    "codex": (lambda at: tree("codex-0.171", at), ("01a2338e-2e64-7670-bc5a-8e94c5d936b0",)),
    "codex-composed": (lambda at: tree("codex-composed", at), (CODEX,)),
    "daemon": (lambda at: database("daemon-composed", at / "sqlite.db"), ("daemon-session-0001",)),
}


def rows(run: Run) -> dict[str, dict[str, Any]]:
    """What became of each session, by its id at the source."""
    return {row["sourceId"]: row for row in json.loads(run.out)["sessions"]}


def imported(mcode: Mcode, path: Path, *flags: str, code: int = 0) -> dict[str, dict[str, Any]]:
    return rows(mcode.run("sessions", "import", path, *flags, *JSON).check(code))


@pytest.mark.parametrize("name", ["claude-composed", "codex-composed"])
def test_a_file_that_begins_with_a_byte_order_mark_is_taken_in_whole(
    mcode: Mcode, tmp_path: Path, name: str
) -> None:
    (source,) = SOURCES[name][1]
    tree(name, tmp_path / "source")
    (file,) = (path for path in (tmp_path / "source").rglob(f"*{source}.jsonl"))
    first = imported(mcode, file)[source]
    mcode.run("sessions", "delete", source).check()
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    again = imported(mcode, file, "--again")[source]
    assert (again["outcome"], again["messages"]) == (first["outcome"], first["messages"])


def everything(mcode: Mcode) -> tuple[Any, ...]:
    """All of what is kept of sessions."""
    tables = ("sessions", "messages", "token_usage", "session_aliases", "imports")
    kept = [mcode.query(f"SELECT * FROM {table}") for table in tables]
    return (*kept, footprint(mcode.data / "sessions"))


def outcomes(found: dict[str, dict[str, Any]]) -> set[str]:
    return {row["outcome"] for row in found.values()}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", SOURCES)
def test_an_imported_session_goes_on_by_the_id_its_program_gave_it(
    mcode: Mcode, peer: Peer, tmp_path: Path, name: str
) -> None:
    put, ids = SOURCES[name]
    path = put(tmp_path / "source")
    found = imported(mcode, path, code=4 if name == "opencode-v1-composed" else 0)
    for source_id in ids:
        peer.script(say("going on"))
        run = mcode.exec("go on", "--session", source_id, "--cwd", ".", *JSON).check()
        assert run.result["sessionId"] == found[source_id]["sessionId"]
        assert (run.result["output"], peer.last.violations) == ("going on", [])
        assert mcode.run("sessions", "verify", source_id, *JSON).check().out.count("problem") == 0


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", ["opencode-v1-composed", "claude-composed", "codex-composed"])
def test_every_wire_format_takes_the_history(
    mcode: Mcode, peer: Peer, tmp_path: Path, api: str, name: str
) -> None:
    put, ids = SOURCES[name]
    imported(mcode, put(tmp_path / "source"), code=4 if name == "opencode-v1-composed" else 0)
    peer.script(say("fine"))
    mcode.exec("go on", "--session", ids[0], "--cwd", ".").check()
    assert peer.last.violations == []


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_only_read_and_a_second_import_finds_nothing_new(
    mcode: Mcode, tmp_path: Path, name: str
) -> None:
    source = tmp_path / "source"
    path = SOURCES[name][0](source)
    before = footprint(source)
    code = 4 if name == "opencode-v1-composed" else 0
    first = imported(mcode, path, code=code)
    kept = everything(mcode)
    second = imported(mcode, path, code=code)
    assert footprint(source) == before
    assert outcomes(first) <= {"imported", "empty", "failed"}
    assert outcomes(second) <= {"unchanged", "empty", "failed"}
    assert everything(mcode) == kept


def test_what_opencode_has_said_is_there_word_for_word(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    found = imported(mcode, database("opencode-1.18.33", tmp_path / "opencode.db"))
    row = found["ses_dcc8cc780ffe6mvcJ78rPYr11r"]
    assert (row["title"], row["workspace"], row["messages"], row["losses"]) == (
        "Done: final answer.", "/home/u/app", 3, {},
    )  # fmt: skip
    shown = json.loads(mcode.run("sessions", "show", row["sessionId"], *JSON).check().out)
    assert shown["session"]["createdMs"] == 1796159518848
    user, called, said = shown["messages"]
    assert user["id"].startswith("msg-user-v1-")
    assert user["parts"][0]["text"] == '"SCEN_TOOL please"'
    part = next(part for part in called["parts"] if part["type"] == "tool")
    assert (part["tool"], part["state"]["status"], part["state"]["output"]) == (
        "bash",
        "completed",
        "hello-from-tool\n",
    )
    assert (called["providerId"], called["modelId"], called["costUsd"]) == ("fake", "fake-model", "0.000411")
    assert said["parts"][0]["text"] == "Done: final answer."
    usage = json.loads(mcode.run("usage", "--session", row["sessionId"], *JSON).check().out)
    assert "0.000822" in json.dumps(usage)
    # a default title says nothing: the prompt's first line is put in its place
    assert found["ses_dcc8bce15ffe1JIPcd8JiZTZtM"]["title"] == "hi"
    assert found["ses_importedAAAAAAAAAAAAAAAA"]["outcome"] == "empty"


def test_what_cannot_be_taken_along_is_counted_for_each_session(mcode: Mcode, tmp_path: Path) -> None:
    found = imported(mcode, database("opencode-v1-composed", tmp_path / "opencode.db"), code=4)
    assert found[MAIN]["losses"] == {
        "attachment": 1,
        "cleared-output": 1,
        "empty-message": 1,
        "interrupted-tool": 1,
        "reasoning": 1,
        "unknown-role": 1,
        "unreadable": 1,
        "unsupported-part": 1,
    }
    assert found["ses_composed00000000revert"]["losses"] == {"reverted": 2}
    assert (found["../../etc/passwd"]["outcome"], found["../../etc/passwd"]["sessionId"]) == ("failed", None)
    claude = imported(mcode, tree("claude-composed", tmp_path / "claude"))[CLAUDE]
    assert claude["losses"] == {"failed-answer": 1, "other-branch": 2, "sidechain": 1, "unreadable": 1}
    codex = imported(mcode, tree("codex-composed", tmp_path / "codex"))[CODEX]
    assert codex["losses"] == {"interrupted-tool": 1, "reasoning": 1, "unsupported-part": 1}


def test_a_model_is_sent_what_follows_the_newest_compaction_and_people_see_all(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    imported(mcode, database("opencode-v1-composed", tmp_path / "opencode.db"), code=4)
    imported(mcode, tree("claude-composed", tmp_path / "claude"))
    imported(mcode, tree("codex-composed", tmp_path / "codex"))
    for session, old, recap in (
        (MAIN, "old words", "A recap of old words."),
        (CLAUDE, "an early answer", "A recap: colours were spoken of."),
        (CODEX, "three files", "The user asked for files; there are three."),
    ):
        peer.script(say("fine"))
        mcode.exec("go on", "--session", session, "--cwd", ".").check()
        assert recap in peer.last.text
        assert old not in peer.last.text.replace(recap, "")
        assert old in mcode.run("sessions", "show", session).check().out


def test_results_of_calls_that_ran_side_by_side_stay_with_their_calls(mcode: Mcode, tmp_path: Path) -> None:
    row = imported(mcode, tree("claude-composed", tmp_path / "claude"))[CLAUDE]
    messages = mcode.messages(row["sessionId"])
    answer = next(one for one in messages if any(block["type"] == "tool_call" for block in one["content"]))
    thought, *calls = answer["content"]
    assert (thought["signature"], thought["provider_id"]) == ("c2lnbmVk", "anthropic")
    at = messages.index(answer)
    results = [one["content"][0] for one in messages[at + 1 : at + 3]]
    assert [call["id"] for call in calls] == [result["call_id"] for result in results]
    assert [(one["content"], one.get("is_error", False)) for one in results] == [
        ("red", False),
        ("blue", True),
    ]


def test_reasoning_goes_to_its_own_provider_alone(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    imported(mcode, tree("claude-composed", tmp_path / "claude"))
    peer.script(say("fine"))
    mcode.exec("go on", "--session", CLAUDE, "--cwd", ".").check()
    assert b"c2lnbmVk" not in peer.last.body
    assert b"red" in peer.last.body


def test_images_are_kept_and_sent_and_what_is_none_becomes_a_note(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    row = imported(mcode, database("opencode-v1-composed", tmp_path / "opencode.db"), code=4)[MAIN]
    kept = list((mcode.session_dir(row["sessionId"]) / "attachments").iterdir())
    assert len(kept) == 1  # the same picture three times
    shown = mcode.run("sessions", "show", row["sessionId"], *JSON).check().out
    assert "far.png was attached here" in shown


def test_credentials_and_permissions_stay_where_they_are(mcode: Mcode, tmp_path: Path) -> None:
    imported(mcode, database("opencode-v1-composed", tmp_path / "opencode.db"), code=4)
    imported(mcode, database("opencode-1.18.33", tmp_path / "other" / "opencode.db"))
    everything = b"".join(file.read_bytes() for file in mcode.data.rglob("*") if file.is_file())
    assert b"sk-never-read-this" not in everything
    assert {row["permission"] for row in mcode.query("SELECT permission FROM sessions")} == {"{}"}


def test_a_sub_agent_is_internal_and_its_parent_goes_on_instead(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    found = imported(mcode, database("opencode-v1-composed", tmp_path / "opencode.db"), code=4)
    peer.script(say("fine"))
    run = mcode.exec("go on", "--session", "ses_composed000000000child", "--cwd", ".", *JSON).check()
    assert run.result["sessionId"] == found[MAIN]["sessionId"]


def test_only_what_is_new_is_added_by_a_later_import(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    file = tree("codex-0.171", tmp_path / "codex") / "sessions/2026/12/01"
    rollout = next(file.iterdir())
    first = next(iter(imported(mcode, rollout).values()))
    before = mcode.query("SELECT row, id FROM messages ORDER BY row")
    with rollout.open("a", encoding="utf-8") as lines:
        for role, kind, text in (
            ("user", "input_text", "and then?"),
            ("assistant", "output_text", "the end"),
        ):
            payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
            line = {"timestamp": "2026-12-02T00:00:00Z", "type": "response_item", "payload": payload}
            lines.write(json.dumps(line) + "\n")
    second = next(iter(imported(mcode, rollout).values()))
    assert (second["outcome"], second["sessionId"], second["messages"]) == ("updated", first["sessionId"], 4)
    after = mcode.query("SELECT row, id FROM messages ORDER BY row")
    assert after[: len(before)] == before
    assert len(after) == len(before) + 2
    shown = mcode.run("sessions", "show", first["sessionId"]).check().out
    assert shown.index("and then?") < shown.index("the end")
    peer.script(say("fine"))
    mcode.exec("go on", "--session", first["sessionId"], "--cwd", ".").check()
    assert "the end" in peer.last.text


def test_a_session_that_went_on_here_stays_as_it_is(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    path = tree("claude-2.1.197", tmp_path / "claude")
    row = next(iter(imported(mcode, path).values()))
    peer.script(say("here"))
    mcode.exec("go on", "--session", row["sourceId"], "--cwd", ".").check()
    history = mcode.history(row["sessionId"])
    assert outcomes(imported(mcode, path)) == {"unchanged"}
    transcript = next(path.rglob("*.jsonl"))
    transcript.write_text(transcript.read_text(encoding="utf-8") + "{}\n", encoding="utf-8")
    again = next(iter(imported(mcode, path).values()))
    assert again["outcome"] == "changed-here"
    assert "stays as it is" in again["detail"]
    assert mcode.history(row["sessionId"]) == history


def test_a_session_that_was_deleted_here_comes_back_only_with_again(mcode: Mcode, tmp_path: Path) -> None:
    path = tree("claude-2.1.197", tmp_path / "claude")
    row = next(iter(imported(mcode, path).values()))
    mcode.run("sessions", "delete", row["sourceId"]).check()
    assert outcomes(imported(mcode, path)) == {"deleted-here"}
    assert mcode.query("SELECT id FROM sessions") == []
    assert (
        mcode.query("SELECT session_id FROM imports")
        == mcode.query("SELECT session_id FROM session_aliases")
        == []
    )
    assert outcomes(imported(mcode, path, "--again")) == {"imported"}
    assert mcode.query("SELECT session_id FROM tombstones") == []
    assert len(mcode.query("SELECT row FROM token_usage")) == 1  # it was paid for once


@pytest.mark.parametrize("point", ["after-import-history", "after-import-rows"])
def test_an_import_that_was_killed_is_done_by_the_next_one(mcode: Mcode, tmp_path: Path, point: str) -> None:
    path = database("opencode-1.18.33", tmp_path / "opencode.db")
    died = mcode.run("sessions", "import", path, env={"MCODE_FAULT": f"{point}:3"})
    assert died.code == -signal.SIGKILL
    assert outcomes(imported(mcode, path)) <= {"imported", "unchanged", "empty"}
    sessions = mcode.query("SELECT visibility FROM sessions")
    assert (len(sessions), {row["visibility"] for row in sessions}) == (8, {"visible"})
    assert len(mcode.query("SELECT id FROM messages")) == 14


def long_transcript(path: Path, rounds: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parent = None
    with path.open("w", encoding="utf-8") as lines:
        for number in range(rounds):
            for kind, content in (
                ("user", f"question {number}"),
                ("assistant", [{"type": "text", "text": f"answer {number}"}]),
            ):
                uuid = f"{kind}-{number}"
                message: dict[str, Any] = {"role": kind, "content": content}
                if kind == "assistant":
                    message |= {"id": f"msg_{number}", "model": "m"}
                line = {
                    "type": kind,
                    "uuid": uuid,
                    "parentUuid": parent,
                    "sessionId": CLAUDE,
                    "cwd": "/gone",
                    "message": message,
                }
                lines.write(json.dumps(line | {"timestamp": "2026-12-01T00:00:00Z"}) + "\n")
                parent = uuid
    return path


def test_a_long_session_that_was_cut_off_amid_its_rows_is_whole_after_the_next_import(
    mcode: Mcode, tmp_path: Path
) -> None:
    path = long_transcript(tmp_path / f"{CLAUDE}.jsonl", 300)
    died = mcode.run("sessions", "import", path, env={"MCODE_FAULT": "after-import-batch:2"})
    assert died.code == -signal.SIGKILL
    assert mcode.query("SELECT visibility FROM sessions") == [{"visibility": "hidden"}]
    assert outcomes(imported(mcode, path)) == {"updated"}
    assert mcode.query("SELECT visibility FROM sessions") == [{"visibility": "visible"}]
    ids = [row["id"] for row in mcode.query("SELECT id FROM messages ORDER BY row")]
    assert ids == [line["id"] for line in mcode.history()[1:]]
    assert outcomes(imported(mcode, path)) == {"unchanged"}


def test_a_database_in_use_is_read_with_its_log_and_nothing_is_left_beside_it(
    mcode: Mcode, tmp_path: Path
) -> None:
    path = database("opencode-1.18.33", tmp_path / "source" / "opencode.db")
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = wal")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("UPDATE session SET title = 'only in the log' WHERE id = 'ses_dcc8cc780ffe6mvcJ78rPYr11r'")
    writer.commit()
    before = footprint(path.parent)
    found = imported(mcode, path)
    assert found["ses_dcc8cc780ffe6mvcJ78rPYr11r"]["title"] == "only in the log"
    assert footprint(path.parent) == before
    writer.close()
    assert list((mcode.root / "tmp").iterdir()) == []


def test_an_export_of_opencode_is_imported_like_its_store(mcode: Mcode, tmp_path: Path) -> None:
    connection = sqlite3.connect(database("opencode-1.18.33", tmp_path / "opencode.db"))
    session = "ses_dcc8cc780ffe6mvcJ78rPYr11r"
    document: dict[str, Any] = {
        "info": {
            "id": session,
            "directory": "/home/u/app",
            "title": "Done",
            "time": {"created": 1796159518848},
        },
        "messages": [],
    }
    for one, data in connection.execute(
        "SELECT id, data FROM message WHERE session_id = ? ORDER BY id", (session,)
    ).fetchall():
        parts = connection.execute(
            "SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (one,)
        ).fetchall()
        document["messages"].append(
            {
                "info": {"id": one, **json.loads(data)},
                "parts": [{"id": key, **json.loads(part)} for key, part in parts],
            }
        )
    connection.close()
    export = tmp_path / "export.json"
    export.write_text(json.dumps(document, indent=2), encoding="utf-8")
    row = imported(mcode, export)[session]
    first = [line["id"] for line in mcode.history(row["sessionId"])[1:]]
    mcode.run("sessions", "delete", session).check()
    row = imported(mcode, tmp_path / "opencode.db", "--again")[session]
    assert [line["id"] for line in mcode.history(row["sessionId"])[1:]] == first


def test_the_native_store_of_the_daemon_has_its_sessions(mcode: Mcode, tmp_path: Path) -> None:
    path = database("daemon-composed", tmp_path / "sqlite.db")
    database("opencode-1.18.33", tmp_path / "opencode" / "data" / "opencode" / "opencode.db")
    found = imported(mcode, path)
    assert found.keys() == {"daemon-session-0001", "daemon-session-0002"}
    native = mcode.run("sessions", "show", "daemon-session-0002").check().out
    assert "SCEN_TOOL please" in native
    assert "not read" not in native
    assert found["daemon-session-0001"]["workspace"] == str(
        tmp_path / "sessions/daemon-session-0001/workspace"
    )
    status = mcode.query(
        "SELECT status FROM sessions WHERE id = ?", found["daemon-session-0001"]["sessionId"]
    )
    assert status == [{"status": "aborted"}]


@pytest.mark.parametrize("moved", [False, True])
def test_discover_shows_what_is_there_and_imports_it_when_told_so(
    mcode: Mcode, tmp_path: Path, moved: bool
) -> None:
    data = mcode.home / ".local" / "share"
    claude, codex = mcode.home / ".claude", mcode.home / ".codex"
    env: dict[str, str | None] = {}
    if moved:
        data, claude, codex = (tmp_path / name for name in ("x", "y", "z"))
        env = {"XDG_DATA_HOME": str(data), "CLAUDE_CONFIG_DIR": str(claude), "CODEX_HOME": str(codex)}
    database("opencode-1.18.33", data / "opencode" / "opencode.db")
    tree("opencode-1.1.65/storage", data / "opencode" / "storage")
    tree("claude-2.1.197/projects", claude / "projects")
    tree("codex-0.171/sessions", codex / "sessions")
    (claude / ".credentials.json").write_text('{"sessionId": "x", "token": "secret"}', encoding="utf-8")
    (data / "opencode" / "auth.json").write_text('{"info": 1}', encoding="utf-8")
    database("daemon-composed", mcode.home / ".minimax" / "sqlite.db")
    places = json.loads(mcode.run("sessions", "import", "--discover", *JSON, env=env).check().out)["places"]
    assert {(one["kind"], one["sessions"]) for one in places} == {
        ("opencode.db", 9), ("opencode storage", 1), ("claude transcripts", 1), ("codex rollouts", 1), ("sqlite.db", 3),
    }  # fmt: skip
    assert all(one["sizeBytes"] > 0 for one in places)
    assert not (mcode.data / "mcode.db").exists()
    found = rows(mcode.run("sessions", "import", "--discover", "--yes", *JSON, env=env).check())
    assert outcomes(found) == {"imported", "empty"}
    assert len(found) == 14


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no session that mcode knows"),
        (b"hello\n", "is no session that mcode knows"),
        (b"SQLite format 3\0" + b"\xff" * 4096, "cannot be read"),
        (b'{"info": {"id": "ses_x"', "is no export"),
    ],
)
def test_what_is_no_session_is_refused_in_a_sentence(
    mcode: Mcode, tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "what"
    path.write_bytes(content)
    run = mcode.run("sessions", "import", path).check(2)
    assert said in run.err
    assert run.err.startswith("mcode: error: ")
    assert "Traceback" not in run.err


def test_a_path_that_is_not_there_and_no_path_at_all_are_usage_errors(mcode: Mcode, tmp_path: Path) -> None:
    assert "does not exist" in mcode.run("sessions", "import", tmp_path / "no").check(2).err
    assert "--discover" in mcode.run("sessions", "import").check(2).err


def test_names_of_imported_sessions_may_be_cut_short_while_they_are_unique(
    mcode: Mcode, tmp_path: Path
) -> None:
    row = next(iter(imported(mcode, tree("codex-0.171", tmp_path / "codex")).values()))
    shown = mcode.run("sessions", "show", "01a2338e-2e64", *JSON).check().out
    assert json.loads(shown)["session"]["id"] == row["sessionId"]
    assert "none was imported" in mcode.run("sessions", "show", "ses_unheard_of").check(4).err


def test_an_old_store_that_was_left_behind_changes_nothing(mcode: Mcode, tmp_path: Path) -> None:
    data = tree("opencode-1.1.65", tmp_path / "opencode")
    first = next(iter(imported(mcode, data).values()))
    session = first["sourceId"]
    older = tree("opencode-1.1.65", tmp_path / "older")
    (older / "storage/message" / session / "msg_233792875001CZUzjvxPE6S6BI.json").unlink()
    kept = everything(mcode)
    assert outcomes(imported(mcode, older)) == {"unchanged"}
    assert everything(mcode) == kept


def test_the_older_tree_of_opencode_has_the_same_sessions(mcode: Mcode, tmp_path: Path) -> None:
    new = imported(mcode, tree("opencode-1.1.65", tmp_path / "new"))
    session = next(iter(new))
    first = [line["id"] for line in mcode.history(new[session]["sessionId"])[1:]]
    mcode.run("sessions", "delete", session).check()
    source = tmp_path / "new" / "storage"
    older = tmp_path / "old" / "project" / "home-u-app" / "storage" / "session"
    (older / "info").mkdir(parents=True)
    next(source.glob("session/*/*.json")).rename(older / "info" / f"{session}.json")
    (source / "message").rename(older / "message")
    (older / "part" / session).mkdir(parents=True)
    for message in (source / "part").iterdir():
        message.rename(older / "part" / session / message.name)
    row = imported(mcode, tmp_path / "old", "--again")[session]
    assert (row["outcome"], row["losses"]) == ("imported", {})
    assert [line["id"] for line in mcode.history(row["sessionId"])[1:]] == first


def test_ids_are_those_of_paths_and_not_those_in_files(mcode: Mcode, tmp_path: Path) -> None:
    path = tree("opencode-1.1.65", tmp_path / "opencode")
    for file in path.rglob("*.json"):
        text = (
            file.read_text(encoding="utf-8")
            .replace('"id": "', '"id": "stale_')
            .replace('"sessionID": "', '"sessionID": "stale_')
        )
        file.write_text(text, encoding="utf-8")
    row = imported(mcode, path)["ses_dcc86d941ffeCWkK2BPGBS1vS6"]
    assert (row["outcome"], row["messages"]) == ("imported", 3)


def test_a_file_that_cannot_be_read_does_not_stop_the_others(mcode: Mcode, tmp_path: Path) -> None:
    path = tree("codex-composed", tmp_path / "all")
    tree("claude-composed", path / "more")
    (path / "opencode.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    (path / "opencode-cut.db").write_bytes(
        database("opencode-1.18.33", tmp_path / "whole.db").read_bytes()[:20_000]
    )
    (path / "a.jsonl").write_text('{"sessionId": "../../x", "uuid": "u", "type": "user"}\n', encoding="utf-8")
    (path / "link.jsonl").symlink_to("/etc/hostname")
    found = imported(mcode, path, code=4)
    assert [found[one]["outcome"] for one in (CODEX, CLAUDE)] == ["imported", "imported"]
    assert found["opencode.db"]["outcome"] == "failed"
    assert all(row["detail"] for row in found.values() if row["outcome"] == "failed")
    assert not [one for one in mcode.data.rglob("*") if "etc" in one.name]


def test_the_second_format_of_opencode_is_read_where_both_are_there(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    found = imported(mcode, database("opencode-v2-composed", tmp_path / "opencode.db"))
    assert found[V2]["losses"] == {"interrupted-tool": 1, "reasoning": 1, "unsupported-part": 1}
    shown = mcode.run("sessions", "show", V2).check().out
    assert "the converted row that stays behind" not in shown
    assert "only here" in mcode.run("sessions", "show", "ses_v2composed000000onlyv1").check().out
    peer.script(say("fine"))
    mcode.exec("go on", "--session", V2, "--cwd", ".").check()
    assert all(words in peer.last.text for words in ("What came before.", "run it", "it ran", "/home/u/gone"))
    assert "early" not in peer.last.text


def test_one_import_at_a_time_works_on_a_store(mcode: Mcode, tmp_path: Path) -> None:
    import fcntl

    path = tree("codex-composed", tmp_path / "codex")
    mcode.data.mkdir(mode=0o700, exist_ok=True)
    with (mcode.data / "import.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another `mcode sessions import`" in mcode.run("sessions", "import", path).check(75).err
    imported(mcode, path)


def test_every_command_knows_a_session_by_the_name_its_program_gave_it(mcode: Mcode, tmp_path: Path) -> None:
    row = next(iter(imported(mcode, tree("claude-2.1.197", tmp_path / "claude")).values()))
    name, session = row["sourceId"], row["sessionId"]
    assert json.loads(mcode.run("sessions", "export", name).check().out)["session"]["id"] == session
    assert (
        json.loads(mcode.run("usage", "--by", "session", "--session", name, *JSON).check().out)["usage"][0][
            "key"
        ]
        == session
    )
    mcode.run("queue", "add", name, "later").check()
    assert [one["session_id"] for one in mcode.query("SELECT session_id FROM queue_items")] == [session]
    mcode.run("sessions", "watch", name).check()


@pytest.mark.parametrize("point", ["after-import-history", "after-import-batch"])
def test_a_later_import_that_was_killed_loses_nothing(
    mcode: Mcode, peer: Peer, tmp_path: Path, point: str
) -> None:
    path = long_transcript(tmp_path / f"{CLAUDE}.jsonl", 150)
    imported(mcode, path)
    long_transcript(path, 200)
    died = mcode.run("sessions", "import", path, env={"MCODE_FAULT": point})
    assert died.code == -signal.SIGKILL
    # whoever opens the session first finishes its rows
    peer.script(say("fine"))
    mcode.exec("go on", "--session", CLAUDE, "--cwd", ".").check()
    assert "answer 199" in peer.last.text
    ids = [row["id"] for row in mcode.query("SELECT id FROM messages ORDER BY row")]
    assert ids == [line["id"] for line in mcode.history()[1:]]
    assert outcomes(imported(mcode, path)) == {"changed-here"}
    assert mcode.query("SELECT visibility FROM sessions") == [{"visibility": "visible"}]
    assert mcode.query("SELECT state FROM imports") == [{"state": "done"}]

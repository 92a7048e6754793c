"""`mcode sessions verify` finds what does not agree, and `--repair` mends what is certain."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tests.promises.test_fork import JSON, conversation_of_two, run_once, words
from tests.promises.test_rewind import rewind
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.pictures import png


def findings(mcode: Mcode, *args: str, code: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(mcode.run("sessions", "verify", *args, *JSON).check(code).out)[
        "findings"
    ]
    return found


def change(mcode: Mcode, sql: str, *parameters: Any) -> None:
    with sqlite3.connect(mcode.data / "mcode.db") as connection:
        connection.execute(sql, parameters)
    connection.close()


def test_all_sessions_are_looked_at(mcode: Mcode, peer: Peer) -> None:
    sound = conversation_of_two(mcode, peer)
    fork = mcode.run("sessions", "fork", sound).check().out.strip()
    rewind(mcode, fork, "--to", "last")
    assert "2 sessions: the history is sound" in mcode.run("sessions", "verify", "--all").check().err
    bad = run_once(mcode, "another")
    with (mcode.session_dir(bad) / "messages.jsonl").open("ab") as file:
        file.write(b"nonsense\n")
    (found,) = findings(mcode, "--all", code=4)
    assert (found["sessionId"], found["file"], found["line"]) == (bad, "messages.jsonl", 4)
    assert findings(mcode, "--all", "--repair", code=0)[0]["repaired"]
    assert findings(mcode, "--all", code=0) == []
    for args in ((), (sound, "--all")):
        assert "give a SESSION or --all" in mcode.run("sessions", "verify", *args).check(2).err


def test_rows_and_manifest_are_made_to_agree_with_the_history(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    before = words(mcode, session)
    (mcode.session_dir(session) / "manifest.json").write_text("{}")
    change(mcode, "DELETE FROM messages WHERE row = (SELECT MAX(row) FROM messages)")
    found = findings(mcode, session, code=4)
    assert sorted(one["file"] for one in found) == ["manifest.json", "mcode.db"]
    assert "has no row" in found[1]["problem"]
    assert all(one["repaired"] for one in findings(mcode, session, "--repair", code=0))
    assert findings(mcode, session, code=0) == []
    assert words(mcode, session) == before


def test_what_is_not_certain_is_said_and_stays(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    path = mcode.session_dir(session) / "messages.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    answer = next(number for number, line in enumerate(lines) if b'"role":"assistant"' in line)
    path.write_bytes(b"".join(line for number, line in enumerate(lines) if number != answer))
    damaged = path.read_bytes()
    for args in ((), ("--repair",)):
        found = findings(mcode, session, *args, code=4)
        assert {one["file"] for one in found} == {"messages.jsonl"}
        assert "which nobody made" in found[0]["problem"]
        assert not any(one["repaired"] for one in found)
    assert path.read_bytes() == damaged


def test_files_that_are_gone_are_named(mcode: Mcode, peer: Peer) -> None:
    picture = mcode.workspace / "a.png"
    picture.write_bytes(png(4, 4))
    session = run_once(mcode, "look", "--file", str(picture))
    mcode.exec("again", "--session", session).check()
    rewind(mcode, session, "--to", "last")
    assert findings(mcode, session, code=0) == []
    for directory in ("attachments", "snapshots"):
        for file in (mcode.session_dir(session) / directory).iterdir():
            file.unlink()
    found = findings(mcode, session, "--repair", code=4)
    assert sorted(one["file"].partition("/")[0] for one in found) == ["attachments", "snapshots"]

"""`mcode sessions diff`: what turns changed, as rows, as a summary, and as a patch that git takes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_file_changes import JSON
from tests.promises.test_when_busy import wait_until
from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import call, forever, say

DAY_MS = 86_400_000


def turn(mcode: Mcode, peer: Peer, command: str, *flags: str) -> dict[str, Any]:
    """One turn that runs a command; its result."""
    peer.script(call("bash", {"command": command}), say("done"))
    return mcode.exec("go", *JSON, *flags).check().result


def diff(mcode: Mcode, session: str, *flags: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        mcode.run("sessions", "diff", session, "--output-format", "json", *flags).check().out
    )
    return found


def test_turns_are_taken_together_and_one_can_be_named(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "a.txt").write_text("1\n2\n")
    first = turn(mcode, peer, "printf '1\\n2\\n3\\n' > a.txt; echo x > new.txt; echo t > temp.txt")
    session = first["sessionId"]
    second = turn(mcode, peer, "printf '1\\n2\\n3\\n4\\n' > a.txt; rm temp.txt", "--session", session)
    both = diff(mcode, session)
    assert (both["schemaVersion"], both["type"], both["sessionId"]) == (1, "sessions.diff", session)
    assert [
        (file["path"], file["status"], file["additions"], file["deletions"]) for file in both["files"]
    ] == [
        ("a.txt", "modified", 2, 0),
        ("new.txt", "added", 1, 0),
    ]
    assert both["files"][0]["turnIds"] == [first["turnId"], second["turnId"]]
    assert [(one["turnId"], one["files"], one["gap"]) for one in both["turns"]] == [
        (first["turnId"], 3, "none"),
        (second["turnId"], 2, "none"),
    ]
    one = diff(mcode, session, "--turn", second["turnId"][:14])
    assert [(file["path"], file["status"]) for file in one["files"]] == [
        ("a.txt", "modified"),
        ("temp.txt", "deleted"),
    ]


def test_the_same_rows_in_every_form(mcode: Mcode, peer: Peer) -> None:
    session = turn(mcode, peer, "echo x > a.txt; printf '\\0' > b.bin")["sessionId"]
    rows = diff(mcode, session)["files"]
    lines = mcode.run("sessions", "diff", session, "--output-format", "jsonl").check().out.splitlines()
    assert [json.loads(line) for line in lines] == rows
    csv = mcode.run("sessions", "diff", session, "--output-format", "csv").check().out.splitlines()
    assert csv[0].startswith("path,status,oldPath,additions,deletions,binary,")
    assert len(csv) == 3
    table = mcode.run("sessions", "diff", session).check().out
    assert table.splitlines()[0].split() == ["STATUS", "FILE", "+", "-", "TURN"]
    stat = mcode.run("sessions", "diff", session, "--stat").check().out
    assert stat == " a.txt | 1 +\n b.bin | binary\n 2 files changed, 1 insertion(+), 0 deletions(-)\n"


PATCHED = """
printf 'one\\ntwo\\n' > made.txt
rm gone.txt
sed -i s/b/B/ "sp ace.txt"
chmod +x run.sh
mv old.txt moved.txt
printf '\\0\\1\\2' > bin
rm dir/inner; rmdir dir; ln -s elsewhere dir
printf 'no newline' > 'quo"te'
printf 'x\\n' > $'caf\\xc3\\xa9.txt'
"""


def test_a_patch_makes_the_changes_elsewhere_and_takes_them_back_here(mcode: Mcode, peer: Peer) -> None:
    workspace = mcode.workspace
    for name, text in (("gone.txt", "g\n"), ("sp ace.txt", "a\nb\nc\n"), ("run.sh", "#!/bin/sh\n")):
        (workspace / name).write_text(text)
    (workspace / "old.txt").write_text("some\ncontent\n")
    (workspace / "dir").mkdir()
    (workspace / "dir" / "inner").write_text("i\n")
    make_repository(workspace)
    before = tree(workspace)
    copy = mcode.root / "copy"
    subprocess.run(["cp", "-a", workspace, copy], check=True)
    result = turn(mcode, peer, PATCHED)
    after = tree(workspace)
    patch = mcode.run("sessions", "diff", result["sessionId"], "--patch").check().out_bytes
    assert b"rename from old.txt\nrename to moved.txt\n" in patch
    subprocess.run(["git", "apply"], cwd=copy, input=patch, check=True)
    assert tree(copy) == after
    subprocess.run(["git", "apply", "-R"], cwd=workspace, input=patch, check=True)
    assert tree(workspace) == before


def tree(directory: Path) -> dict[str, tuple[str, bytes]]:
    found = {}
    for path in sorted(directory.rglob("*")):
        if ".git" in path.parts or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            found[str(path.relative_to(directory))] = ("link", os.readlink(path).encode())
        else:
            found[str(path.relative_to(directory))] = (oct(path.stat().st_mode & 0o100), path.read_bytes())
    return found


def test_secrets_are_masked_in_a_patch_as_elsewhere(mcode: Mcode, peer: Peer) -> None:
    session = turn(mcode, peer, "echo 'key=fake-key-''0123456789abcdef' > conf")["sessionId"]
    assert (mcode.workspace / "conf").read_text() == "key=fake-key-0123456789abcdef\n"
    for flags in ((), ("--output-format", "json")):
        shown = mcode.run("sessions", "diff", session, "--patch", *flags).check().out
        assert "fake-key" not in shown
        assert "+key=***" in shown


def test_a_turn_that_is_none_of_the_session_is_exit_4(mcode: Mcode, peer: Peer) -> None:
    session = turn(mcode, peer, "true")["sessionId"]
    failed = mcode.run("sessions", "diff", session, "--turn", "turn_00").check(4)
    assert "turn_not_found" in failed.err
    mcode.run("sessions", "diff", session, "--stat", "--patch").check(2)


def test_a_turn_that_changed_nothing_says_so(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("hello"))
    result = mcode.exec("hi", *JSON).check().result
    shown = mcode.run("sessions", "diff", result["sessionId"], "--turn", result["turnId"]).check()
    assert (shown.out, "has changed no files" in shown.err) == ("", True)


def test_what_a_killed_turn_changed_is_said_to_be_unknown(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "echo x > x.txt; sleep 60"}), say("done"))
    running = mcode.start("exec", "go", *JSON)
    wait_until(lambda: (mcode.workspace / "x.txt").exists(), "the command has not begun")
    session = mcode.query("SELECT id FROM sessions")[0]["id"]
    assert "it still runs" in diff(mcode, session)["turns"][0]["reason"]
    running.kill()
    found = diff(mcode, session)
    assert found["files"] == []
    assert (found["turns"][0]["gap"], found["turns"][0]["files"]) == ("all", None)
    assert "its process ended" in found["turns"][0]["reason"]


def age(mcode: Mcode, session: str, by_ms: int) -> None:
    """Make everything older, and add 300 turns whose changes are older still."""
    store = sqlite3.connect(mcode.data / "mcode.db", timeout=5)
    with store:
        for table, column in (
            ("turn_changes", "begun_ms"),
            ("turn_receipts", "accepted_ms"),
            ("sessions", "created_ms"),
            ("schema_migrations", "applied_ms"),
        ):
            store.execute(f"UPDATE {table} SET {column} = {column} - ?", (by_ms,))
        store.executemany(
            "INSERT INTO turn_changes (turn_id, session_id, workspace, begun_ms, gap, ignores_mode)"
            " VALUES (?, ?, '/w', 1, 'all', 0)",
            [(f"turn_old{number}", session) for number in range(300)],
        )
    store.close()


def test_what_is_older_than_seven_days_goes_in_batches_and_says_so(mcode: Mcode, peer: Peer) -> None:
    result = turn(mcode, peer, "echo x > x.txt")
    session = result["sessionId"]
    packs = mcode.session_dir(session) / "changes"
    assert packs.exists()
    age(mcode, session, 8 * DAY_MS)
    peer.script(forever(say("hello")))
    mcode.exec("and now", "--ephemeral").check()
    assert mcode.query("SELECT count(*) AS n FROM turn_changes") == [{"n": 301}]
    mcode.exec("and now").check()
    assert mcode.query("SELECT count(*) AS n FROM turn_changes") == [{"n": 51}]
    mcode.exec("and now").check()
    assert mcode.query("SELECT count(*) AS n FROM turn_changes") == [{"n": 0}]
    assert not packs.exists()
    failed = mcode.run("sessions", "diff", session, "--turn", result["turnId"]).check(4)
    assert "changes_not_kept" in failed.err
    assert "7 days" in mcode.run("sessions", "diff", session).check().err


def test_a_drain_forgets_a_batch_too(mcode: Mcode, peer: Peer) -> None:
    session = turn(mcode, peer, "echo x > x.txt")["sessionId"]
    age(mcode, session, 8 * DAY_MS)
    mcode.run("queue", "drain", "--all").check()
    assert mcode.query("SELECT count(*) AS n FROM turn_changes") == [{"n": 51}]


def test_who_watches_hears_of_changed_files(mcode: Mcode, peer: Peer) -> None:
    watching = mcode.start("sessions", "watch", "--all", "--output-format", "jsonl")

    def told() -> bool:  # of a session made after the watching began, whenever that was
        mcode.run("sessions", "create").check()
        return b"session.created" in watching.out

    wait_until(told, "nothing is told")
    turn(mcode, peer, "echo x > x.txt")
    wait_until(lambda: b"session.diff" in watching.out, "the change is not told")
    watching.send(signal.SIGTERM)
    watching.finish()


@pytest.mark.parametrize("word", ["list", "show", "export", "verify"])
def test_the_other_commands_work_beside_it(mcode: Mcode, peer: Peer, word: str) -> None:
    session = turn(mcode, peer, "echo x > x.txt")["sessionId"]
    mcode.run("sessions", word, *(() if word == "list" else (session,))).check()

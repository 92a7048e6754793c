"""A deletion that was begun and cannot be ended is seen by whoever looks, with its reason and what to do."""

from __future__ import annotations

import json
from typing import Any

from tests.promises.test_delete import JSON, made
from tests.promises.test_delete_cut_short import make_child, put_away, put_back
from tests.promises.test_doctor_locks import locks
from tests.promises.test_recover import write
from tests.promises.test_when_busy import wait_until
from tests.support.mcode import Mcode
from tests.support.peer import Peer


def unfinished(mcode: Mcode, peer: Peer, *flags: str) -> str:
    session = made(mcode, peer, *flags)
    put_away(mcode)
    mcode.run("sessions", "delete", session).check(74)
    return session


def listed(mcode: Mcode, session: str) -> dict[str, Any]:
    found = json.loads(mcode.run("sessions", "list", *JSON).check().out)["sessions"]
    return next(one for one in found if one["id"] == session)


def test_recover_tries_again_says_why_it_could_not_and_finishes_it_when_it_can(
    mcode: Mcode, peer: Peer
) -> None:
    session = unfinished(mcode, peer)
    run = mcode.run("recover").check(74)
    assert f"1 deletion not finished: session {session}" in run.out
    assert session in run.err
    assert "is no directory" in run.err
    report = json.loads(mcode.run("recover", *JSON).check(74).out)
    assert report["deleting"] == []
    (left,) = report["unfinished"]
    assert (left["sessionId"], left["code"], left["exitCode"]) == (session, "STORE_FAILED", 74)
    assert str(mcode.data / "sessions") in left["message"]
    put_back(mcode)
    report = json.loads(mcode.run("recover", *JSON).check().out)
    assert (report["deleting"], report["unfinished"]) == ([session], [])
    assert mcode.query("SELECT * FROM deletions") == []


def test_doctor_shows_who_began_it_since_when_and_what_it_waits_for(mcode: Mcode, peer: Peer) -> None:
    session = made(mcode, peer)
    put_away(mcode)
    deleting = mcode.start("sessions", "delete", session)
    deleting.finish().check(74)
    (seal,) = locks(mcode)
    assert (seal["what"], seal["sessionId"], seal["state"]) == ("deletion", session, "dead")
    assert seal["pid"] == deleting.pid
    assert seal["host"]
    assert seal["sinceMs"]
    assert "no process is at it" in seal["why"]
    assert "is no directory" in seal["why"]
    mcode.run("recover").check(74)
    assert locks(mcode) == [seal]  # another try is not another beginning
    run = mcode.run("doctor", "--locks").check()
    assert session in run.out
    assert f"session {session} is being deleted: {seal['why']}" in run.err


def test_lists_show_it_as_being_deleted_and_say_what_to_do(mcode: Mcode, peer: Peer) -> None:
    session = unfinished(mcode, peer)
    row = listed(mcode, session)
    assert row["status"] == "deleting"
    assert "is no directory" in row["deletion"]["reason"]
    assert row["deletion"]["sinceMs"]
    for command in (("list",), ("show", session)):
        run = mcode.run("sessions", *command).check()
        assert "deleting" in run.out
        assert f"session {session} is being deleted since" in run.err
        assert "`mcode recover` goes on with it" in run.err
    shown = json.loads(mcode.run("sessions", "show", session, *JSON).check().out)
    assert shown["session"] == row
    put_back(mcode)
    other = made(mcode, peer)
    assert listed(mcode, other)["deletion"] is None


def test_who_watches_hears_of_it(mcode: Mcode, peer: Peer) -> None:
    session = made(mcode, peer)
    watching = mcode.start("sessions", "watch", "--all", "--output-format", "jsonl")
    wait_until(lambda: watching.pid and _reads(watching.pid, mcode), "nobody watches")
    put_away(mcode)
    mcode.run("sessions", "delete", session).check(74)
    told = watching.wait_event("session.updated")
    assert (told["sessionId"], told["status"]) == (session, "deleting")
    watching.kill()
    for flags in ((), ("--follow",)):
        run = mcode.run("sessions", "watch", session, *flags).check(4)
        assert "session_deleting" in run.err


def _reads(pid: int, mcode: Mcode) -> bool:
    import os
    from pathlib import Path

    opened = Path(f"/proc/{pid}/fd")
    return any(os.readlink(one).endswith("mcode.db-shm") for one in opened.iterdir() if one.is_symlink())


def test_each_is_tried_and_each_is_accounted_for(mcode: Mcode, peer: Peer) -> None:
    first, second, third = (made(mcode, peer) for _ in range(3))
    child = made(mcode, peer)
    make_child(mcode, second, child)
    where = mcode.session_dir(second)
    away = mcode.root / "away"
    mcode.session_dir(child).rename(away)
    write(mcode, "UPDATE sessions SET history_relative_dir = 'x/../y' WHERE id = ?", second)
    run = mcode.run("sessions", "delete", first, second, third, *JSON).check(74)
    told = json.loads(run.out)
    assert [(one["sessionId"], one["outcome"], one["exitCode"]) for one in told["sessions"]] == [
        (first, "deleted", 0),
        (child, "deleted", 0),
        (second, "deleting", 74),
        (third, "deleted", 0),
    ]
    message = told["sessions"][2]["message"]
    assert second in message
    assert str(mcode.data / "sessions" / "x/../y") in message
    assert message in run.err
    assert where.is_dir()
    assert [row["id"] for row in mcode.query("SELECT id FROM sessions")] == [second]


def test_more_deletions_than_a_batch_hide_none_that_can_be_ended(mcode: Mcode, peer: Peer) -> None:
    session = made(mcode, peer)
    write(mcode, "UPDATE sessions SET id = 'mvs_' || printf('%032x', 1 << 40), deleting_by = 'nobody'")
    columns = [row["name"] for row in mcode.query("PRAGMA table_info(sessions)")]
    copied = ", ".join(
        {"id": "'mvs_' || printf('%032x', n)", "history_relative_dir": "'x/../y'"}.get(name, name)
        for name in columns
    )
    write(
        mcode,
        f"WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 1001) "
        f"INSERT INTO sessions ({', '.join(columns)}) SELECT {copied} FROM counted, sessions",
    )
    report = json.loads(mcode.run("recover", *JSON, timeout=120).check(74).out)
    assert len(report["unfinished"]) == 1001
    assert report["deleting"] == [f"mvs_{1 << 40:032x}"]
    assert session

"""`mcode sessions rename|label|archive|unarchive`: what changes of a session without a turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.test_sessions_create import create, listed, shown
from tests.promises.test_when_busy import JSON, busy_session, echo
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import forever


@pytest.fixture
def session(mcode: Mcode, peer: Peer) -> str:
    peer.script(forever(echo))
    made: str = mcode.exec("first words", "--label", "a=1", *JSON).check().result["sessionId"]
    return made


def ids(mcode: Mcode, *flags: str) -> list[str]:
    return [row["id"] for row in listed(mcode, *flags)]


def document(mcode: Mcode, *args: str, code: int = 0) -> Any:
    return json.loads(mcode.run("sessions", *args, *JSON).check(code).out)


def test_rename_takes_the_first_line_and_moves_nothing(mcode: Mcode, session: str) -> None:
    newer = mcode.exec("newer", *JSON).check().result["sessionId"]
    told = document(mcode, "rename", session[:14], "Call\x1b]0;it\x07 this\nand not this")
    assert told == {
        "schemaVersion": 1, "type": "sessions.rename", "sessionId": session, "title": "Call]0;it this",
    }  # fmt: skip
    assert [(row["id"], row["title"]) for row in listed(mcode)] == [
        (newer, "newer"),
        (session, "Call]0;it this"),
    ]
    mcode.exec("more", "--session", session).check()
    assert shown(mcode, session)["title"] == "Call]0;it this"
    for title in ("", " \n", "\x1b"):
        assert "can be seen" in mcode.run("sessions", "rename", session, title).check(2).err
    assert "there is no session" in mcode.run("sessions", "rename", "mvs_" + "0" * 32, "x").check(4).err


def test_a_secret_in_a_title_is_masked(mcode: Mcode, session: str) -> None:
    mcode.run("sessions", "rename", session, "uses fake-key-0123456789abcdef now").check()
    assert mcode.query("SELECT title FROM sessions") == [{"title": "uses *** now"}]


def test_an_exec_title_is_one_line_too_and_an_empty_one_changes_nothing(mcode: Mcode, session: str) -> None:
    mcode.exec("x", "--session", session, "--title", "one\x1b\ntwo").check()
    assert shown(mcode, session)["title"] == "one"
    mcode.exec("x", "--session", session, "--title", "").check()
    assert shown(mcode, session)["title"] == "one"


def test_a_fork_is_called_by_one_line_too(mcode: Mcode, session: str) -> None:
    fork = mcode.run("sessions", "fork", session, "--title", "a\x1bb\nc").check().out.strip()
    assert shown(mcode, fork)["title"] == "ab"
    plain = mcode.run("sessions", "fork", session, "--title", "").check().out.strip()
    assert shown(mcode, plain)["title"] == "first words (fork #1)"


def test_labels_are_given_changed_and_taken_away(mcode: Mcode, session: str) -> None:
    run = mcode.run("sessions", "label", session, "b=2", "c=x=y", "a=new").check()
    assert run.out == "a=new\nb=2\nc=x=y\n"
    told = document(mcode, "label", session, "--remove", "a", "--remove", "never", "d=")
    assert told["labels"] == {"b": "2", "c": "x=y", "d": ""}
    assert mcode.run("sessions", "label", session).check().out == "b=2\nc=x=y\nd=\n"
    mcode.exec("x", "--session", session, "--label", "b=3").check()
    assert shown(mcode, session)["labels"] == {"b": "3", "c": "x=y", "d": ""}


def test_a_label_is_shown_without_acting_on_the_terminal(mcode: Mcode, session: str) -> None:
    run = mcode.run("sessions", "label", session, "k=a\x1b[2J\nb").check()
    assert run.out == "a=1\nk=a\\e[2J\\nb\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("a=1", "--remove", "a"), "both given and removed"),
        (("novalue",), "KEY=VALUE"),
        (("=x",), "KEY=VALUE"),
        (("k" * 129 + "=x",), "at most 128"),
        (tuple(f"k{number}=x" for number in range(64)), "at most 64 labels"),
    ],
)
def test_labels_that_cannot_be_are_refused_and_change_nothing(
    mcode: Mcode, session: str, args: tuple[str, ...], said: str
) -> None:
    assert said in mcode.run("sessions", "label", session, *args).check(2).err
    assert shown(mcode, session)["labels"] == {"a": "1"}


def test_labels_of_a_run_count_with_those_that_the_session_has(mcode: Mcode, session: str) -> None:
    many = [word for number in range(64) for word in ("--label", f"k{number}=x")]
    result = mcode.exec("x", "--session", session, *many, *JSON).check(2).result
    assert "at most 64 labels" in result["error"]["message"]
    assert mcode.exec("x", "--dry-run", "--session", session, *many).code == 2
    assert shown(mcode, session)["labels"] == {"a": "1"}
    mcode.exec("x", *many).check()


def test_an_archived_session_is_out_of_lists_and_of_continue(mcode: Mcode, session: str) -> None:
    newer = mcode.exec("newer", *JSON).check().result["sessionId"]
    told = document(mcode, "archive", newer, newer)
    assert [one["outcome"] for one in told["sessions"]] == ["archived", "unchanged"]
    assert ids(mcode) == [session]
    assert ids(mcode, "--all") == [newer, session]
    assert shown(mcode, newer)["archivedMs"] is not None
    assert mcode.exec("--continue", "x", *JSON).check().result["sessionId"] == session
    mcode.run("sessions", "archive", session).check()
    refused = mcode.exec("--continue", "x", *JSON).check(4).result["error"]
    assert refused["code"] == "session_not_found"


def test_unarchive_puts_it_back_where_it_was(mcode: Mcode, session: str) -> None:
    newer = mcode.exec("newer", *JSON).check().result["sessionId"]
    mcode.run("sessions", "archive", session).check()
    assert [one["outcome"] for one in document(mcode, "unarchive", session, newer)["sessions"]] == [
        "unarchived",
        "unchanged",
    ]
    assert ids(mcode) == [newer, session]


def test_a_turn_takes_an_archived_session_out_again_and_showing_it_does_not(
    mcode: Mcode, session: str
) -> None:
    mcode.run("sessions", "archive", session).check()
    mcode.run("sessions", "show", session).check()
    mcode.run("sessions", "export", session).check()
    assert ids(mcode) == []
    run = mcode.exec("x", "--session", session).check()
    assert f"session {session} is not archived any more" in run.err
    assert ids(mcode) == [session]


def test_a_key_finds_an_archived_session_and_a_refused_turn_leaves_it_archived(mcode: Mcode) -> None:
    session = create(mcode, "--session-key", "k")
    mcode.run("sessions", "archive", session).check()
    mcode.exec("x", "--session", session, "--model", "nobody/nothing").check(3)
    assert shown(mcode, session)["archivedMs"] is not None
    assert mcode.exec("x", "--session-key", "k", *JSON).check().result["sessionId"] == session
    assert shown(mcode, session)["archivedMs"] is None


def test_what_runs_or_waits_is_not_put_away(mcode: Mcode, peer: Peer) -> None:
    session, first, gate = busy_session(mcode, peer)
    run = mcode.run("sessions", "archive", session).check(75)
    assert "a turn runs" in run.err
    # names and labels are no history
    mcode.run("sessions", "rename", session, "while it runs").check()
    mcode.run("sessions", "label", session, "a=1").check()
    gate.open()
    first.finish().check()
    assert shown(mcode, session)["title"] == "while it runs"
    mcode.run("queue", "add", session, "later").check()
    told = document(mcode, "archive", session, code=75)
    assert told["sessions"][0]["code"] == "session_has_queued_messages"
    assert ids(mcode) == [session]


def test_each_of_several_is_tried(mcode: Mcode, session: str) -> None:
    missing = "mvs_" + "0" * 32
    told = document(mcode, "archive", missing, session, code=4)
    assert [(one["sessionId"], one["outcome"]) for one in told["sessions"]] == [
        (missing, "not-found"),
        (session, "archived"),
    ]


def test_what_is_being_deleted_is_not_changed_any_more(mcode: Mcode, session: str) -> None:
    import sqlite3

    (year,) = (mcode.data / "sessions").iterdir()
    year.rename(mcode.root / "away")
    year.symlink_to(mcode.root / "away")
    mcode.run("sessions", "delete", session).check(74)
    for args in (("rename", session, "x"), ("label", session, "a=2"), ("archive", session)):
        assert "session_deleting" in mcode.run("sessions", *args).check(4).err
    assert "session_deleting" in mcode.run("sessions", "create", "--parent", session).check(4).err
    with sqlite3.connect(mcode.data / "mcode.db") as store:
        assert store.execute("SELECT title FROM sessions").fetchall() == [("first words",)]

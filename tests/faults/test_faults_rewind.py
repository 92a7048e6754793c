"""A rewind that is killed at any moment has happened or has not, and the next start makes the rest agree."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.promises.test_fork import conversation_of_two, everything_of, words
from tests.promises.test_rewind import prompts, rewind, row_of
from tests.promises.test_rewind_generations import middle, rows_of
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import say

KILLED = -signal.SIGKILL
BEFORE = ["after-rewind-begun", "after-rewind-archive"]
AFTER = ["after-rewind-file", "after-rewind-put", "after-rewind-rows", "after-rewind-agreed"]


@pytest.mark.parametrize("point", BEFORE)
def test_before_the_history_is_replaced_nothing_has_happened(mcode: Mcode, peer: Peer, point: str) -> None:
    session = conversation_of_two(mcode, peer)
    before = everything_of(mcode, session)
    mcode.run("sessions", "rewind", session, "--to", "last", env={"MCODE_FAULT": point}).check(KILLED)
    mcode.run("recover").check()
    assert everything_of(mcode, session) == before
    assert mcode.query("SELECT * FROM operations") == []
    assert mcode.query("SELECT * FROM session_locks") == []
    rewind(mcode, session, "--to", "last")


@pytest.mark.parametrize("point", AFTER)
def test_after_that_the_next_start_finishes_it(mcode: Mcode, peer: Peer, point: str) -> None:
    session = conversation_of_two(mcode, peer)
    mcode.run("sessions", "rewind", session, "--to", "last", env={"MCODE_FAULT": point}).check(KILLED)
    told = json.loads(mcode.run("recover", "--output-format", "json").check().out)
    assert told["rewound"] == [session]
    assert words(mcode, session) == ["first prompt", "I look.", "first answer"]
    assert row_of(mcode, session)["revert"] is not None
    assert mcode.query("SELECT * FROM operations") == []
    assert mcode.query("SELECT * FROM session_locks") == []
    mcode.run("sessions", "verify", session).check()
    peer.script(say("on"))
    run = mcode.exec("on", "--session", session).check()
    assert "history." not in run.err
    assert words(mcode, session)[-2:] == ["on", "on"]


@pytest.mark.parametrize("point", ["after-rewind-begun", *AFTER])
def test_an_undo_that_is_killed(mcode: Mcode, peer: Peer, point: str) -> None:
    session = conversation_of_two(mcode, peer)
    before = words(mcode, session)
    rewind(mcode, session, "--to", prompts(mcode, session)[0])
    mcode.run("sessions", "rewind", session, "--undo", env={"MCODE_FAULT": point}).check(KILLED)
    mcode.run("recover").check()
    if point == "after-rewind-begun":
        assert words(mcode, session) == []
        rewind(mcode, session, "--undo")
    assert words(mcode, session) == before
    assert mcode.query("SELECT * FROM operations") == []


@pytest.mark.parametrize("point", AFTER)
def test_a_kill_while_the_last_kill_is_being_mended(mcode: Mcode, peer: Peer, point: str) -> None:
    session = conversation_of_two(mcode, peer)
    args = ("sessions", "rewind", session, "--to", "last")
    mcode.run(*args, env={"MCODE_FAULT": "after-rewind-put"}).check(KILLED)
    mcode.run("recover", env={"MCODE_FAULT": point})
    mcode.run("recover").check()
    assert words(mcode, session) == ["first prompt", "I look.", "first answer"]
    assert mcode.query("SELECT * FROM operations") == []


def session_of(mcode: Mcode, session: str) -> dict[str, object]:
    """Its row, but for the size of a history that has another header."""
    return {name: value for name, value in row_of(mcode, session).items() if name != "history_bytes"}


@pytest.mark.parametrize("second", [None, *AFTER])
@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_edit_last_that_is_killed_before_its_turn_has_taken_nothing_back(
    mcode: Mcode, peer: Peer, point: str, second: str | None
) -> None:
    session = conversation_of_two(mcode, peer)
    before, shown, row = words(mcode, session), rows_of(mcode, session), session_of(mcode, session)
    mcode.run("sessions", "edit-last", session, "other", env={"MCODE_FAULT": point}).check(KILLED)
    if second is not None:  # and who gives it back is killed amid that
        mcode.run("recover", env={"MCODE_FAULT": second})
    mcode.run("recover").check()
    assert words(mcode, session) == before
    assert rows_of(mcode, session) == shown
    assert session_of(mcode, session) == row
    assert mcode.query("SELECT * FROM operations") == []
    assert mcode.query("SELECT * FROM session_locks") == []
    mcode.run("sessions", "verify", session).check()
    peer.script(say("better"))
    mcode.run("sessions", "edit-last", session, "other").check()
    assert words(mcode, session) == ["first prompt", "I look.", "first answer", "other", "better"]


def test_edit_last_whose_turn_was_admitted_is_final(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    before = words(mcode, session)
    env = {"MCODE_FAULT": "after-admission"}
    mcode.run("sessions", "edit-last", session, "other", env=env).check(KILLED)
    mcode.run("recover").check()
    assert row_of(mcode, session)["status"] == "interrupted"
    assert words(mcode, session) == ["first prompt", "I look.", "first answer"]
    assert mcode.query("SELECT * FROM operations") == []
    rewind(mcode, session, "--undo")
    assert words(mcode, session) == before


@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_a_rewind_behind_a_compaction_that_is_killed(
    mcode: Mcode, peer: Peer, tmp_path: Path, point: str
) -> None:
    session, first = middle(mcode, peer, tmp_path)
    shown = rows_of(mcode, session)
    env = {"MCODE_FAULT": point}
    mcode.run("sessions", "rewind", session, "--to", first, env=env).check(KILLED)
    mcode.run("recover").check()
    if point in BEFORE:
        assert rows_of(mcode, session) == shown
        rewind(mcode, session, "--to", first)
    assert rows_of(mcode, session) == []
    mcode.run("sessions", "verify", session).check()
    if point != "after-rewind-archive":  # an undo archives nothing
        mcode.run("sessions", "rewind", session, "--undo", env=env).check(KILLED)
        mcode.run("recover").check()
    if point in BEFORE:
        assert rows_of(mcode, session) == []
        rewind(mcode, session, "--undo")
    assert rows_of(mcode, session) == shown
    mcode.run("sessions", "verify", session).check()
    assert mcode.query("SELECT * FROM operations") == []

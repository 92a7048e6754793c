"""Pages of sessions for other readers: written after each turn, never in its way, gone when they are to be."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.steps import answer, call, say, status

JSON = ("--output-format", "json")


@pytest.fixture
def pages(mcode: Mcode) -> Path:
    """The directory that the configuration shares in."""
    directory = mcode.root / "pages"
    directory.mkdir()
    mcode.configure(tables=f'[share]\nauto_dir = "{directory}"')
    return directory


def run(mcode: Mcode, prompt: str, *args: str) -> str:
    made: str = mcode.exec(prompt, *JSON, *args).check().result["sessionId"]
    return made


def test_every_turn_of_a_conversation_writes_its_page_anew(mcode: Mcode, peer: Peer, pages: Path) -> None:
    peer.script(say("first answer"), say("second answer"))
    session = run(mcode, "one")
    page = pages / f"{session}.html"
    assert "first answer" in page.read_text()
    run(mcode, "two", "--session", session)
    assert "second answer" in page.read_text()
    assert [path.name for path in pages.iterdir()] == [page.name]


def test_a_turn_that_fails_is_on_the_page_too(mcode: Mcode, peer: Peer, pages: Path) -> None:
    peer.script(status(400, {"error": {"type": "invalid_request_error", "message": "not like this"}}))
    session = mcode.exec("one", *JSON).check(4).result["sessionId"]
    assert "not like this" in (pages / f"{session}.html").read_text()


def test_turns_from_the_queue_write_it_too(mcode: Mcode, peer: Peer, pages: Path) -> None:
    peer.script(say("first"), say("from the queue"))
    session = run(mcode, "one")
    mcode.run("queue", "add", session, "two").check()
    mcode.run("queue", "drain", "--session", session).check()
    assert "from the queue" in (pages / f"{session}.html").read_text()


def test_what_changes_a_session_without_a_turn_is_on_its_page_at_once(
    mcode: Mcode, peer: Peer, pages: Path
) -> None:
    peer.script(say("first answer"), say("second answer"))
    session = run(mcode, "one")
    run(mcode, "two", "--session", session)
    page = pages / f"{session}.html"
    mcode.run("sessions", "rewind", session, "--to", "last").check()
    assert "second answer" not in page.read_text()
    mcode.run("sessions", "rewind", session, "--undo").check()
    assert "second answer" in page.read_text()
    mcode.run("sessions", "rename", session, "Another name").check()
    assert "<title>Another name" in page.read_text()
    pages.chmod(0o500)
    try:
        mcode.run("sessions", "rename", session, "A third name").check()
    finally:
        pages.chmod(0o700)
    page.unlink()
    mcode.run("sessions", "rename", session, "A fourth name").check()
    assert "A fourth name" in page.read_text()


def test_a_page_that_is_to_stand_elsewhere_leaves_none_behind(mcode: Mcode, peer: Peer, pages: Path) -> None:
    session = run(mcode, "one")
    other, third = mcode.root / "other", mcode.root / "third"
    other.mkdir()
    third.mkdir()
    mcode.configure(tables=f'[share]\nauto_dir = "{other}"')
    run(mcode, "two", "--session", session)
    assert (list(pages.iterdir()), len(list(other.iterdir()))) == ([], 1)
    mcode.run("sessions", "share", session, "--dir", third).check()
    assert (list(other.iterdir()), len(list(third.iterdir()))) == ([], 1)


def test_side_conversations_and_ephemeral_runs_have_no_page(mcode: Mcode, peer: Peer, pages: Path) -> None:
    peer.script(say("first"), say("aside"), say("gone"))
    session = run(mcode, "one")
    mcode.run("sessions", "btw", session, "a question aside").check()
    mcode.exec("x", "--ephemeral").check()
    assert [path.name for path in pages.iterdir()] == [f"{session}.html"]
    aside = mcode.query("SELECT id FROM sessions WHERE session_kind = 'peek'")[0]["id"]
    refused = mcode.run("sessions", "share", aside, "--dir", mcode.root).check(4)
    assert "no conversation of its own" in refused.err


@pytest.mark.parametrize("trouble", ["missing", "file", "directory"])
def test_trouble_with_the_page_changes_nothing_of_the_result(
    mcode: Mcode, peer: Peer, pages: Path, trouble: str
) -> None:
    session = run(mcode, "one")
    page = pages / f"{session}.html"
    page.unlink()
    if trouble == "directory":
        page.mkdir()
    else:
        pages.rmdir()
        if trouble == "file":
            pages.write_text("x")
    done = mcode.exec("two", "--session", session, *JSON).check()
    assert done.result["output"] == "hello"
    assert f"the page of session {session} was not written" in done.err


def test_a_page_is_shared_by_name_and_taken_away_for_good(mcode: Mcode, peer: Peer) -> None:
    session = run(mcode, "one")
    needs = mcode.run("sessions", "share", session).check(3)
    assert "auto_dir" in needs.err
    target = mcode.root / "mine"
    target.mkdir()
    shared = mcode.run("sessions", "share", session[:14], "--dir", target).check()
    page = target / f"{session}.html"
    assert shared.out == f"{page}\n"
    peer.script(say("a later answer"))
    run(mcode, "two", "--session", session)
    assert "a later answer" in page.read_text(), "it is kept up to date"
    gone = json.loads(mcode.run("sessions", "unshare", session, *JSON).check().out)
    assert (gone["state"], gone["path"]) == ("unshared", str(page))
    assert not page.exists()
    run(mcode, "three", "--session", session)
    assert not page.exists()
    assert "had no page" in mcode.run("sessions", "unshare", session).check().err


def test_what_was_unshared_stays_so_where_all_are_shared(mcode: Mcode, peer: Peer, pages: Path) -> None:
    session = run(mcode, "one")
    mcode.run("sessions", "unshare", session).check()
    run(mcode, "two", "--session", session)
    assert list(pages.iterdir()) == []
    mcode.run("sessions", "share", session).check()
    assert [path.name for path in pages.iterdir()] == [f"{session}.html"]


def test_a_deleted_session_leaves_no_page(mcode: Mcode, peer: Peer, pages: Path) -> None:
    session = run(mcode, "one")
    mcode.run("sessions", "delete", session).check()
    assert list(pages.iterdir()) == []


def test_others_can_read_it_as_the_umask_has_it_and_no_link_is_followed(
    mcode: Mcode, peer: Peer, pages: Path
) -> None:
    session = run(mcode, "one")
    page = pages / f"{session}.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o666 & ~_umask()
    victim = mcode.root / "victim"
    victim.write_text("mine")
    page.unlink()
    page.symlink_to(victim)
    run(mcode, "two", "--session", session)
    assert victim.read_text() == "mine"
    assert not page.is_symlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_no_secret_is_on_it(mcode: Mcode, peer: Peer, pages: Path) -> None:
    peer.script(answer(call("bash", {"command": f"echo {KEY}"})), say(f"it is {KEY}"))
    session = run(mcode, f"use {KEY}")
    assert KEY not in (pages / f"{session}.html").read_text()


def test_a_workspace_cannot_say_where_pages_go(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / ".mcode").mkdir()
    (mcode.workspace / ".mcode" / "config.toml").write_text(f'[share]\nauto_dir = "{mcode.root}"\n')
    mcode.exec("x").check(3)
    assert "own config file" in mcode.exec("x", "--trust-workspace").check(3).err

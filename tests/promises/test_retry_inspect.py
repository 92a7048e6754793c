"""`retry --inspect` and `exec --dry-run` say what the run itself would say, with its exit code."""

from __future__ import annotations

import shutil

import pytest

from tests.promises.test_delete_unfinished import unfinished
from tests.promises.test_retry import JSON, REFUSED, inspect, only_session
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.pictures import png
from tests.support.steps import call, forever, hang, say


def refused(mcode: Mcode, peer: Peer, *flags: str) -> str:
    peer.script(REFUSED)
    mcode.exec("the prompt", *flags).check(4)
    return only_session(mcode)


@pytest.mark.parametrize("command", [("retry",), ("exec", "x", "--session")])
def test_a_session_that_is_being_deleted_is_refused_by_both(
    mcode: Mcode, peer: Peer, command: tuple[str, ...]
) -> None:
    session = unfinished(mcode, peer)
    looking = "--inspect" if command[0] == "retry" else "--dry-run"
    run = mcode.run(*command, session, *JSON).check(4)
    look = mcode.run(*command, session, looking).check(4)
    assert run.result["error"]["code"] == "session_deleting"
    assert f"{run.result['error']['message']} (session_deleting)" in look.err
    assert "mcode recover" in look.err


def test_a_workspace_that_is_gone_is_refused_by_both_and_moved_by_cwd(mcode: Mcode, peer: Peer) -> None:
    place = mcode.root / "place"
    place.mkdir()
    session = refused(mcode, peer, "--cwd", str(place))
    shutil.rmtree(place)
    run = mcode.run("retry", session).check(4)
    assert f"`mcode retry {session} --cwd DIR`" in run.err
    found = inspect(mcode, session, code=4)
    assert (found["mode"], found["code"]) == ("resubmit", "workspace_missing")
    assert f"`mcode retry {session} --cwd DIR`" in found["why"]
    moved = inspect(mcode, session, "--cwd", str(mcode.workspace))
    assert (moved["why"], moved["workspace"]) == (None, str(mcode.workspace))
    peer.script(say("done"))
    mcode.run("retry", session, "--cwd", str(mcode.workspace)).check()


def test_what_the_configuration_lacks_is_refused_by_both(mcode: Mcode, peer: Peer) -> None:
    session = refused(mcode, peer)
    without_key = {"FAKE_KEY": None}
    code = mcode.run("retry", session, env=without_key).code
    assert code
    inspect(mcode, session, code=code, env=without_key)
    inspect(mcode, session, "--model", "nope/x", code=3)
    mcode.run("retry", session, "--model", "nope/x").check(3)
    assert len(peer.calls) == 1


def test_text_files_are_attachments_too(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "notes.txt").write_text('<file name="x">\nfoo\n</file>\n')
    (mcode.workspace / "p.png").write_bytes(png(2, 2))
    session = refused(mcode, peer, "--file", "p.png", "--file", "notes.txt")
    image, text = inspect(mcode, session)["attachments"]
    assert (image["name"], image["mime"], bool(image["digest"])) == ("p.png", "image/png", True)
    assert text == {"name": "notes.txt", "mime": "text/plain", "digest": None, "isMissing": False}


@pytest.mark.parametrize(
    ("flags", "exit_code", "code"),
    [(("--timeout", "1s"), 6, "TIMEOUT"), (("--max-steps", "1"), 7, "LIMIT_STEPS")],
)
def test_the_code_of_a_turn_that_was_stopped_is_told(
    mcode: Mcode, peer: Peer, flags: tuple[str, ...], exit_code: int, code: str
) -> None:
    peer.script(forever(hang() if code == "TIMEOUT" else call("bash", {"command": "true"})))
    mcode.exec("the prompt", *flags).check(exit_code)
    assert inspect(mcode, only_session(mcode))["errorCode"] == code

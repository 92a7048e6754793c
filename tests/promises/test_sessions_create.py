"""`mcode sessions create`: a session without a turn, its title, its key, and the permissions that stay with it."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.promises.test_when_busy import JSON, echo
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, forever, say


def create(mcode: Mcode, *flags: str) -> str:
    """The id that `sessions create` prints."""
    out = mcode.run("sessions", "create", *flags).check().out
    assert out.startswith("mvs_")
    assert out.endswith("\n")
    assert out.count("\n") == 1
    return out.strip()


def listed(mcode: Mcode, *flags: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(mcode.run("sessions", "list", *flags, *JSON).check().out)[
        "sessions"
    ]
    return found


def shown(mcode: Mcode, session: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(mcode.run("sessions", "show", session, *JSON).check().out)["session"]
    return found


def denials(mcode: Mcode, peer: Peer, session: str, command: str, *flags: str) -> list[Any]:
    """What a turn that runs `command` is denied."""
    peer.script(call("bash", {"command": command}), say("done"))
    run = mcode.exec("go", "--session", session, *JSON, *flags)
    found: list[Any] = run.result["permissionDenials"]
    assert run.code == 0 if not found else run.code in (0, 5), run
    return found


def test_a_session_is_made_listed_and_run_by_the_id_that_is_printed(mcode: Mcode, peer: Peer) -> None:
    session = create(mcode, "--title", "Release 4.2", "--label", "team=core", "--label", "pr=1")
    (row,) = listed(mcode)
    assert (row["id"], row["title"], row["labels"]) == (session, "Release 4.2", {"team": "core", "pr": "1"})
    assert peer.calls == []
    result = mcode.exec("hi", "--session", session, *JSON).check().result
    assert result["sessionId"] == session
    assert shown(mcode, session)["title"] == "Release 4.2"
    assert len(listed(mcode)) == 1


def test_continue_goes_by_turns_and_passes_over_a_session_that_has_none(mcode: Mcode, peer: Peer) -> None:
    used = mcode.exec("first", *JSON).check().result["sessionId"]
    session = create(mcode)
    assert mcode.exec("--continue", "x", *JSON).check().result["sessionId"] == used
    mcode.exec("x", "--session", session).check()
    assert mcode.exec("--continue", "x", *JSON).check().result["sessionId"] == session


def test_a_default_title_gives_way_to_the_first_prompt_with_text(mcode: Mcode) -> None:
    session = create(mcode)
    title = shown(mcode, session)["title"]
    assert title.startswith("New session - ")
    assert title.endswith("Z")
    mcode.exec("\n  Fix   the dates\nand more", "--session", session).check()
    assert shown(mcode, session)["title"] == "Fix the dates"
    mcode.exec("something else", "--session", session).check()
    assert shown(mcode, session)["title"] == "Fix the dates"


def test_a_queued_prompt_gives_a_title_too(mcode: Mcode) -> None:
    session = create(mcode)
    mcode.run("queue", "add", session, "From the queue").check()
    mcode.run("queue", "drain", "--session", session).check()
    assert shown(mcode, session)["title"] == "From the queue"


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("a\x1b[31mred\x07 \u202etitle\nsecond line", "a[31mred title"),
        ("  \n\t\n two\twords ", "two words"),
        ("\ufeff\u200fmarks", "marks"),
        ("x" * 100, "x" * 79 + "…"),
        ("\U0001f469\u200d\U0001f4bb codes", "\U0001f469\u200d\U0001f4bb codes"),
    ],
)
def test_a_title_is_one_line_of_80_characters_that_does_nothing(mcode: Mcode, given: str, title: str) -> None:
    session = create(mcode, "--title", given)
    assert shown(mcode, session)["title"] == title
    assert mcode.exec(given, *JSON).check().result["sessionId"] != session
    assert [row["title"] for row in listed(mcode)] == [title, title]


def test_a_title_in_which_nothing_can_be_seen_is_refused_and_makes_nothing(mcode: Mcode) -> None:
    for flags in (("--title", " \n\t"), ("--title", ""), ("--title", "\x1b\x07\u202e")):
        assert "--title" in mcode.run("sessions", "create", *flags).check(2).err
    assert not (mcode.data / "mcode.db").exists()


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "flags",
    [
        ("--allow", "shell:x"),
        ("--deny", "bash:"),
        ("--permission", "off", "--deny", "bash"),
        ("--label", "novalue"),
        ("--label", "k" * 129 + "=v"),
        ("--label", "k=" + "v" * 1025),
        ("--session-key", " "),
        ("--cwd", "/nowhere/at/all"),
        ("--cwd", ""),
        ("--parent", "me"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_made(
    mcode: Mcode, flags: tuple[str, ...]
) -> None:
    run = mcode.run("sessions", "create", *flags).check(2)
    assert run.out == ""
    assert not (mcode.data / "mcode.db").exists()


def test_a_key_gives_the_session_that_is_bound_to_it(mcode: Mcode) -> None:
    session = create(mcode, "--session-key", "nightly", "--deny", "edit:*.lock")
    again = mcode.run("sessions", "create", "--session-key", "nightly", "--deny", "edit:*.lock").check()
    assert again.out.strip() == session
    assert "already" in again.err
    assert create(mcode, "--session-key", "nightly") == session
    assert mcode.exec("x", "--session-key", "nightly", *JSON).check().result["sessionId"] == session
    assert len(listed(mcode)) == 1


@pytest.mark.parametrize("flags", [("--allow", "bash"), ("--permission", "full")])
def test_a_key_is_not_given_to_who_asks_for_other_permissions(mcode: Mcode, flags: tuple[str, ...]) -> None:
    session = create(mcode, "--session-key", "nightly", "--deny", "bash")
    run = mcode.run("sessions", "create", "--session-key", "nightly", *flags).check(4)
    assert "session_key_bound" in run.err
    assert session in run.err
    other = create(mcode)
    assert (
        "session_key_bound"
        in mcode.run("sessions", "create", "--session-key", "nightly", "--parent", other).check(4).err
    )


def test_a_key_under_a_parent_is_found_again_under_that_parent(mcode: Mcode) -> None:
    parent, flags = create(mcode, "--deny", "bash"), ("--session-key", "k", "--deny", "edit")
    child = create(mcode, "--parent", parent, *flags)
    assert create(mcode, "--parent", parent, *flags) == child
    assert create(mcode, "--parent", parent, "--session-key", "k") == child
    assert create(mcode, "--session-key", "k") == child
    assert mcode.run("sessions", "create", "--parent", child, *flags).code == 4


def test_many_at_once_with_one_key_get_one_session(mcode: Mcode) -> None:
    runs = [mcode.start("sessions", "create", "--session-key", "k") for _ in range(5)]
    assert len({one.finish().check().out for one in runs}) == 1
    assert len(listed(mcode)) == 1


def test_permissions_stay_with_a_session_and_flags_of_a_turn_do_not(mcode: Mcode, peer: Peer) -> None:
    session = create(mcode, "--deny", "bash:touch *", "--allow", "bash:git push*")
    assert shown(mcode, session)["permission"] == {
        "rules": [["deny", "bash:touch *"], ["allow", "bash:git push*"]]
    }
    assert denials(mcode, peer, session, "touch x")
    assert not denials(mcode, peer, session, "touch x", "--allow", "bash:touch *")
    assert denials(mcode, peer, session, "touch x")
    assert not denials(mcode, peer, session, "true", "--permission", "read-only", "--allow", "bash:true")


def test_what_a_parent_forbids_is_forbidden_to_its_children_whatever_they_allow(
    mcode: Mcode, peer: Peer
) -> None:
    parent = create(mcode, "--deny", "bash:touch *")
    child = create(mcode, "--parent", parent, "--permission", "full", "--allow", "bash:touch *")
    grandchild = create(mcode, "--parent", child[:14], "--permission", "off")
    assert shown(mcode, child)["parentId"] == parent
    assert shown(mcode, child)["title"].startswith("Child session - ")
    for session in (child, grandchild):
        denied = denials(mcode, peer, session, "touch made", "--permission", "full", "--allow", "bash")
        assert [one["rule"] for one in denied] == ["deny bash:touch *"], denied
    assert not (mcode.workspace / "made").exists()
    # gone, its word still holds
    mcode.run("sessions", "delete", parent).check()
    assert denials(mcode, peer, grandchild, "touch made")
    assert not denials(mcode, peer, grandchild, "true")


def test_the_agent_of_a_parent_binds_its_children(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(tables='[agents.reviewer]\nprompt = "review"\npermission = { bash = "deny" }\n')
    parent = mcode.exec("x", "--agent", "reviewer", *JSON).check().result["sessionId"]
    child = create(mcode, "--parent", parent)
    peer.script(say("done"))
    mcode.exec("go", "--session", child).check()
    assert "bash" not in [tool["name"] for tool in peer.last.json["tools"]]


def test_a_dry_run_shows_the_rules_above(mcode: Mcode) -> None:
    child = create(mcode, "--parent", create(mcode, "--permission", "read-only"), "--permission", "full")
    told = json.loads(mcode.exec("x", "--session", child, "--dry-run", *JSON).check().out)["permission"]
    assert told["preset"] == "read-only"
    assert [layer["preset"] for layer in told["inherited"]] == ["read-only"]


def test_a_parent_that_is_not_there_is_said(mcode: Mcode) -> None:
    mcode.exec("x").check()
    run = mcode.run("sessions", "create", "--parent", "mvs_0123456789abcdef").check(4)
    assert "session_not_found" in run.err
    assert len(listed(mcode)) == 1


def test_a_creation_that_was_killed_leaves_a_whole_session_or_none(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(echo))
    died = mcode.run("sessions", "create", "--session-key", "k", env={"MCODE_FAULT": "after-session"})
    assert died.code == -signal.SIGKILL
    session = create(mcode, "--session-key", "k")
    assert [row["id"] for row in listed(mcode)] == [session]
    mcode.exec("x", "--session-key", "k").check()


def test_the_model_and_agent_that_it_is_made_with_are_those_of_its_turns(mcode: Mcode, peer: Peer) -> None:
    tables = '[providers.fake.models."big-2"]\ncontext = 1000\n[agents.reviewer]\nprompt = "You review."\n'
    mcode.configure(tables=tables)
    session = create(mcode, "--model", "fake/big-2", "--agent", "reviewer")
    assert (shown(mcode, session)["model"], shown(mcode, session)["agent"]) == ("fake/big-2", "reviewer")
    plain = create(mcode)
    for _ in range(2):
        mcode.exec("x", "--session", session).check()
        assert peer.last.json["model"] == "big-2"
        assert "You review." in peer.last.text
        mcode.exec("x", "--session", plain).check()
        assert peer.last.json["model"] == "big-1"
    assert "there is no agent" in mcode.run("sessions", "create", "--agent", "nobody").check(3).err
    mcode.run("sessions", "create", "--model", "nobody/x").check(3)
    mcode.run("sessions", "create", "--model", "").check(2)
    assert len(listed(mcode)) == 2


def test_a_fork_of_a_child_is_bound_as_the_child_is(mcode: Mcode, peer: Peer) -> None:
    parent = create(mcode, "--deny", "bash:touch *")
    child = create(mcode, "--parent", parent, "--permission", "full")
    peer.script(say("first"))
    mcode.exec("begin", "--session", child).check()
    fork = mcode.run("sessions", "fork", child).check().out.strip()
    assert shown(mcode, fork)["permission"] == shown(mcode, child)["permission"]
    assert denials(mcode, peer, fork, "touch made", "--permission", "off")
    peer.script(call("bash", {"command": "touch made"}), say("done"))
    side = mcode.run("sessions", "btw", child, "aside", "--permission", "off", *JSON)
    assert side.result["permissionDenials"]
    peer.script(call("bash", {"command": "touch made"}), say("done"))
    forked = mcode.exec("on", "--fork", child, "--permission", "off", *JSON)
    assert forked.result["permissionDenials"]
    assert not (mcode.workspace / "made").exists()

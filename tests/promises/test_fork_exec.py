"""`mcode exec --fork`: a new session with the history of another and a turn in it, or no trace at all."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_fork import JSON, conversation_of_two, everything_of, run_once, shown, words
from tests.promises.test_when_busy import busy_session, wait_until
from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import call, hang, say, status

STREAM = ("--output-format", "stream-json")


def sessions(mcode: Mcode) -> list[str]:
    return [row["id"] for row in mcode.query("SELECT id FROM sessions ORDER BY created_ms, id")]


def test_the_turn_runs_in_a_new_session_that_begins_with_the_others_history(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    session = conversation_of_two(mcode, peer)
    before = everything_of(mcode, session)
    peer.script(call("bash", {"command": "echo three"}), say("third answer"))
    run = mcode.exec("third prompt", "--fork", session, *STREAM).check()
    (told,) = run.of_type("session.forked")
    assert told["forkedFrom"] == session
    assert told["workspace"] == str(mcode.workspace)
    assert told["title"] == "first prompt (fork #1)"
    assert run.of_type("session.started") == run.of_type("session.resumed") == []
    fork_id = run.result["sessionId"]
    assert told["sessionId"] == fork_id != session
    assert words(mcode, fork_id)[: len(words(mcode, session))] == words(mcode, session)
    assert words(mcode, fork_id)[-2:] == ["third prompt", "third answer"]
    assert not peer.last.violations
    assert everything_of(mcode, session) == before


def test_up_to_a_message(mcode: Mcode, peer: Peer, api: str) -> None:
    session = conversation_of_two(mcode, peer)
    calls = shown(mcode, session)["messages"][1]["id"]
    peer.script(say("other"))
    run = mcode.exec("go another way", "--fork", f"{session[:14]}@{calls[:20]}", *STREAM).check()
    assert run.of_type("session.forked")[0]["forkedAt"] == calls
    assert "first prompt" in peer.last.text
    assert "first answer" not in peer.last.text
    assert not peer.last.violations


def test_the_latest_is_that_of_this_directory_and_both_are_named(mcode: Mcode, peer: Peer) -> None:
    here, there = mcode.root / "a", mcode.root / "b"
    for directory in (here, there):
        directory.mkdir()
    first = mcode.exec("in a", *JSON, cwd=here).check().result["sessionId"]
    mcode.exec("in b", *JSON, cwd=there).check()
    (told,) = mcode.exec("x", "--fork", "latest", *STREAM, cwd=here).check().of_type("session.forked")
    assert told["forkedFrom"] == first
    assert told["workspace"] == str(here)
    refused = mcode.exec("x", "--fork", "latest", *JSON, cwd=mcode.root).check(4)
    assert "no session to continue" in refused.err


def test_flags_are_the_forks_own_and_the_rest_comes_along(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(
        tables='[providers.fake.models."big-2"]\ncontext = 100_000\noutput = 4096\n'
        '[permission]\n"bash" = "allow"\n'
    )
    session = run_once(mcode, "p", "--label", "a=1", "--deny", "bash:curl *")
    peer.script(say("x"))
    run = mcode.exec(
        "q",
        "--fork",
        session,
        "--model",
        "fake/big-2",
        "--label",
        "b=2",
        "--title",
        "T",
        "--deny",
        "edit:*",
        *JSON,
    ).check()
    (made,) = mcode.query("SELECT * FROM sessions WHERE id = ?", run.result["sessionId"])
    assert (made["model_id"], made["title"]) == ("big-2", "T")
    assert json.loads(made["labels"]) == {"a": "1", "b": "2"}
    assert json.loads(made["permission"]) == {"rules": [["deny", "bash:curl *"], ["deny", "edit:*"]]}
    (source,) = mcode.query("SELECT model_id, permission FROM sessions WHERE id = ?", session)
    assert source["model_id"] == "big-1"
    assert json.loads(source["permission"]) == {"rules": [["deny", "bash:curl *"]]}


@pytest.mark.parametrize(
    "others",
    [
        ("--session", "mvs_01234567"),
        ("--continue",),
        ("--resume", "mvs_01234567"),
        ("--session-key", "k"),
    ],
)
def test_it_is_one_of_the_flags_that_choose_a_session(mcode: Mcode, others: tuple[str, ...]) -> None:
    refused = mcode.exec("x", "--fork", "latest", *others).check(2)
    assert "--fork" in refused.err
    assert "cannot be combined" in refused.err


@pytest.mark.parametrize(
    "value", ["", "x", "mvs_12", "latest@msg-12345678", "mvs_01234567@", "mvs_01234567@ "]
)
def test_a_value_that_names_nothing_is_refused(mcode: Mcode, value: str) -> None:
    assert "--fork" in mcode.exec("x", f"--fork={value}").check(2).err


def test_an_ephemeral_fork_reads_the_data_directory_and_changes_nothing_in_it(
    mcode: Mcode, peer: Peer
) -> None:
    (mcode.workspace / "n.txt").write_text("attached words")
    peer.script(call("bash", {"command": "seq 30000"}), say("long"))
    session = run_once(mcode, "look", "--file", "n.txt")
    output = next(mcode.session_dir(session).glob("reports/tool-outputs/*.txt"))

    def state() -> Any:
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(mcode.data.rglob("*"))
            if path.is_file()
        }

    before = state()
    peer.script(call("read", {"file_path": str(output), "offset": 29995}), say("fine"))
    run = mcode.exec("and now", "--fork", session, "--ephemeral", *STREAM).check()
    assert run.of_type("session.forked")[0]["forkedFrom"] == session
    assert "attached words" in peer.last.text
    assert "29999" in peer.last.text
    assert not peer.last.violations
    assert state() == before
    assert not list((mcode.root / "tmp").iterdir())
    last = shown(mcode, session)["messages"][0]["id"]
    peer.script(say("fine"))
    mcode.exec("and now", "--fork", f"{session}@{last}", "--ephemeral", "--cwd", "@recorded", cwd="/").check()
    assert "long" not in peer.last.text
    mcode.exec("x", "--fork", "latest", "--ephemeral").check()
    for flags in (("--request-id", "r"), ("--worktree",)):
        assert "cannot be combined" in mcode.exec("x", "--fork", session, "--ephemeral", *flags).check(2).err
    other = mcode.exec("x", "--fork", session, "--ephemeral", "--data-dir", mcode.root / "none").check(4)
    assert "there is no session" in other.err
    assert not (mcode.root / "none").exists()


def test_a_request_id_makes_one_fork(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    peer.script(say("once"), say("twice"))
    first = mcode.exec("go", "--fork", session, "--request-id", "r", *JSON).check().result
    again = mcode.exec("go", "--fork", session, "--request-id", "r", *JSON).check().result
    assert again["replayed"] is True
    assert (again["sessionId"], again["output"]) == (first["sessionId"], "once")
    assert len(sessions(mcode)) == len(mcode.session_dirs()) == 2


def test_a_run_that_is_refused_leaves_no_fork(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    for flags, code in (
        (("--model", "nobody/x"), 3),
        (("--effort", "most"), 2),
        (("--file", "not-there"), 2),
        (("--worktree",), 2),
    ):
        mcode.exec("x", "--fork", session, *flags).check(code)
    assert "KEY" in mcode.exec("x", "--fork", session, env={"FAKE_KEY": None}).check(77).err
    assert sessions(mcode) == [session]
    assert len(mcode.session_dirs()) == 1
    assert mcode.query("SELECT * FROM operations") == []


def test_a_turn_that_fails_in_a_fork_leaves_the_fork(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    peer.script(status(400, {"error": {"message": "no", "type": "invalid_request_error"}}))
    fork_id = mcode.exec("x", "--fork", session, *JSON).check(4).result["sessionId"]
    row = shown(mcode, fork_id)["session"]
    assert (row["status"], row["visibility"], row["forkedFrom"]) == ("error", "visible", session)
    peer.script(say("better"))
    mcode.run("retry", fork_id).check()
    assert words(mcode, fork_id)[-2:] == ["x", "better"]


def test_a_fork_of_a_running_session_takes_its_last_whole_round_and_waits_for_nothing(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(say("settled"))
    session = run_once(mcode, "first")
    peer.script(say("I see.") + call("bash", {"command": "echo seen"}), call("bash", {"command": "sleep 60"}))
    running = mcode.start("exec", "second", "--session", session, *STREAM)
    running.wait_event("item.updated", where=lambda event: "sleep" in json.dumps(event))
    peer.script(say("from the side"))
    run = mcode.exec("third", "--fork", session, *JSON).check()
    assert not peer.last.violations
    assert "seen" in peer.last.text
    assert "sleep 60" not in peer.last.text
    assert words(mcode, run.result["sessionId"]) == [
        "first",
        "settled",
        "second",
        "I see.",
        "third",
        "from the side",
    ]
    asked = [one["id"] for one in shown(mcode, session)["messages"] if "sleep" in json.dumps(one)]
    refused = mcode.run("sessions", "fork", session, "--at", asked[0]).check(75)
    assert "still run" in refused.err
    assert mcode.query("SELECT kind FROM session_locks") == [{"kind": "turn"}]
    peer.script(say("ended"))
    running.send(signal.SIGINT)
    running.finish().check(-signal.SIGINT)


def test_a_fork_of_a_session_whose_first_answer_is_awaited_can_be_tried_again(
    mcode: Mcode, peer: Peer
) -> None:
    session, running, gate = busy_session(mcode, peer)
    run = mcode.exec("x", "--fork", session, *JSON).check(75)
    assert run.result["retryable"] is True
    gate.open()
    running.finish().check()
    peer.script(say("now"))
    mcode.exec("x", "--fork", session).check()
    assert "begin" in peer.last.text


def test_a_fork_of_a_sleeping_process_does_not_wait_for_it(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("settled"))
    session = run_once(mcode, "first")
    peer.script(hang())
    running = mcode.start("exec", "second", "--session", session)
    peer.wait_for(2)
    running.send(signal.SIGSTOP)
    peer.script(say("fine"))
    run = mcode.exec("x", "--fork", session, *JSON).check()
    assert words(mcode, run.result["sessionId"]) == ["first", "settled", "x", "fine"]
    running.send(signal.SIGCONT)
    running.send(signal.SIGINT)
    running.finish().check(-signal.SIGINT)


def test_what_a_killed_turn_had_done_is_in_the_fork_with_how_it_ended(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(call("bash", {"command": "echo begun > begun; exec sleep 60"}), say("never"))
    running = mcode.start("exec", "first", *STREAM)
    running.wait_event("item.updated", where=lambda event: "begun" in json.dumps(event))
    mcode.may_leave_processes = True
    running.kill()
    running.finish()
    session = sessions(mcode)[0]
    peer.script(say("I see"))
    mcode.exec("go on", "--fork", session).check()
    assert not peer.last.violations
    assert "interrupted: the process stopped while this ran" in peer.last.text
    assert "echo begun" in peer.last.text
    assert [one["status"] for one in mcode.query("SELECT status FROM sessions WHERE id = ?", session)] == [
        "interrupted"
    ]


def test_dry_run_says_what_it_would_begin_with_and_makes_nothing(mcode: Mcode, peer: Peer) -> None:
    session = conversation_of_two(mcode, peer)
    last = shown(mcode, session)["messages"][-1]["id"]
    told = json.loads(mcode.exec("x", "--fork", session, "--dry-run", *JSON).check().out)
    assert told["invocation"]["session"] == {
        "id": None, "isPrivate": False, "forkedFrom": session, "forkedAt": last,
    }  # fmt: skip
    told = json.loads(mcode.exec("x", "--fork", "latest", "--ephemeral", "--dry-run", *JSON).check().out)
    assert told["invocation"]["session"]["forkedFrom"] == session
    refused = mcode.exec("x", "--fork", f"{session}@msg-00000000", "--dry-run").check(4)
    assert "message_not_found" in refused.err
    assert sessions(mcode) == [session]


@pytest.mark.slow
def test_a_signal_before_the_turn_leaves_no_fork(mcode: Mcode, peer: Peer) -> None:
    """A worktree whose checkout lasts: the run is stopped in it."""
    make_repository(mcode.workspace)
    session = conversation_of_two(mcode, peer)
    slow = mcode.root / "bin"
    slow.mkdir()
    real = next(Path(part) / "git" for part in os.environ["PATH"].split(":") if (Path(part) / "git").exists())
    (slow / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *"reset --quiet --hard"*) touch {mcode.root}/reached; sleep 30;; esac\n'
        f'exec {real} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    running = mcode.start(
        "exec", "x", "--fork", session, "--worktree", env={"PATH": f"{slow}:{os.environ['PATH']}"}
    )
    wait_until((mcode.root / "reached").exists, "the checkout has not begun")
    running.send(signal.SIGTERM)
    running.finish().check(-signal.SIGTERM)
    assert sessions(mcode) == [session]
    assert len(mcode.session_dirs()) == 1
    assert mcode.query("SELECT * FROM operations") == []
    assert not list((mcode.data / "worktrees").iterdir())

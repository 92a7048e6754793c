"""Which session goes on: by id, by prefix, the newest of a workspace, by key; and where it runs."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode, git, make_repository
from tests.support.peer import Peer
from tests.support.steps import Gate, gated, say, status


def started(mcode: Mcode, *args: str, **how: Any) -> str:
    """A new session; its id."""
    run = mcode.exec("first words", "--output-format", "json", *args, **how).check()
    session_id: str = run.result["sessionId"]
    return session_id


def change(mcode: Mcode, sql: str, *parameters: Any) -> None:
    connection = sqlite3.connect(mcode.data / "mcode.db", timeout=10)
    with connection:
        connection.execute(sql, parameters)
    connection.close()


def copy_row(mcode: Mcode, of: str, number: int, **columns: Any) -> str:
    """Another session row like that of `of`."""
    made = f"mvs_{number:032x}"
    connection = sqlite3.connect(mcode.data / "mcode.db", timeout=10)
    connection.row_factory = sqlite3.Row
    with connection:
        row = dict(connection.execute("SELECT * FROM sessions WHERE id = ?", (of,)).fetchone())
        row.update(id=made, session_key=None, **columns)
        names = ", ".join(row)
        connection.execute(
            f"INSERT INTO sessions ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
        )
    connection.close()
    return made


def continued(mcode: Mcode, *args: str | Path, **how: Any) -> str:
    run = mcode.exec("--continue", "more words", "--output-format", "json", *args, **how).check()
    session_id: str = run.result["sessionId"]
    return session_id


def test_a_session_goes_on_by_its_id_or_a_unique_prefix(mcode: Mcode, peer: Peer, api: str) -> None:
    session_id = started(mcode)
    for name in (session_id, session_id[:12], session_id[:20]):
        run = mcode.exec("--session", name, "and then?", "--output-format", "stream-json").check()
        assert run.result["sessionId"] == session_id
        assert run.of_type("session.resumed")
        assert "first words" in peer.last.text
    assert len(mcode.session_dirs()) == 1


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("mvs_" + "0" * 32, 4, "there is no session"),
        ("mvs_00000000", 4, "no session id starts with"),
        ("mvs_0000", 2, "mvs_"),
        ("nonsense", 2, "mvs_"),
        ("", 2, ""),
    ],
)
def test_a_name_that_names_no_session_is_refused_and_leaves_no_trace(
    mcode: Mcode, peer: Peer, name: str, code: int, says: str
) -> None:
    run = mcode.exec("--session", name, "x", "--output-format", "json").check(code)
    assert says in run.result["error"]["message"]
    assert peer.calls == []
    assert mcode.session_dirs() == []


def test_a_prefix_of_two_sessions_is_refused(mcode: Mcode, peer: Peer) -> None:
    session_id = started(mcode)
    for number in (1, 2):
        copy_row(mcode, session_id, number)
    run = mcode.exec("--session", "mvs_0000000000", "x", "--output-format", "json").check(4)
    assert "several session ids" in run.result["error"]["message"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--session", "mvs_" + "0" * 32, "--continue"),
        ("--continue", "--session-key", "k"),
        ("--session", "mvs_" + "0" * 32, "--session-key", "k"),
        ("--ephemeral", "--continue"),
        ("--ephemeral", "--session-key", "k"),
        ("--ephemeral", "--request-id", "r"),
    ],
)
def test_selectors_exclude_each_other(mcode: Mcode, flags: tuple[str, ...]) -> None:
    run = mcode.exec("x", *flags, "--output-format", "json").check(2)
    assert "cannot be combined" in run.result["error"]["message"]


def test_a_session_of_another_workspace_is_refused_with_both_commands_that_work(
    mcode: Mcode, peer: Peer
) -> None:
    session_id = started(mcode)
    other = mcode.root / "other"
    other.mkdir()
    run = mcode.exec("--session", session_id, "x", "--output-format", "json", cwd=other).check(4)
    error = run.result["error"]
    assert error["code"] == "workspace_mismatch"
    assert f"--session {session_id} --cwd ." in error["message"]
    assert f"--session {session_id} --cwd @recorded" in error["message"]
    assert len(peer.calls) == 1

    run = mcode.exec("--session", session_id, "x", "--cwd", "@recorded", cwd=other).check()
    assert str(mcode.workspace) in peer.last.text
    assert mcode.query("SELECT workspace FROM sessions") == [{"workspace": str(mcode.workspace)}]

    mcode.exec("--session", session_id, "x", "--cwd", ".", cwd=other).check()
    assert mcode.query("SELECT workspace FROM sessions") == [{"workspace": str(other)}]
    # the model is told that it works somewhere else now
    assert f"is now {other}" in peer.last.text
    mcode.exec("--session", session_id, "x", cwd=other).check()
    mcode.exec("--session", session_id, "x", "--cwd", mcode.workspace, cwd=other).check()
    assert mcode.query("SELECT workspace FROM sessions") == [{"workspace": str(mcode.workspace)}]


def test_a_workspace_that_is_gone_is_not_recommended(mcode: Mcode, peer: Peer) -> None:
    gone = mcode.root / "gone"
    gone.mkdir()
    mcode.exec("x", cwd=gone).check()
    session_id = mcode.query("SELECT id FROM sessions")[0]["id"]
    gone.rmdir()
    run = mcode.exec("--session", session_id, "x", "--output-format", "json").check(4)
    message = run.result["error"]["message"]
    assert f"{gone} (which is gone)" in message
    assert "--cwd ." in message
    assert "@recorded" not in message


def test_a_recorded_workspace_that_is_gone_is_named(mcode: Mcode, peer: Peer) -> None:
    gone = mcode.root / "gone"
    gone.mkdir()
    session_id = started(mcode, cwd=gone)
    gone.rmdir()
    run = mcode.exec("--session", session_id, "--cwd", "@recorded", "x", "--output-format", "json").check(4)
    assert run.result["error"]["code"] == "workspace_missing"
    assert str(gone) in run.result["error"]["message"]


@pytest.mark.parametrize("where", ["/nonexistent", "work/none", "~nobody-of-that-name/x"])
def test_a_workspace_that_does_not_exist_is_a_usage_error(mcode: Mcode, where: str) -> None:
    mcode.exec("x", "--cwd", where).check(2)
    assert not mcode.session_dirs()


def test_continue_is_bound_to_the_workspace_not_to_its_name_or_title(mcode: Mcode) -> None:
    first, second = mcode.root / "a" / "app", mcode.root / "b" / "app"
    for one in (first, second):
        one.mkdir(parents=True)
    ids = [started(mcode, "--title", "same", cwd=one) for one in (first, second)]
    assert continued(mcode, cwd=first) == ids[0]
    assert continued(mcode, cwd=second) == ids[1]


def test_continue_finds_a_quiet_workspace_among_many_newer_sessions(mcode: Mcode) -> None:
    session_id = started(mcode)
    later = int(time.time() * 1000) + 60_000
    for number in range(60):
        copy_row(mcode, session_id, number + 1, workspace="/somewhere/else", activity_ms=later + number)
    assert continued(mcode) == session_id


@pytest.mark.parametrize("way", ["link", "cwd-link", "slash", "dots", "cwd-file-link", "up-from-a-link"])
def test_one_directory_is_one_workspace_however_it_is_written(mcode: Mcode, way: str) -> None:
    session_id = started(mcode)
    link = mcode.root / "link"
    link.symlink_to(mcode.workspace)
    work = str(mcode.workspace)
    if way == "link":
        assert continued(mcode, cwd=link) == session_id
    elif way == "cwd-link":
        assert continued(mcode, "--cwd", str(link), cwd="/") == session_id
    elif way == "slash":
        assert continued(mcode, "--cwd", work + "/", cwd="/") == session_id
    elif way == "dots":
        assert continued(mcode, "--cwd", f"{work}/../{mcode.workspace.name}/.", cwd="/") == session_id
    elif way == "up-from-a-link":
        (mcode.workspace / "sub").mkdir()
        (mcode.root / "far").mkdir()
        (mcode.root / "far" / "in").symlink_to(mcode.workspace / "sub")
        assert continued(mcode, "--cwd", f"{mcode.root}/far/in/..", cwd="/") == session_id
    else:
        assert continued(mcode, "--cwd", "link", cwd=mcode.root) == session_id


def test_continue_passes_over_what_is_no_conversation_to_go_on_with(mcode: Mcode) -> None:
    session_id = started(mcode)
    later = int(time.time() * 1000) + 60_000
    others: list[dict[str, Any]] = [
        {"session_kind": "task", "parent_id": session_id},
        {"session_kind": "peek", "visibility": "hidden"},
        {"session_kind": "conversation", "visibility": "hidden"},
        {"session_kind": "cron"},
        {"session_kind": "channel"},
        {"archived_ms": later},
        # its process died before its first turn was admitted
        {"last_turn_id": None, "history_bytes": 0},
    ]
    for number, columns in enumerate(others):
        copy_row(mcode, session_id, number + 1, activity_ms=later + number, **columns)
    assert continued(mcode) == session_id


def test_continue_passes_over_a_session_whose_history_is_gone_and_says_so(mcode: Mcode) -> None:
    session_id = started(mcode)
    lost = copy_row(
        mcode,
        session_id,
        1,
        activity_ms=int(time.time() * 1000) + 60_000,
        history_relative_dir="2020/01/01/gone",
    )
    run = mcode.exec("--continue", "x", "--output-format", "stream-json").check()
    assert run.result["sessionId"] == session_id
    assert any(lost in notice["message"] for notice in run.of_type("notice"))


def test_many_sessions_whose_history_is_gone_are_counted_not_listed(mcode: Mcode) -> None:
    session_id = started(mcode)
    later = int(time.time() * 1000) + 60_000
    for number in range(40):
        copy_row(mcode, session_id, number + 1, activity_ms=later, history_relative_dir=f"2020/{number}")
    run = mcode.exec("--continue", "x", "--output-format", "json").check()
    assert run.result["sessionId"] == session_id
    assert len(run.err.splitlines()) == 4
    assert "37 more" in run.err
    change(mcode, "DELETE FROM sessions WHERE history_relative_dir NOT LIKE '2020/%'")
    assert "of 40 the history is gone" in mcode.exec("--continue", "x").check(4).err


def test_with_nothing_to_continue_no_session_is_made(mcode: Mcode, peer: Peer) -> None:
    run = mcode.exec("--continue", "x", "--output-format", "json").check(4)
    assert run.result["error"]["code"] == "session_not_found"
    assert peer.calls == []
    assert mcode.query("SELECT id FROM sessions") == []


def test_continue_takes_the_session_with_the_newest_turn(mcode: Mcode) -> None:
    first, second = started(mcode), started(mcode)
    assert continued(mcode) == second
    mcode.exec("--session", first, "x").check()
    assert continued(mcode) == first


def test_showing_does_not_unarchive_or_move_a_session_but_a_turn_does(mcode: Mcode) -> None:
    session_id = started(mcode)
    change(mcode, "UPDATE sessions SET archived_ms = 5, activity_ms = 5")
    mcode.run("sessions", "show", session_id).check()
    mcode.run("sessions", "export", session_id).check()
    assert mcode.query("SELECT archived_ms, activity_ms FROM sessions") == [
        {"archived_ms": 5, "activity_ms": 5}
    ]
    mcode.exec("--session", session_id, "x").check()
    (row,) = mcode.query("SELECT archived_ms, activity_ms FROM sessions")
    assert row["archived_ms"] is None
    assert row["activity_ms"] > 5


def test_a_sub_agents_session_resolves_to_its_public_parent_with_a_notice(mcode: Mcode) -> None:
    session_id = started(mcode)
    parent = session_id
    for number in range(1, 6):
        parent = copy_row(
            mcode, session_id, number, session_kind="task", visibility="hidden", parent_id=parent
        )
    run = mcode.exec("--session", parent, "x", "--output-format", "stream-json").check()
    assert run.result["sessionId"] == session_id
    assert any(notice["code"] == "session.parent" for notice in run.of_type("notice"))


def test_parents_that_go_round_in_a_circle_are_an_error(mcode: Mcode) -> None:
    session_id = started(mcode)
    one = copy_row(mcode, session_id, 1, session_kind="task", parent_id=f"mvs_{2:032x}")
    copy_row(mcode, session_id, 2, session_kind="task", parent_id=one)
    run = mcode.exec("--session", one, "x", "--output-format", "json").check(4)
    assert "lead nowhere" in run.result["error"]["message"]


# keys


def keyed(mcode: Mcode, key: str, cwd: Path, *args: str) -> Any:
    return mcode.exec("x", "--session-key", key, "--output-format", "stream-json", *args, cwd=cwd).check()


def test_a_key_is_one_session_in_every_clone_of_a_repository(mcode: Mcode) -> None:
    origin = make_repository(mcode.root / "origin")
    clones = [mcode.root / "one", mcode.root / "two"]
    for clone in clones:
        git(mcode.root, "clone", "-q", str(origin), str(clone))
    first = keyed(mcode, "pr-1", clones[0])
    second = keyed(mcode, "pr-1", clones[1])
    assert first.result["sessionId"] == second.result["sessionId"]
    assert first.of_type("session.started")
    assert second.of_type("session.resumed")
    assert any(notice["code"] == "session.rebound" for notice in second.of_type("notice"))
    assert mcode.query("SELECT workspace FROM sessions") == [{"workspace": str(clones[1])}]
    # another key, and the same key in another project, are others
    assert keyed(mcode, "pr-2", clones[0]).result["sessionId"] != first.result["sessionId"]
    assert keyed(mcode, "pr-1", mcode.workspace).result["sessionId"] != first.result["sessionId"]


def test_shallow_clones_of_one_origin_are_one_project_and_credentials_are_no_part_of_it(mcode: Mcode) -> None:
    origin = make_repository(mcode.root / "origin")
    (origin / "more").write_text("x")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", "second")
    ids = []
    for number, user in enumerate(("", "alice:secret-token-1@")):
        clone = mcode.root / f"shallow{number}"
        git(mcode.root, "clone", "-q", "--depth", "1", f"file://{origin}", str(clone))
        git(clone, "remote", "set-url", "origin", f"https://{user}git.example.invalid/a.git")
        ids.append(keyed(mcode, "nightly", clone).result["sessionId"])
    assert ids[0] == ids[1]
    identities = [row["identity"] for row in mcode.query("SELECT identity FROM projects")]
    assert identities == ["https://git.example.invalid/a.git"]


def test_eight_processes_that_want_a_new_key_at_once_make_one_session(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("hello"), gate))
    running = [mcode.start("exec", "x", "--session-key", "k", "--output-format", "json") for _ in range(8)]
    gate.wait_reached()
    # seven are told that it is busy while the eighth runs
    deadline_s = time.monotonic() + 30
    while sum(one.process.poll() is None for one in running) > 1:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    gate.open()
    runs = [one.finish() for one in running]
    assert sorted(run.code for run in runs) == [0] + [75] * 7
    assert len(mcode.query("SELECT id FROM sessions")) == 1
    assert {run.result["error"]["code"] for run in runs if run.code} == {"session_busy"}
    assert len({run.result["sessionId"] for run in runs if run.result["sessionId"]}) == 1


def test_an_empty_key_is_a_usage_error(mcode: Mcode) -> None:
    mcode.exec("x", "--session-key", "").check(2)


# busy


def test_a_busy_session_says_who_holds_it_since_when_and_how_to_watch(mcode: Mcode, peer: Peer) -> None:
    session_id = started(mcode)
    gate = Gate()
    peer.script(gated(say("slow"), gate))
    first = mcode.start("exec", "--session", session_id, "x", "--output-format", "json")
    gate.wait_reached()
    run = mcode.exec("--session", session_id, "y", "--output-format", "json").check(75)
    error = run.result["error"]
    assert (error["code"], error["retryable"], run.result["retryable"]) == ("session_busy", True, True)
    assert f"process {first.pid} on " in error["message"]
    assert time.strftime("%Y-%m-%d", time.gmtime()) in error["message"]
    assert f"mcode sessions watch {session_id}" in error["message"]
    gate.open()
    assert first.finish().code == 0
    assert "y" not in [block.get("text") for one in mcode.messages() for block in one["content"]]
    mcode.exec("--session", session_id, "z").check()


def test_a_failed_turn_leaves_a_session_that_goes_on(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(
        status(400, {"error": {"message": "no such luck", "type": "invalid_request_error"}}), say("well")
    )
    run = mcode.exec("x", "--output-format", "json").check(4)
    (row,) = mcode.query("SELECT status, error_code, error_message, error_source FROM sessions")
    assert (row["status"], row["error_code"], row["error_source"]) == ("error", "LLM_BAD_REQUEST", "provider")
    assert "no such luck" in row["error_message"]
    again = mcode.exec("--session", run.result["sessionId"], "y", "--output-format", "json").check()
    assert again.result["output"] == "well"
    (row,) = mcode.query("SELECT status, error_code, error_message FROM sessions")
    assert (row["status"], row["error_code"], row["error_message"]) == ("idle", None, None)


def test_git_itself_is_not_needed(mcode: Mcode) -> None:
    empty = mcode.root / "bin"
    empty.mkdir()
    make_repository(mcode.workspace)
    path = str(empty)
    command = subprocess.run(["sh", "-c", "command -v bash"], capture_output=True, text=True).stdout.strip()
    (empty / "bash").symlink_to(command)
    session_id = started(mcode, env={"PATH": path})
    assert continued(mcode, env={"PATH": path}) == session_id

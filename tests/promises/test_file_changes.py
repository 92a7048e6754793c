"""The result's `fileChanges`: what edits and commands of a turn did to the workspace, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import call, say, status

JSON = ("--output-format", "json", "--permission", "off")


def git(workspace: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=workspace, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(params=["git", "plain"])
def workspace(request: pytest.FixtureRequest, mcode: Mcode) -> Path:
    """The workspace as a git repository with a commit, and as a plain directory."""
    (mcode.workspace / "a.txt").write_text("one\ntwo\nthree\n")
    (mcode.workspace / "gone.txt").write_text("bye\n")
    if request.param == "git":
        (mcode.workspace / ".gitignore").write_text("*.log\n")
        make_repository(mcode.workspace)
    return mcode.workspace


def changes_of(mcode: Mcode, peer: Peer, *steps: Any, flags: tuple[str, ...] = ()) -> dict[str, Any]:
    peer.script(*steps, say("done"))
    found: dict[str, Any] = mcode.exec("go", *JSON, *flags).check().result["fileChanges"]
    return found


def test_edits_writes_and_commands_are_all_told(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    found = changes_of(
        mcode,
        peer,
        call("edit", {"file_path": "a.txt", "old_string": "two", "new_string": "2"}),
        call("bash", {"command": "rm gone.txt; mkdir d; printf 'x\\ny\\n' > d/new.txt"}),
        call("write", {"file_path": "w.txt", "content": "w\n"}),
    )
    assert found == {
        "files": 4,
        "additions": 4,
        "deletions": 2,
        "paths": ["a.txt", "d/new.txt", "gone.txt", "w.txt"],
        "shared": False,
        "gap": "none",
        "reason": None,
    }


def test_a_turn_that_changes_nothing_has_no_changes(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    found = changes_of(mcode, peer, call("bash", {"command": "touch a.txt; cat a.txt"}))
    assert (found["files"], found["additions"], found["deletions"]) == (0, 0, 0)


def test_a_turn_without_tools_keeps_nothing(mcode: Mcode, peer: Peer) -> None:
    found = changes_of(mcode, peer)
    assert (found["files"], found["gap"]) == (0, "none")
    assert not mcode.query("SELECT * FROM turn_changes")
    assert not (mcode.data / "changes").exists()


def test_what_is_made_and_removed_in_one_turn_is_no_change(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    found = changes_of(
        mcode,
        peer,
        call("bash", {"command": "echo x > t.txt"}),
        call("edit", {"file_path": "t.txt", "old_string": "x", "new_string": "y"}),
        call("bash", {"command": "rm t.txt"}),
    )
    assert found["paths"] == []


def test_a_file_that_a_command_made_and_an_edit_changed_is_a_new_one(
    mcode: Mcode, peer: Peer, workspace: Path
) -> None:
    changes_of(
        mcode,
        peer,
        call("bash", {"command": "echo x > t.txt"}),
        call("edit", {"file_path": "t.txt", "old_string": "x", "new_string": "y"}),
    )
    (row,) = mcode.query("SELECT files, additions, deletions, gap FROM turn_changes")
    assert tuple(row.values()) == (1, 1, 0, "none")


def test_an_edit_of_an_ignored_file_is_told(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    (workspace / "x.log").write_text("old\n")
    edit = call("edit", {"file_path": "x.log", "old_string": "old", "new_string": "new"})
    found = changes_of(mcode, peer, call("bash", {"command": "true"}), edit)
    assert (found["paths"], found["additions"], found["deletions"]) == (["x.log"], 1, 1)


def test_what_git_ignores_is_not_followed(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / ".gitignore").write_text("*.log\nbuild/\n")
    make_repository(mcode.workspace)
    command = "mkdir build; echo x > build/o; echo x > a.log; echo y > b.txt"
    assert changes_of(mcode, peer, call("bash", {"command": command}))["paths"] == ["b.txt"]


def test_a_file_that_is_ignored_from_now_on_is_not_gone(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "kept.txt").write_text("x\n")
    make_repository(mcode.workspace)
    (mcode.workspace / "loose.txt").write_text("x\n")
    found = changes_of(mcode, peer, call("bash", {"command": "echo 'loose.txt' > .gitignore"}))
    assert found["paths"] == [".gitignore"]


def test_files_of_an_earlier_start_and_of_mcode_itself_are_not_the_turns(
    mcode: Mcode, peer: Peer, workspace: Path
) -> None:
    (workspace / "dirty.txt").write_text("mine, before\n")
    outputs = ("--events", "ev.jsonl", "--result", "r.json", "-o", "o.txt")
    found = changes_of(mcode, peer, call("bash", {"command": "echo x >> a.txt"}), flags=outputs)
    assert found["paths"] == ["a.txt"]


def test_the_repository_of_the_user_is_not_touched(mcode: Mcode, peer: Peer) -> None:
    """No index, HEAD, ref, config or object is written, no hook, filter or fsmonitor runs."""
    workspace = mcode.workspace
    marker = mcode.root / "ran"
    (workspace / ".gitattributes").write_text("*.txt filter=evil\n")
    (workspace / "a.txt").write_text("a\n")
    (workspace / "b.bin").write_bytes(b"\0\1")
    make_repository(workspace)
    for key, value in (
        ("core.fsmonitor", f"touch {marker}; true"),
        ("filter.evil.clean", f"touch {marker}; cat"),
        ("filter.evil.smudge", f"touch {marker}; cat"),
        ("core.hooksPath", str(workspace / ".git/hooks")),
        ("diff.external", f"touch {marker}"),
    ):
        git(workspace, "config", key, value)
    for hook in ("post-index-change", "pre-commit", "reference-transaction", "post-checkout"):
        path = workspace / ".git/hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {marker}\n")
        path.chmod(0o755)
    marker.unlink(missing_ok=True)
    before = repository_state(workspace)
    found = changes_of(mcode, peer, call("bash", {"command": "echo b >> a.txt; echo c > c.txt"}))
    assert found["paths"] == ["a.txt", "c.txt"]
    assert repository_state(workspace) == before
    assert not marker.exists()


def repository_state(workspace: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted((workspace / ".git").rglob("*"))
        if path.is_file()
    }


def test_modes_links_and_binary_files_are_followed(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    command = "chmod +x a.txt; ln -s a.txt link; printf '\\0\\1' > bin; ln -sf /etc/passwd out"
    found = changes_of(mcode, peer, call("bash", {"command": command}))
    assert found["paths"] == ["a.txt", "bin", "link", "out"]
    assert found["additions"] == 2  # a link has one line, its target; a binary file has none


def test_a_workspace_with_too_many_files_says_what_is_not_known(mcode: Mcode, peer: Peer) -> None:
    many = mcode.workspace / "many"
    many.mkdir()
    for number in range(20_001):
        os.close(os.open(many / str(number), os.O_CREAT))
    found = changes_of(
        mcode,
        peer,
        call("bash", {"command": "echo x > by-command.txt"}),
        call("write", {"file_path": "by-tool.txt", "content": "x\n"}),
    )
    assert found["gap"] == "some"
    assert found["paths"] == ["by-tool.txt"]
    assert "20,000 files" in found["reason"]


@pytest.mark.parametrize(
    "point", ["after-changes-begun", "after-snapshot", "after-second-snapshot", "after-pack"]
)
def test_a_turn_that_was_killed_says_that_nothing_is_known(mcode: Mcode, peer: Peer, point: str) -> None:
    peer.script(call("bash", {"command": "echo x > x.txt"}), say("done"))
    mcode.exec("go", *JSON, env={"MCODE_FAULT": point}).check(-signal.SIGKILL)
    mcode.run("recover").check()
    (row,) = mcode.query("SELECT gap, files, ended_ms FROM turn_changes")
    assert row == {"gap": "all", "files": None, "ended_ms": None}


def test_what_is_kept_is_private(mcode: Mcode, peer: Peer, workspace: Path) -> None:
    changes_of(mcode, peer, call("bash", {"command": "echo x > x.txt"}))
    kept = [*(mcode.data / "changes").rglob("*"), *(mcode.session_dir() / "changes").rglob("*")]
    assert any(path.suffix == ".pack" for path in kept)
    for path in kept:
        assert path.stat().st_mode & 0o077 == 0, path
    mcode.run("sessions", "delete", mcode.query("SELECT id FROM sessions")[0]["id"]).check()
    assert not mcode.query("SELECT * FROM turn_changes")


def test_two_sessions_in_one_workspace_do_not_claim_each_others_edits(mcode: Mcode, peer: Peer) -> None:
    """What runs beside a turn is marked as shared; what the other's edits named is the other's."""
    peer.script(
        call("bash", {"command": "touch began; until [ -e other ]; do sleep 0.05; done"}), say("done")
    )
    first = mcode.start("exec", "one", *JSON)
    from tests.promises.test_when_busy import wait_until

    wait_until(lambda: (mcode.workspace / "began").exists(), "the first has not begun")
    peer.script(
        call("write", {"file_path": "theirs.txt", "content": "x\n"}),
        call("bash", {"command": "echo y > maybe.txt"}),
        say("done"),
    )
    mcode.exec("two", *JSON).check()
    (mcode.workspace / "other").write_text("")
    found = first.finish().check().result["fileChanges"]
    assert found["shared"] is True
    assert "theirs.txt" not in found["paths"]
    assert "maybe.txt" in found["paths"]


def test_a_turn_in_a_worktree_is_followed_there(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "a.txt").write_text("a\n")
    make_repository(mcode.workspace)
    found = changes_of(mcode, peer, call("bash", {"command": "echo b > b.txt"}), flags=("--worktree",))
    assert found["paths"] == ["b.txt"]
    session = mcode.query("SELECT id FROM sessions")[0]["id"]
    assert "+b" in mcode.run("sessions", "diff", session, "--patch").check().out


def test_a_data_directory_in_the_workspace_is_not_the_turns(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "echo x > x.txt"}), say("done"))
    inside = ("--data-dir", str(mcode.workspace / "kept"))
    found = mcode.exec("go", *JSON, *inside).check().result["fileChanges"]
    assert found["paths"] == ["x.txt"]


@pytest.mark.parametrize("ending", ["limit", "timeout", "failed"])
def test_a_turn_that_is_not_answered_tells_what_it_has_changed(mcode: Mcode, peer: Peer, ending: str) -> None:
    made = call("bash", {"command": "echo x > x.txt"})
    if ending == "limit":
        peer.script(made)
        run = mcode.exec("go", *JSON, "--max-steps", "1").check(7)
    elif ending == "timeout":
        peer.script(call("bash", {"command": "echo x > x.txt; sleep 60"}))
        run = mcode.exec("go", *JSON, "--timeout", "4s").check(6)
    else:
        peer.script(made, status(400, {"error": {"message": "no"}}))
        run = mcode.exec("go", *JSON).check(4)
    assert run.result["fileChanges"]["paths"] == ["x.txt"]
    assert run.result["fileChanges"]["gap"] == "none"


def test_a_full_answer_of_a_replay_has_run_nothing(mcode: Mcode, peer: Peer) -> None:
    recorded = mcode.root / "rec"
    changes_of(mcode, peer, call("bash", {"command": "echo x > x.txt"}), flags=("--record", str(recorded)))
    (mcode.workspace / "x.txt").unlink()
    mcode.configure(tables=f'[providers.tape]\napi = "replay"\npath = "{recorded}"')
    run = mcode.exec("go", *JSON, "--model", "tape/big-1").check()
    assert run.result["fileChanges"]["files"] == 0

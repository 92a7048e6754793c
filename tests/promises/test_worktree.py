"""`--worktree`: a session works in a checkout of its own, which goes with it when nothing is lost by that."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_fork import JSON, fork, run_once, shown
from tests.support.mcode import Mcode, git, make_repository
from tests.support.peer import Peer
from tests.support.steps import call, say

STREAM = ("--output-format", "stream-json")


def bash(command: str) -> Any:
    return call("bash", {"command": command})


def begun(
    mcode: Mcode, peer: Peer, *flags: str, command: str = "pwd; cat README.md", **how: Any
) -> dict[str, Any]:
    """The result of a run in a worktree."""
    peer.script(bash(command), say("done"))
    result: dict[str, Any] = mcode.exec("do it", *(flags or ("--worktree",)), *JSON, **how).check().result
    return result


def branches(mcode: Mcode) -> list[str]:
    return git(mcode.workspace, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()


def deleted(mcode: Mcode, session_id: str) -> str:
    """What the deletion says of what it left, or nothing."""
    told = json.loads(mcode.run("sessions", "delete", session_id, *JSON).check().out)
    return str(told["sessions"][0]["notice"] or "")


def test_the_turn_works_in_a_new_checkout_of_head(mcode: Mcode, peer: Peer, api: str) -> None:
    make_repository(mcode.workspace, {"README.md": "committed\n"})
    (mcode.workspace / "README.md").write_text("not committed\n")
    result = begun(mcode, peer, command="pwd; cat README.md; echo new > new.txt; git status --short --branch")
    path, branch = result["worktree"]["path"], result["worktree"]["branch"]
    assert Path(path).is_relative_to(mcode.data / "worktrees")
    assert Path(path).name == mcode.workspace.name
    assert branch == f"mcode/{result['sessionId'][4:12]}"
    assert f"{path}\\ncommitted\\n" in peer.last.text
    assert f"## {branch}" in peer.last.text
    assert f"Workspace: {path}" in peer.last.text
    assert not peer.last.violations
    assert (Path(path) / "new.txt").read_text() == "new\n"
    assert not (mcode.workspace / "new.txt").exists()
    assert git(mcode.workspace, "status", "--short") == "M README.md"
    assert result["permissionDenials"] == []
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700


def test_the_session_belongs_to_its_workspace_and_goes_on_in_its_worktree(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    first = begun(mcode, peer)
    session, worktree = first["sessionId"], first["worktree"]
    row = shown(mcode, session)["session"]
    assert (row["workspace"], row["worktree"]) == (str(mcode.workspace), worktree)
    for flags, cwd in (
        (("--session", session), mcode.workspace),
        (("--continue",), mcode.workspace),
        (("--session", session), worktree["path"]),
        (("--continue",), worktree["path"]),
        (("--session", session, "--cwd", str(mcode.workspace)), "/"),
        (("--session", session, "--cwd", "@recorded"), "/"),
    ):
        peer.script(bash("pwd"), say("done"))
        run = mcode.exec("again", *flags, *STREAM, cwd=cwd).check()
        assert run.result["sessionId"] == session
        assert run.result["worktree"] == worktree
        assert f'"{worktree["path"]}\\n"' in peer.last.text.replace("\\\\n", "\\n")
        assert run.of_type("notice") == []
    assert "moves from" not in peer.last.text
    assert "workspace_mismatch" in mcode.exec("x", "--session", session, cwd="/").check(4).err


def test_a_named_branch_and_one_that_is_there_already(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    result = begun(mcode, peer, "--worktree-branch", "try/it")
    assert result["worktree"]["branch"] == "try/it"
    count = len(peer.calls)
    for name, why in (
        ("try/it", "has that branch already"),
        ("main", "has that branch already"),
        ("main/x", "cannot be made beside the branch main"),
        ("try", "cannot be made beside the branch try/it"),
        ("a..b", "is no name of a branch"),
        ("-x", "is no name of a branch"),
        ("@{-1}", "is no name of a branch"),
    ):
        for flags in ((), ("--dry-run",)):
            refused = mcode.exec("x", f"--worktree-branch={name}", *flags).check(2)
            assert why in refused.err, (name, refused.err)
    assert len(peer.calls) == count
    assert branches(mcode) == ["main", "try/it"]
    assert [row["id"] for row in mcode.query("SELECT id FROM sessions")] == [result["sessionId"]]


def test_what_cannot_have_a_worktree_is_told_what_to_do(mcode: Mcode, peer: Peer) -> None:
    refused = mcode.exec("x", "--worktree", *JSON).check(2)
    assert "is in no git repository" in refused.err
    assert "git init" in refused.err
    git(mcode.workspace, "init", "-q", "-b", "main")
    assert "no commit yet" in mcode.exec("x", "--worktree").check(2).err
    (mcode.workspace / "f").write_text("x")
    git(mcode.workspace, "add", "f")
    git(mcode.workspace, "commit", "-qm", "first")
    (mcode.workspace / "sub").mkdir()
    assert "sub is not in HEAD" in mcode.exec("x", "--worktree", cwd=mcode.workspace / "sub").check(2).err
    assert "needs git" in mcode.exec("x", "--worktree", env={"PATH": "/nowhere"}).check(2).err
    assert peer.calls == []
    assert mcode.query("SELECT * FROM sessions") == []
    assert branches(mcode) == ["main"]


def test_a_directory_below_the_root_is_that_directory_of_the_worktree(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace, {"pkg/README.md": "of the package\n"})
    result = begun(mcode, peer, cwd=mcode.workspace / "pkg")
    path = result["worktree"]["path"]
    assert f"{path}/pkg\\nof the package" in peer.last.text
    peer.script(bash("pwd"), say("done"))
    mcode.exec("again", "--session", result["sessionId"], cwd=mcode.workspace / "pkg").check()
    assert f"{path}/pkg\\n" in peer.last.text
    assert deleted(mcode, result["sessionId"]) == ""
    assert not Path(path).exists()


def test_it_cannot_be_asked_for_where_a_session_goes_on(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    for flags in (("--session", "mvs_00000000"), ("--continue",), ("--ephemeral",)):
        refused = mcode.exec("x", "--worktree", *flags).check(2)
        assert "cannot be combined" in refused.err


def test_a_key_has_one_worktree(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    first = begun(mcode, peer, "--session-key", "k", "--worktree")
    again = begun(mcode, peer, "--session-key", "k", "--worktree")
    assert again["sessionId"] == first["sessionId"]
    assert again["worktree"] == first["worktree"]
    assert branches(mcode) == ["main", first["worktree"]["branch"]]
    refused = mcode.exec("x", "--session-key", "k", "--worktree-branch", "other").check(2)
    assert f"has the branch {first['worktree']['branch']}" in refused.err
    begun(mcode, peer, "--session-key", "plain")
    refused = mcode.exec("x", "--session-key", "plain", "--worktree").check(2)
    assert "--worktree is for a new session" in refused.err
    assert branches(mcode) == ["main", first["worktree"]["branch"]]


def test_a_clean_worktree_goes_with_its_session_and_so_does_its_branch(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    result = begun(mcode, peer)
    assert deleted(mcode, result["sessionId"]) == ""
    assert not Path(result["worktree"]["path"]).parent.exists()
    assert git(mcode.workspace, "worktree", "list").count("\n") == 0
    assert branches(mcode) == ["main"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo x > new.txt", "changes that are not committed"),
        ("echo x >> README.md", "changes that are not committed"),
        ("git checkout -q --detach && git commit -q --allow-empty -m more", "commits that are on no branch"),
    ],
)
def test_what_would_be_lost_is_left_and_named(mcode: Mcode, peer: Peer, command: str, why: str) -> None:
    make_repository(mcode.workspace)
    result = begun(mcode, peer, "--worktree", "--allow", "bash:git *", command=command)
    path = result["worktree"]["path"]
    notice = deleted(mcode, result["sessionId"])
    assert why in notice
    assert path in notice
    assert (Path(path) / "README.md").exists()
    assert mcode.query("SELECT * FROM sessions") == []


def test_commits_stay_on_their_branch(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    result = begun(mcode, peer, command="echo x > new.txt && git add new.txt && git commit -q -m more")
    path, branch = result["worktree"]["path"], result["worktree"]["branch"]
    assert result["permissionDenials"] == []
    assert deleted(mcode, result["sessionId"]) == ""
    assert not Path(path).exists()
    assert branches(mcode) == ["main", branch]
    assert git(mcode.workspace, "log", "-1", "--format=%s", branch) == "more"


def test_a_worktree_that_is_gone_is_said_and_the_session_can_move_out(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    result = begun(mcode, peer)
    session, path = result["sessionId"], result["worktree"]["path"]
    git(mcode.workspace, "worktree", "remove", path)
    for flags in ((), ("--dry-run",)):
        refused = mcode.exec("x", "--session", session, *flags).check(4)
        assert "workspace_missing" in refused.err
        assert f"--session {session} --cwd DIR" in refused.err
    peer.script(bash("pwd"), say("here"))
    run = mcode.exec("x", "--session", session, "--cwd", ".", *JSON).check()
    assert run.result["worktree"] is None
    assert f"is now {mcode.workspace}; before, it was {path}" in peer.last.text
    assert shown(mcode, session)["session"]["worktree"] is None
    peer.script(say("and again"))
    mcode.exec("x", "--session", session).check()
    assert not peer.last.violations


def test_moving_out_leaves_the_worktree_and_names_it(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    other = mcode.root / "other"
    other.mkdir()
    result = begun(mcode, peer)
    run = mcode.exec("x", "--session", result["sessionId"], "--cwd", str(other), *STREAM).check()
    (notice,) = run.of_type("notice")
    assert f"its worktree {result['worktree']['path']}" in notice["message"]
    assert Path(result["worktree"]["path"]).is_dir()


def test_a_fork_works_where_its_source_does_and_the_worktree_goes_with_the_last(
    mcode: Mcode, peer: Peer
) -> None:
    make_repository(mcode.workspace)
    first = begun(mcode, peer)
    told = fork(mcode, first["sessionId"])
    assert told["worktree"] == first["worktree"]
    assert deleted(mcode, first["sessionId"]) == ""
    assert Path(first["worktree"]["path"]).is_dir()
    peer.script(bash("pwd"), say("done"))
    mcode.exec("go on", "--session", told["sessionId"]).check()
    assert "the workspace of this conversation is now" not in peer.last.text
    assert deleted(mcode, told["sessionId"]) == ""
    assert not Path(first["worktree"]["path"]).exists()


def test_a_fork_gets_a_worktree_of_its_own(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    session = run_once(mcode, "p")
    told = fork(mcode, session, "--worktree-branch", "other-way")
    path = told["worktree"]["path"]
    assert told["worktree"]["branch"] == "other-way"
    assert told["workspace"] == str(mcode.workspace)
    peer.script(bash("pwd"), say("done"))
    run = mcode.exec("go on", "--session", told["sessionId"], *JSON).check()
    assert run.result["worktree"] == told["worktree"]
    assert f"is now {path}; before, it was {mcode.workspace}" in peer.last.text
    assert not peer.last.violations
    peer.script(bash("pwd"), say("done"))
    run = mcode.exec("go on", "--fork", session, "--worktree", *JSON).check()
    assert run.result["worktree"]["path"] not in (path, str(mcode.workspace))
    text = mcode.run("sessions", "fork", session, "--worktree").check()
    assert text.out.startswith("mvs_")
    assert "on the branch mcode/" in text.err


def test_no_code_of_the_repository_runs(mcode: Mcode, peer: Peer) -> None:
    root = make_repository(mcode.workspace, {"a.bin": "as it is\n", ".gitattributes": "*.bin filter=evil\n"})
    mark = mcode.root / "ran"
    evil = f"touch {mark}; cat"
    for name in ("clean", "smudge", "process"):
        git(root, "config", f"filter.evil.{name}", evil)
    git(root, "config", "filter.evil.required", "true")
    git(root, "config", "core.fsmonitor", f"touch {mark}")
    included = mcode.root / "included"
    included.write_text(f'[filter "hidden.one"]\nsmudge = {evil}\nclean = {evil}\n')
    git(root, "config", "includeIf.gitdir:**/worktrees/**.path", str(included))
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "attributes").write_text(
        "README.md filter=hidden.one\n*.txt filter=hidden.one\n"
    )
    (root / ".git" / "hooks").mkdir(exist_ok=True)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        (root / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (root / ".git" / "hooks" / hook).chmod(0o755)
    peer.script(say("nothing to do"))
    run = mcode.exec("x", "--worktree", *JSON).check()
    path = Path(run.result["worktree"]["path"])
    assert (path / "a.bin").read_text() == "as it is\n"
    (path / "a.bin").touch()
    assert deleted(mcode, run.result["sessionId"]) == ""
    assert not path.exists()
    assert not mark.exists()


def test_what_stands_in_the_place_of_a_worktree_is_not_followed(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    other = make_repository(mcode.root / "precious")
    result = begun(mcode, peer)
    path = Path(result["worktree"]["path"])
    path.rename(mcode.root / "away")
    path.symlink_to(other)
    assert "is a link" in deleted(mcode, result["sessionId"])
    assert (other / "README.md").exists()


def test_a_worktree_of_another_data_directory_is_left_and_named(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    result = begun(mcode, peer)
    mcode.data.rename(mcode.root / "moved")
    told = mcode.run("sessions", "delete", result["sessionId"], "--data-dir", mcode.root / "moved").check()
    assert f"its worktree {result['worktree']['path']} is left" in told.err


def test_dry_run_makes_no_worktree(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    told = json.loads(mcode.exec("x", "--worktree-branch", "b", "--dry-run", *JSON).check().out)
    worktree = told["invocation"]["worktree"]
    assert (worktree["branch"], worktree["repository"]) == ("b", str(mcode.workspace))
    assert branches(mcode) == ["main"]
    assert not mcode.data.exists()


def test_a_worktree_is_made_from_within_another(mcode: Mcode, peer: Peer) -> None:
    make_repository(mcode.workspace)
    first = begun(mcode, peer)
    second = begun(mcode, peer, "--worktree", cwd=first["worktree"]["path"])
    assert second["worktree"]["path"] != first["worktree"]["path"]
    assert second["worktree"]["path"] in peer.last.text
    assert {deleted(mcode, one["sessionId"]) for one in (first, second)} == {""}
    assert branches(mcode) == ["main"]

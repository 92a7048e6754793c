"""Worktrees: what is in the way of one, and what would be lost with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcode_exec.workspace import worktrees
from mcode_exec.workspace.programs import Stop
from mcode_exec.workspace.worktrees import WorktreeError
from tests.support.mcode import git, make_repository


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo", {"f": "one\n", "d/g": "two\n"})


def added(root: Path, name: str = "tree", branch: str = "b") -> Path:
    path = root.parent / name
    worktrees.add(str(root), str(path), branch, git(root, "rev-parse", "HEAD"))
    return path


def test_it_has_the_files_of_the_commit_on_a_branch_of_its_own(root: Path) -> None:
    (root / "f").write_text("changed\n")
    tree = added(root)
    assert (tree / "f").read_text() == "one\n"
    assert (tree / "d" / "g").read_text() == "two\n"
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "symbolic-ref", "--short", "HEAD") == "b"
    assert git(root, "status", "--porcelain") == "M f"


def test_a_branch_is_in_the_way_of_itself_and_of_those_above_and_below(root: Path) -> None:
    git(root, "branch", "a/b")
    in_the_way = {
        name: worktrees.branches_in_the_way(str(root), name)
        for name in ("a/b", "a", "a/b/c", "a/bc", "main", "main/x", "x", "a/c")
    }
    assert in_the_way == {
        "a/b": ["a/b"],
        "a": ["a/b"],
        "a/b/c": ["a/b"],
        "a/bc": [],
        "main": ["main"],
        "main/x": ["main"],
        "x": [],
        "a/c": [],
    }


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("a", True),
        ("a/b-c.d", True),
        ("é", True),
        ("", False),
        ("-a", False),
        ("a b", False),
        ("a..b", False),
        ("a.lock", False),
        ("@{-1}", False),
        ("HEAD", False),
    ],
)
def test_names_of_branches_are_git_s_to_judge(root: Path, name: str, is_one: bool) -> None:
    assert worktrees.is_branch_name(str(root), name) is is_one


def test_what_git_says_no_to_is_said(root: Path) -> None:
    (root.parent / "tree").mkdir()
    (root.parent / "tree" / "x").write_text("in the way")
    with pytest.raises(WorktreeError, match="already exists"):
        added(root)
    stop = Stop()
    stop.set()
    with pytest.raises(WorktreeError, match="stopped"):
        worktrees.add(str(root), str(root.parent / "other"), "c", git(root, "rev-parse", "HEAD"), stop)


def test_a_worktree_is_removed_only_where_nothing_is_lost(root: Path) -> None:
    tree = added(root)
    (tree / "new").write_text("x")
    assert "not committed (1 " in str(worktrees.remove(str(tree)))
    assert (tree / "new").exists()
    git(tree, "add", "new")
    assert "not committed" in str(worktrees.remove(str(tree)))
    git(tree, "commit", "-q", "-m", "kept on the branch")
    assert worktrees.remove(str(tree)) is None
    assert not tree.exists()
    assert git(root, "log", "-1", "--format=%s", "b") == "kept on the branch"
    assert "no worktree" in str(worktrees.why_kept(str(root.parent)))


def test_a_locked_worktree_is_left_with_git_s_reason(root: Path) -> None:
    tree = added(root)
    git(root, "worktree", "lock", str(tree))
    assert "git did not remove it" in str(worktrees.remove(str(tree)))
    assert tree.exists()


def test_a_branch_is_forgotten_only_where_something_else_has_all_of_it(root: Path) -> None:
    first = git(root, "rev-parse", "HEAD")
    git(root, "branch", "same")
    assert worktrees.forget_branch(str(root), "same")
    git(root, "checkout", "-q", "-b", "more")
    git(root, "commit", "-q", "--allow-empty", "-m", "more")
    git(root, "checkout", "-q", "main")
    assert not worktrees.forget_branch(str(root), "more")
    assert not worktrees.forget_branch(str(root), "more", first)
    assert worktrees.forget_branch(str(root), "more", git(root, "rev-parse", "more"))
    assert not worktrees.forget_branch(str(root), "never-there")


def test_only_directories_of_the_commit_count(root: Path) -> None:
    head = git(root, "rev-parse", "HEAD")
    assert worktrees.has_directory(str(root), head, "d")
    assert not worktrees.has_directory(str(root), head, "f")
    assert not worktrees.has_directory(str(root), head, "e")

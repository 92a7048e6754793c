from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from mcode_exec.workspace import git


def run_git(directory: Path, *arguments: str) -> str:
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.com",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    run_git(root, "init", "-q", "-b", "main")
    (root / "f").write_text("one\n")
    run_git(root, "add", "f")
    run_git(root, "commit", "-q", "-m", "first")
    return root


def test_the_root_is_found_from_any_directory_below(repository: Path, tmp_path: Path) -> None:
    deep = repository / "a" / "b"
    deep.mkdir(parents=True)
    assert git.find_root(str(deep)) == str(repository)
    assert git.find_root(str(repository)) == str(repository)
    assert git.find_root(str(tmp_path)) is None
    (tmp_path / ".git").mkdir()
    assert git.find_root(str(tmp_path)) is None, "an empty .git directory is no repository"


def test_head_is_read_from_files_in_every_form(repository: Path, tmp_path: Path) -> None:
    commit = run_git(repository, "rev-parse", "HEAD")
    assert git.head_state(str(repository)) == git.HeadState(branch="main", commit=commit)
    run_git(repository, "pack-refs", "--all")
    assert git.head_state(str(repository)) == git.HeadState(branch="main", commit=commit)
    run_git(repository, "checkout", "-q", "-b", "feature/x")
    assert git.head_state(str(repository)) == git.HeadState(branch="feature/x", commit=commit)
    run_git(repository, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    assert git.find_root(str(tmp_path / "tree")) == str(tmp_path / "tree")
    assert git.head_state(str(tmp_path / "tree")) == git.HeadState(branch="other", commit=commit)
    run_git(repository, "checkout", "-q", "--detach")
    state = git.head_state(str(repository))
    assert state == git.HeadState(branch=None, commit=commit)
    run_git(repository, "checkout", "-q", "--orphan", "empty")
    assert git.head_state(str(repository)) == git.HeadState(branch="empty", commit=None)
    assert git.head_state(str(tmp_path)) is None


def test_the_root_commit_is_the_same_in_every_clone_and_worktree(repository: Path, tmp_path: Path) -> None:
    first = run_git(repository, "rev-parse", "HEAD")
    run_git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    run_git(tmp_path, "clone", "-q", str(repository), "clone")
    run_git(repository, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    for root in (repository, tmp_path / "clone", tmp_path / "tree"):
        assert git.root_commit(str(root)) == first


def test_the_smallest_of_several_root_commits_counts(repository: Path) -> None:
    run_git(repository, "checkout", "-q", "--orphan", "second")
    run_git(repository, "commit", "-q", "-m", "another root")
    run_git(repository, "merge", "-q", "--allow-unrelated-histories", "-m", "both", "main")
    roots = run_git(repository, "rev-list", "--max-parents=0", "HEAD").split()
    assert len(roots) == 2
    assert git.root_commit(str(repository)) == min(roots)


def test_a_repository_without_commits_and_a_plain_directory_have_no_root_commit(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "new")
    assert git.root_commit(str(tmp_path / "new")) is None
    assert git.root_commit(str(tmp_path)) is None


def test_a_shallow_clone_is_named_by_its_origin_without_credentials(repository: Path, tmp_path: Path) -> None:
    run_git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    run_git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    run_git(tmp_path / "shallow", "remote", "set-url", "origin", "https://user:token@example.com/a/b.git")
    assert git.root_commit(str(tmp_path / "shallow")) == "origin:https://example.com/a/b.git"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://u:p@h.example/x.git", "https://h.example/x.git"),
        ("https://h.example/x@y.git", "https://h.example/x@y.git"),
        ("https://u@v:p@h.example:8443/x", "https://h.example:8443/x"),
        ("ssh://git@h.example/x", "ssh://h.example/x"),
        ("git@h.example:x/y.git", "h.example:x/y.git"),
        ("/srv/a@b/x.git", "/srv/a@b/x.git"),
        ("../x@y:z", "../x@y:z"),
    ],
)
def test_credentials_leave_a_url(url: str, expected: str) -> None:
    assert git.without_credentials(url) == expected


def test_no_code_of_the_repository_runs(repository: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >>{tmp_path}/sprung\ncat\n')
    trap.chmod(0o755)
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman", "post-checkout"):
        (hooks / hook).write_text(trap.read_text())
        (hooks / hook).chmod(0o755)
    for setting in (
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "core.askPass",
        "diff.external",
        "diff.evil.textconv",
        "diff.evil.command",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "filter.e.v.il.clean",
        "gpg.program",
        "credential.helper",
        "core.alternateRefsCommand",
        "interactive.diffFilter",
        "pager.status",
        "pager.ls-files",
        "alias.status",
        "merge.evil.driver",
    ):
        run_git(repository, "config", setting, str(trap))
    run_git(repository, "config", "filter.evil.required", "true")
    run_git(repository, "config", "log.showSignature", "true")
    run_git(repository, "config", "extensions.partialClone", "origin")
    run_git(repository, "config", "remote.origin.url", f"ext::{trap}")
    run_git(repository, "config", "remote.origin.promisor", "true")
    (repository / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (repository / "f").write_text("changed\n")
    root = str(repository)
    git.root_commit(root)
    git.head_state(root)
    git.run_git(["ls-files", "-z", "-co", "--exclude-standard"], root, limit_s=5)
    git.run_git(["cat-file", "-e", "1234567890123456789012345678901234567890"], root, limit_s=5)
    assert not (tmp_path / "sprung").exists(), (tmp_path / "sprung").read_text()
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=False)
    assert (tmp_path / "sprung").exists(), "an unguarded git does run it"


@pytest.mark.skipif(os.getuid() != 0, reason="needs the right to give files away")
def test_a_repository_of_another_user_is_no_obstacle(repository: Path) -> None:
    for directory, names, files in os.walk(repository):
        for name in [*names, *files]:
            os.chown(Path(directory) / name, 12345, 12345)
    os.chown(repository, 12345, 12345)
    assert git.root_commit(str(repository)) is not None


def test_variables_of_a_calling_hook_do_not_redirect_git(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", "elsewhere")
    assert git.root_commit(str(repository)) is not None


def test_asking_changes_nothing_in_the_repository(repository: Path) -> None:
    (repository / "f").write_text("one\n")
    before = {path: path.stat().st_mtime_ns for path in (repository / ".git").rglob("*")}
    git.root_commit(str(repository))
    assert {path: path.stat().st_mtime_ns for path in (repository / ".git").rglob("*")} == before


def test_a_git_file_that_is_a_pipe_is_no_repository(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert stat.S_ISFIFO((tmp_path / ".git").stat().st_mode)
    assert git.find_root(str(tmp_path)) is None


def test_a_git_that_hangs_is_given_up(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcode_exec.workspace import programs

    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    programs.find_program.cache_clear()
    try:
        result = git.run_git(["status"], str(repository), limit_s=0.1)
    finally:
        programs.find_program.cache_clear()
    assert result is not None
    assert result.exit_code is None

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from mcode_exec.workspace import programs, walk
from mcode_exec.workspace.programs import Stop


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a.py", "sub/b.py", ".hidden/c", "node_modules/d.js", "build/e.o", "sub/.gitignore"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "tree" / ".gitignore").write_text("build/\nnode_modules/\n")
    (tmp_path / "tree" / "link").symlink_to("sub")
    (tmp_path / "tree" / "loop").symlink_to(".")
    return tmp_path / "tree"


def listed(tree: Path) -> list[str]:
    return walk.list_files(str(tree), limit_s=10, stop=Stop())


def test_a_plain_directory_is_walked_without_the_usual_heaps(tree: Path) -> None:
    found = set(listed(tree))
    assert {"a.py", "sub/b.py", ".hidden/c", "build/e.o", ".gitignore"} <= found
    assert not any(name.startswith(("node_modules/", "link/", "loop/")) for name in found)


def test_a_repository_is_listed_by_its_ignore_rules(tree: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    (tree / "sub" / ".gitignore").write_text("*.log\n")
    (tree / "sub" / "x.log").touch()
    subprocess.run(["git", "-C", str(tree), "add", "a.py", "sub/b.py"], check=True)
    (tree / "sub" / "b.py").unlink()
    found = set(listed(tree))
    assert {"a.py", ".hidden/c", "sub/.gitignore", ".gitignore"} <= found
    assert not found & {"sub/b.py", "sub/x.log", "build/e.o", "node_modules/d.js"}
    assert listed(tree / "build") == ["e.o"], "an ignored directory that is named outright is walked"


def test_names_that_are_no_text_and_names_with_line_feeds_survive(tree: Path) -> None:
    odd = os.fsdecode(b"odd-\xff\n.txt")
    (tree / odd).touch()
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    assert odd in listed(tree)


def test_a_set_stop_gives_up(tree: Path) -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(TimeoutError):
        walk._by_walking(str(tree), float("inf"), stop)
    result = programs.run_program(["sleep", "60"], cwd="/", env=os.environ, limit_s=30, stop=stop)
    assert result.exit_code is None


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_that_is_given_up_goes_with_its_group_and_nobody_waits_for_what_left_it(
    tmp_path: Path,
) -> None:
    script = (
        f"sleep 71 & echo $! > {tmp_path}/within; "
        f"setsid sh -c 'echo $$ > {tmp_path}/left; exec sleep 30' & echo said; wait"
    )
    result = programs.run_program(["sh", "-c", script], cwd="/", limit_s=0.7)
    within, left = (int((tmp_path / name).read_text()) for name in ("within", "left"))
    try:
        assert (result.exit_code, result.stdout) == (None, b"said\n")
        assert (runs(within), runs(left)) == (False, True), (
            "what left it holds its pipe, and is not waited for"
        )
    finally:
        os.kill(left, signal.SIGKILL)


def test_a_limit_that_has_passed_is_an_error_not_an_empty_answer(tree: Path) -> None:
    with pytest.raises(TimeoutError):
        walk._by_walking(str(tree), 0.0, Stop())

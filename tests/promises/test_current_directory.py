"""A current directory that is gone, or cannot be entered, stops what needs it with one sentence, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mcode import Mcode, Run, make_repository

GONE = "the current directory does not exist any more"
#: to be root, and yet be stopped by a directory's mode
WITHOUT_ROOT_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.fixture
def gone(mcode: Mcode) -> Path:
    """A directory that is removed once the command stands in it."""
    return mcode.root / "gone"


def run_in(mcode: Mcode, gone: Path, *args: str, **how: str | None) -> Run:
    gone.mkdir()
    command = mcode.command
    mcode.command = ["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone), *command]
    try:
        return mcode.run(*args, cwd=gone, env=how)
    finally:
        mcode.command = command


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "args",
    [
        ("exec", "hi"),
        ("exec", "hi", "--dry-run"),
        ("exec", "hi", "--continue"),
        ("exec", "hi", "--continue", "--cwd", "@recorded"),
        ("exec", "hi", "--cwd", "relative"),
        ("exec", "hi", "--events", "relative"),
        ("exec", "hi", "--cwd", "/", "-o", "relative"),
        ("sessions", "list"),
        ("sessions", "list", "--cwd", "relative"),
        ("sessions", "list", "--all", "--data-dir", "relative"),
        ("models", "--cwd", "relative"),
        ("models", "--config", "relative"),
    ],
    ids=" ".join,
)
def test_what_needs_a_current_directory_that_is_gone_is_2_with_the_sentence(
    mcode: Mcode, gone: Path, args: tuple[str, ...]
) -> None:
    run = run_in(mcode, gone, *args).check(2)
    assert GONE in run.err
    assert len(run.err.splitlines()) == 1
    assert "bug" not in run.err


def test_a_relative_data_directory_without_a_current_one_is_2_too(mcode: Mcode, gone: Path) -> None:
    run = run_in(mcode, gone, "sessions", "list", "--all", MCODE_HOME="relative").check(2)
    assert f"MCODE_HOME is relative, and {GONE}" in run.err


def test_what_needs_no_current_directory_works_without_one(mcode: Mcode, gone: Path) -> None:
    make_repository(mcode.workspace)
    mcode.exec("hi", "--cwd", mcode.workspace).check()
    run = run_in(mcode, gone, "exec", "hi", "--cwd", str(mcode.workspace), "--output-format", "json").check()
    session = run.result["sessionId"]
    for args in (
        ("sessions", "list", "--all"),
        ("sessions", "list", "--cwd", str(mcode.workspace)),
        ("sessions", "show", session),
        ("sessions", "export", session),
        ("sessions", "verify", session),
        ("models", "openai"),
        ("schema", "result"),
        ("exec", "hi", "--session", session, "--cwd", "@recorded"),
        ("--version",),
    ):
        assert run_in(mcode, gone, *args).check().out or "verify" in args


def test_doctor_tells_that_the_current_directory_is_gone(mcode: Mcode, gone: Path) -> None:
    run = run_in(mcode, gone, "doctor").check(4)
    (row,) = [line for line in run.out.splitlines() if line.startswith("FAIL")]
    assert GONE in row
    assert "fake/big-1" in run.out, "the rest is looked at all the same"


@pytest.fixture
def closed(mcode: Mcode) -> Iterator[Path]:
    """The workspace, which nobody may enter once a command stands in it."""
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv to give up root's rights")
        mcode.command = [*WITHOUT_ROOT_RIGHTS, *mcode.command]
    directory = mcode.root / "closed"
    directory.mkdir()
    mcode.command = ["sh", "-c", 'chmod "$0" . && exec "$@"', "0", *mcode.command]
    yield directory
    directory.chmod(0o700)


def test_a_workspace_that_cannot_be_entered_is_2_for_a_run(mcode: Mcode, closed: Path) -> None:
    for args in (("exec", "hi"), ("exec", "hi", "--dry-run"), ("exec", "hi", "--cwd", str(closed))):
        closed.chmod(0o700)
        run = mcode.run(*args, cwd=closed).check(2)
        assert f"{closed} cannot be entered (no permission)" in run.err


def test_what_only_names_a_closed_workspace_works(mcode: Mcode, closed: Path) -> None:
    for args in (("sessions", "list"), ("models", "openai")):
        closed.chmod(0o700)
        mcode.run(*args, cwd=closed).check()
    closed.chmod(0o700)
    assert "cannot be entered" in mcode.run("doctor", cwd=closed).check(4).out


def test_a_workspace_that_can_be_entered_but_not_listed_is_worked_in(mcode: Mcode, closed: Path) -> None:
    mcode.command[mcode.command.index("0")] = "100"
    mcode.run("exec", "hi", cwd=closed).check()
    closed.chmod(0o700)
    assert "cannot be listed" in mcode.run("doctor", cwd=closed).check().out

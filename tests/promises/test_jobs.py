"""The scripts in jobs/ really run, and mean what they say."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.mcode import REPOSITORY, Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import call, say

JOBS = REPOSITORY / "jobs"


def _run(mcode: Mcode, script: str, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script with `mcode` on its PATH, whatever way the tests start it."""
    bin_dir = mcode.root / "bin"
    bin_dir.mkdir(exist_ok=True)
    command = " ".join(f"'{word}'" for word in mcode.command)
    launcher = bin_dir / "mcode"
    launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    launcher.chmod(0o755)
    env = mcode.environment()
    env["PATH"] = f"{bin_dir}{os.pathsep}{env['PATH']}"
    return subprocess.run(
        ["sh", str(JOBS / script), *args],
        env=env,
        cwd=cwd or mcode.workspace,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_hello_prints_the_answer(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("Hello."))
    done = _run(mcode, "hello.sh")
    assert (done.returncode, done.stdout) == (0, "Hello.\n")


def test_review_diff_hands_the_diff_over_and_writes_the_review(mcode: Mcode, peer: Peer) -> None:
    repository = make_repository(mcode.root / "repo", {"a.txt": "one\n"})
    (repository / "a.txt").write_text("two-is-new\n")
    peer.script(call("write", {"file_path": "x", "content": "y"}), say("Looks fine."))
    done = _run(mcode, "review-diff.sh", cwd=repository)
    assert done.returncode == 0, done.stderr
    assert (repository / "review.md").read_text() == "Looks fine.\n"
    assert "two-is-new" in peer.requests[0].text
    assert not (repository / "x").exists(), "a review changes nothing"


def test_plan_apply_verify_is_one_session(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("the plan"), say("done it"), say("all tests pass"))
    done = _run(mcode, "plan-apply-verify.sh", "make it so")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["the plan", "done it", "all tests pass"]
    assert "the plan" in peer.requests[2].text
    assert "done it" in peer.requests[2].text
    assert len(mcode.session_dirs()) == 1


def test_nightly_answers_once_a_day_and_goes_on_in_its_session(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("first answer"), say("another day"))
    first = _run(mcode, "nightly.sh", "deps", "check the dependencies")
    again = _run(mcode, "nightly.sh", "deps", "check the dependencies")
    assert (first.stdout, again.stdout) == ("first answer\n", "first answer\n")
    assert len(peer.requests) == 1
    assert len(mcode.session_dirs()) == 1


SPECS = {
    "hello.toml": ["hello"],
    "plan-apply-verify.toml": ["plan", "apply", "verify"],
    "review-files.toml": ["review/1", "review/2", "summary"],
    "nightly.toml": ["look", "update"],
}


@pytest.mark.parametrize("name", SPECS)
def test_each_spec_runs_as_it_stands(mcode: Mcode, peer: Peer, name: str) -> None:
    repository = make_repository(mcode.root / "repo", {"Makefile": "test:\n\ttrue\n"})
    peer.script(say("something is behind"))
    run = mcode.run("jobs", "run", JOBS / name, "--output-format", "json", cwd=repository).check()
    counts = json.loads(run.out)["counts"]
    assert (counts["total"], counts["succeeded"]) == (len(SPECS[name]), len(SPECS[name]))
    assert {path.name for path in JOBS.glob("*.toml")} == set(SPECS)

"""--dry-run shows what would run and does nothing; --diagnostics-dir tells of what did not succeed, masked."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.steps import call, forever, hang, say, status

SECRET = "very-private-value-4711"


def described(mcode: Mcode, *args: str, **how: Any) -> dict[str, Any]:
    run = mcode.exec(*args, "--dry-run", "--output-format", "json", **how).check(0)
    value: dict[str, Any] = json.loads(run.out)
    assert run.out.count("\n") == 1
    assert value["type"] == "exec.dryRun"
    return value


def test_a_dry_run_leaves_nothing_and_asks_nobody(mcode: Mcode, peer: Peer) -> None:
    text = mcode.exec("the prompt", "--dry-run", "--result", "r", "-o", "o").check(0)
    assert "fake/big-1" in text.out
    assert "the prompt" in text.out
    described(mcode, "the prompt")
    assert not mcode.data.exists()
    assert not (mcode.home / ".local").exists()
    assert list(mcode.workspace.iterdir()) == []
    assert not peer.requests


def test_a_dry_run_shows_values_with_their_sources(mcode: Mcode) -> None:
    mcode.configure(tables="[limits]\nmax_steps = 9\n")
    found = described(
        mcode,
        "p",
        "--max-cost",
        "0.5",
        "--tools",
        "read,bash",
        "--permission",
        "read-only",
        "--deny",
        "bash:x *",
    )
    assert found["model"]["name"] == "fake/big-1"
    assert "config.toml" in found["model"]["source"]
    assert found["model"]["keyFrom"] == "FAKE_KEY"
    assert found["limits"]["maxSteps"] == 9
    assert float(found["limits"]["maxCostUsd"]) == 0.5
    assert "--max-cost" in found["limits"]["sources"]["cost"]
    assert "config.toml" in found["limits"]["sources"]["steps"]
    assert sorted(found["tools"]) == ["bash", "read"]
    assert found["permission"]["preset"] == "read-only"
    assert "bash" in json.dumps(found["permission"]["rules"])
    assert found["invocation"]["workspace"] == str(mcode.workspace)


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_no_secret_is_shown(mcode: Mcode, form: str) -> None:
    run = mcode.exec(f"my {SECRET}", "--dry-run", "--output-format", form, env={"MY_TOKEN": SECRET}).check(0)
    assert KEY not in run.out + run.err
    assert SECRET not in run.out + run.err


def test_what_a_run_would_refuse_a_dry_run_refuses_too(mcode: Mcode, tmp_path: Path) -> None:
    for args, code in (
        (("p", "--timeout", "5"), 2),
        (("p", "--cwd", "missing"), 2),
        (("p", "--agent", "nobody"), 3),
        (("p", "--tools", "nonsense"), 2),
        (("p", "--allow", "nonsense:*"), 2),
        (("p", "--file", "missing"), 2),
        (("p", "--config", "missing"), 3),
        ((), 2),
    ):
        run = mcode.exec(*args, "--dry-run", "--output-format", "json")
        assert run.code == code, (args, run)
        assert run.result["exitCode"] == code
    assert not mcode.data.exists()


def test_a_dry_run_shows_the_problem_with_a_model(mcode: Mcode) -> None:
    assert described(mcode, "p", "--model", "no/such")["model"]["problem"]


# reports


def report_of(directory: Path) -> dict[str, Any]:
    (file,) = directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    value: dict[str, Any] = json.loads(file.read_bytes())
    return value


@pytest.mark.parametrize(
    ("args", "steps", "code"),
    [
        (("go",), [status(401, {"error": {"message": f"bad key {KEY}"}})], 77),
        (("go", "--timeout", "1s"), [hang()], 6),
        (("go", "--max-steps", "1"), [call("bash", {"command": "echo x"})], 7),
        (("go",), [call("bash", {"command": "sudo x"}), say("no")], 5),
        (("go", "--session", "mvs_" + "0" * 32), [], 4),
        (("go", "--model", "no/such"), [], 3),
        (("go", "--nonsense"), [], 2),
        (("go", "--events", "/proc/no"), [], 74),
    ],
    ids=["77", "6", "7", "5", "4", "3", "2", "74"],
)
def test_every_run_that_does_not_succeed_leaves_a_masked_report(
    mcode: Mcode, peer: Peer, tmp_path: Path, args: tuple[str, ...], steps: list[Any], code: int
) -> None:
    peer.script(*(steps or [say("hello")]))
    reports = tmp_path / "new" / "reports"
    env = {"MY_TOKEN": SECRET}
    run = mcode.exec(
        *args, "--append-system-prompt", f"x {SECRET}", "--diagnostics-dir", str(reports), env=env
    ).check(code)
    raw = next(reports.iterdir()).read_text()
    assert KEY not in raw + run.err
    assert SECRET not in raw
    assert "\n  " in raw, "for people too"
    report = report_of(reports)
    assert report["type"] == "exec.diagnostics"
    assert report["result"]["exitCode"] == code
    assert "MY_TOKEN" in report["environmentNames"]
    assert '"go"' not in raw, "the prompt is not in it"


def test_a_run_that_succeeds_leaves_no_report(mcode: Mcode, tmp_path: Path) -> None:
    mcode.exec("go", "--diagnostics-dir", tmp_path / "d").check(0)
    assert not (tmp_path / "d").exists()


def test_a_report_that_cannot_be_written_changes_nothing(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(status(400)))
    run = mcode.exec("go", "-q", "--diagnostics-dir", "/proc/no", "--output-format", "json").check(4)
    assert run.result["error"]["code"] == "LLM_BAD_REQUEST"
    assert "--diagnostics-dir" in run.err


def test_a_signal_leaves_a_report_too(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(hang())
    running = mcode.start("exec", "go", "--diagnostics-dir", str(tmp_path / "d"))
    peer.wait_for(1)
    running.send(signal.SIGTERM)
    assert running.finish(10).code == -signal.SIGTERM
    assert report_of(tmp_path / "d")["result"]["status"] == "cancelled"

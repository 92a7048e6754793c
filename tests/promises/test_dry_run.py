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


REFUSED: list[tuple[tuple[str, ...], int]] = [
    (("p", "--timeout", "5"), 2),
    (("p", "--cwd", "missing"), 2),
    (("p", "--agent", "nobody"), 3),
    (("p", "--tools", "nonsense"), 2),
    (("p", "--allow", "nonsense:*"), 2),
    (("p", "--file", "missing"), 2),
    (("p", "--config", "missing"), 3),
    (("p", "--model", "no/such"), 3),
    (("p", "--model", "openai/gpt-5"), 77),
    (("p", "--session", "mvs_" + "0" * 32), 4),
    (("p", "--session", "mvs_00000000"), 4),
    (("p", "--session", "mvs_00000000", "--cwd", "@recorded"), 4),
    (("p", "--continue"), 4),
    (("p", "-o", "/nonexist/x"), 74),
    (("p", "--events", "dir"), 74),
    (("p", "--result", "file/x"), 74),
    (("p", "--session-id-file", "/dev/fd/99"), 74),
    (("p", "--data-dir", "file/data"), 74),
    (("p", "--data-dir", "file"), 74),
    ((), 2),
]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("args", "code"), REFUSED, ids=[" ".join(args) for args, _ in REFUSED])
def test_what_a_run_would_refuse_a_dry_run_refuses_with_the_same_error(
    mcode: Mcode, peer: Peer, args: tuple[str, ...], code: int
) -> None:
    (mcode.workspace / "dir").mkdir()
    (mcode.workspace / "file").touch()
    run = mcode.exec(*args, "--dry-run", "--output-format", "json").check(code)
    assert run.result["exitCode"] == code
    assert not mcode.data.exists()
    assert sorted(path.name for path in mcode.workspace.iterdir()) == ["dir", "file"]
    real = mcode.exec(*args, "--output-format", "json").check(code)
    assert real.result["error"] == run.result["error"]
    assert not peer.calls


def test_a_dry_run_that_is_refused_writes_no_result_and_no_report(mcode: Mcode) -> None:
    args = ("p", "--agent", "nobody", "--result", "r", "--diagnostics-dir", "d", "-o", "o")
    mcode.exec(*args, "--dry-run").check(3)
    assert list(mcode.workspace.iterdir()) == []


@pytest.mark.parametrize("kind", ["--session", "prefix", "--continue", "--session-key", "--request-id"])
def test_a_dry_run_shows_the_session_that_would_go_on(mcode: Mcode, kind: str) -> None:
    how = {"--session-key": ("--session-key", "k"), "--request-id": ("--request-id", "r")}.get(kind, ())
    made = mcode.exec("first words", *how, "--effort", "low", "--output-format", "json").check()
    session = made.result["sessionId"]
    again = {
        "--session": ("--session", session),
        "prefix": ("--session", session[:14]),
        "--continue": ("-c",),
    }
    before = {path: path.stat().st_mtime_ns for path in mcode.data.rglob("*")}
    found = described(mcode, "p", *again.get(kind, how))["invocation"]
    assert found["session"] == {
        "id": session,
        "workspace": str(mcode.workspace),
        "title": "first words",
        "status": "idle",
    }
    assert found["effort"] == "low"
    assert {path: path.stat().st_mtime_ns for path in mcode.data.rglob("*")} == before
    assert described(mcode, "p")["invocation"]["session"]["id"] is None


def test_a_dry_run_looks_at_a_store_that_others_have_open(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("one"), hang())
    session = mcode.exec("p", "--output-format", "json").check().result["sessionId"]
    running = mcode.start("exec", "p", "--session", session)
    peer.wait_for(2)
    found = described(mcode, "p", "--continue")["invocation"]["session"]
    assert (found["id"], found["status"]) == (session, "started")
    running.kill()
    running.finish(10)
    left = sorted(mcode.data.rglob("*"))
    assert described(mcode, "p", "--continue")["invocation"]["session"]["id"] == session
    assert sorted(mcode.data.rglob("*")) == left


def test_a_session_of_another_workspace_is_refused_as_the_run_refuses_it(mcode: Mcode) -> None:
    session = mcode.exec("p", "--output-format", "json").check().result["sessionId"]
    elsewhere = mcode.root / "elsewhere"
    elsewhere.mkdir()
    args = ("p", "--session", session, "--output-format", "json")
    dry, real = mcode.exec(*args, "--dry-run", cwd=elsewhere), mcode.exec(*args, cwd=elsewhere)
    assert dry.result["error"] == real.result["error"]
    assert dry.code == real.code == 4
    recorded = described(mcode, "p", "--session", session, "--cwd", "@recorded", cwd=elsewhere)
    assert recorded["invocation"]["workspace"] == str(mcode.workspace)


def test_a_dry_run_leaves_every_output_as_it_stands(mcode: Mcode) -> None:
    flags = []
    for flag in ("--events", "--result", "-o", "--session-id-file"):
        path = mcode.workspace / flag.strip("-")
        path.write_text("old")
        flags += [flag, path.name]
    before = mcode.workspace.stat().st_mtime_ns
    assert described(mcode, "p", *flags)["invocation"]["outputs"]["-o"] == "o"
    assert {path.read_text() for path in mcode.workspace.iterdir()} == {"old"}
    assert mcode.workspace.stat().st_mtime_ns == before


@pytest.mark.parametrize(("words", "size"), [("hi", 2), ("é\n€", 6)])
def test_the_prompt_is_counted_in_its_own_bytes(mcode: Mcode, words: str, size: int) -> None:
    (mcode.workspace / "notes.txt").write_text("attached")
    found = described(mcode, words, "--file", "notes.txt")["invocation"]
    assert (found["promptBytes"], found["attachments"]) == (size, ["notes.txt"])
    given = described(mcode, "--input", "-", input="x" * 300_000)["invocation"]
    assert given["promptBytes"] == 300_000


PERMISSIONS = {"read", "edit", "glob", "grep", "list", "bash", "external_directory", "doom_loop"}


@pytest.mark.parametrize("preset", ["smart", "read-only", "full", "off"])
def test_only_permissions_of_the_contract_are_shown(mcode: Mcode, preset: str) -> None:
    rules = described(mcode, "p", "--permission", preset)["permission"]["rules"]
    assert {rule["permission"] for rule in rules} <= PERMISSIONS | {"*"}


@pytest.mark.parametrize("name", ["task", "skill", "webfetch", "server__tool"])
def test_a_rule_for_what_is_not_built_is_refused_with_what_is(mcode: Mcode, name: str) -> None:
    run = mcode.exec("p", "--deny", name).check(2)
    assert "MCP" not in run.err
    assert f"'{name}' is no permission" in run.err
    mcode.configure(tables=f'[permission]\n{name} = "deny"\n')
    assert f'"permission.{name}" is no permission' in mcode.exec("p").check(3).err


# reports


def report_of(directory: Path) -> dict[str, Any]:
    (file,) = directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    value: dict[str, Any] = json.loads(file.read_bytes())
    return value


@pytest.mark.sample(4)
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

"""The harness isolates, reads and cleans up; shown with small programs in the place of mcode."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.support.mcode import KEY, TAG, Mcode, git, make_repository


def as_program(mcode: Mcode, source: str) -> Mcode:
    mcode.command = [sys.executable, "-c", source]
    return mcode


def test_the_environment_has_no_provider_keys_and_no_proxies(
    mcode: Mcode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    as_program(mcode, "import os, json; print(json.dumps(dict(os.environ)))")
    told = json.loads(mcode.run(env={"MORE": "1", "LANG": None}).check().out)
    assert told["HOME"] == str(mcode.home)
    assert told["MORE"] == "1"
    assert not {"ANTHROPIC_API_KEY", "HTTPS_PROXY", "LANG"} & told.keys()


def test_the_config_names_the_fake_provider(mcode: Mcode) -> None:
    import tomllib

    mcode.configure(api="openai-responses", top='instructions = ["a.md"]', tables="[limits]\nmax_steps = 3")
    config = tomllib.loads(mcode.config.read_text())
    assert config["model"] == "fake/big-1"
    assert config["instructions"] == ["a.md"]
    assert config["limits"] == {"max_steps": 3}
    assert config["providers"]["fake"]["api"] == "openai-responses"
    assert config["providers"]["fake"]["api_key"] == "${FAKE_KEY}"
    assert mcode.environment()["FAKE_KEY"] == KEY


def test_stdin_is_empty_unless_given_and_output_is_whole(mcode: Mcode) -> None:
    as_program(mcode, "import sys; sys.stdout.write(sys.stdin.read()); sys.stderr.write('e'*200000); exit(5)")
    assert mcode.run().check(5).out == ""
    run = mcode.run(input="漢" * 100_000)
    assert (run.code, len(run.out), len(run.err)) == (5, 100_000, 200_000)


def test_events_are_awaited_and_the_result_is_found(mcode: Mcode) -> None:
    as_program(
        mcode,
        "import signal, sys, json, time\n"
        "signal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\n"
        "try:\n"
        "    print(json.dumps({'type': 'turn.started'}), flush=True)\n"
        "    time.sleep(30)\n"
        "finally:\n"
        "    print(json.dumps({'type': 'exec.completed', 'result': {'type': 'exec.result'}}))",
    )
    running = mcode.start()
    running.wait_event("turn.started")
    running.send(signal.SIGTERM)
    run = running.finish()
    assert run.code == 9
    assert run.result == {"type": "exec.result"}
    assert len(run.events) == 2
    with pytest.raises(AssertionError, match=r"no event item\.started"):
        running.wait_event("item.started")


def test_a_program_that_does_not_end_is_reported(mcode: Mcode) -> None:
    as_program(mcode, "import time; print('here', flush=True); time.sleep(60)")
    with pytest.raises(AssertionError, match="still running after"):
        mcode.run(timeout=0.3)


def test_survivors_are_found_ended_and_reported(tmp_path: Path) -> None:
    mcode = as_program(
        Mcode(tmp_path),
        "import subprocess; p = subprocess.Popen(['sleep', '60'], start_new_session=True,"
        " stdout=-3, stderr=-3); print(p.pid)",
    )
    pid = int(mcode.run().check().out)
    assert [one for one, _ in mcode.survivors()] == [pid]
    assert f"{TAG}={mcode.tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    with pytest.raises(AssertionError, match="survived"):
        mcode.close()
    assert mcode.survivors() == []


def test_a_repository_has_the_tests_identity_and_one_commit(tmp_path: Path) -> None:
    directory = make_repository(tmp_path / "r", {"a/b.txt": "x\n"})
    assert git(directory, "log", "--format=%an %s") == "Test first"
    assert git(directory, "status", "--porcelain") == ""

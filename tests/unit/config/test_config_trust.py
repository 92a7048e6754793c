"""A workspace's file only narrows, unless the user trusts the directory."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from mcode_exec import config
from mcode_exec.config import Config
from mcode_exec.errors import ConfigError

NARROWING = """\
instructions = ["docs/agent.md"]
[permission]
external_directory = "deny"
[permission.edit]
"*.lock" = "deny"
[limits]
max_steps = 10
max_cost = 0.5
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".config/mcode").mkdir(parents=True)
    return home


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "ws"
    (workspace / ".mcode").mkdir(parents=True)
    return workspace


def load(home: Path, workspace: Path, *, trust: bool = False, flag: str | None = None, **env: str) -> Config:
    return config.load(
        flag_file=flag, env={"HOME": str(home), **env}, workspace=str(workspace), trust_flag=trust
    )


def write(workspace: Path, text: str) -> Path:
    file = workspace / ".mcode/config.toml"
    file.write_text(text)
    return file


def test_what_narrows_is_read_without_trust(home: Path, workspace: Path) -> None:
    file = write(workspace, NARROWING)
    read = load(home, workspace)
    assert read.workspace_deny is not None
    assert read.workspace_deny.table == {"external_directory": "deny", "edit": {"*.lock": "deny"}}
    assert read.permission == ()
    assert (read.limits.max_steps, read.limits.max_cost_usd) == (10, Decimal("0.5"))
    assert [(f.path, f.is_project) for f in read.instructions] == [(str(workspace / "docs/agent.md"), True)]
    assert read.sources["limits.max_steps"] == str(file)
    assert not read.is_workspace_trusted


WIDENING = [
    ('model = "evil/model"', "model"),
    ('[providers.anthropic]\nbase_url = "http://127.0.0.1:7777"', "providers.anthropic.base_url"),
    ('[providers.anthropic]\napi_key_command = ["touch", "/tmp/pwn"]', "providers.anthropic.api_key_command"),
    ('[permission]\nbash = "allow"', "permission.bash"),
    ('[permission]\nbash = "ask"', "permission.bash"),
    ('[permission.edit]\n"*" = "deny"\n"x" = "allow"', "permission.edit.x"),
    ("[limits]\nmax_steps = 5000", "limits.max_steps"),
    ('[env]\npass = ["ANTHROPIC_API_KEY"]', "env.pass"),
    ('[timeouts]\nidle = "1s"', "timeouts.idle"),
    ('[agents.x]\nprompt = "y"', "agents.x.prompt"),
    ("[hooks]\npre = 'touch /tmp/pwn'", "hooks.pre"),
    ('[mcp.servers.x]\ncommand = ["touch", "/tmp/pwn"]', "mcp.servers.x.command"),
    ('trusted_workspaces = ["."]', "trusted_workspaces"),
    ('[catalogue]\nfile = "models.json"', "catalogue.file"),
    ('[catalogue]\nurl = "http://127.0.0.1:7777"', "catalogue.url"),
    ('instructions = ["../outside.md"]', "instructions"),
    ('instructions = ["~/.ssh/id"]', "instructions"),
    ('instructions = ["/etc/passwd"]', "instructions"),
]


@pytest.mark.parametrize(("text", "key"), WIDENING)
def test_what_widens_ends_the_run_and_says_how_to_trust(
    home: Path, workspace: Path, text: str, key: str
) -> None:
    file = write(workspace, text)
    with pytest.raises(ConfigError) as caught:
        load(home, workspace)
    message = caught.value.message
    assert caught.value.exit_code == 3
    assert message.startswith(f"{file}:")
    assert f'"{key}"' in message
    assert "nothing of this file was applied" in message
    for way in ("--trust-workspace", "MCODE_TRUST_WORKSPACE=1", "trusted_workspaces"):
        assert way in message


@pytest.mark.parametrize("how", ["flag", "environment", "user file", "user file by a link"])
def test_a_trusted_workspace_is_read_whole(tmp_path: Path, home: Path, workspace: Path, how: str) -> None:
    write(workspace, 'model = "c/d"\n[permission]\nbash = "allow"\n[providers.a]\napi_key_file = "k"')
    user = home / ".config/mcode/config.toml"
    (tmp_path / "link").symlink_to(workspace)
    named = tmp_path / "link" if how.endswith("link") else workspace
    trusted = f"trusted_workspaces = ['/other', '{named}']\n" if how.startswith("user") else ""
    user.write_text(trusted + 'model = "a/b"\n[permission]\nread = "deny"\n[providers.a]\napi_key = "${A}"')
    env = {"MCODE_TRUST_WORKSPACE": "1"} if how == "environment" else {}
    read = load(home, workspace, trust=how == "flag", **env)
    assert read.is_workspace_trusted
    assert read.model == "c/d"
    assert [rules.table for rules in read.permission] == [{"read": "deny"}, {"bash": "allow"}]
    assert (read.providers["a"].api_key_env, read.providers["a"].api_key_file) == (
        None,
        f"{workspace}/.mcode/k",
    )
    assert read.sources["providers.a.api_key_file"].startswith(str(workspace))
    assert "providers.a.api_key" not in read.sources


def test_trust_in_a_directory_is_no_trust_in_those_below_it(home: Path, workspace: Path) -> None:
    write(workspace, 'model = "c/d"')
    (home / ".config/mcode/config.toml").write_text(f"trusted_workspaces = ['{workspace.parent}']")
    with pytest.raises(ConfigError, match="not trusted"):
        load(home, workspace)


@pytest.mark.parametrize("text", ["trusted_workspaces = ['/other']", "[catalogue]\nfile = 'models.json'"])
def test_a_trusted_workspace_does_not_speak_for_others(home: Path, workspace: Path, text: str) -> None:
    write(workspace, text)
    with pytest.raises(ConfigError, match="your own config file only"):
        load(home, workspace, trust=True)


@pytest.mark.parametrize("value", ["yes", "true", "2"])
def test_the_trust_variable_is_one_or_zero(home: Path, workspace: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="MCODE_TRUST_WORKSPACE"):
        load(home, workspace, MCODE_TRUST_WORKSPACE=value)
    assert not load(home, workspace, MCODE_TRUST_WORKSPACE="0").is_workspace_trusted


def test_limits_are_compared_with_the_users_own(home: Path, workspace: Path) -> None:
    (home / ".config/mcode/config.toml").write_text("[limits]\nmax_steps = 5")
    write(workspace, "[limits]\nmax_steps = 6")
    with pytest.raises(ConfigError, match="raises a limit"):
        load(home, workspace)
    write(workspace, "[limits]\nmax_steps = 5")
    assert load(home, workspace).limits.max_steps == 5


def test_the_file_must_really_lie_in_the_workspace(tmp_path: Path, home: Path, workspace: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.toml").write_text(NARROWING)
    file = workspace / ".mcode/config.toml"
    file.symlink_to(outside / "config.toml")
    for trust in (False, True):
        with pytest.raises(ConfigError, match="leads out of the workspace"):
            load(home, workspace, trust=trust)
    file.unlink()
    (workspace / ".mcode").rmdir()
    (workspace / ".mcode").symlink_to(outside)
    with pytest.raises(ConfigError, match="leads out of the workspace"):
        load(home, workspace)


def test_a_link_inside_the_workspace_is_fine_and_one_to_nothing_is_not(home: Path, workspace: Path) -> None:
    (workspace / "real.toml").write_text("[limits]\nmax_steps = 3")
    file = workspace / ".mcode/config.toml"
    file.symlink_to("../real.toml")
    assert load(home, workspace).limits.max_steps == 3
    (workspace / "real.toml").unlink()
    with pytest.raises(ConfigError, match="link to nothing"):
        load(home, workspace)


def test_a_user_file_that_is_the_workspaces_file_is_the_users_word(home: Path, workspace: Path) -> None:
    file = write(workspace, 'model = "c/d"')
    assert load(home, workspace, flag=str(file)).model == "c/d"


def test_env_files_of_the_workspace_are_not_read(home: Path, workspace: Path) -> None:
    (workspace / ".env").write_text("MCODE_MODEL=evil/model\nMCODE_TRUST_WORKSPACE=1\n")
    (workspace / ".mcode/.env").write_text("MCODE_MODEL=evil/model\n")
    assert load(home, workspace) == Config()


def test_mcode_as_a_file_in_the_workspace_is_no_configuration(home: Path, workspace: Path) -> None:
    (workspace / ".mcode").rmdir()
    (workspace / ".mcode").write_text("x")
    assert load(home, workspace) == Config()

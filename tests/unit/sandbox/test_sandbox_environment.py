from __future__ import annotations

import pytest

from mcode_exec.sandbox.environment import command_environment


def environment(base: dict[str, str], **changes: object) -> dict[str, str]:
    settings: dict[str, object] = {
        "passed": (),
        "secret_names": (),
        "secret_values": (),
        "temp_dir": "/tmp/t",
    }
    return command_environment(base, **{**settings, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY",
        "openai_api_key",
        "Github_Token",
        "NPM_TOKEN",
        "CLIENT_SECRET",
        "PGPASSWORD",
        "password",
        "DB_PASSWORD_FILE",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "aws_region",
        "ACTIONS_RUNTIME_URL",
        "MCODE_HOME",
        "MCODE_STRAY",
        "TOKEN",
        "secret",
        "API_KEY",
        "NPM_TOKEN_PROD",
        "OPENAI_API_KEY_2",
        "SIGNING_PASSPHRASE",
        "MYSQL_PWD",
        "HTPASSWD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GITHUB_PAT",
        "API_KEYS",
        "AUTH_HEADER",
        "DOCKER_AUTH_CONFIG",
        "GHTOKEN",
        "PRIVATEKEY",
        "PGPASS",
        "DB_PASS",
        "SESSION_COOKIE",
        "GITHUB_ENV",
        "GITHUB_PATH",
        "GITHUB_OUTPUT",
        "GITHUB_STATE",
        "SSH_AUTH_SOCK",
        "BASH_ENV",
    ],
)
def test_a_variable_that_looks_secret_or_would_be_sourced_does_not_pass(name: str) -> None:
    assert name not in environment({name: "some value"})
    assert environment({name: "some value"}, passed={name})[name] == "some value"


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "JAVA_HOME",
        "GITHUB_WORKSPACE",
        "KEYBOARD",
        "TOKENIZERS_PARALLELISM",
        "MONKEY",
        "BYPASS",
        "GIT_AUTHOR_NAME",
        "CI",
        "PWD",
        "PATH",
    ],
)
def test_an_ordinary_variable_passes(name: str) -> None:
    assert environment({name: "x"})[name] == "x"


def test_a_key_variable_of_a_provider_is_dropped_under_any_name_and_case() -> None:
    env = environment(
        {"Acme_Auth": "v", "COPY": "prefix-s3cr3t-value-x", "SHORT": "abc"},
        secret_names={"ACME_AUTH"},
        secret_values={"s3cr3t-value", "abc"},
    )
    assert "Acme_Auth" not in env
    assert "COPY" not in env
    assert env["SHORT"] == "abc", "a short value would match half of everything"


def test_nothing_in_the_environment_waits_for_a_human() -> None:
    env = environment(
        {"TERM": "xterm-256color", "PAGER": "less", "EDITOR": "vim", "GIT_EDITOR": "vim", "FORCE_COLOR": "1"}
    )
    assert env["TERM"] == "dumb"
    assert env["PAGER"] == env["GIT_PAGER"] == env["MANPAGER"] == "cat"
    assert env["EDITOR"] == env["VISUAL"] == env["GIT_EDITOR"] == env["GIT_SEQUENCE_EDITOR"] == "false"
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert env["NO_COLOR"] == "1"
    assert env["TMPDIR"] == "/tmp/t"
    assert "FORCE_COLOR" not in env
    assert "PYTHONUNBUFFERED" not in env


def test_a_passed_variable_keeps_its_value_even_where_one_is_set_for_all() -> None:
    assert environment({"PAGER": "less"}, passed={"PAGER"})["PAGER"] == "less"
    assert environment({}, passed={"PAGER"})["PAGER"] == "cat"


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ({"LANG": "de_DE.UTF-8"}, None),
        ({"LANG": "de_DE.utf8"}, None),
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LC_CTYPE": "C", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LANG": "de_DE.ISO-8859-1"}, "C.UTF-8"),
        ({}, "C.UTF-8"),
    ],
)
def test_the_locale_is_a_utf8_one(base: dict[str, str], expected: str | None) -> None:
    assert environment(base).get("LC_ALL") == expected


def test_bytes_that_are_no_utf8_survive() -> None:
    assert environment({"ODD": "a\udcff"})["ODD"] == "a\udcff"

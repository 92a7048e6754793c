"""Keys come late, from where the configuration says, and are never shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcode_exec.config import ProviderConfig, key_names, key_source, keys, resolve_key
from mcode_exec.errors import KeyMissingError

KEY = "k-0123456789"


def test_a_variable_that_is_not_set_is_a_missing_key() -> None:
    provider = ProviderConfig(name="x", api_key_env="X_KEY")
    assert resolve_key(provider, {}) is None
    assert resolve_key(provider, {"X_KEY": " "}) is None
    assert resolve_key(provider, {"X_KEY": KEY + "\n"}) == KEY
    assert key_names(provider) == ("X_KEY",)
    assert key_source(provider) == "the variable X_KEY"


def test_a_provider_without_a_source_has_no_key() -> None:
    provider = ProviderConfig(name="x")
    assert (resolve_key(provider, {}), key_names(provider), key_source(provider)) == (None, (), None)


def test_a_key_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "key"
    provider = ProviderConfig(name="x", api_key_file=str(file))
    with pytest.raises(KeyMissingError, match="No such file"):
        resolve_key(provider, {})
    file.write_text(KEY + "\n")
    assert resolve_key(provider, {}) == KEY
    file.write_text("\n")
    with pytest.raises(KeyMissingError, match="gives nothing"):
        resolve_key(provider, {})
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(KeyMissingError, match="no regular file"):
        resolve_key(provider, {})


@pytest.mark.parametrize("text", [f"\ufeff{KEY}\r\n", f"\ufeff\n {KEY}", f" \ufeff{KEY}"])
def test_a_byte_order_mark_before_a_key_is_no_part_of_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_bytes(text.encode())
    assert resolve_key(ProviderConfig(name="x", api_key_file=str(file)), {}) == KEY
    assert resolve_key(command(f"cat {file}"), os.environ) == KEY
    assert resolve_key(ProviderConfig(name="x", api_key_env="X_KEY"), {"X_KEY": text}) == KEY
    assert resolve_key(ProviderConfig(name="x", api_key_env="X_KEY"), {"X_KEY": "\ufeff\n"}) is None


def test_a_key_in_utf_16_is_named_as_such(tmp_path: Path) -> None:
    file = tmp_path / "key"
    for data in (KEY.encode("utf-16"), b"\xfe\xff" + KEY.encode("utf-16-be")):
        file.write_bytes(data)
        for provider in (ProviderConfig(name="x", api_key_file=str(file)), command(f"cat {file}")):
            with pytest.raises(KeyMissingError, match="UTF-16 text; write the key as UTF-8"):
                resolve_key(provider, os.environ)


def command(script: str) -> ProviderConfig:
    return ProviderConfig(name="x", api_key_command=("/bin/sh", "-c", script))


def test_a_key_command_runs_in_the_root_directory_with_the_environment_and_no_stdin() -> None:
    provider = command('test "$(pwd)" = / && test -z "$(cat)" && echo "$FROM"')
    assert resolve_key(provider, {"FROM": KEY, "PATH": os.environ["PATH"]}) == KEY


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo k-0123456789; exit 3", "exit code 3"),
        ("kill -9 $$", "signal 9"),
        ("true", "gives nothing"),
        ("echo one two", "more than a key"),
        ("printf 'a\\001b'", "more than a key"),
        ("head -c 200000 /dev/zero | tr '\\0' x; exit 0", ""),
    ],
)
def test_a_command_without_a_key_is_a_missing_key_and_tells_nothing_of_it(script: str, said: str) -> None:
    with pytest.raises(KeyMissingError) as caught:
        resolve_key(command(script), os.environ)
    assert said in caught.value.message
    assert caught.value.exit_code == 77
    assert KEY not in caught.value.message


def test_a_command_that_is_not_there_is_a_missing_key() -> None:
    with pytest.raises(KeyMissingError, match="cannot be run"):
        resolve_key(ProviderConfig(name="x", api_key_command=("/no/such",)), {})


@pytest.mark.parametrize("script", ["sleep 60", "exec >&-; sleep 60", "yes & echo $!; exec sleep 60"])
def test_a_command_that_hangs_is_ended_with_what_it_started(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "COMMAND_LIMIT_S", 0.3)
    with pytest.raises(KeyMissingError):
        resolve_key(command(script), os.environ)


def test_a_command_that_leaves_a_process_with_the_pipe_still_gives_its_key() -> None:
    assert resolve_key(command(f"sleep 30 & echo {KEY}"), os.environ) == KEY

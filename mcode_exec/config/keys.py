"""Provider keys: read late, from where the configuration says, never kept in it.

A key source that yields nothing is a missing key (exit 77), not a fault of the
configuration, and the sentence names the source, never what it yielded.  A byte
order mark before a key, which some editors and shells write, is no part of it.  A key
command runs without a shell, in `/`, with nothing on stdin, for at most 10 s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcode_exec.config.records import ProviderConfig
from mcode_exec.errors import KeyMissingError
from mcode_exec.paths import open_regular

if TYPE_CHECKING:
    import subprocess

COMMAND_LIMIT_S = 10.0

#: no key of this world is longer
_MAX_KEY_BYTES = 64 * 1024
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def resolve_key(provider: ProviderConfig, env: Mapping[str, str]) -> str | None:
    """The provider's key as its own configuration names it; None where its variable is unset, or no source is named.

    Blocks up to 10 s for a key command: call it on a thread where a loop runs.
    Raises: KeyMissingError for a file or command that yields no key.
    """
    if provider.api_key_env:
        value = _bare(env.get(provider.api_key_env, ""))
        return _sendable(value, f"the variable {provider.api_key_env}") if value else None
    if provider.api_key_file:
        return _key_of_file(provider.api_key_file)
    if provider.api_key_command:
        return _key_of_command(provider.api_key_command, env)
    return None


def key_names(provider: ProviderConfig) -> tuple[str, ...]:
    """The variables that this provider's key may come from."""
    return (provider.api_key_env,) if provider.api_key_env else ()


def key_source(provider: ProviderConfig) -> str | None:
    """Where the key comes from, for people; None where the configuration does not say."""
    if provider.api_key_env:
        return f"the variable {provider.api_key_env}"
    if provider.api_key_file:
        return f"the file {provider.api_key_file}"
    if provider.api_key_command:
        return f"the command {provider.api_key_command[0]}"
    return None


def _key_of_file(path: str) -> str:
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(_MAX_KEY_BYTES + 1)
    except OSError as error:
        raise KeyMissingError(f"api_key_file {path} cannot be read: {error.strerror}.") from error
    return _decoded(data, f"api_key_file {path}")


def _key_of_command(argv: tuple[str, ...], env: Mapping[str, str]) -> str:
    import subprocess

    what = f"api_key_command {argv[0]}"
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # may tell the key, and has no reader
            env=dict(env),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise KeyMissingError(f"{what} cannot be run: {error.strerror}.") from error
    try:
        data = _output(process)
        code = process.poll()
    finally:
        _kill_group(process.pid)  # what it left behind too
        process.wait()
    if code is None and len(data) <= _MAX_KEY_BYTES:
        raise KeyMissingError(f"{what} did not end within {COMMAND_LIMIT_S:.0f} s.")
    if code:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        raise KeyMissingError(f"{what} {how}; run it by hand to see why.")
    return _decoded(data, what)


def _output(process: subprocess.Popen[bytes]) -> bytes:
    """What the command says until it ends, or until its time or the largest key is over.

    Its end counts, not the pipe's: something it started may hold the pipe open.
    """
    import select
    import time

    assert process.stdout is not None
    deadline = time.monotonic() + COMMAND_LIMIT_S
    poll = select.poll()
    data = b""
    with process.stdout as pipe:
        poll.register(pipe, select.POLLIN)
        is_open = True
        while len(data) <= _MAX_KEY_BYTES and time.monotonic() < deadline:
            has_ended = process.poll() is not None
            if is_open and poll.poll(0 if has_ended else 20):
                piece = os.read(pipe.fileno(), 65536)
                is_open = bool(piece)
                data += piece
            elif has_ended:
                break
            elif not is_open:
                time.sleep(0.01)
    return data


def _kill_group(pid: int) -> None:
    import signal

    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _decoded(data: bytes, what: str) -> str:
    if len(data) > _MAX_KEY_BYTES:
        raise KeyMissingError(f"{what} gives more than 64 KiB; that is no key.")
    if data[:2] in _UTF_16:
        raise KeyMissingError(f"{what} gives UTF-16 text; write the key as UTF-8, which mcode reads.")
    key = _bare(data.decode("utf-8", "replace"))
    if not key:
        raise KeyMissingError(f"{what} gives nothing.")
    return _sendable(key, what)


def _bare(text: str) -> str:
    return text.strip().removeprefix("\ufeff").strip()


def _sendable(key: str, what: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key:
        raise KeyMissingError(
            f"{what} holds more than a key: it has blanks, line ends or characters outside ASCII."
        )
    return key

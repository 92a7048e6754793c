"""One configuration file: read safely, never written, and able to say where a key stands.

Every fault of the file (not there, no regular file, empty, not UTF-8, no TOML)
is a ConfigError that names the file, and the line where there is one.
"""

from __future__ import annotations

import os
from typing import Any

from mcode_exec.errors import ConfigError
from mcode_exec.paths import is_inside, open_regular

MAX_FILE_BYTES = 1024 * 1024

WORKSPACE_FILE = ".mcode/config.toml"


class Document:
    """The parsed file; `table` is plain TOML data with exact decimals."""

    def __init__(self, path: str, text: str, table: dict[str, Any]) -> None:
        self.path = path
        self.text = text
        self.table = table

    def fault(self, key: tuple[str, ...], sentence: str) -> ConfigError:
        """An error at `key`: `file:line: sentence`."""
        return ConfigError(f"{self.place(key)}: {sentence}")

    def place(self, key: tuple[str, ...]) -> str:
        """Where `key` stands, or the nearest table above it: `file:line`."""
        from mcode_exec.config.lines import key_lines

        try:
            lines = key_lines(self.text)
        except RecursionError:  # values nested just within what tomllib could take
            lines = {}
        while key and key not in lines:
            key = key[:-1]
        return f"{self.path}:{lines[key]}" if key else self.path


def find_user_document(path: str, *, is_named: bool) -> Document | None:
    """The user's file; one that was named must exist, the default one may be absent."""
    if path == "/dev/null":  # the usual way to say "no configuration"
        return None
    try:
        data = _read(path, path)
    except (FileNotFoundError, NotADirectoryError):
        if is_named:
            raise ConfigError(
                f"{path}: there is no such config file; --config or MCODE_CONFIG names it."
            ) from None
        return None
    return _parse(path, data)


def find_workspace_document(workspace: str) -> Document | None:
    """`<workspace>/.mcode/config.toml`, which must really lie inside the workspace."""
    path = os.path.join(workspace, WORKSPACE_FILE)
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # its deny rules must not get lost
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    if not is_inside(path, workspace):
        raise ConfigError(f"{path} is a link that leads out of the workspace; nothing of it was read.")
    try:
        data = _read(os.path.realpath(path), path)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path} is a link to nothing; remove it or make it a regular file.") from None
    return _parse(path, data)


def _read(path: str, shown: str) -> bytes:
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise ConfigError(f"{shown} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{shown} is larger than 1 MiB; that is no config file.")
    return data


def _parse(path: str, data: bytes) -> Document:
    import tomllib
    from decimal import Decimal

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: the file is not UTF-8 (at byte {error.start}).") from error
    if not text.strip():
        raise ConfigError(f"{path}:1: the file is empty; put your settings back, or remove the file.")
    try:
        table = tomllib.loads(text, parse_float=Decimal)
    except RecursionError as error:
        raise ConfigError(f"{path}: the file is nested too deeply to be a config file.") from error
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(_broken(path, text, str(error))) from error
    return Document(path, text, table)


def _broken(path: str, text: str, reason: str) -> str:
    """tomllib says "… (at line 3, column 7)" or "… (at end of document)"; make it file:line."""
    what, _, place = reason.rpartition(" (at ")
    if place.startswith("line "):
        line, _, column = place.removeprefix("line ").rstrip(")").partition(", column ")
        return f"{path}:{line}: not valid TOML at column {column}: {what}."
    if place.startswith("end of"):
        return f"{path}:{text.rstrip().count(chr(10)) + 1}: not valid TOML: {what} at the end of the file."
    return f"{path}: not valid TOML: {reason.splitlines()[0] if reason else 'a number cannot be read'}."

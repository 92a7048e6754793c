"""One configuration file: read safely, never written, and able to say where a key stands.

Every fault of the file (not there, no regular file, empty, not UTF-8, no TOML)
is a ConfigError that names the file, and the line where there is one.
"""

from __future__ import annotations

import os
from typing import Any

from mcode_exec.errors import ConfigError, McodeError
from mcode_exec.paths import is_inside, open_regular

MAX_FILE_BYTES = 1024 * 1024

WORKSPACE_FILE = ".mcode/config.toml"


class Document:
    """The parsed file; `table` is plain TOML data with exact decimals, `error` what its faults are."""

    def __init__(
        self, path: str, text: str, table: dict[str, Any], error: type[McodeError] = ConfigError
    ) -> None:
        self.path = path
        self.text = text
        self.table = table
        self._error = error

    def fault(self, key: tuple[str, ...], sentence: str) -> McodeError:
        """An error at `key`: `file:line: sentence`."""
        return self._error(f"{self.place(key)}: {sentence}")

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
    if not data.removeprefix(b"\xef\xbb\xbf").strip():
        raise ConfigError(f"{path}:1: the file is empty; put your settings back, or remove the file.")
    return parse_document(path, data, ConfigError)


def parse_document(path: str, data: bytes, error: type[McodeError]) -> Document:
    """The TOML that `data` is.  Raises: `error`, with the line where there is one."""
    import tomllib
    from decimal import Decimal

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = data.count(b"\n", 0, wrong.start) + 1
        raise error(f"{path}:{line}: the file is not UTF-8 (at byte {wrong.start}).") from wrong
    try:
        table = tomllib.loads(text, parse_float=Decimal)
    except RecursionError as wrong:
        raise error(f"{path}: the file is nested too deeply.") from wrong
    except (ValueError, ArithmeticError) as wrong:
        raise error(_broken(path, text, str(wrong))) from wrong
    return Document(path, text, table, error)


def _broken(path: str, text: str, reason: str) -> str:
    """tomllib says "… (at line 3, column 7)" or "… (at end of document)"; make it file:line."""
    what, _, place = reason.rpartition(" (at ")
    if place.startswith("line "):
        line, _, column = place.removeprefix("line ").rstrip(")").partition(", column ")
        return f"{path}:{line}: not valid TOML at column {column}: {what}."
    if place.startswith("end of"):
        return f"{path}:{text.rstrip().count(chr(10)) + 1}: not valid TOML: {what} at the end of the file."
    return f"{path}: not valid TOML: {reason.splitlines()[0] if reason else 'a number cannot be read'}."

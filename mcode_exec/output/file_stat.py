"""Changed files for people, as `git diff --stat` has them: a line each with its count and a bar, and the sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mcode_exec.output.escape import escape
from mcode_exec.plurals import counted

_BAR = 40  # characters of the longest bar
_NAME = 60


class _Changed(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def old_path(self) -> str | None: ...
    @property
    def additions(self) -> int | None: ...
    @property
    def deletions(self) -> int | None: ...
    @property
    def binary(self) -> bool: ...


def file_stat(files: Sequence[_Changed]) -> str:
    """Empty for none."""
    if not files:
        return ""
    names = [_name(file) for file in files]
    width = max(map(len, names))
    most = max(((file.additions or 0) + (file.deletions or 0) for file in files), default=0)
    digits = len(str(most))
    lines = [
        f" {name.ljust(width)} | {_amount(file, digits, most)}".rstrip()
        for name, file in zip(names, files, strict=True)
    ]
    return "\n".join([*lines, _sums(files)]) + "\n"


def _name(file: _Changed) -> str:
    name = escape(file.path if file.old_path is None else f"{file.old_path} => {file.path}")
    return name if len(name) <= _NAME else "…" + name[1 - _NAME :]


def _amount(file: _Changed, digits: int, most: int) -> str:
    if file.binary:
        return "binary"
    if file.additions is None or file.deletions is None:
        return "not known"
    scale = min(1.0, _BAR / most) if most else 1.0
    plus, minus = (max(1, round(count * scale)) if count else 0 for count in (file.additions, file.deletions))
    return f"{file.additions + file.deletions:>{digits}} {'+' * plus}{'-' * minus}"


def _sums(files: Sequence[_Changed]) -> str:
    additions = sum(file.additions or 0 for file in files)
    deletions = sum(file.deletions or 0 for file in files)
    return (
        f" {counted(len(files), 'file')} changed, {counted(additions, 'insertion')}(+), "
        f"{counted(deletions, 'deletion')}(-)"
    )

"""What every command that reads the store has: where it is, how to print, how to run a coroutine.

Lists are printed at once with blocking writes: such commands have no event
stream, nothing to settle, and end on a closed pipe with 141.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import click

_T = TypeVar("_T")
_Command = TypeVar("_Command", bound=Callable[..., Any])

_FORMATS = {
    "table": "table",
    "json": "json",
    "jsonl": "jsonl",
    "csv": "csv",
    "text": "table",
    "stream-json": "jsonl",
}


class ListFormat(click.ParamType):  # type: ignore[type-arg]
    """One of the list formats; the names that `exec` uses are understood too."""

    name = "table|json|jsonl|csv"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in _FORMATS:
            self.fail(f"{value!r} is not one of table, json, jsonl, csv.", param, ctx)
        return _FORMATS[value]


def list_format(command: _Command) -> _Command:
    """Adds `--output-format`."""
    return click.option(
        "--output-format",
        type=ListFormat(),
        default="table",
        help="table (default) for people; json, jsonl and csv are stable.",
    )(command)


def data_dir(command: _Command) -> _Command:
    """Adds `--data-dir`."""
    return click.option("--data-dir", metavar="DIR", help="Where sessions are kept.")(command)


def await_result(work: Coroutine[Any, Any, _T]) -> _T:
    """Run one coroutine to its end on a loop of its own."""
    import asyncio
    import gc

    gc.enable()  # main.py turned it off for the start
    return asyncio.run(work)


def emit(data: bytes) -> None:
    """Write `data` to stdout at once.  Raises: BrokenPipeError, OSError."""
    from mcode_exec.output.writer import write_fully

    write_fully(1, data)


def emit_document(
    kind: str | None, fields: Mapping[str, Any], mask: Callable[[str], str] | None = None
) -> None:
    """Write one JSON object that programs read: what it is, and by which version of its shape."""
    from mcode_exec.output.encoding import document, to_json_line

    emit(to_json_line(document(kind, fields), mask))


def check_reader() -> None:
    """Raise BrokenPipeError if nobody reads stdout any more."""
    from mcode_exec.output.writer import check_reader

    check_reader(1)


def notice(text: str) -> None:
    """One `mcode: …` line for people."""
    from mcode_exec.cli.errors_door import say_stderr

    say_stderr(text)

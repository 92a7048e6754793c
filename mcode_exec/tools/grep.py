"""grep: lines that match a regular expression, by rg or by a worker of our own.

Either runs as a command under the runner: bounded, killed on an abort, without
secrets in its environment.  `.env` files are searched only when named
outright, since reading them is a permission of its own; of other files lines
are shown only where the rules would let them be read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from mcode_exec.paths import private_open
from mcode_exec.plurals import counted
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.sandbox.processes import CommandResult
from mcode_exec.tools.capping import cap, decode
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure
from mcode_exec.tools.paths import absolute, display
from mcode_exec.tools.threads import in_thread
from mcode_exec.workspace.programs import Stop, find_program
from mcode_exec.workspace.walk import list_files, rg_options

LIMIT_S = 30.0
DEFAULT_LINES = 200
MAX_LINES = 2000
MAX_CONTEXT = 50
_COLUMNS = 500


class _Search(Struct, frozen=True, kw_only=True):
    pattern: str
    #: directory that names are relative to, and the one file or None for all below it
    directory: str
    file: str | None
    glob: str | None
    ignore_case: bool
    #: `$` stands before a CRLF too; not for an expression that looks for the CR itself
    ends_at_crlf: bool
    context: int
    limit: int


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    search = _search(arguments, ctx)
    rg = find_program("rg")
    result = await (_by_rg(rg, search, ctx) if rg else _by_worker(search, ctx))
    if result.timed_out:
        raise ToolFailure(
            f"the search took longer than {LIMIT_S:g} s; give a narrower path or a simpler pattern"
        )
    lines, is_more, hidden = _format(result, search, ctx)
    # rg: 2 also when some file could not be read
    if result.exit_code not in (0, 1) and not lines:
        raise ToolFailure(f"the search failed: {decode(result.head).strip() or 'unknown reason'}")
    text = "\n".join(lines) or f"no match for {search.pattern}"
    if is_more:
        text += f"\n[more than {len(lines)} lines; use a narrower pattern, path or glob]"
    if hidden:
        text += f"\n[matches in {counted(hidden, 'file')} left out: the rules do not let them be read]"
    capped = cap(text, ctx.output_path)
    return ToolOutcome(
        content=capped.text,
        title=search.pattern,
        metadata={
            "count": len(lines),
            "truncated": is_more or capped.is_cut,
            "output_path": capped.output_path,
        },
    )


def _search(arguments: Mapping[str, Any], ctx: ToolContext) -> _Search:
    path = absolute(arguments.get("path") or ".", ctx.workspace)
    is_directory = os.path.isdir(path)
    if not is_directory and not os.path.isfile(path):
        reason = "is not a regular file" if os.path.lexists(path) else "no such file or directory"
        raise ToolFailure(f"{display(path, ctx.workspace)}: {reason}")
    if "\0" in arguments["pattern"] or "\0" in arguments.get("glob", ""):
        raise ToolFailure("a pattern cannot contain a NUL byte")
    return _Search(
        pattern=arguments["pattern"],
        directory=path if is_directory else os.path.dirname(path),
        file=None if is_directory else os.path.basename(path),
        glob=arguments.get("glob"),
        ignore_case=arguments.get("ignore_case", False),
        ends_at_crlf=not any(name in arguments["pattern"] for name in ("\r", "\\r", "\\x0d", "\\x0D")),
        context=min(arguments.get("context", 0), MAX_CONTEXT),
        limit=min(arguments.get("limit", DEFAULT_LINES), MAX_LINES),
    )


async def _by_rg(rg: str, search: _Search, ctx: ToolContext) -> CommandResult:
    command = [rg, "--null", "--line-number", "--with-filename", "--no-heading", "--sort=path"]
    command += [f"--max-columns={_COLUMNS}", "--max-columns-preview", f"--max-count={search.limit + 1}"]
    if search.ignore_case:
        command.append("--ignore-case")
    if search.context:
        command.append(f"--context={search.context}")
    if search.ends_at_crlf:
        command.append("--crlf")
    if search.glob:
        command.append(f"--glob={search.glob}")
    # later globs win
    command += [*rg_options(search.directory), "--glob=!.env", "--glob=!.env.*"]
    command += ["-e", search.pattern, "--", f"./{search.file}" if search.file else "./"]
    return await _run(command, search, ctx)


async def _by_worker(search: _Search, ctx: ToolContext) -> CommandResult:
    stop = Stop()
    try:
        names = [search.file] if search.file else await in_thread(lambda: _names(search, stop))
    except TimeoutError:
        raise ToolFailure(f"listing the files took longer than {LIMIT_S:g} s; give a narrower path") from None
    finally:
        stop.set()
    request = {
        "pattern": search.pattern,
        "ignore_case": search.ignore_case,
        "ends_at_crlf": search.ends_at_crlf,
        "context": search.context,
        "limit": search.limit + 1,
        "files": names,
    }
    path = os.path.join(ctx.temp_dir, f"grep-{os.urandom(8).hex()}.json")
    worker = os.path.join(os.path.dirname(__file__), "grep_worker.py")
    try:
        with open(private_open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w", encoding="ascii") as file:
            json.dump(request, file)
        return await _run([sys.executable, "-I", "-S", worker, path], search, ctx)
    finally:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def _names(search: _Search, stop: Stop) -> list[str]:
    names = list_files(search.directory, limit_s=LIMIT_S, stop=stop)
    if search.glob:
        from mcode_exec.tools.glob import split_pattern
        from mcode_exec.tools.glob_patterns import matcher

        directory, rest = split_pattern(search.glob, search.directory)
        if directory != search.directory:
            inside = os.path.relpath(directory, search.directory)
            rest = f"{inside}/{rest}"
        matches = matcher(rest)
        names = [name for name in names if matches(name)]
    return [name for name in names if not _is_env_file(name)]


def _is_env_file(name: str) -> bool:
    base = name.rpartition("/")[2]
    return base == ".env" or base.startswith(".env.")


async def _run(command: list[str], search: _Search, ctx: ToolContext) -> CommandResult:
    from shlex import join

    try:
        return await ctx.runner.run(
            f"exec {join(command)}", cwd=search.directory, limit_s=LIMIT_S, spill_path=None
        )
    except (OSError, ValueError) as error:
        raise ToolFailure(f"the search could not be started: {error}") from error


def _format(result: CommandResult, search: _Search, ctx: ToolContext) -> tuple[list[str], bool, int]:
    """(lines for the model, whether there are more, number of files that may not be shown)"""
    raw = result.head + result.tail
    is_more = result.total_bytes > len(raw)
    if is_more:
        raw = result.head.rpartition(b"\n")[0]
    lines: list[str] = []
    may_show: dict[bytes, bool] = {}
    for line in raw.split(b"\n"):
        name, separator, text = line.partition(b"\0")
        if line == b"--":
            if lines and lines[-1] != "--":
                lines.append("--")
        elif separator:
            path = f"{search.directory.rstrip('/')}/{os.fsdecode(name.removeprefix(b'./'))}"
            if name not in may_show:
                # a file named outright was judged before the call ran
                may_show[name] = search.file is not None or ctx.may_show(path)
            if may_show[name]:
                lines.append(_line(display(path, ctx.workspace), decode(text).rstrip("\r")))
    hidden = list(may_show.values()).count(False)
    if len(lines) > search.limit:
        return lines[: search.limit], True, hidden
    return lines, is_more, hidden


def _line(shown: str, text: str) -> str:
    """`12:text` of a match, `12-text` of the lines around it."""
    digits = len(text) - len(text.lstrip("0123456789"))
    number, mark, rest = text[:digits], text[digits : digits + 1], text[digits + 1 :]
    return f"{shown}{mark}{number}{mark} {rest}"

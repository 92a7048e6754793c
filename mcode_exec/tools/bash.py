"""bash: a script in a shell of its own.  How it is run and ended is the sandbox's matter."""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping
from typing import Any

from mcode_exec.records.tool import LeftoverProcess, ToolOutcome
from mcode_exec.sandbox.processes import CommandResult
from mcode_exec.tools.capping import cap, decode, head_and_tail, join
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure

_MAX_NAMED = 10


async def run(arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    script: str = arguments["command"]
    wanted_ms = arguments.get("timeout_ms")
    limit_s = ctx.command_limit_s if wanted_ms is None else wanted_ms / 1000
    return await _run(script, ctx, limit_s, title=arguments.get("description"))


async def run_check(command: str, variables: Mapping[str, str], ctx: ToolContext) -> ToolOutcome:
    """Run a command of the caller as one of the model is run, with `variables` besides; it leaves nothing running."""
    return await _run(command, ctx, ctx.command_limit_s, variables=variables, ends_left=True)


async def _run(
    script: str,
    ctx: ToolContext,
    limit_s: float,
    *,
    title: str | None = None,
    variables: Mapping[str, str] | None = None,
    ends_left: bool = False,
) -> ToolOutcome:
    limit_s = min(limit_s, ctx.command_limit_max_s)
    try:
        result = await ctx.runner.run(
            script,
            cwd=ctx.workspace,
            limit_s=limit_s,
            spill_path=ctx.output_path,
            variables=variables,
            ends_left=ends_left,
        )
    except ValueError as error:
        raise ToolFailure(f"the command was not run: {error}") from error
    except OSError as error:
        raise ToolFailure(f"the command could not be started: {error}") from error
    text, is_cut, output_path = _shown(result, ctx.output_path)
    notes = _notes(result, limit_s)
    if notes:
        text = f"{text.rstrip(chr(10))}\n\n{notes}" if text.strip() else notes
    return ToolOutcome(
        content=text if text.strip() else "(no output)",
        # counted and listed in the result, so that a caller sees what the model may leave unsaid
        is_error=result.exit_code != 0 or result.process_limit is not None,
        title=title or script.strip().partition("\n")[0][:80],
        metadata={
            "exit_code": result.exit_code,
            "signal": result.signal,
            "timed_out": result.timed_out,
            "duration_ms": result.duration_ms,
            "output_path": output_path,
            "truncated": is_cut,
        },
    )


def _shown(result: CommandResult, output_path: str) -> tuple[str, bool, str | None]:
    """(text, whether something is left out, file with the whole)"""
    kept = len(result.head) + len(result.tail)
    if result.total_bytes <= kept:
        raw = result.head + result.tail
        capped = cap(decode(raw), output_path, raw=raw)
        return capped.text, capped.is_cut, capped.output_path
    head, tail = head_and_tail(result.head, result.tail)
    text = join(
        head,
        tail,
        total_bytes=result.total_bytes,
        total_lines=None,
        path=result.spill_path,
        file_bytes=result.spilled_bytes,
    )
    return text, True, result.spill_path


def _notes(result: CommandResult, limit_s: float) -> str:
    lines = []
    if result.process_limit is not None:
        lines.append(
            f"more than {result.process_limit} processes at once; this command, if it still ran, and what "
            "earlier ones left in the background were ended"
        )
    if result.timed_out:
        lines.append(f"timed out after {_duration(limit_s)}; the command and all it started were ended")
    elif result.signal is not None:
        lines.append(f"ended by signal {_signal_name(result.signal)}")
    elif result.exit_code is None:
        lines.append("exit code unknown")
    elif result.exit_code != 0:
        lines.append(f"exit code: {result.exit_code}")
    if result.left_running:
        lines.append(f"left running in the background: {_named(result.left_running)}")
    return "\n".join(lines)


def _named(left: tuple[LeftoverProcess, ...]) -> str:
    names = [f"{process.command} (pid {process.pid})" for process in left[:_MAX_NAMED]]
    if len(left) > _MAX_NAMED:
        names.append(f"{len(left) - _MAX_NAMED} more")
    return ", ".join(names)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)} ms" if seconds < 1 else f"{seconds:g} s"


def _signal_name(number: int) -> str:
    try:
        return f"{number} ({signals.Signals(number).name})"
    except ValueError:
        return str(number)

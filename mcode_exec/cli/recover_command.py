"""`mcode recover`: end what dead processes left, all of it, and say what that was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.list_options import await_result, data_dir, emit

if TYPE_CHECKING:
    from mcode_exec.executor.recovering import Report

_NAMES = {
    "turns": "turns of dead processes ended, their sessions are `interrupted`",
    "sessions": "sessions without a process set to `interrupted`",
    "claims": "queue items given back",
    "places": "places in line of dead processes taken away",
    "expired": "queue items past their time taken away",
    "signals": "words for turns that are over ended",
}


@click.command(
    "recover",
    short_help="End what dead processes left.",
    epilog="""\b
Examples:
  mcode recover
  mcode recover --output-format json | jq .turns
  mcode doctor --locks        look first: who holds what, and why it is believed alive or dead""",
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def command(output_format: str, data_dir: str | None) -> int:
    """End what killed mcode processes left: turns, locks, claims, places in line, running commands.

    Every mcode does so for the first thousand sessions when it starts; this looks at all of them, and says
    what it did. What living processes have is not touched, and doing it twice changes nothing.
    """
    from mcode_exec.executor.recovering import recover_data

    report = await_result(recover_data(data_dir, os.environ))
    if output_format == "json":
        import msgspec

        from mcode_exec.output.encoding import to_json_line

        emit(to_json_line({"type": "recovery", **msgspec.to_builtins(report)}))
    else:
        emit("".join(f"{line}\n" for line in _lines(report)).encode())
    return 0


def _lines(report: Report) -> list[str]:
    lines = [f"{getattr(report, field)} {what}" for field, what in _NAMES.items() if getattr(report, field)]
    if report.strays:
        pids = ", ".join(map(str, report.strays))
        lines.append(f"{len(report.strays)} commands of dead processes ended (process {pids})")
    if report.deleting:
        sessions = ", ".join(report.deleting)
        lines.append(f"{len(report.deleting)} deletions of sessions had been cut short: {sessions}")
    return lines or ["nothing to recover"]

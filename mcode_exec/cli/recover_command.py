"""`mcode recover`: end what dead processes left, all of it, and say what that was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, notice
from mcode_exec.errors import BusyError
from mcode_exec.plurals import counted

if TYPE_CHECKING:
    from mcode_exec.executor.recovering import Report

#: field -> (what is counted, what became of it)
_NAMES = {
    "turns": ("turn", "of dead processes ended, sessions `interrupted`"),
    "sessions": ("session", "without a process set to `interrupted`"),
    "claims": ("queue item", "given back"),
    "places": ("place", "in line of dead processes taken away"),
    "expired": ("queue item", "past its time taken away"),
    "signals": ("word", "for turns that are over ended"),
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

    Exit code 74 where files of a session that is being deleted cannot be removed, 75 where its turn still ends.
    """
    from mcode_exec.executor.recovering import recover_data

    report = await_result(recover_data(data_dir, os.environ))
    if output_format == "json":
        import msgspec

        emit_document("recovery", msgspec.to_builtins(report))
    else:
        emit("".join(f"{line}\n" for line in _lines(report)).encode("utf-8", "replace"))
    for one in report.unfinished:
        notice(f"error: {one.message} ({one.code})")
    return _exit_code(report)


def _lines(report: Report) -> list[str]:
    lines = [
        f"{counted(getattr(report, field), one)} {what}"
        for field, (one, what) in _NAMES.items()
        if getattr(report, field)
    ]
    if report.strays:
        pids = ", ".join(map(str, report.strays))
        ended = counted(len(report.strays), "command")
        lines.append(f"{ended} of dead processes ended (process {pids})")
    if report.deleting:
        finished = counted(len(report.deleting), "deletion")
        lines.append(f"{finished} that had been cut short finished: session {', '.join(report.deleting)}")
    if report.made:
        finished = counted(len(report.made), "session")
        lines.append(f"{finished} that had been begun made to its end: {', '.join(report.made)}")
    if report.undone:
        gone = counted(len(report.undone), "session")
        lines.append(f"{gone} that had been begun for a turn taken away again: {', '.join(report.undone)}")
    if report.rewound:
        lines.append(
            f"{counted(len(report.rewound), 'rewind')} made to an end: session {', '.join(report.rewound)}"
        )
    if report.unfinished:
        left = ", ".join(one.session_id for one in report.unfinished)
        lines.append(f"{counted(len(report.unfinished), 'deletion')} not finished: session {left}")
    return lines or ["nothing to recover"]


def _exit_code(report: Report) -> int:
    """That of the first deletion that waits for somebody's hand, else for a process."""
    codes = [one.exit_code for one in report.unfinished]
    return next((code for code in codes if code != BusyError.exit_code), codes[0] if codes else 0)

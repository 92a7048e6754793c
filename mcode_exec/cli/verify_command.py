"""`mcode sessions verify`: what is wrong with what is kept, and mending it."""

from __future__ import annotations

import os
from typing import Any

import click

from mcode_exec.cli.flag_types import SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice

_FIELDS = ("sessionId", "file", "line", "problem", "repaired", "keptIn")
_COLUMNS = {
    "sessionId": "SESSION",
    "file": "FILE",
    "line": "LINE",
    "problem": "PROBLEM",
    "repaired": "REPAIRED",
}
_TOLD_EVERY = 500  # sessions


@click.command(
    "verify",
    short_help="Check what is kept of a session, and mend it.",
    epilog="""\b
Examples:
  mcode sessions verify mvs_1a2b3c4d
  mcode sessions verify --all --output-format jsonl
  mcode sessions verify mvs_1a2b3c4d --repair""",
)
@click.argument("session", type=SESSION_ID, required=False)
@click.option("--all", "every", is_flag=True, help="Every session.")
@click.option("--repair", is_flag=True, help="Set aside what is no record, and make manifest and rows agree.")
@list_format
@data_dir
def verify(session: str | None, every: bool, repair: bool, output_format: str, data_dir: str | None) -> int:
    """Check that a session's history can be read, line by line, and that all of it agrees.

    Looked at are the history, calls and their results, the manifest, earlier generations, attachments, and whether
    the messages that are shown are those of the history. --repair throws nothing away: bad lines are set aside, the
    manifest is made anew, missing rows are written; what is not certain stays as it is. Exit 4 if something is wrong.

    SESSION is an id or a unique prefix of one.
    """
    from mcode_exec.output.tables import render

    if (session is None) != every:
        raise click.UsageError("give a SESSION or --all.")
    findings, count = await_result(_gather(data_dir, session, repair=repair))
    columns = {**_COLUMNS, **({"keptIn": "KEPT IN"} if any("keptIn" in one for one in findings) else {})}
    emit(render(findings, output_format, name="findings", fields=_FIELDS, columns=columns))
    if output_format == "table" and not findings:
        from mcode_exec.plurals import counted

        notice(f"{counted(count, 'session')}: the history is sound" if every else "the history is sound")
    return 0 if all(one["repaired"] for one in findings) else 4


async def _gather(
    data_dir: str | None, session: str | None, *, repair: bool
) -> tuple[list[dict[str, Any]], int]:
    from mcode_exec.executor.verification import verify as verified

    findings: list[dict[str, Any]] = []
    count = 0
    async for _, found in verified(data_dir, os.environ, session, repair=repair):
        findings += found
        count += 1
        if count % _TOLD_EVERY == 0:
            notice(f"{count} sessions looked at")
    return findings, count

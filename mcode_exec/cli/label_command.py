"""`mcode sessions label`."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.flag_types import LABEL, SESSION_ID, TEXT
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document


@click.command(
    "label",
    short_help="Give a session labels, or take them away.",
    epilog="""\b
Examples:
  mcode sessions label mvs_1a2b3c4d team=core pr=123
  mcode sessions label mvs_1a2b3c4d --remove pr
  mcode sessions label mvs_1a2b3c4d               what it has""",
)
@click.argument("session", type=SESSION_ID)
@click.argument("labels", type=LABEL, nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--remove", "removed", type=TEXT, multiple=True, metavar="KEY", help="Take away (repeatable).")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def label(
    session: str,
    labels: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
    output_format: str,
    data_dir: str | None,
) -> int:
    """Give SESSION labels, and take those away that --remove names; prints the labels that it has then.

    A key has one value: the new one takes the place of the old one. One that is not there is taken away already.
    """
    from mcode_exec.executor.keeping import label_session

    both = sorted({key for key, _ in labels} & set(removed))
    if both:
        raise click.UsageError(f"{both[0]!r} is both given and removed.")
    labelled = await_result(label_session(data_dir, os.environ, session, added=dict(labels), removed=removed))
    if output_format == "json":
        emit_document("sessions.label", {"sessionId": labelled.id, "labels": labelled.labels})
    else:
        from mcode_exec.output.escape import escape

        lines = (f"{escape(key)}={escape(value)}\n" for key, value in sorted(labelled.labels.items()))
        emit("".join(lines).encode("utf-8", "replace"))
    return 0

"""`mcode sessions show`: one session read back, as text, Markdown, JSON or a page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.flag_types import SESSION_ID, Count, Text
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, list_format, notice
from mcode_exec.cli.session_rows import row_of, tell_deletions

if TYPE_CHECKING:
    from mcode_exec.executor.showing import Shown

_FORM_FLAGS = {"raw": "--raw", "markdown": "--markdown", "html": "--html"}

_EPILOG = """\b
Examples:
  mcode sessions show mvs_41b83f22                     the newest 80 messages
  mcode sessions show mvs_41b83f22 --before CURSOR     those before them
  mcode sessions show mvs_41b83f22 --turn last --raw   the words of the last turn alone
  mcode sessions show mvs_41b83f22 --html page.html    all of it as one file for a browser
"""


@click.command("show", short_help="Read a session.", epilog=_EPILOG)
@click.argument("session", type=SESSION_ID)
@click.option("--turn", type=Text(), metavar="TURN", help="One turn: its id, a unique prefix, or `last`.")
@click.option("--limit", type=Count(1, 10_000), help="Messages [default: 80; --html: all].")
@click.option("--before", metavar="CURSOR", help="Earlier messages.")
@click.option(
    "--expand", is_flag=True, help="Fold and cut nothing: earlier turns, arguments, outputs, diffs."
)
@click.option("--raw", is_flag=True, help="The words of prompts and answers alone, as they were said.")
@click.option("--markdown", is_flag=True, help="As Markdown.")
@click.option("--html", metavar="FILE", help="Write a page of its own to FILE, without script; - is stdout.")
@list_format
@data_dir
@click.pass_context
def show(
    ctx: click.Context,
    session: str,
    turn: str | None,
    limit: int | None,
    before: str | None,
    expand: bool,
    raw: bool,
    markdown: bool,
    html: str | None,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Read a session: its newest messages under the questions they belong to.

    Tools are shown with how they ended and how long they took, turns with what they used and changed.
    Where a question took several turns, the earlier ones are folded.

    SESSION is an id or a unique prefix of one.
    """
    from mcode_exec.executor import showing

    _check_forms(ctx)
    if html is not None:
        from mcode_exec.cli.documents import write_document
        from mcode_exec.executor.pages import document

        pieces = document(data_dir, os.environ, session, "html", turn=turn, before=before, limit=limit)
        await_result(write_document("--html", html, pieces, data_dir))
        return 0
    page = await_result(
        showing.show(
            data_dir,
            os.environ,
            session,
            turn=turn,
            before=before,
            limit=limit or showing.PAGE,
            with_patches=expand,
        )
    )
    is_for_people = output_format == "table"
    if is_for_people:
        emit(_text(page, raw=raw, markdown=markdown, expands=expand).encode("utf-8", "replace"))
        tell_deletions(page.seals)
    else:
        _emit_rows(page, output_format)
    if page.cursor is not None and output_format != "json":
        notice(f"earlier messages: --before {page.cursor}")
    return 0


def _check_forms(ctx: click.Context) -> None:
    given = [flag for name, flag in _FORM_FLAGS.items() if ctx.params[name] not in (None, False)]
    if ctx.params["output_format"] != "table":
        given.append("--output-format")
    if ctx.params["expand"] and (ctx.params["raw"] or ctx.params["html"]):
        given.append("--expand")
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} and {given[1]} cannot be combined.")


def _text(page: Shown, *, raw: bool, markdown: bool, expands: bool) -> str:
    if raw:
        from mcode_exec.output.question_text import words

        return words(page.messages, is_terminal=os.isatty(1))
    if markdown:
        from mcode_exec.output.markdown import markdown_of

        return markdown_of(page.session, page.questions, expands=expands, patches=page.patches)
    from mcode_exec.output.question_text import questions_text
    from mcode_exec.output.transcript import heading

    return heading(page.session) + questions_text(page.questions, expands=expands, patches=page.patches)


def _emit_rows(page: Shown, output_format: str) -> None:
    from mcode_exec.executor.showing import question_rows
    from mcode_exec.output.tables import render
    from mcode_exec.records.message import DisplayMessage
    from mcode_exec.records.shown import names_of, shown

    rows = [shown(message) for message in page.messages]
    if output_format == "json":
        document = {
            "session": row_of(page.session, page.seals.get(page.session.id)),
            "messages": rows,
            "questions": question_rows(page.questions),
            "currentTurnId": page.current_turn_id,
            "nextCursor": page.cursor,
        }
        emit_document(None, document)
    else:
        emit(render(rows, output_format, name="messages", fields=names_of(DisplayMessage), columns={}))

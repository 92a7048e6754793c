"""A session as Markdown: questions as sections, what was said as it was said, tools in fenced blocks.

What people and the model wrote is Markdown already and stays as it is, less
what would act on a terminal; everything else is quoted so that nothing in it
is taken for markup.  A renderer decides what it makes of HTML in somebody's
words; the page of html_page.py is the one that decides it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mcode_exec.output.escape import escape, escape_text
from mcode_exec.output.narration import cut
from mcode_exec.output.question_text import folded
from mcode_exec.output.transcript import author, local_time
from mcode_exec.output.turn_words import (
    changed_lines,
    end_of,
    model_name,
    paths_of,
    result_of,
    status_of,
    subject_of,
    sum_of,
)
from mcode_exec.records.message import DisplayMessage, FilePart, ReasoningPart, TextPart, ToolPart
from mcode_exec.records.question import Question, TurnView, is_hidden
from mcode_exec.records.session import Session

_SHOWN_CHARS = 4_000
_LINE_CHARS = 200
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def markdown_of(
    session: Session,
    questions: Sequence[Question],
    *,
    expands: bool,
    patches: Mapping[str, str] | None = None,
) -> str:
    """A whole document; `expands`: nothing is folded or cut.  `patches`: by turn, what it changed."""
    return head_of(session) + body_of(questions, expands=expands, patches=patches)


def head_of(session: Session) -> str:
    """The title, and what is true of the session."""
    facts = {
        "Session": f"`{session.id}`",
        "Workspace": code(session.workspace),
        "Model": code(model_name(session.provider_id, session.model_id) or "-"),
        "Created": local_time(session.created_ms),
        "Last turn": local_time(session.activity_ms),
        "Status": session.shown_status,
    }
    lines = "".join(f"- {name}: {value}\n" for name, value in facts.items())
    return f"# {plain(session.title)}\n\n{lines}"


def body_of(questions: Sequence[Question], *, expands: bool, patches: Mapping[str, str] | None = None) -> str:
    """The questions, as they follow the head."""
    return "".join(
        piece
        for question in questions
        for turn in question.turns
        for piece in (*_turn(turn, expands), *_patch((patches or {}).get(turn.turn_id)))
    )


def _patch(patch: str | None) -> Iterator[str]:
    if patch:
        yield f"\n{fenced(patch.rstrip(chr(10)), 'diff')}\n"


def _turn(turn: TurnView, expands: bool) -> Iterator[str]:
    is_folded = turn.is_folded and not expands
    for message in turn.messages:
        if not expands and (is_hidden(message) or (is_folded and message.role != "user")):
            continue
        yield from _message(message, turn, expands)
    if is_folded:
        yield f"\n*{plain(folded(turn))}*\n"
        return
    yield f"\n*turn {plain(' · '.join(filter(None, (end_of(turn.facts), sum_of(turn.facts)))))}*\n"
    if turn.facts.error:
        yield f"\n> {plain(cut(turn.facts.error, 500))}\n"
    paths = paths_of(turn.facts)
    if paths:
        yield "\n" + "".join(f"- {code(path)}\n" for path in paths)


def _message(message: DisplayMessage, turn: TurnView, expands: bool) -> Iterator[str]:
    yield f"\n## {plain(author(message))} · {local_time(message.created_ms)}\n"
    for part in message.parts:
        if isinstance(part, TextPart):
            yield f"\n{escape_text(part.text).strip(chr(10))}\n"
        elif isinstance(part, ReasoningPart):
            if expands:
                yield f"\n{_quoted(part.text)}\n"
        elif isinstance(part, FilePart):
            yield f"\n- file {code(part.filename or part.digest)}, {code(part.mime)}\n"
        elif isinstance(part, ToolPart):
            yield from _tool(part, turn, expands)


def _tool(part: ToolPart, turn: TurnView, expands: bool) -> Iterator[str]:
    status = status_of(part, is_running=turn.facts.state == "running")
    changed = changed_lines(part)
    what = code(cut(f"{part.tool} {subject_of(part)}".strip(), _LINE_CHARS))
    yield f"\n**▸** {what} *{plain(', '.join(filter(None, (status, changed))))}*\n"
    if expands:
        for name, value in part.state.input.items():
            yield f"\n{plain(name)}:\n\n{fenced(str(value))}\n"
    text = result_of(part).rstrip("\n")
    if text.strip():
        yield f"\n{fenced(text if expands or len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + '…')}\n"


def plain(text: str) -> str:
    """One line of words in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", escape(text))


def code(text: str) -> str:
    """One line as inline code, whatever backticks it has."""
    line = escape(text)
    marks = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{marks}{pad}{line}{pad}{marks}"


def fenced(text: str, language: str = "text") -> str:
    """Lines as a block of code that ends where the text does."""
    marks = "`" * max(3, _longest_run(text) + 1)
    return f"{marks}{language}\n{escape_text(text)}\n{marks}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in escape_text(text).strip("\n").split("\n"))


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)

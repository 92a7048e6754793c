"""A session as one HTML file that needs nothing else: no script, no frame, no address that it loads from.

Owns the page's structure, made piece by piece so that a long session is never
held whole.  Every word of a session goes through html_text.py; folding is
`<details>`, which works without script.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from mcode_exec.output.html_text import block, line, prose
from mcode_exec.output.narration import cut
from mcode_exec.output.page_style import STYLE, policy
from mcode_exec.output.question_text import folded
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
from mcode_exec.records.message import (
    DisplayMessage,
    FilePart,
    ReasoningPart,
    TextPart,
    ToolError,
    ToolPart,
)
from mcode_exec.records.question import Question, TurnView, is_hidden
from mcode_exec.records.session import Session
from mcode_exec.version import VERSION

_SUBJECT_CHARS = 300
#: of one output; the rest is told, and is in the export
_OUTPUT_CHARS = 100_000
_USUAL_ENDS = (None, "stop", "end_turn", "tool_calls", "tool_use")


def page_head(session: Session, *, has_earlier: bool = False) -> str:
    """The page up to its first question; `has_earlier`: there are messages before those that follow."""
    model = model_name(session.provider_id, session.model_id)
    facts = {
        "Session": f"<code>{line(session.id)}</code>",
        "Workspace": f"<bdi>{line(session.workspace)}</bdi>",
        "Model": line(model or "-"),
        "Created": _time(session.created_ms),
        "Last turn": _time(session.activity_ms),
        "Status": line(session.shown_status),
    }
    if session.error_message and session.status == "error":
        facts["Last error"] = f"<bdi>{line(session.error_message)}</bdi>"
    rows = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
    missing = '<p class="note">Earlier messages are not on this page.</p>\n' if has_earlier else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        f'<meta name="generator" content="mcode {line(VERSION)}">\n'
        f"<title>{line(session.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1 dir="auto">{line(session.title)}</h1>\n<dl>{rows}</dl>\n<main>\n{missing}'
    )


def page_body(questions: Sequence[Question]) -> str:
    """Questions in their order."""
    return "".join(piece for question in questions for piece in _question(question))


def page_end(written_ms: int) -> str:
    """What closes the page."""
    return (
        f"</main>\n<footer>written {_time(written_ms)} by mcode {line(VERSION)}</footer>\n</body>\n</html>\n"
    )


def _time(at_ms: int) -> str:
    moment = time.gmtime(at_ms / 1000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
    return f'<time datetime="{stamp}">{time.strftime("%Y-%m-%d %H:%M:%S", moment)} UTC</time>'


def _question(question: Question) -> Iterator[str]:
    anchor = f' id="{line(question.message_id)}"' if question.message_id else ""
    yield f"<section{anchor}>\n"
    for turn in question.turns:
        yield from _turn(turn)
    yield "</section>\n"


def _turn(turn: TurnView) -> Iterator[str]:
    asked = [m for m in turn.messages if m.role == "user" and not is_hidden(m)] if turn.is_folded else []
    for message in asked:
        yield from _message(message, turn)
    if turn.is_folded:
        yield f'<details class="folded"><summary>{line(folded(turn))}</summary>\n'
    for message in turn.messages:
        if message not in asked and not is_hidden(message):
            yield from _message(message, turn)
    yield from _turn_end(turn)
    if turn.is_folded:
        yield "</details>\n"


def _turn_end(turn: TurnView) -> Iterator[str]:
    words = " · ".join(filter(None, (end_of(turn.facts), sum_of(turn.facts))))
    yield f'<p class="note">turn {line(words)}</p>\n'
    if turn.facts.error:
        yield f'<p class="note" dir="auto">{line(turn.facts.error)}</p>\n'
    paths = paths_of(turn.facts)
    if paths:
        yield "<ul>" + "".join(f"<li><bdi>{line(path)}</bdi></li>" for path in paths) + "</ul>\n"


def _message(message: DisplayMessage, turn: TurnView) -> Iterator[str]:
    names = [message.role if message.steered_by is None else f"{message.role} · steer"]
    model = model_name(message.provider_id, message.model_id)
    names += [name for name in (message.agent, model) if name and message.role == "assistant"]
    yield f'<article class="{message.role}">\n<header><b>{line(names[0])}</b>'
    yield "".join(f"<bdi>{line(name)}</bdi>" for name in names[1:])
    yield f"{_time(message.created_ms)}</header>\n"
    for part in message.parts:
        if isinstance(part, TextPart):
            if part.synthetic:
                yield f"<details><summary>added by mcode</summary>\n<pre>{block(part.text)}</pre></details>\n"
            else:
                yield prose(part.text)
        elif isinstance(part, ReasoningPart):
            if part.text.strip():
                yield f"<details><summary>thinking</summary>\n{prose(part.text)}</details>\n"
        elif isinstance(part, FilePart):
            name = line(part.filename or part.digest)
            yield f'<p class="note">file <bdi>{name}</bdi>, {line(part.mime)}</p>\n'
        elif isinstance(part, ToolPart):
            yield from _tool(part, turn)
    if message.finish_reason not in _USUAL_ENDS:
        yield f'<p class="note">({line(str(message.finish_reason))})</p>\n'
    yield "</article>\n"


def _tool(part: ToolPart, turn: TurnView) -> Iterator[str]:
    status = status_of(part, is_running=turn.facts.state == "running")
    words = ", ".join(filter(None, (status, changed_lines(part))))
    what = cut(f"{part.tool} {subject_of(part)}".strip(), _SUBJECT_CHARS)
    failed = " failed" if isinstance(part.state, ToolError) else ""
    yield f'<details class="tool{failed}"><summary><code>{line(what)}</code> <span>{line(words)}</span></summary>\n'
    for name, value in part.state.input.items():
        yield f'<p class="note">{line(name)}</p><pre tabindex="0">{_limited(str(value))}</pre>\n'
    text = result_of(part)
    if text.strip():
        yield f'<p class="note">result</p><pre tabindex="0">{_limited(text)}</pre>\n'
    yield "</details>\n"


def _limited(text: str) -> str:
    if len(text) <= _OUTPUT_CHARS:
        return block(text)
    return block(text[:_OUTPUT_CHARS]) + f"\n… {len(text) - _OUTPUT_CHARS:,} more characters"

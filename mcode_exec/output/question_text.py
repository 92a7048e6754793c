"""Questions and their turns as text for a terminal; `--expand` shows what is folded, `--raw` the words alone.

Everything that acts on a terminal is shown as its escape, but for the words of
`--raw` that go into a file or a pipe: those are as they were said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mcode_exec.output.escape import escape, escape_text
from mcode_exec.output.narration import cut
from mcode_exec.output.transcript import author, local_time
from mcode_exec.output.turn_words import (
    changed_lines,
    end_of,
    paths_of,
    result_of,
    status_of,
    subject_of,
    sum_of,
)
from mcode_exec.plurals import counted
from mcode_exec.records.message import DisplayMessage, FilePart, ReasoningPart, TextPart, ToolPart
from mcode_exec.records.question import Question, TurnView, is_hidden

#: of a folded call: lines of its output that are shown
_OUTPUT_LINES = 8
_LINE_CHARS = 200
_PATHS = 5
_USUAL_ENDS = (None, "stop", "end_turn", "tool_calls", "tool_use")


def questions_text(
    questions: Sequence[Question], *, expands: bool, patches: Mapping[str, str] | None = None
) -> str:
    """`questions` in order, each turn with what it came to; `expands`: nothing is folded or cut.

    `patches`: by turn, what it changed.
    """
    return "".join(
        f"{line}\n"
        for question in questions
        for turn in question.turns
        for line in (*_turn(turn, expands), *_patch((patches or {}).get(turn.turn_id)))
    )


def _patch(patch: str | None) -> Iterator[str]:
    if patch:
        yield from (f"   {escape(line)}" for line in patch.rstrip("\n").split("\n"))


def _turn(turn: TurnView, expands: bool) -> Iterator[str]:
    if turn.is_folded and not expands:
        for message in turn.messages:
            if message.role == "user" and not is_hidden(message):
                yield from _message(message, turn, expands)
        yield f"\n── {escape(folded(turn))} · folded: --expand, or --turn {escape(turn.turn_id)}"
        return
    for message in turn.messages:
        if expands or not is_hidden(message):
            yield from _message(message, turn, expands)
    yield f"\n── turn {escape(' · '.join(filter(None, (end_of(turn.facts), sum_of(turn.facts)))))}"
    if turn.facts.error:
        yield f"   {escape(cut(turn.facts.error, 500))}"
    paths = paths_of(turn.facts)
    shown = paths if expands else paths[:_PATHS]
    yield from (f"   {escape(path)}" for path in shown)
    if len(paths) > len(shown):
        yield f"   … {counted(len(paths) - len(shown), 'more file')}"


def folded(turn: TurnView) -> str:
    """An earlier turn of a question in one line."""
    return " · ".join(filter(None, (f"earlier turn {end_of(turn.facts)}", sum_of(turn.facts))))


def _message(message: DisplayMessage, turn: TurnView, expands: bool) -> Iterator[str]:
    yield f"\n── {author(message)} · {local_time(message.created_ms)}"
    is_running = turn.facts.state == "running"
    for part in message.parts:
        if isinstance(part, TextPart):
            yield escape_text(part.text).rstrip("\n")
        elif isinstance(part, ReasoningPart):
            if expands:
                yield "(thinking) " + escape_text(part.text).rstrip("\n")
            else:
                yield f"(thinking) {escape(cut(part.text, _LINE_CHARS))}"
        elif isinstance(part, FilePart):
            yield f"[file {escape(part.filename or part.digest)}, {escape(part.mime)}]"
        elif isinstance(part, ToolPart):
            yield from _tool(part, expands=expands, is_running=is_running)
    if message.finish_reason not in _USUAL_ENDS:
        yield f"({escape(str(message.finish_reason))})"


def _tool(part: ToolPart, *, expands: bool, is_running: bool) -> Iterator[str]:
    subject = subject_of(part)
    what = f"{part.tool} {subject}".strip()
    changed = changed_lines(part)
    status = status_of(part, is_running=is_running) + (f", {changed}" if changed else "")
    yield f"▸ {escape(what if expands and chr(10) not in what else cut(what, _LINE_CHARS))} [{status}]"
    if expands:
        for name, value in part.state.input.items():
            yield f"    {escape(name)}: {_indented(str(value))}"
    text = result_of(part)
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    shown = lines if expands else [line[:_LINE_CHARS] for line in lines[:_OUTPUT_LINES]]
    if expands and lines:
        yield "    result:"
    yield from (f"    {escape(line)}" for line in shown)
    if len(lines) > len(shown):
        yield f"    … {len(lines) - len(shown)} more lines"


def _indented(text: str) -> str:
    return escape_text(text).rstrip("\n").replace("\n", "\n      ")


def words(messages: Sequence[DisplayMessage], *, is_terminal: bool) -> str:
    """What was said, by people and by the model, with an empty line between two messages and nothing else."""
    said = [
        "".join(part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic)
        for message in messages
    ]
    text = "\n".join(one if one.endswith("\n") else one + "\n" for one in said if one.strip())
    return escape_text(text) if is_terminal else text

"""Whether a text holds the markup of a tool call that a model should have made.

Each family of models has its own; a server that does not know a model's, or a
model that slips, lets it through as text.  Only markup that goes on as a call
counts, and only outside of code: all else is talk about it.  Imported only when
a text looks like it.
"""

from __future__ import annotations

import re

from mcode_exec.providers.code_spans import AHEAD, CodeSpans

_NAME = r"[\w.:/-]{1,200}"

#: where a call begins and how it must go on, by who writes it so
_CALLS = (
    # MiniMax, Hermes, Qwen, GLM, Granite, Phi, and what imitates them
    r"<(?:minimax:)?tool_calls?>(?=\s{0,99}[<{\[])",
    r"<\|tool_call\|>(?=\s{0,99}[<{\[])",
    rf"<tool_call>(?=\s{{0,99}}{_NAME}\s{{0,99}}<arg_key>)",
    r"<invoke name=\"[^\"<>]{1,200}\">(?=\s{0,99}</?(?:parameter|invoke))",
    # Qwen-Coder and Llama
    rf"<function={_NAME}>(?=\s{{0,99}}(?:\{{|<parameter=|</function>))",
    r"<\|python_(?:tag|start)\|>(?=\s{0,99}(?:\{|[\w.]{1,200}\())",
    # Kimi, DeepSeek, Mistral, Cohere
    rf"<\|tool_call_begin\|>(?=\s{{0,99}}{_NAME}\s{{0,99}}(?:<\||\{{))",
    r"<\|open\|>tools<\|sep\|>(?=\s{0,99}<\|open\|>)",
    r"<｜tool▁call▁begin｜>(?=[^<]{0,200}<｜tool▁sep｜>)",
    r"<｜DSML｜invoke(?= name=)",
    rf"\[TOOL_CALLS\](?=\s{{0,99}}(?:\[\s{{0,99}}\{{|{_NAME}\s{{0,99}}(?:\[(?:ARGS|CALL_ID)\]|\{{)))",
    r"<\|START_ACTION\|>(?=\s{0,99}\[)",
    # gpt-oss
    rf"<\|channel\|>(?:commentary|analysis) to=(?={_NAME})",
)
_BEGIN = re.compile("|".join(_CALLS))
#: a call that goes on in no known way, but ends
_OPEN, _CLOSE = re.compile(r"<(?:minimax:)?tool_call>"), re.compile(r"</(?:minimax:)?tool_call>")


def leaks_call(text: str) -> bool:
    """Whether `text` writes a tool call outside of code."""
    last_close = max((match.start() for match in _CLOSE.finditer(text)), default=-1)
    begins = [match.start() for match in _BEGIN.finditer(text)]
    begins += [match.start() for match in _OPEN.finditer(text, 0, last_close)] if last_close > 0 else []
    code, at = CodeSpans(), 0
    for begin in sorted(begins):
        code.advance(text[at:begin])
        at = begin
        if not code.is_inside(text[begin : begin + AHEAD], is_end=begin + AHEAD >= len(text)):
            return True
    return False

"""Whether a text holds the markup of a tool call that a model should have made.

Each family of models has its own; a server that does not know a model's, or a
model that slips, lets it through as text.  Only markup that goes on as a call
counts, and only outside of code and of quotes: all else is talk about it.  Imported only when
a text looks like it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Container, Iterator

from mcode_exec.providers.code_spans import AHEAD, CodeSpans

_NAME = r"[\w.:/-]{1,200}"
#: longest text between two tags that may be a tool's name, with what stands around it
_NAME_ROOM = 400
#: an object with a key (`{…}` and `{json}` stand for one), or an element that holds a call
_BODY = (
    r"(?:\[\s{0,99})?\{\s{0,99}(?:[\"']|\w{1,99}\s{0,99}:)"
    r"|<(?:invoke|function|parameter|tool|name|arg)[\w:]{0,20}[ =>]"
)

#: where a call begins and how it must go on, by who writes it so
_CALLS = (
    # MiniMax, Hermes, Qwen, GLM, Granite, Phi, LongCat, and what imitates them
    rf"<(?:minimax:|longcat_)?tool_calls?>(?=\s{{0,99}}(?:{_BODY}))",
    rf"<\|tool_call\|>(?=\s{{0,99}}(?:{_BODY}))",
    rf"<(?:minimax:)?tool_call>(?=\s{{0,99}}{_NAME}\s{{0,99}}<arg_key>)",
    r"<invoke name=\"[^\"<>]{1,200}\">(?=\s{0,99}</?(?:parameter|invoke))",
    r"\]<\]minimax\[>\[<invoke (?=name=\"[^\"<>]{1,200}\">)",
    # Grok, Nemotron, Doubao, Phi, Gemma, and Claude's imitators
    rf"<(?:xai:)?function_call(?: name=\"[^\"<>]{{1,200}}\")?>(?=\s{{0,99}}(?:{_BODY}))",
    r"<TOOLCALL>(?=\s{0,99}\[\s{0,99}\{\s{0,99}[\"'])",
    r"<\|FunctionCallBegin\|>(?=\s{0,99}(?:\[\s{0,99})?\{\s{0,99}[\"'])",
    r"\bfunctools(?=\[\s{0,99}\{\s{0,99}[\"'])",
    rf"<\|tool_call>(?=\s{{0,99}}call:{_NAME}\s{{0,99}}\{{)",
    r"<tool_code>(?=\s{0,99}[\w.]{1,200}\()",
    r"<tool_use>(?=\s{0,99}<name>)",
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
#: a call that goes on in no known way, but ends: a name with arguments, or an object after some words
_OPEN = re.compile(r"<(?:minimax:)?tool_call>")
_CLOSE = re.compile(r"</(?:minimax:)?tool_call>")
_ARGUMENTS = re.compile(
    rf"\s{{0,99}}{_NAME}\s{{0,99}}(?:\([^)]{{0,9999}}\)|[:=]\s{{0,99}}[\"'{{\[])"
    rf"|\s{{0,99}}{_NAME}[ \t]{{0,99}}\n\s{{0,99}}[\"']?\w{{1,99}}[\"']?\s{{0,99}}[:=]"
    r"|[^<{]{0,9999}\{\s{0,99}[\"']"
)

#: what stands for arguments where a call is only described
_ELLIPSIS = re.compile(r"\s{0,99}(?:\[\s{0,99})?\{\s{0,99}[\"']?\w{1,99}[\"']?\s{0,99}:\s{0,99}(?:\.\.\.|…)")


def leaks_call(text: str, tools: Container[str] = ()) -> bool:
    """Whether `text` writes a call, of one of `tools` where only the name is there, outside of code."""
    begins = [match.start() for match in _BEGIN.finditer(text) if not _ELLIPSIS.match(text, match.end())]
    begins += _bracketed(text, tools)
    code, at = CodeSpans(), 0
    for begin in sorted(begins):
        code.advance(text[at:begin])
        at = begin
        if not _is_quoted(text, begin) and not code.is_inside(
            text[begin : begin + AHEAD], is_end=begin + AHEAD >= len(text)
        ):
            return True
    return False


def _is_quoted(text: str, at: int) -> bool:
    """Whether the line begins as a block quote: no model writes its own call into one."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line.lstrip(" ")[:1] == ">"


def _bracketed(text: str, tools: Container[str]) -> Iterator[int]:
    """Where a tag opens whose closing tag follows with a call in between."""
    closes = [match.start() for match in _CLOSE.finditer(text)]
    for match in _OPEN.finditer(text, 0, closes[-1] if closes else 0):
        close = closes[bisect_right(closes, match.start())]
        if _ELLIPSIS.match(text, match.end()):
            continue
        found = _ARGUMENTS.match(text, match.end(), close)
        if found or (close - match.end() <= _NAME_ROOM and text[match.end() : close].strip() in tools):
            yield match.start()

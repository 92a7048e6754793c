"""Whether a text holds the markup of a tool call that a model should have made.

Markup inside code is talk about it.  Imported only when a text looks like it.
"""

from __future__ import annotations

from mcode_exec.providers.think_tags import CodeSpans

_MARKUP = ("<minimax:tool_call>", "<tool_call>")


def leaks_call(text: str) -> bool:
    """Whether `text` writes a tool call outside of code."""
    for mark in _MARKUP:
        start = 0
        while (at := text.find(mark, start)) >= 0:
            start = at + len(mark)
            code = CodeSpans()
            code.advance(text[:at])
            if not code.is_inside and _is_call(text[start:]):
                return True
    return False


def _is_call(rest: str) -> bool:
    """A call follows: XML or JSON, or a name and its arguments."""
    body = rest.lstrip()
    return body[:1] in ("<", "{", "[") or "<arg_key>" in body or "</tool_call>" in body

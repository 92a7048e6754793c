"""Untrusted words as HTML that can only be read.

Owns the one way in which text gets into a page: everything is escaped, what
would act on a reader's screen (control characters, bidirectional marks and
overrides) is shown as its escape, and each paragraph keeps its own direction.
Of Markdown only what helps reading is understood: fenced blocks, code in a
line, strong words, headings, links; an address becomes a link only if it is
http or https.  Nothing here can make a tag, an attribute or an address of
another kind out of somebody's words.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from mcode_exec.output.escape import escape, escape_text

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
#: in the order they are looked for: code, a named link, a bare address, strong words
_INLINE = re.compile(
    r"(?P<code>(?P<ticks>`+)(?P<inner>.+?)(?<!`)(?P=ticks)(?!`))"
    r"|\[(?P<label>[^\[\]\n]{1,500})\]\((?P<href>https?://[^\s()<>\"']{1,2000})\)"
    r"|(?P<url>https?://[^\s<>\"'`\\]{1,2000})"
    r"|\*\*(?P<strong>[^*\n]{1,500})\*\*"
)
#: what ends a sentence and not an address
_TRAILING = ".,;:!?)]}*_"


def line(text: str) -> str:
    """One line, line ends included, as escaped text."""
    return html.escape(escape(text), quote=True)


def block(text: str) -> str:
    """Lines as they are, for an element that keeps white space."""
    return html.escape(escape_text(text.replace("\r\n", "\n")), quote=True)


def prose(text: str) -> str:
    """What somebody wrote, as paragraphs, blocks of code and headings."""
    return "".join(_pieces(text.replace("\r\n", "\n").strip("\n")))


def _pieces(text: str) -> Iterator[str]:
    paragraph: list[str] = []
    fence: str | None = None
    code: list[str] = []
    for one in text.split("\n"):
        if fence is not None:
            if one.strip().startswith(fence) and not one.strip().strip(fence[0]):
                yield _code(code)
                fence, code = None, []
            else:
                code.append(one)
            continue
        opening = _FENCE.match(one)
        heading = _HEADING.match(one)
        if opening is None and heading is None and one.strip():
            paragraph.append(one)
            continue
        yield from _paragraph(paragraph)
        paragraph = []
        if opening is not None:
            fence = opening.group(1)
        elif heading is not None:
            yield f'<p dir="auto" class="heading">{_inline(heading.group(2))}</p>\n'
    if fence is not None:
        yield _code(code)
    yield from _paragraph(paragraph)


def _paragraph(lines: list[str]) -> Iterator[str]:
    if lines:
        yield f'<p dir="auto">{_inline(chr(10).join(lines))}</p>\n'


def _code(lines: list[str]) -> str:
    return f'<pre tabindex="0">{block(chr(10).join(lines))}</pre>\n'


def _inline(text: str) -> str:
    out: list[str] = []
    at = 0
    for found in _INLINE.finditer(text):
        out.append(block(text[at : found.start()]))
        at = found.end()
        if found["code"]:
            out.append(f"<code>{block(found['inner'].strip() or found['inner'])}</code>")
        elif found["href"]:
            out.append(_link(found["href"], found["label"]))
        elif found["strong"]:
            out.append(f"<strong>{block(found['strong'])}</strong>")
        else:
            address = found["url"].rstrip(_TRAILING)
            out.append(_link(address, address))
            at = found.start() + len(address)
    out.append(block(text[at:]))
    return "".join(out)


def _link(address: str, label: str) -> str:
    """A link, where the address is one that a page may lead to; the host is always to be seen."""
    if not is_web_address(address):
        return block(label)
    host = urlsplit(address).hostname or ""
    told = "" if host and host in label else f" <small>({line(host)})</small>"
    return f'<a href="{line(address)}" rel="noopener noreferrer nofollow">{block(label)}</a>{told}'


def is_web_address(text: str) -> bool:
    """Whether a page may link to it: http or https, with a host, and nothing that a browser would read anew."""
    if not text.isprintable() or not text.startswith(("http://", "https://")):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and "\\" not in text and parts.username is None
    except ValueError:
        return False

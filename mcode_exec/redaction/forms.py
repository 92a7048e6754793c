"""The forms in which a known value may stand in a text."""

from __future__ import annotations

from collections.abc import Iterable

#: shorter values are too likely to be ordinary text
MIN_SECRET_CHARS = 8


def forms_of(value: str) -> set[str]:
    """The value as it may stand in a text: plain, percent-encoded, in base64, escaped in JSON (twice too) or HTML."""
    raw = value.encode("utf-8", "surrogatepass")
    forms = {
        value,
        _percent(raw),
        _percent(raw, blank="+"),
        _percent(raw, digits="02x"),
        _percent(raw, kept=b"/"),
    }
    for escaped in _json_escaped(value):
        # arguments of a call are a JSON text inside another
        forms.update((escaped, *_json_escaped(escaped)))
    forms.update(_html_escaped(value))
    forms.update(_base64_cores(raw))
    return {form for form in forms if len(form) >= MIN_SECRET_CHARS}


def _percent(raw: bytes, *, blank: str = "%20", digits: str = "02X", kept: bytes = b"") -> str:
    unreserved = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
    return "".join(
        chr(b) if b in unreserved or b in kept else blank if b == 32 else f"%{b:{digits}}" for b in raw
    )


def _json_escaped(value: str) -> Iterable[str]:
    if value.isascii() and value.isprintable() and not {'"', "\\", "/"} & set(value):
        return
    import json

    for escaped in (json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value, ensure_ascii=True)[1:-1]):
        yield escaped
        yield escaped.replace("/", "\\/")


def _html_escaped(value: str) -> Iterable[str]:
    if not set("&<>\"'") & set(value):
        return
    text = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield text
    text = text.replace('"', "&quot;")
    yield text
    for apostrophe in ("&#x27;", "&#39;", "&#039;", "&apos;"):
        yield text.replace("'", apostrophe)


def _base64_cores(raw: bytes) -> Iterable[str]:
    """What of the value's base64 is the same at each of the three offsets it may have in other data."""
    from binascii import b2a_base64

    for offset in range(3):
        encoded = b2a_base64(b"\0" * offset + raw, newline=False).decode().rstrip("=")
        # characters that also hold bits of what stands before or after the value
        start = (0, 2, 3)[offset]
        end = (offset + len(raw)) * 8 // 6
        core = encoded[start:end]
        yield core
        yield core.replace("+", "-").replace("/", "_")
    yield b2a_base64(raw, newline=False).decode().rstrip("=")

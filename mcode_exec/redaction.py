"""Secrets are masked before anything leaves the process.

Two kinds are found: values that we know (provider keys, secret variables) of 8
or more characters, also percent-encoded, in base64 and escaped for JSON or HTML; and
well-known shapes (`sk-…`, `ghp_…`, `AKIA…`, `Bearer …`, a password in a URL, a
private key block).  Invariant: text without a secret comes back as it is, at
the price of a few substring searches; overlapping finds are masked as one.

`StreamRedactor` gives the same over text that arrives in pieces: it holds back
only what may be the beginning of a secret.  Which values are secret is decided
by whoever makes the Redactor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "***"

#: shorter values are too likely to be ordinary text
MIN_SECRET_CHARS = 8

#: docs/contract.md §7
_SECRET_WORDS = frozenset(
    ("KEY", "APIKEY", "TOKEN", "SECRET", "SECRETS", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "PAT")
)

#: values that are set where a secret is expected but mask half of every text
# fmt: off
_COMMON_WORDS = frozenset((
    "password", "passwords", "passphrase", "changeme", "disabled", "undefined", "localhost",
    "development", "production", "username", "required", "optional", "anonymous", "administrator",
    "placeholder", "notasecret", "not-needed", "not-required", "no-key-required", "anthropic",
    "openrouter", "deepseek",
))
# fmt: on

#: how much of an unfinished shape is held back at most: more than the largest private key
_MAX_HELD_CHARS = 16 * 1024


def is_maskable(value: str) -> bool:
    """Whether `value` is long and uncommon enough to be told from ordinary text."""
    return len(value) >= MIN_SECRET_CHARS and len(set(value)) >= 4 and value.lower() not in _COMMON_WORDS


def secret_values(env: Mapping[str, str], names: Iterable[str] = ()) -> list[str]:
    """What the variables of `env` hold that are secret by their name, or are named in `names`.

    Narrower than the list of variables that commands do not get: the value of
    `AWS_REGION` or of a socket is no secret, and a path is where one lies.
    """
    named = frozenset(names)
    return [
        value
        for name, value in env.items()
        if (name in named or is_secret_name(name))
        and is_maskable(value.strip())
        and not (value.startswith("/") and os.path.exists(value))
    ]


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret, by the words between its underscores, whatever their case."""
    upper = name.upper()
    return (
        not _SECRET_WORDS.isdisjoint(upper.split("_"))
        or upper.endswith(("APIKEY", "_PWD"))
        or "PASSWORD" in upper
        or "PASSWD" in upper
    )


class Redactor:
    """Masks the secrets it was given, and the well-known shapes."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        #: first characters of a form (1 to 4) → the forms; what StreamRedactor looks for
        self._beginnings: dict[str, list[str]] = {}
        self._longest = 0
        for secret in secrets:
            self.add(secret)

    def add(self, value: str) -> None:
        """Mask `value` from now on, unless it is too short or too common to be told from text."""
        value = value.strip()
        if not is_maskable(value):
            return
        for form in _forms(value):
            if form not in self._forms:
                self._forms.add(form)
                self._longest = max(self._longest, len(form))
                for length in range(1, 5):
                    self._beginnings.setdefault(form[:length], []).append(form)

    def text(self, text: str) -> str:
        """`text` with every secret replaced by `***`."""
        spans = self.spans(text)
        return _masked(text, spans) if spans else text

    def bytes(self, data: bytes) -> bytes:
        """The same for bytes of any encoding; only what is found changes."""
        return _from_text(self.text(data.decode("utf-8", "surrogateescape")))

    def json(self, value: Any) -> Any:
        """The same in every string of JSON data, keys included; the rest is the same object."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.json(key): self.json(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(inner) for inner in value]
        return value

    def spans(self, text: str, begin: int = 0) -> list[tuple[int, int]]:
        """Where secrets stand from `begin` on: ascending, disjoint."""
        found: list[tuple[int, int]] = []
        for form in self._forms:
            at = text.find(form, begin)
            while at >= 0:
                found.append((at, at + len(form)))
                at = text.find(form, at + 1)
        if _has_marker(text):
            found.extend(_shape_spans(text, begin))
        return _merged(found) if found else found

    def held_from(self, text: str) -> int:
        """Where the longest beginning of a known value starts that `text` ends with; its length if none."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            rest = text[at:]
            for form in self._beginnings.get(rest[:4], ()):
                if len(rest) < len(form) and form.startswith(rest):
                    return at
        return len(text)


class StreamRedactor:
    """Masks secrets in text that arrives in pieces, however it was cut.

    What `feed` and the last `flush` return, joined, is the whole text with its
    secrets masked.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        #: so many characters of `_held` are already masked in what was returned
        self._masked = 0
        #: the character before `_held`: shapes begin at the border of a word
        self._before = ""

    def feed(self, piece: str) -> str:
        """Take the next piece; returns what can be told by now."""
        text = self._held + piece
        cut = self._redactor.held_from(text)
        if _may_be_open(text):
            shift = len(self._before)
            start = _open_from(self._before + text, shift) - shift
            if len(text) - start <= _MAX_HELD_CHARS:
                cut = min(cut, start)
        return self._release(text, cut)

    def flush(self) -> str:
        """The end of the text: what was held back, masked where it is a secret."""
        return self._release(self._held, len(self._held))

    def _release(self, text: str, cut: int) -> str:
        shift = len(self._before)
        spans = self._redactor.spans(self._before + text, shift)
        out: list[str] = []
        at = self._masked  # up to here the mask was returned already
        masked_to = self._masked
        for start, end in ((start - shift, end - shift) for start, end in spans):
            if start >= cut:
                break
            if start >= masked_to:
                out += (text[at:start], MASK)
            at = masked_to = max(masked_to, end)
        if at < cut:
            out.append(text[at:cut])
        if cut:
            self._before = text[cut - 1]
        self._held = text[cut:]
        self._masked = max(masked_to - cut, 0)
        return "".join(out)


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    out: list[str] = []
    at = 0
    for start, end in spans:
        out += (text[at:start], MASK)
        at = end
    out.append(text[at:])
    return "".join(out)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    spans.sort()
    out = [spans[0]]
    for start, end in spans[1:]:
        if start < out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def _forms(value: str) -> set[str]:
    """The value as it may stand in a text: plain, percent-encoded, in base64, escaped in JSON or HTML."""
    raw = value.encode("utf-8", "surrogatepass")
    forms = {
        value,
        _percent(raw),
        _percent(raw, blank="+"),
        _percent(raw, digits="02x"),
        _percent(raw, kept=b"/"),
    }
    forms.update(_json_escaped(value))
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


def _from_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


#: the beginning of a shape → the whole shape (its group, if any, is what is masked), and what may still become one.
#: A text without any of these beginnings costs nothing more; patterns are compiled at their first use.
_WORD = r"(?<![A-Za-z0-9_])"
_NAME_CHAR = "[A-Za-z0-9_-]"
_BEARER_CHAR = r"[A-Za-z0-9._~+/-]"
_KEY_BLOCK_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----"
_SHAPES: dict[str, tuple[str, str]] = {
    marker: (_WORD + whole, _WORD + re_open)
    for marker, whole, re_open in (
        ("sk-", r"sk-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}", rf"sk-{_NAME_CHAR}*\Z"),
        ("sk_", r"sk_(?:live|test)_[A-Za-z0-9]{16,}", rf"sk_{_NAME_CHAR}*\Z"),
        *((f"gh{kind}_", rf"gh{kind}_[A-Za-z0-9]{{20,}}", rf"gh{kind}_[A-Za-z0-9]*\Z") for kind in "pousr"),
        ("github_pat_", rf"github_pat_{_NAME_CHAR}{{22,}}", rf"github_pat_{_NAME_CHAR}*\Z"),
        ("glpat-", rf"glpat-{_NAME_CHAR}{{20,}}", rf"glpat-{_NAME_CHAR}*\Z"),
        ("npm_", r"npm_[A-Za-z0-9]{36,}", r"npm_[A-Za-z0-9]*\Z"),
        ("hf_", r"hf_[A-Za-z0-9]{30,}", r"hf_[A-Za-z0-9]*\Z"),
        ("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", r"xox[A-Za-z0-9-]*\Z"),
        ("AKIA", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])", r"AKIA[A-Z0-9]*\Z"),
        ("ASIA", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])", r"ASIA[A-Z0-9]*\Z"),
        ("AIza", rf"AIza{_NAME_CHAR}{{35,}}", rf"AIza{_NAME_CHAR}*\Z"),
        *(
            (
                word,
                rf"{word} *((?=[A-Za-z._~+/-]*[0-9]){_BEARER_CHAR}{{16,}}=*)",
                rf"{word} *{_BEARER_CHAR}*=*\Z",
            )
            for word in ("Bearer ", "bearer ", "BEARER ")
        ),
    )
} | {
    # a password that begins with $, < or { is a place for one
    "://": (
        r"""://[^\s/@:'"<>]{0,64}:((?![$<{*])[^\s/@'"<>]{1,256})@""",
        r"""://[^\s/@:'"<>]{0,64}(?::[^\s/@'"<>]{0,256})?\Z""",
    ),
    "-----BEGIN ": (
        rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY-----(?:(?!{_KEY_BLOCK_END})[\s\S])*(?:{_KEY_BLOCK_END})?",
        rf"-----BEGIN [A-Z0-9 ]{{0,60}}(?:-{{0,4}}|(?<=PRIVATE KEY)-----(?:(?!{_KEY_BLOCK_END})[\s\S])*)\Z",
    ),
}

#: the beginnings of beginnings, for text that ends within one
_PARTIAL_MARKERS = frozenset(marker[:length] for marker in _SHAPES for length in range(1, len(marker)))
_LONGEST_PARTIAL = max(map(len, _PARTIAL_MARKERS))


def _has_marker(text: str) -> bool:
    return any(marker in text for marker in _SHAPES)


def _may_be_open(text: str) -> bool:
    return _partial_from(text) < len(text) or _has_marker(text)


def _shape_spans(text: str, begin: int) -> Iterable[tuple[int, int]]:
    import re

    for marker, (whole, _) in _SHAPES.items():
        at = text.find(marker, begin)
        if at < 0:
            continue
        pattern = re.compile(whole)
        while at >= 0:
            match = pattern.match(text, at)
            if match is not None:
                yield match.span(match.lastindex or 0)
            at = text.find(marker, at + 1)


def _open_from(text: str, begin: int) -> int:
    """Where, from `begin` on, the first shape starts that `text` does not finish; its length if there is none."""
    import re

    start = _partial_from(text, begin)
    for marker, (_, unfinished) in _SHAPES.items():
        at = text.find(marker, begin)
        pattern = re.compile(unfinished) if at >= 0 else None
        while 0 <= at < start:
            if pattern is not None and pattern.match(text, at):
                start = at
            at = text.find(marker, at + 1)
    return start


def _partial_from(text: str, begin: int = 0) -> int:
    for length in range(min(_LONGEST_PARTIAL, len(text) - begin), 0, -1):
        at = len(text) - length
        if text[at:] in _PARTIAL_MARKERS and (text[at] in ":-" or not _is_word_char(text[at - 1 : at])):
            return at
    return len(text)


def _is_word_char(char: str) -> bool:
    return char == "_" or (char.isascii() and char.isalnum())

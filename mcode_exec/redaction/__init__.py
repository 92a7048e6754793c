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

from mcode_exec.redaction.forms import MIN_SECRET_CHARS as MIN_SECRET_CHARS
from mcode_exec.redaction.forms import forms_of
from mcode_exec.redaction.own_words import OWN_WORDS
from mcode_exec.redaction.shapes import has_marker, may_be_open, open_from, shape_spans

MASK = "***"

#: docs/contract.md §7
_SECRET_WORDS = frozenset(
    [
        "KEY",
        "KEYS",
        "APIKEY",
        "TOKEN",
        "TOKENS",
        "SECRET",
        "SECRETS",
        "PASSPHRASE",
        "PASS",
        "AUTH",
        "COOKIE",
        "COOKIES",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
    ]
)
_SECRET_ENDINGS = ("APIKEY", "PRIVATEKEY", "TOKEN", "SECRET", "_PWD", "PGPASS")


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
    return (
        len(value) >= MIN_SECRET_CHARS
        and len(set(value)) >= 4
        and value.lower() not in _COMMON_WORDS
        and not any(value in word for word in OWN_WORDS)
    )


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
        or upper.endswith(_SECRET_ENDINGS)
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
        value = value.strip().removeprefix("\ufeff").strip()  # as a key is sent
        if not is_maskable(value):
            return
        for form in forms_of(value):
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

    def may_change(self, document: str) -> bool:
        """Whether `json` may change what is written in a JSON text; False only where it certainly would not.

        One search over the whole instead of one for each string in it.  A value with characters that JSON escapes
        may stand there escaped twice, and is not looked for.
        """
        if has_marker(document) or any(form in document for form in self._forms):
            return True
        return any('"' in form or "\\" in form or not form.isprintable() for form in self._forms)

    def spans(self, text: str, begin: int = 0) -> list[tuple[int, int]]:
        """Where secrets stand from `begin` on: ascending, disjoint."""
        found: list[tuple[int, int]] = []
        for form in self._forms:
            at = text.find(form, begin)
            while at >= 0:
                found.append((at, at + len(form)))
                at = text.find(form, at + 1)
        if has_marker(text):
            found.extend(shape_spans(text, begin))
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
        if may_be_open(text):
            shift = len(self._before)
            start = open_from(self._before + text, shift) - shift
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


def _from_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

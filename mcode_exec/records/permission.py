"""Permission rules and what was decided by them.  docs/contract.md §7."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Verdict = Literal["allow", "ask", "deny"]
Preset = Literal["smart", "full", "off", "read-only"]


class Rule(Struct, frozen=True, kw_only=True):
    """permission → pattern → verdict; the last matching rule wins."""

    permission: str
    pattern: str
    verdict: Verdict
    #: where it was written, for people: `preset smart`, `--allow`, `agent reviewer`, a file, …
    source: str = ""

    def __str__(self) -> str:
        return f"{self.verdict} {self.permission}:{self.pattern}"


class Need(Struct, frozen=True, kw_only=True):
    """What a tool call needs before it may run: one permission over one subject.

    For file tools `subject` is the path as the model gave it, made absolute
    (not resolved: the judge resolves it).  For bash it is the whole script.
    """

    permission: str
    subject: str


class Decision(Struct, frozen=True, kw_only=True):
    """The verdict over all needs of a call: the strictest one, and why."""

    verdict: Verdict
    permission: str = ""
    #: the part that was judged: a path, a simple command, a pattern
    pattern: str = ""
    rule: Rule | None = None
    #: one sentence for the model and for people
    reason: str = ""
    #: a rule, a preset's risk list, the floor, or a script that could not be parsed
    origin: Literal["rule", "risk", "floor", "unparsed", "default"] = "rule"

"""What must be known of a command line that may not parse: the output format, and where a result goes.

Tolerant on purpose: it runs before click, so that a usage error is answered in
the form that was asked for.  Where the line does parse, click's word counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mcode_exec.records.invocation import OutputFormat

_FORMATS: dict[str, OutputFormat] = {
    "text": "text",
    "json": "json",
    "stream-json": "stream-json",
    "jsonl": "stream-json",
}


#: commands that end with a result
ENDING_WITH_A_RESULT = (("exec",), ("retry",), ("steer",), ("sessions", "btw"), ("sessions", "edit-last"))


class Wanted(NamedTuple):
    """How `mcode exec` was asked to answer; other commands answer in text."""

    output_format: OutputFormat = "text"
    result_file: str | None = None
    diagnostics_dir: str | None = None
    verbose: bool = False


def scan(argv: Sequence[str]) -> Wanted:
    """Read the few flags that matter before parsing; the last one wins, as in click."""
    flags = list(argv[: argv.index("--")]) if "--" in argv else list(argv)
    if tuple(flags[:1]) not in ENDING_WITH_A_RESULT and tuple(flags[:2]) not in ENDING_WITH_A_RESULT:
        return Wanted(verbose="-v" in flags)
    named = _last_value(flags, "--output-format")
    writes = "--dry-run" not in flags and "--inspect" not in flags
    return Wanted(
        output_format=_FORMATS.get(named or "", "text"),
        result_file=(_last_value(flags, "--result") or None) if writes else None,
        diagnostics_dir=(_last_value(flags, "--diagnostics-dir") or None) if writes else None,
        verbose="-v" in flags or "--verbose" in flags,
    )


def _last_value(flags: Sequence[str], name: str) -> str | None:
    value = None
    for index, flag in enumerate(flags):
        if flag == name and index + 1 < len(flags):
            value = flags[index + 1]
        elif flag.startswith(name + "="):
            value = flag[len(name) + 1 :]
    return value

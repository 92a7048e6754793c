"""`mcode exec --dry-run`: what would run, as text or as one `exec.dryRun` object."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from mcode_exec.output.encoding import document, to_json_line
from mcode_exec.output.outline import outline
from mcode_exec.output.writer import write_fully

if TYPE_CHECKING:
    from mcode_exec.records.invocation import Invocation


def show(invocation: Invocation) -> int:
    """Print the description that the executor gives; nothing is run."""
    from mcode_exec.executor.dry_run import describe
    from mcode_exec.redaction import Redactor, secret_values

    redact = Redactor(secret_values(os.environ)).text
    described = asyncio.run(describe(invocation))
    if invocation.output_format == "text":
        write_fully(1, redact(outline(described)).encode("utf-8", "replace"))
    else:
        write_fully(1, to_json_line(document("exec.dryRun", described), redact))
    return 0

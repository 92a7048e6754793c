"""`--diagnostics-dir`: one masked JSON report of a run that did not succeed, for whoever must find out why.

It holds the result, what was asked for, where a bug came from, and the names of
environment variables; never a value of the environment and never the prompt.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from mcode_exec.errors import OutputWriteFailedError
from mcode_exec.paths import make_private_dir, private_open
from mcode_exec.plurals import counted
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.result import Result
from mcode_exec.redaction import Redactor
from mcode_exec.version import VERSION

_LEFT_OUT = ("prompt", "append_system_prompt")


def write_report(
    directory: str,
    *,
    invocation: Invocation | None,
    result: Result,
    redactor: Redactor,
    env: Mapping[str, str],
    traceback: str | None = None,
) -> str:
    """Write the report and return its path; `invocation` is None for a command line that could not be read.

    Raises: OutputWriteFailedError.
    """
    report: dict[str, Any] = {
        "type": "exec.diagnostics",
        "mcodeVersion": VERSION,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "writtenMs": time.time_ns() // 1_000_000,
        "invocation": None if invocation is None else _asked(invocation),
        "result": msgspec.to_builtins(result, builtin_types=(Decimal,)),
        "environmentNames": sorted(env),
        "traceback": traceback,
    }
    # not msgspec: a path on the command line may be no UTF-8, and escapes can carry it
    body = json.dumps(redactor.json(report), indent=2, default=float).encode()
    path = os.path.join(directory, f"mcode-{result.run_id}.json")
    try:
        make_private_dir(os.path.abspath(directory))
        with open(private_open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(body + b"\n")
    except OSError as error:
        raise OutputWriteFailedError(f"--diagnostics-dir {directory}: {error.strerror}") from error
    return path


def _asked(invocation: Invocation) -> dict[str, Any]:
    asked: dict[str, Any] = msgspec.to_builtins(invocation)
    for name in _LEFT_OUT:
        if asked.get(name) is not None:
            asked[name] = f"({counted(len(asked[name].encode('utf-8', 'replace')), 'byte')})"
    return asked

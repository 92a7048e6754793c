"""`python bench/stamped.py ARGS…`: mcode with these arguments; stderr says when each tool started: `tool SECONDS`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mcode_exec.cli.main import main
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools import registry

_run = registry.run


async def _stamped(name: str, arguments: Mapping[str, Any], ctx: registry.ToolContext) -> ToolOutcome:
    start_s = time.monotonic()
    outcome = await _run(name, arguments, ctx)
    os.write(2, f"tool {start_s}\n".encode())
    return outcome


registry.run = _stamped
main()

"""A session's tools on real files: what the tests of this room call through."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from mcode_exec.records.tool import ToolOutcome
from mcode_exec.sandbox.environment import command_environment
from mcode_exec.sandbox.processes import CommandRunner, become_subreaper
from mcode_exec.tools import registry
from mcode_exec.tools.read_state import ReadState


class Session:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.temp_dir = root / "tmp"
        self.outputs_dir = root / "outputs"
        self.workspace.mkdir(exist_ok=True)
        self.temp_dir.mkdir(exist_ok=True)
        self.reads = ReadState()
        self.todos: list[dict[str, Any]] = []
        self.takes_images = True
        self.calls = 0
        env = command_environment(
            os.environ, passed=(), secret_names=(), secret_values=(), temp_dir=str(self.temp_dir)
        )
        become_subreaper()
        self.runner = CommandRunner(env=env, owner="own_test")

    def context(self) -> registry.ToolContext:
        self.calls += 1
        return registry.ToolContext(
            workspace=str(self.workspace),
            temp_dir=str(self.temp_dir),
            outputs_dir=str(self.outputs_dir),
            runner=self.runner,
            reads=self.reads,
            todos=self.todos,
            call_id=f"call_{self.calls}",
            command_limit_s=20.0,
            command_limit_max_s=30.0,
            may_show=lambda _: True,
            takes_images=self.takes_images,
        )

    def call(self, tool: str, /, **arguments: Any) -> ToolOutcome:
        async def main() -> ToolOutcome:
            try:
                return await registry.run(tool, arguments, self.context())
            finally:
                await self.runner.end_leftovers()

        return asyncio.run(main())

"""What a tool call runs in: the session's places, its command runner and its memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcode_exec.sandbox.processes import CommandRunner
    from mcode_exec.tools.read_state import ReadState


#: in the path of every whole output that was set aside
OUTPUTS = "/reports/tool-outputs/"


class ToolContext:
    """One per tool call; `runner`, `reads` and `todos` are the session's own and shared by its calls."""

    def __init__(
        self,
        *,
        workspace: str,
        temp_dir: str,
        outputs_dir: str,
        runner: CommandRunner,
        reads: ReadState,
        todos: list[dict[str, Any]],
        call_id: str,
        command_limit_s: float,
        command_limit_max_s: float,
        takes_images: bool,
        may_show: Callable[[str], bool],
    ) -> None:
        #: absolute; relative paths are from here
        self.workspace = workspace
        self.temp_dir = temp_dir
        #: the session's `reports/tool-outputs`; made when first needed
        self.outputs_dir = outputs_dir
        self.runner = runner
        self.reads = reads
        #: replaced in place by todo_write
        self.todos = todos
        self.call_id = call_id
        self.command_limit_s = command_limit_s
        self.command_limit_max_s = command_limit_max_s
        #: whether the model can be shown images
        self.takes_images = takes_images
        #: whether a search may show lines of the file at this absolute path: it finds files that nobody judged
        self.may_show = may_show

    def kept_output(self, path: str) -> str:
        """`path`, or this session's own copy of a whole output that it names in a session which is gone.

        A fork has the outputs that its history speaks of, and the history says where they lay when it was written.
        """
        if OUTPUTS not in path or os.path.lexists(path):
            return path
        own = f"{self.outputs_dir}/{os.path.basename(path)}"
        return own if os.path.isfile(own) else path

    @property
    def output_path(self) -> str:
        """Where the whole text of a capped output goes."""
        return f"{self.outputs_dir}/{self.call_id}.txt"

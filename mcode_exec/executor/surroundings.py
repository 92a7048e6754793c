"""What a turn's tools run in: environment, temporary directory, command runner, what was read.

Made when the first tool runs; a turn without tools pays for nothing of it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from mcode_exec import paths
from mcode_exec.errors import StoreFailedError
from mcode_exec.executor.preparation import Prepared
from mcode_exec.executor.temporary import HeldDirectory
from mcode_exec.permissions.judge import Judge
from mcode_exec.permissions.places import Scope
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.permission import Need
from mcode_exec.records.tool import LeftoverProcess
from mcode_exec.sessions.layout import history_paths

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.sandbox.processes import CommandRunner
    from mcode_exec.tools.context import ToolContext
    from mcode_exec.tools.read_state import ReadState


class Surroundings:
    """One turn's."""

    def __init__(self, runtime: Runtime, prepared: Prepared, invocation: Invocation) -> None:
        self._runtime = runtime
        self._prepared = prepared
        self._invocation = invocation
        self._temporary = HeldDirectory(paths.temp_base(runtime.env))
        self.temp_dir = self._temporary.path
        session = prepared.choice.session
        self._outputs_dir = history_paths(runtime.sessions_dir, session.history_relative_dir).tool_outputs
        self.scope = Scope(
            workspace=prepared.choice.directory,
            home=paths.home(runtime.env),
            temp_dir=self.temp_dir,
            # Whole outputs are readable by `read`; the floor keeps everything there from being written.
            add_dirs=(self._outputs_dir,),
            data_dir=runtime.data,
            own_dirs=paths.own_directories(runtime.env),
            config_files=prepared.settings.config.files,
        )
        self._runner: CommandRunner | None = None
        self._reads: ReadState | None = None
        self._todos: list[dict[str, Any]] = []

    def tool_context(self, call_id: str) -> ToolContext:
        """What one call needs."""
        if self._runner is None or self._reads is None:
            self._runner, self._reads = self._set_up()
        from mcode_exec.tools.context import ToolContext

        timeouts = self._prepared.settings.config.timeouts
        return ToolContext(
            workspace=self._prepared.choice.directory,
            temp_dir=self.temp_dir,
            outputs_dir=self._outputs_dir,
            runner=self._runner,
            reads=self._reads,
            todos=self._todos,
            call_id=call_id,
            command_limit_s=timeouts.command_s,
            command_limit_max_s=timeouts.command_max_s,
            takes_images=self._prepared.model.info.takes_images,
            may_show=self._may_show,
        )

    @cached_property
    def judge(self) -> Judge:
        return Judge(self._prepared.rules, self.scope)

    def _may_show(self, path: str) -> bool:
        needs = (Need(permission="grep", subject=path), Need(permission="read", subject=path))
        return self.judge.judge(needs).verdict == "allow"

    def _set_up(self) -> tuple[CommandRunner, ReadState]:
        from mcode_exec.sandbox.environment import command_environment
        from mcode_exec.sandbox.own_environment import blank_variables
        from mcode_exec.sandbox.processes import CommandRunner, become_subreaper_and_undumpable
        from mcode_exec.tools.read_state import ReadState

        try:
            self._temporary.make()
        except OSError as error:
            raise StoreFailedError(
                f"no temporary directory can be made at {self.temp_dir}: {error.strerror or error}; "
                "set TMPDIR to a directory that can be written to"
            ) from error
        prepared = self._prepared
        config = prepared.settings.config
        models = (prepared.model, *(model for model, _ in prepared.fallbacks))
        environment = command_environment(
            self._runtime.env,
            passed=(*config.env_pass, *self._invocation.env),
            secret_names=(
                *config.secret_env_names,
                *(name for one in models for name in one.secret_env_names),
            ),
            secret_values=tuple(value for one in models for value in one.secret_values),
            temp_dir=self.temp_dir,
        )
        blank_variables([name for name in self._runtime.env if name not in environment])
        become_subreaper_and_undumpable()
        return CommandRunner(env=environment, owner=self._runtime.owner.token), ReadState()

    async def end_leftovers(self) -> tuple[LeftoverProcess, ...]:
        """End what commands left running in the background; what that was."""
        if self._runner is None:
            return ()
        return tuple(await self._runner.end_leftovers())

    def remove(self) -> None:
        """Remove the temporary directory."""
        self._temporary.remove()

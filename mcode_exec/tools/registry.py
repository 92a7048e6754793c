"""The one door to the tools: what there is, what a call needs, and running it.

A tool's module is imported when it is first run, so that a turn without tool
calls pays for the schemas only.  A failure is an outcome, never an exception.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Protocol, cast

from mcode_exec.records.model import ToolSchema
from mcode_exec.records.permission import Need
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.tools import arguments as tool_arguments
from mcode_exec.tools.context import ToolContext
from mcode_exec.tools.failure import ToolFailure, explain
from mcode_exec.tools.paths import absolute, printable
from mcode_exec.tools.schemas import READ_ONLY, SCHEMAS

__all__ = [
    "ToolContext",
    "check_arguments",
    "is_read_only",
    "needs",
    "run",
    "run_check",
    "schemas",
    "tool_names",
]


class _ToolModule(Protocol):
    def run(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Awaitable[ToolOutcome]: ...


def tool_names() -> tuple[str, ...]:
    return tuple(SCHEMAS)


def schemas(names: Iterable[str]) -> tuple[ToolSchema, ...]:
    """In the order of `tool_names`, so that the same set is always the same bytes."""
    wanted = set(names)
    return tuple(schema for name, schema in SCHEMAS.items() if name in wanted)


def is_read_only(name: str) -> bool:
    """Whether calls of this tool may run side by side."""
    return name in READ_ONLY


def check_arguments(name: str, arguments: Mapping[str, Any]) -> str | None:
    """A sentence for the model about what is wrong with the arguments; None when they fit."""
    problem = tool_arguments.check(name, arguments)
    if problem is not None:
        return problem
    try:
        needs(name, arguments, "/")
    except ToolFailure as failure:
        return f"invalid arguments for {name}: {failure}"
    return None


def needs(name: str, arguments: Mapping[str, Any], workspace: str) -> tuple[Need, ...]:
    """What must be allowed before the call may run.

    The arguments have passed `check_arguments`, which also sees to paths that
    no file can have.
    """
    if name == "todo_write":
        return ()
    if name == "bash":
        return (Need(permission="bash", subject=arguments["command"]),)
    if name in ("read", "write", "edit"):
        permission = "read" if name == "read" else "edit"
        return (Need(permission=permission, subject=absolute(arguments["file_path"], workspace)),)
    subject = absolute(arguments.get("path") or ".", workspace)
    if name == "glob":
        from mcode_exec.tools.glob import split_pattern

        subject, _ = split_pattern(arguments["pattern"], subject)
    if name == "grep":
        import os

        # one file named outright shows its content as read would
        if not os.path.isdir(subject):
            return Need(permission="grep", subject=subject), Need(permission="read", subject=subject)
    return (Need(permission=name, subject=subject),)


async def run(name: str, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    """Run one call; raises nothing but cancellation."""
    return await _outcome(name, _checked(name, arguments, ctx))


async def run_check(command: str, variables: Mapping[str, str], ctx: ToolContext) -> ToolOutcome:
    """Run a command that the caller wants to succeed, with `variables` besides; raises nothing but cancellation.

    `metadata` has `exit_code`, `signal` and `timed_out`; nothing of it where the command could not be started.
    """
    from mcode_exec.tools import bash

    return await _outcome("the check", bash.run_check(command, variables, ctx))


async def _checked(name: str, arguments: Mapping[str, Any], ctx: ToolContext) -> ToolOutcome:
    problem = check_arguments(name, arguments)
    if problem is not None:
        raise ToolFailure(problem)
    return await _module(name).run(tool_arguments.whole_numbers(arguments), ctx)


async def _outcome(name: str, running: Awaitable[ToolOutcome]) -> ToolOutcome:
    try:
        outcome = await running
    except ToolFailure as failure:
        outcome = ToolOutcome(content=str(failure), is_error=True)
    except OSError as error:
        outcome = ToolOutcome(content=explain(error, str(error.filename or name)), is_error=True)
    except Exception as error:  # a defect of a tool must not end the turn
        outcome = ToolOutcome(content=f"{name} failed: {type(error).__name__}: {error}", is_error=True)
    if outcome.content and outcome.content == (shown := printable(outcome.content)):
        return outcome
    from msgspec.structs import replace

    return replace(outcome, content=shown if outcome.content else "(no output)")


def _module(name: str) -> _ToolModule:
    from importlib import import_module

    return cast(_ToolModule, import_module(f"mcode_exec.tools.{name}"))

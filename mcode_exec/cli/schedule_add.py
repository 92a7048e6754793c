"""`mcode schedule add`: from parsed flags to a schedule that is kept."""

from __future__ import annotations

import os
from typing import Any

import click
from click.core import ParameterSource

from mcode_exec.batch.schedules.definitions import Asked, due_at, schedule_of
from mcode_exec.batch.schedules.looking import add
from mcode_exec.batch.spec import MAX_PROMPT_BYTES
from mcode_exec.cli.exec_command import to_invocation
from mcode_exec.cli.exec_flags import values_of_absent
from mcode_exec.cli.list_options import await_result, notice
from mcode_exec.cli.schedule_command import clock_of
from mcode_exec.errors import InvocationError
from mcode_exec.executor.workspaces import usable_workspace
from mcode_exec.paths import current_directory, user_path
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.job import TaskSettings
from mcode_exec.records.schedule import Schedule

#: what a schedule of a spec may say beside it
_OF_SPECS = frozenset(
    (
        "name", "spec", "cron", "timezone", "catch_up", "on_overlap", "when_interrupted", "on_failure", "paused",
        "replace", "now", "cwd", "model", "fallback_models", "config_file", "data_dir", "trust_workspace",
    )
)  # fmt: skip


def add_schedule(ctx: click.Context, name: str, spec: str | None, flags: dict[str, Any]) -> int:
    """Keep a schedule; the exit code.  Raises: InvocationError for what could not run."""
    text, file = flags.pop("prompt_text"), flags.pop("prompt_file")
    _check_one_of(spec, text, file)
    if spec is not None:
        _check_of_spec(ctx)
    now_ms = clock_of(flags.pop("now")).now_ms()
    asked = Asked(
        **{key: flags.pop(key) for key in ("cron", "timezone", "catch_up", "on_overlap", "when_interrupted")}
    )
    replaces, is_paused, keeps = flags.pop("replace"), flags.pop("paused"), flags.pop("keep_session")
    on_failure, retries = flags.pop("on_failure"), flags.pop("retries")
    started_s, _, _ = ctx.obj
    invocation = to_invocation(ctx, {**values_of_absent(), **flags, "prompt": "-"}, started_s)
    env = os.environ
    schedule, _ = schedule_of(
        name,
        asked,
        env,
        now_ms,
        workspace=usable_workspace(invocation.cwd, env),
        spec_path=_absolute(spec, "SPEC"),
        prompt=_prompt_of(text),
        prompt_file=_absolute(file, "--prompt-file"),
        session=_session_of(name, invocation, keeps=keeps),
        settings=_settings_of(invocation, retries),
        on_failure=_command_of(on_failure),
        config_file=_absolute(invocation.config_file, "--config"),
        trust_workspace=invocation.trust_workspace,
        is_paused=is_paused,
    )
    has_replaced = await_result(add(invocation.data_dir, env, schedule, replaces=replaces))
    notice(_said(schedule, has_replaced=has_replaced))
    return 0


def _said(schedule: Schedule, *, has_replaced: bool) -> str:
    done = "replaced" if has_replaced else "kept"
    if schedule.is_paused:
        return f"schedule {schedule.name} is {done}, and paused; `mcode schedule unpause {schedule.name}` starts it"
    assert schedule.next_ms is not None
    due = due_at(schedule, schedule.next_ms)
    return f"schedule {schedule.name} is {done}; it is due at {due} ({schedule.timezone})"


def _check_one_of(spec: str | None, text: str | None, file: str | None) -> None:
    given = [
        one
        for one, value in (("SPEC", spec), ("--prompt", text), ("--prompt-file", file))
        if value is not None
    ]
    if not given:
        raise InvocationError("nothing to run: give a SPEC, --prompt TEXT or --prompt-file FILE.")
    if len(given) > 1:
        raise InvocationError(f"{' and '.join(given)} cannot be combined.")


def _check_of_spec(ctx: click.Context) -> None:
    """Raise InvocationError for flags that a spec says itself."""
    for param in ctx.command.params:
        name = param.name or ""
        if name in _OF_SPECS or ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        flag = max(param.opts, key=len)
        raise InvocationError(f"{flag} goes with --prompt; a SPEC says that itself, in [defaults] or a task.")


def _absolute(path: str | None, name: str) -> str | None:
    if path is None:
        return None
    if not path.strip():
        raise InvocationError(f"{name} is empty.")
    return user_path(path, os.environ, name=name)


def _prompt_of(text: str | None) -> str | None:
    if text != "-":
        if text is not None and not text.strip():
            raise InvocationError("--prompt is empty.")
        return text
    import sys

    data = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
    if len(data) > MAX_PROMPT_BYTES:
        raise InvocationError(f"stdin is larger than {MAX_PROMPT_BYTES >> 20} MiB; that is no prompt.")
    try:
        prompt = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvocationError(f"stdin is not UTF-8 (at byte {error.start}).") from error
    if not prompt.strip():
        raise InvocationError("stdin is empty: there is no prompt.")
    return prompt


def _session_of(name: str, invocation: Invocation, *, keeps: bool) -> str:
    if invocation.session_key is not None:
        # the session of a spec's task is a template, and a key is none
        return "key:" + invocation.session_key.replace("{{", '{{ "{{" }}')
    return f"key:schedule/{name}" if keeps else "new"


def _settings_of(invocation: Invocation, retries: int | None) -> TaskSettings:
    """What of the flags a task keeps; relative paths begin here, and cron's directory is another one."""
    rules = {
        verdict: tuple(rule.text for rule in invocation.rules if rule.verdict == verdict) or None
        for verdict in ("allow", "deny")
    }
    check = invocation.check
    files = tuple(user_path(path, os.environ, name="--file") for path in invocation.files)
    return TaskSettings(
        model=invocation.model,
        fallback_models=invocation.fallback_models or None,
        effort=invocation.effort,
        agent=invocation.agent,
        tools=invocation.tools,
        append_system_prompt=invocation.append_system_prompt,
        system_prompt_file=_absolute(invocation.system_prompt_file, "--system-prompt-file"),
        no_project_instructions=invocation.no_project_instructions or None,
        files=files or None,
        permission=invocation.permission,
        allow=rules["allow"],
        deny=rules["deny"],
        on_ask=invocation.on_ask,
        env=invocation.env or None,
        timeout=invocation.timeout_s,
        max_steps=invocation.max_steps,
        max_cost=invocation.max_cost_usd,
        max_tokens=invocation.max_tokens,
        title=invocation.title,
        labels=dict(invocation.labels) or None,
        worktree=invocation.worktree or None,
        worktree_branch=invocation.worktree_branch,
        check=None if check is None else check.command,
        check_attempts=None if check is None else check.attempts,
        retries=retries,
    )


def _command_of(text: str | None) -> tuple[str, ...]:
    """The words of a command, its program by an absolute path: whoever runs it has another PATH."""
    if text is None:
        return ()
    import shlex
    import shutil

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvocationError(f"--on-failure: {str(error).lower()}: {text[:60]!r}.") from None
    if not words or not words[0]:
        raise InvocationError("--on-failure is empty.")
    found = shutil.which(words[0])
    if found is None:
        raise InvocationError(f"--on-failure: {words[0][:200]!r} is no program that can be run.")
    return (os.path.join(current_directory("--on-failure"), found), *words[1:])

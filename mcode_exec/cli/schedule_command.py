"""`mcode schedule`: jobs and prompts that run at times."""

from __future__ import annotations

import os
from typing import Any

import click

from mcode_exec.cli.exec_flags import options_named
from mcode_exec.cli.flag_types import DURATION, KEY, TEXT, Count, Instant, Name
from mcode_exec.cli.grouped_command import GroupedCommand, GroupedOption
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, list_format, notice

NAME, INSTANT = Name(), Instant()


@click.group(
    "schedule",
    short_help="Jobs and prompts that run at times.",
    epilog="""\b
Examples:
  mcode schedule add nightly review.toml                       its [schedule] says when
  mcode schedule add tidy --prompt "sort the inbox" --cron "0 7 * * 1-5" --timezone Europe/Berlin
  mcode schedule install --cron                                have cron run what is due
  mcode schedule list                                          next and last due times, and how they ended
  mcode schedule history nightly""",
)
def command() -> None:
    """Keep schedules, and run what is due. docs/schedules.md says all of it.

    Nothing runs by itself: `mcode schedule run-due`, called every minute by cron or a timer, runs what is due.
    """


def moved_now(of: Any) -> Any:
    """Adds `--now`, for tests: what time it is."""
    return click.option("--now", type=INSTANT, hidden=True)(of)


_TIMES, _TASK = "Schedule", "What it runs"
_SETTINGS = (
    "files", "worktree", "worktree_branch", "title", "labels", "session_key", "effort", "agent", "tools",
    "system_prompt_file", "append_system_prompt", "no_project_instructions", "permission", "allow", "deny",
    "on_ask", "env", "timeout", "max_steps", "max_cost", "max_tokens", "check", "check_attempts",
)  # fmt: skip
_BOTH = ("cwd", "model", "fallback_models", "config_file", "data_dir", "trust_workspace")


@command.command(
    "add",
    cls=GroupedCommand,
    params=[
        GroupedOption(["--prompt", "prompt_text"], type=TEXT, group=_TASK, metavar="TEXT|-",
                      help="A prompt instead of a SPEC; - reads it from stdin. Templates as in specs, with"
                           " {{ schedule.due }}."),
        GroupedOption(["--prompt-file"], group=_TASK, metavar="FILE", help="Likewise; read each time it is due."),
        GroupedOption(["--keep-session"], is_flag=True, group=_TASK,
                      help="The prompt goes on in one session [default: a new one each time]; --session-key"
                           " names it."),
        GroupedOption(["--retries"], type=Count(min=0, max=100), group=_TASK, metavar="N",
                      help="Further attempts after one that failed or timed out."),
        GroupedOption(["--cron"], type=TEXT, group=_TIMES, metavar="EXPR",
                      help='When: five fields such as "0 3 * * 1-5", or @hourly, @daily, @weekly, @monthly,'
                           " @yearly [default: the spec's]."),
        GroupedOption(["--timezone"], type=TEXT, group=_TIMES, metavar="ZONE",
                      help="IANA name of the zone in which it is meant [default: the spec's, else this machine's]."),
        GroupedOption(["--catch-up"], type=click.Choice(["none", "one", "all"]), group=_TIMES,
                      help="Due times that were missed: run none, the newest one, or all"
                           " [default: the spec's, else one]."),
        GroupedOption(["--on-overlap"], type=click.Choice(["skip", "wait", "replace"]), group=_TIMES,
                      help="A due time that comes while an earlier one runs [default: the spec's, else skip]."),
        GroupedOption(["--when-interrupted"], type=click.Choice(["leave", "resume"]), default="leave", group=_TIMES,
                      help="A run whose process died or was stopped: it is over (leave, the default), or the next"
                           " run-due goes on with what it had not finished (resume)."),
        GroupedOption(["--on-failure"], type=KEY, group=_TIMES, metavar="CMD",
                      help="Command that is told of each run that did not succeed, in MCODE_SCHEDULE_* variables;"
                           " words and quotes as in a shell, but no shell reads it."),
        GroupedOption(["--paused"], is_flag=True, group=_TIMES, help="It does not run until it is unpaused."),
        GroupedOption(["--replace"], is_flag=True, group=_TIMES,
                      help="Take the place of the schedule of that name, and go on with its history."),
        GroupedOption(["--now"], type=INSTANT, hidden=True, group=_TIMES),
        *options_named(*_SETTINGS, *_BOTH),
    ],
    short_help="Keep a schedule.",
    epilog="""\b
Examples:
  mcode schedule add nightly review.toml
  mcode schedule add hourly review.toml --cron @hourly --catch-up none --on-overlap wait
  mcode schedule add report --prompt-file report.md --cron "30 6 * * 1" --timezone America/New_York \\
      --permission read-only --on-failure "/usr/local/bin/page-me --quiet\"""",
)  # fmt: skip
@click.argument("name", type=NAME, metavar="NAME")
@click.argument("spec", metavar="[SPEC]", required=False)
@click.pass_context
def add(ctx: click.Context, /, name: str, spec: str | None, **flags: Any) -> int:
    """Keep a schedule: a job SPEC, or a prompt with the flags of `mcode exec`, and when it runs.

    Everything is checked now; SPEC and --prompt-file are read again each time they are due.
    """
    from mcode_exec.cli.schedule_add import add_schedule

    return add_schedule(ctx, name, spec, flags)


@command.command("list", short_help="Every schedule, with its next and last due time.")
@list_format
@data_dir
def list_(output_format: str, data_dir: str | None) -> int:
    """Every schedule: when it is due next, when it was last, and how that ended."""
    from mcode_exec.batch.schedules.looking import list_schedules, row_of
    from mcode_exec.cli.schedule_rows import LIST_COLUMNS, list_row
    from mcode_exec.output.tables import field_names, render
    from mcode_exec.records.schedule import ScheduleRowRecord

    rows = [list_row(row_of(one)) for one in await_result(list_schedules(data_dir, os.environ))]
    _render(rows, output_format, "schedules", field_names(ScheduleRowRecord), LIST_COLUMNS, render)
    if not rows and output_format == "table":
        notice("there is no schedule; `mcode schedule add` keeps one")
    return 0


def _render(
    rows: list[dict[str, Any]],
    output_format: str,
    name: str,
    fields: tuple[str, ...],
    columns: dict[str, str],
    render: Any,
) -> None:
    """Rows with what only tables show, which programs do not get."""
    if output_format != "table":
        rows = [{field: row[field] for field in fields if field in row} for row in rows]
    emit(render(rows, output_format, name=name, fields=fields, columns=columns))


@command.command("show", short_help="All that is kept of a schedule.")
@click.argument("name", type=NAME, metavar="NAME")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def show(name: str, output_format: str, data_dir: str | None) -> int:
    """Everything that NAME runs, when, and how its last due time ended."""
    from mcode_exec.batch.schedules.looking import look_at
    from mcode_exec.cli.schedule_show import show_document, show_lines

    seen = await_result(look_at(data_dir, os.environ, name))
    if output_format == "json":
        emit_document("schedule", show_document(seen))
    else:
        emit(show_lines(seen))
    return 0


@command.command("next", short_help="Coming due times.")
@click.argument("name", type=NAME, metavar="[NAME]", required=False)
@click.option(
    "--count", type=Count(min=1, max=1000), default=5, metavar="N", help="So many of each [default: 5]."
)
@list_format
@data_dir
@moved_now
def next_(name: str | None, count: int, output_format: str, data_dir: str | None, now: int | None) -> int:
    """The due times that come, of NAME or of every schedule that is not paused, the earliest first."""
    from mcode_exec.batch.schedules.definitions import due_at
    from mcode_exec.batch.schedules.looking import next_times
    from mcode_exec.cli.schedule_rows import NEXT_COLUMNS, NEXT_FIELDS
    from mcode_exec.output.tables import render

    coming = await_result(next_times(data_dir, os.environ, name, count, clock_of(now).now_ms()))
    rows = [{"schedule": one.name, "dueMs": due, "dueAt": due_at(one, due)} for one, due in coming]
    emit(render(rows, output_format, name="due", fields=NEXT_FIELDS, columns=NEXT_COLUMNS))
    return 0


@command.command("history", short_help="What became of the due times of a schedule.")
@click.argument("name", type=NAME, metavar="NAME")
@click.option(
    "--limit", type=Count(min=1, max=1000), default=50, metavar="N", help="At most so many [default: 50]."
)
@list_format
@data_dir
def history(name: str, limit: int, output_format: str, data_dir: str | None) -> int:
    """The due times of NAME, the newest first, and how each ended; those that were missed, too."""
    from mcode_exec.batch.schedules import looking
    from mcode_exec.cli.schedule_rows import HISTORY_COLUMNS, history_row
    from mcode_exec.output.tables import field_names, render
    from mcode_exec.records.schedule import ScheduleRunRecord

    schedule, runs = await_result(looking.history(data_dir, os.environ, name, limit))
    rows = [history_row(looking.record_of(schedule, run)) for run in runs]
    _render(rows, output_format, "runs", field_names(ScheduleRunRecord), HISTORY_COLUMNS, render)
    return 0


@command.command("pause", short_help="Let a schedule rest.")
@click.argument("name", type=NAME, metavar="NAME")
@data_dir
@moved_now
def pause(name: str, data_dir: str | None, now: int | None) -> int:
    """Nothing of NAME begins until it is unpaused; what runs goes on."""
    return _set_paused(name, data_dir, now, is_paused=True)


@command.command("unpause", short_help="Let a schedule go on.")
@click.argument("name", type=NAME, metavar="NAME")
@data_dir
@moved_now
def unpause(name: str, data_dir: str | None, now: int | None) -> int:
    """NAME is due again from now on; what was due meanwhile is not run."""
    return _set_paused(name, data_dir, now, is_paused=False)


def _set_paused(name: str, data_dir: str | None, now: int | None, *, is_paused: bool) -> int:
    from mcode_exec.batch.schedules.looking import set_paused

    now_ms = clock_of(now).now_ms()
    has_changed = await_result(set_paused(data_dir, os.environ, name, is_paused=is_paused, now_ms=now_ms))
    word = "paused" if is_paused else "active"
    notice(f"schedule {name} is {word}" + ("" if has_changed else " already"))
    return 0


@command.command("remove", short_help="Remove a schedule.")
@click.argument("name", type=NAME, metavar="NAME")
@data_dir
def remove(name: str, data_dir: str | None) -> int:
    """Remove NAME with its history; sessions and job runs that it made stay. Exit 75 while it runs."""
    from mcode_exec.batch.schedules import looking
    from mcode_exec.plurals import counted

    count = await_result(looking.remove(data_dir, os.environ, name))
    notice(f"schedule {name} is removed, with the history of {counted(count, 'due time')}")
    return 0


def clock_of(now_ms: int | None) -> Any:
    """The machine's clock, or one that a test has moved."""
    from mcode_exec.clock import MovedClock, SystemClock

    return SystemClock() if now_ms is None else MovedClock(now_ms)


@command.command(
    "run-due",
    cls=GroupedCommand,
    params=[
        click.Option(["--concurrency"], type=Count(min=1, max=64), default=4, metavar="N",
                     help="Schedules at once [default: 4]."),
        click.Option(["--output-format"], type=click.Choice(["text", "json", "jsonl"]), default="text",
                     help="What stdout gets: nothing (text), one object at the end, or a line for each due time"
                          " that is over [default: text]."),
        click.Option(["--look-every"], type=DURATION, hidden=True),
        click.Option(["--now"], type=INSTANT, hidden=True),
        *options_named("verbose", "config_file", "data_dir"),
    ],
    short_help="Run what is due.",
    epilog="""\b
Exit: 0 if nothing was due or everything succeeded; else the code that all runs share that did not
succeed; else 9. Without -v nothing is printed unless something failed.""",
)  # fmt: skip
@click.pass_context
def run_due(ctx: click.Context, /, **flags: Any) -> int:
    """Run what is due, and wait until it is over. A crontab line or a timer calls this every minute.

    Any number of callers may do so at once, also while an earlier one still works: each due time is run once.
    """
    from mcode_exec.cli.schedule_run_due import run_due_schedules

    return run_due_schedules(ctx, flags)


@command.command(
    "install",
    short_help="Have cron or systemd run what is due.",
    epilog="""\b
Examples:
  mcode schedule install --cron
  mcode schedule install --systemd
  mcode schedule install --cron --print           what would be written""",
)
@click.option("--cron", is_flag=True, help="A line in your crontab, in a block of its own.")
@click.option("--systemd", is_flag=True, help="A user service and its timer.")
@click.option(
    "--path", type=TEXT, metavar="PATH", help="PATH of what runs [default: the one that holds here]."
)
@click.option("--config", type=TEXT, metavar="FILE", help="Configuration of what runs [default: as here].")
@click.option("--print", "prints", is_flag=True, help="Print what would be written, and write nothing.")
@data_dir
def install(
    cron: bool, systemd: bool, path: str | None, config: str | None, prints: bool, data_dir: str | None
) -> int:
    """Have `mcode schedule run-due` called every minute; again at any time: there is one line, or one timer.

    It gets absolute paths and the PATH that holds here, and no other variable of this shell: keys of providers come
    from api_key_file or api_key_command. Other lines of the crontab stay as they are.
    """
    from mcode_exec.batch.schedules import crontab, installing
    from mcode_exec.batch.schedules import systemd as units
    from mcode_exec.batch.schedules.calling import call_of
    from mcode_exec.errors import InvocationError

    if cron == systemd:
        raise InvocationError("who is to call it? Give either --cron or --systemd.")
    call = call_of(data_dir, config, path, os.environ)
    if prints:
        block = crontab.block_of(call) if cron else _shown_units(units.units_of(call))
        emit(block)
        return 0
    done = installing.install_cron if cron else installing.install_systemd
    notice(done(call, os.environ))
    return 0


def _shown_units(units: dict[str, str]) -> bytes:
    return os.fsencode("\n".join(f"# {name}\n{text}" for name, text in units.items()))


@command.command("uninstall", short_help="Have nobody run what is due.")
@click.option("--cron", is_flag=True, help="Only the line in the crontab.")
@click.option("--systemd", is_flag=True, help="Only the service and its timer.")
@data_dir
def uninstall(cron: bool, systemd: bool, data_dir: str | None) -> int:
    """Take out what `install` wrote for this data directory; schedules stay, and what runs goes on."""
    from mcode_exec.batch.schedules import installing

    if cron == systemd:
        said = installing.uninstall_all(data_dir, os.environ)
    else:
        one = installing.uninstall_cron if cron else installing.uninstall_systemd
        said = [line for line in (one(data_dir, os.environ),) if line is not None]
    for line in said or ["nothing was installed here; nothing was changed"]:
        notice(line)
    return 0

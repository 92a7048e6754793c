"""`mcode jobs`: many turns from one file."""

from __future__ import annotations

import os
from typing import Any

import click

from mcode_exec.cli.exec_flags import options_named
from mcode_exec.cli.flag_types import KEY, TEXT, Count
from mcode_exec.cli.grouped_command import GroupedCommand
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, list_format, notice


@click.group(
    "jobs",
    short_help="Many turns from one file.",
    epilog="""\b
Examples:
  mcode jobs validate review.toml                 what it comes to, without a model call
  mcode jobs run review.toml --results out.jsonl --report review.html
  mcode jobs run review.toml --run-id ci-$BUILD   the same again goes on where it was
  mcode jobs status ci-1234
  mcode jobs results ci-1234 --output-format jsonl""",
)
def command() -> None:
    """Run the tasks of a spec file: TOML, or JSON Lines with one task a line. docs/jobs.md says all of it.

    A spec is code: run it from a branch you trust.
    """


_RUN_FLAGS = (
    "cwd", "model", "fallback_models", "quiet", "verbose", "config_file", "data_dir", "trust_workspace",
)  # fmt: skip


@command.command(
    "run",
    cls=GroupedCommand,
    params=[
        click.Option(["--run-id"], type=KEY, metavar="ID", help="Name of the run; the same again goes on with it."),
        click.Option(["--retry-failed"], is_flag=True, help="Run tasks again that failed for good, too."),
        click.Option(
            ["--only"], multiple=True, type=TEXT, metavar="TASK",
            help="Only this task, and what it needs that is not over (repeatable).",
        ),
        click.Option(["--concurrency"], type=Count(min=1, max=256), metavar="N",
                     help="Tasks at once [default: the spec's, else 4]."),
        click.Option(["--fail-fast"], is_flag=True,
                     help="Begin nothing more after the first task that does not succeed."),
        click.Option(["--join"], is_flag=True, help="Help a run that another process runs."),
        click.Option(["--dry-run"], is_flag=True, help="Show what would run, as `jobs validate` does."),
        click.Option(["--results"], metavar="FILE", help="One record per task, as JSON Lines, as it ends."),
        click.Option(["--junit"], metavar="FILE", help="A JUnit XML report."),
        click.Option(["--report"], metavar="FILE", help="An HTML report: a timeline, costs, every task."),
        click.Option(["--output-format"], type=click.Choice(["text", "json"]), default="text",
                     help="What stdout gets at the end: a table, or one summary object [default: text]."),
        *options_named(*_RUN_FLAGS),
    ],
    short_help="Run a spec.",
    epilog="""\b
Exit: 0 all succeeded; else the code that all unsuccessful tasks share; else 9.
A signal ends what runs, which is settled; the same --run-id goes on from there.""",
)  # fmt: skip
@click.argument("spec", metavar="SPEC")
@click.pass_context
def run(ctx: click.Context, /, spec: str, **flags: Any) -> int:
    """Run the tasks of SPEC, as many at once as it says, and end with a table.

    With --run-id the run can be taken up again after anything: tasks that are over are not run again,
    but for those that were stopped, timed out, or failed in a way that may pass.
    """
    if flags.pop("dry_run"):
        return _show_plan(spec, flags["output_format"])
    from mcode_exec.cli.jobs_run import run_spec

    return run_spec(ctx, spec, flags)


@command.command("validate", short_help="Check a spec, and show what it comes to.")
@click.argument("spec", metavar="SPEC")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
def validate(spec: str, output_format: str) -> int:
    """Check SPEC: every task, need, template and condition of it. No model is called."""
    return _show_plan(spec, output_format)


def _show_plan(spec: str, output_format: str) -> int:
    from mcode_exec.batch.plan import plan_of
    from mcode_exec.batch.spec import read_spec
    from mcode_exec.cli.jobs_rows import PLAN_COLUMNS, plan_document, plan_rows
    from mcode_exec.output.tables import render
    from mcode_exec.plurals import counted

    plan = plan_of(read_spec(spec))
    if output_format == "json":
        emit_document("job.plan", plan_document(plan))
        return 0
    rows = plan_rows(plan)
    emit(render(rows, "table", name="tasks", fields=tuple(PLAN_COLUMNS), columns=PLAN_COLUMNS))
    ceiling = plan_document(plan)["maxCostUsd"]
    known = "no ceiling of cost" if ceiling is None else f"at most {ceiling} USD"
    notice(
        f"job {plan.spec.job.name}: {counted(len(rows), 'task')}, {plan.spec.job.concurrency} at once, {known}"
    )
    return 0


@command.command("list", short_help="Runs of jobs.")
@click.option(
    "--limit", type=Count(min=1, max=200), default=50, metavar="N", help="At most so many [default: 50]."
)
@list_format
@data_dir
def list_(limit: int, output_format: str, data_dir: str | None) -> int:
    """Runs of jobs, the newest first."""
    from mcode_exec.batch.looking import list_runs
    from mcode_exec.cli.jobs_rows import RUN_COLUMNS, RUN_FIELDS, run_row
    from mcode_exec.output.tables import render

    rows = [run_row(one) for one in await_result(list_runs(data_dir, os.environ, limit))]
    emit(render(rows, output_format, name="runs", fields=RUN_FIELDS, columns=RUN_COLUMNS))
    if not rows and output_format == "table":
        notice("no job has run yet; `mcode jobs run SPEC` runs one")
    return 0


@command.command("status", short_help="How a run stands.")
@click.argument("run_id", metavar="RUN", type=KEY)
@list_format
@data_dir
def status(run_id: str, output_format: str, data_dir: str | None) -> int:
    """The tasks of RUN (an id, or a unique beginning of one), and what has become of each."""
    from mcode_exec.batch.looking import look_at_run
    from mcode_exec.cli.jobs_rows import TASK_COLUMNS, TASK_FIELDS, say_run, task_row
    from mcode_exec.output.tables import render

    seen = await_result(look_at_run(data_dir, os.environ, run_id))
    rows = [task_row(one) for one in seen.tasks]
    emit(render(rows, output_format, name="tasks", fields=TASK_FIELDS, columns=TASK_COLUMNS))
    if output_format == "table":
        notice(say_run(seen))
    return 0


@command.command("results", short_help="The records of a run.")
@click.argument("run_id", metavar="RUN", type=KEY)
@click.option("--task", type=TEXT, metavar="TASK", help="Only this task.")
@click.option("-o", "--output", metavar="FILE", help="Write them to FILE, as `jobs run --results` does.")
@data_dir
def results(run_id: str, task: str | None, output: str | None, data_dir: str | None) -> int:
    """The record of every task of RUN that is over, as JSON Lines, in the order in which they ended."""
    from mcode_exec.batch.looking import emit_records

    return await_result(emit_records(data_dir, os.environ, run_id, task, output, emit))


@command.command("cancel", short_help="End a run.")
@click.argument("run_id", metavar="RUN", type=KEY)
@click.option("--wait/--no-wait", default=True, help="Wait until it has ended [default: wait].")
@data_dir
def cancel(run_id: str, wait: bool, data_dir: str | None) -> int:
    """Ask the process that runs RUN to end it: what runs is settled, the rest is not run.

    The same run id can be run again later, and goes on with what is left.
    """
    from mcode_exec.batch.looking import cancel_run

    notice(await_result(cancel_run(data_dir, os.environ, run_id, waits=wait)))
    return 0

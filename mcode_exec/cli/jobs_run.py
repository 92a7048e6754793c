"""`mcode jobs run`: from parsed flags to the end of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcode_exec.batch.beginning import RunOptions
from mcode_exec.batch.outcome import summary_of
from mcode_exec.batch.plan import plan_of
from mcode_exec.batch.reports import lines
from mcode_exec.batch.reports.results import ResultsFile
from mcode_exec.batch.running import run_job
from mcode_exec.batch.spec import read_spec
from mcode_exec.cli.jobs_rows import TASK_COLUMNS, task_row
from mcode_exec.cli.worker import Worker, run_worker
from mcode_exec.errors import OutputWriteFailedError
from mcode_exec.executor.sharing import write_pages
from mcode_exec.output.encoding import to_json_line
from mcode_exec.output.tables import render

if TYPE_CHECKING:
    import click

    from mcode_exec.records.job import JobResult, Plan, TaskRow

#: tasks that the table at the end shows; of more, those that did not succeed
_MAX_TABLE = 200


def run_spec(ctx: click.Context, spec: str, flags: dict[str, Any]) -> int:
    """Run a spec; the exit code."""
    options = RunOptions(
        run_id=flags.pop("run_id"),
        concurrency=flags.pop("concurrency"),
        retry_failed=flags.pop("retry_failed"),
        only=flags.pop("only"),
        fail_fast=flags.pop("fail_fast"),
        joins=flags.pop("join"),
    )
    results, junit = flags.pop("results"), flags.pop("junit")
    is_json = flags.pop("output_format") == "json"
    plan = plan_of(read_spec(spec))

    async def work(worker: Worker) -> int:
        host = JobHost(worker, plan, results)
        try:
            result = await run_job(
                worker.runtime, plan, worker.invocation, options, worker.sink, worker.scope, host
            )
            await write_pages(worker.runtime, worker.sink.say)
            host.finish(result, junit=junit, is_json=is_json)
            return host.code_of(result)
        finally:
            host.close()

    return run_worker(ctx, flags, work)


class JobHost:
    """Says what happens, and writes the files of a run."""

    def __init__(self, worker: Worker, plan: Plan, results: str | None) -> None:
        self._worker = worker
        self._sink = worker.sink
        self._total = len(plan.tasks)
        self._ended = 0
        self._has_begun = False
        self._results = None if results is None else ResultsFile.begin(results, worker.runtime.data)
        self._failure: OutputWriteFailedError | None = None
        #: rows of the table at the end
        self._rows: list[dict[str, Any]] = []

    async def began(self, run_id: str, total: int, ended: int) -> None:
        self._has_begun = True
        self._total = total
        self._write(lambda file: file.publish())
        before = f", {ended} of them over before" if ended else ""
        self.say(f"job run {run_id}: {total} tasks{before}")

    def task_started(self, task_id: str, attempt: int) -> None:
        if self._worker.invocation.verbose:
            self.say(f"{task_id} begins{f' (attempt {attempt})' if attempt > 1 else ''}")

    async def task_ended(self, row: TaskRow, record: bytes) -> None:
        self._ended += 1
        self._write(lambda file: file.append(record))
        summary = summary_of(row, record)
        if self._has_begun:
            self.say(lines.of_task(summary, self._ended, self._total))
        if self._total <= _MAX_TABLE or (summary.status != "succeeded" and len(self._rows) < _MAX_TABLE):
            self._rows.append({**task_row(summary), "position": row.position})

    def say(self, line: str) -> None:
        self._sink.say(line)

    def finish(self, result: JobResult, *, junit: str | None, is_json: bool) -> None:
        """What stdout gets at the end, and the reports."""
        if is_json:
            import msgspec

            fields = msgspec.to_builtins(result, builtin_types=(_decimal(),))
            self._worker.post(to_json_line(fields, self._sink.redactor.text))
        elif self._rows:
            rows = sorted(self._rows, key=lambda row: row["position"])
            table = render(rows, "table", name="tasks", fields=tuple(TASK_COLUMNS), columns=TASK_COLUMNS)
            self._worker.post(table)
        if result.status != "skipped":
            self.say(lines.of_run(result))

    def code_of(self, result: JobResult) -> int:
        """A results file that could not be written fails a run that has succeeded."""
        failure = self._failure
        if failure is None:
            return result.exit_code
        return failure.exit_code if result.exit_code == 0 else result.exit_code

    def close(self) -> None:
        self._write(lambda file: file.close())

    def _write(self, action: Any) -> None:
        if self._results is None:
            return
        try:
            action(self._results)
        except OutputWriteFailedError as error:
            if self._failure is None:
                self._failure = error
                self._sink.say_error(f"error: {error.message} ({error.code})")


def _decimal() -> type:
    from decimal import Decimal

    return Decimal

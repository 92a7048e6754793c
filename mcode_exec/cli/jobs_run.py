"""`mcode jobs run`: from parsed flags to the end of the process."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from mcode_exec.batch.beginning import RunOptions
from mcode_exec.batch.looking import tasks_page
from mcode_exec.batch.outcome import summary_of
from mcode_exec.batch.plan import plan_of
from mcode_exec.batch.reports import github, junit, lines
from mcode_exec.batch.reports.files import ReportFile
from mcode_exec.batch.reports.progress import Progress
from mcode_exec.batch.running import run_job
from mcode_exec.batch.spec import read_spec
from mcode_exec.cli.jobs_rows import TASK_COLUMNS, task_row
from mcode_exec.cli.worker import Worker, run_worker
from mcode_exec.errors import OutputWriteFailedError
from mcode_exec.executor.sharing import write_pages
from mcode_exec.output.encoding import to_json_line
from mcode_exec.output.tables import render
from mcode_exec.plurals import counted
from mcode_exec.records.job import UNRUN

if TYPE_CHECKING:
    import click

    from mcode_exec.records.job import JobResult, Plan, TaskRow, TaskSummary

#: tasks that the table at the end shows; of more, those that did not succeed
_MAX_TABLE = 200
#: seconds without a line after which one says that the run goes on: CI systems end what is silent
_SILENCE_S = 60.0
#: tasks that are looked at for the summary of GitHub's page
_MAX_SUMMARY = 5000


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
    files = {name: flags.pop(name) for name in ("results", "junit", "report")}
    is_json = flags.pop("output_format") == "json"
    plan = plan_of(read_spec(spec))

    async def work(worker: Worker) -> int:
        host = JobHost(worker, plan, files)
        try:
            result = await run_job(
                worker.runtime, plan, worker.invocation, options, worker.sink, worker.scope, host
            )
            await write_pages(worker.runtime, worker.sink.say)
            await host.finish(result, is_json=is_json)
            return host.code_of(result)
        finally:
            host.close()

    return run_worker(ctx, flags, work)


class JobHost:
    """Says what happens, and writes the files of a run."""

    def __init__(self, worker: Worker, plan: Plan, files: Mapping[str, str | None]) -> None:
        """`files`: the paths that `--results`, `--junit` and `--report` name.  Raises: OutputWriteFailedError."""
        self._worker = worker
        self._sink = worker.sink
        self._progress = Progress()
        self._progress.total = len(plan.tasks)
        self._has_begun = False
        #: whether people see below the lines what goes on
        self._is_live = False
        self._said_s = time.monotonic()
        self._failure: OutputWriteFailedError | None = None
        self._files: dict[str, ReportFile] = {}
        try:
            for name, path in files.items():
                if path is not None:
                    self._files[name] = ReportFile.begin(f"--{name}", path, worker.runtime.data)
        except OutputWriteFailedError:
            self.close()
            raise
        #: rows of the table at the end
        self._rows: list[dict[str, Any]] = []

    async def began(self, run_id: str, total: int, ended: int) -> None:
        self._has_begun = True
        self._progress.begin(total, ended, time.monotonic())
        self._publish("results")
        before = f", {ended} of them over before" if ended else ""
        self.say(f"job run {run_id}: {counted(total, 'task')}{before}")
        self._is_live = self._show()

    def _show(self) -> bool:
        return self._sink.show(lambda _: self._progress.lines(time.monotonic()))

    def task_started(self, task_id: str, attempt: int) -> None:
        self._progress.started(task_id, attempt, time.monotonic())
        if self._worker.invocation.verbose:
            self.say(f"{task_id} begins{f' (attempt {attempt})' if attempt > 1 else ''}")

    def task_does(self, task_id: str, step: int, doing: str) -> None:
        self._progress.does(task_id, step, doing)

    def task_stopped(self, task_id: str) -> None:
        self._progress.stopped(task_id)

    def look(self) -> None:
        if self._is_live:
            self._show()
        elif time.monotonic() - self._said_s > _SILENCE_S:
            self.say(self._progress.line(time.monotonic()))

    async def task_ended(self, row: TaskRow, record: bytes) -> None:
        self._append("results", record + b"\n")
        summary = summary_of(row, record)
        ended = self._progress.ended(summary)
        if self._has_begun:
            self.say(lines.of_task(summary, ended, self._progress.total))
        if self._progress.total <= _MAX_TABLE or (
            summary.status != "succeeded" and len(self._rows) < _MAX_TABLE
        ):
            self._rows.append({**task_row(summary), "position": row.position})

    def say(self, line: str) -> None:
        self._said_s = time.monotonic()
        self._sink.say(line)

    async def finish(self, result: JobResult, *, is_json: bool) -> None:
        """What stdout gets at the end, and the reports."""
        await self._sink.end_status()
        if is_json:
            import msgspec

            fields = msgspec.to_builtins(result, builtin_types=(Decimal,))
            self._worker.post(to_json_line(fields, self._sink.redactor.text))
        elif self._rows:
            rows = sorted(self._rows, key=lambda row: row["position"])
            table = render(rows, "table", name="tasks", fields=tuple(TASK_COLUMNS), columns=TASK_COLUMNS)
            self._worker.post(table)
        if result.status == "skipped":
            return
        self.say(lines.of_run(result))
        if "junit" in self._files:
            await self._write_junit(result)
        if "report" in self._files:
            await self._write_page(result)
        if github.is_there(os.environ):
            await self._tell_github(result, with_annotations=not is_json)

    async def _write_junit(self, result: JobResult) -> None:
        job = result.job_name
        errors = 0
        async for summary in self._tasks(result.run_id):
            errors += summary.status not in (*UNRUN, "succeeded") and junit.is_error(summary)
        self._append("junit", junit.head(result, errors))
        async for summary in self._tasks(result.run_id):
            self._append("junit", junit.case(job, summary))
        self._append("junit", junit.TAIL)
        self._publish("junit")

    async def _write_page(self, result: JobResult) -> None:
        from mcode_exec.batch.reports import page

        collected = page.Collected()
        async for summary in self._tasks(result.run_id):
            collected.add(summary)
        for piece in page.head(result, collected):
            self._append("report", piece.encode())
        async for summary in self._tasks(result.run_id):
            self._append("report", page.row(result, summary).encode())
        self._append("report", page.tail(result, self._worker.runtime.clock.now_ms()).encode())
        self._publish("report")

    async def _tell_github(self, result: JobResult, *, with_annotations: bool) -> None:
        if with_annotations:
            for summary in result.failures[: github.MAX_ANNOTATIONS]:
                self._worker.post(github.annotation(result.job_name, summary))
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if not path:
            return
        shown = [summary async for summary in self._tasks(result.run_id, limit=_MAX_SUMMARY)]
        shown.sort(key=lambda summary: summary.status == "succeeded")
        try:
            with open(path, "ab") as file:
                file.write(github.page(result, shown))
        except OSError as error:
            self.say(f"the job summary {path} cannot be written: {error.strerror or error}")

    async def _tasks(self, run_id: str, limit: int | None = None) -> AsyncIterator[TaskSummary]:
        """The tasks of a run that has ended, in their places."""
        store, after, count = self._worker.runtime.store, -1, 0
        while page := await store.read(partial(tasks_page, run_id, after)):
            for row, record in page:
                yield summary_of(row, record)
                count += 1
                if count == limit:
                    return
            after = page[-1][0].position

    def code_of(self, result: JobResult) -> int:
        """A results file that could not be written fails a run that has succeeded."""
        failure = self._failure
        if failure is None:
            return result.exit_code
        return failure.exit_code if result.exit_code == 0 else result.exit_code

    def close(self) -> None:
        for name in self._files:
            self._write(name, lambda file: file.close())

    def _append(self, name: str, data: bytes) -> None:
        self._write(name, lambda file: file.append(data))

    def _publish(self, name: str) -> None:
        self._write(name, lambda file: file.publish())

    def _write(self, name: str, action: Callable[[ReportFile], None]) -> None:
        """Do something to a file of the run, if it was asked for; the first failure is told, and remembered."""
        file = self._files.get(name)
        if file is None:
            return
        try:
            action(file)
        except OutputWriteFailedError as error:
            if self._failure is None:
                self._failure = error
                self._sink.say_error(f"error: {error.message} ({error.code})")

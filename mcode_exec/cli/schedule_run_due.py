"""`mcode schedule run-due`: from parsed flags to the end of the process."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from mcode_exec.batch.schedules.looking import record_of
from mcode_exec.batch.schedules.running import LOOK_S, run_due
from mcode_exec.cli.schedule_command import clock_of
from mcode_exec.cli.schedule_rows import say_run
from mcode_exec.cli.worker import Worker, run_worker
from mcode_exec.executor.sharing import write_pages
from mcode_exec.output.encoding import to_json_line
from mcode_exec.records.schedule import FAILED_STATES, RunDueResult, ScheduleRunRecord

if TYPE_CHECKING:
    import click

    from mcode_exec.batch.schedules.ledger import Ended


def run_due_schedules(ctx: click.Context, flags: dict[str, Any]) -> int:
    """Run what is due; the exit code."""
    concurrency, output_format = flags.pop("concurrency"), flags.pop("output_format")
    clock, look_s = clock_of(flags.pop("now")), flags.pop("look_every") or LOOK_S
    flags["quiet"] = not flags["verbose"]  # cron mails whatever is said

    async def work(worker: Worker) -> int:
        records: list[ScheduleRunRecord] = []

        async def tell(ended: Ended) -> None:
            record = record_of(ended.schedule, ended.run)
            if ended.run.state in FAILED_STATES:
                worker.sink.say_error(say_run(record))
            else:
                worker.sink.say(say_run(record))
            if output_format == "jsonl":
                worker.post(_line(worker, record))
            elif output_format == "json":
                records.append(record)

        code = await run_due(
            worker.runtime,
            worker.invocation,
            worker.sink,
            worker.scope,
            tell,
            clock=clock,
            concurrency=concurrency,
            look_s=look_s,
        )
        await write_pages(worker.runtime, worker.sink.say)
        if output_format == "json":
            worker.post(_line(worker, RunDueResult(exit_code=code, runs=tuple(records))))
        return code

    return run_worker(ctx, flags, work, source="cron")


def _line(worker: Worker, record: ScheduleRunRecord | RunDueResult) -> bytes:
    fields = msgspec.to_builtins(record, builtin_types=(Decimal,))
    return to_json_line(fields, worker.sink.redactor.text)

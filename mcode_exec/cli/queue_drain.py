"""`mcode queue drain` and `queue steer`: turns for others, from parsed flags to the end of the process.

stdout gets one line per item; what happens meanwhile is said on stderr.  The
first signal ends the turn that runs, which is settled, and the drain with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcode_exec.cli.worker import Worker, run_worker
from mcode_exec.errors import BusyError, SessionError
from mcode_exec.executor.delivery import Delivered
from mcode_exec.executor.draining import DEFAULT_JOBS, DrainEnd, DrainOptions, drain
from mcode_exec.executor.sending import send_now
from mcode_exec.executor.sharing import write_pages
from mcode_exec.output import narration
from mcode_exec.output.encoding import to_json_line

if TYPE_CHECKING:
    import click


def run_drain(ctx: click.Context, flags: dict[str, Any]) -> int:
    """`mcode queue drain`; the exit code."""
    session, follows, stops = flags.pop("session"), flags.pop("follow"), flags.pop("stop_on_failure")
    jobs = flags.pop("jobs") or DEFAULT_JOBS
    flags.pop("every")
    is_jsonl = flags.pop("output_format") == "jsonl"

    async def work(worker: Worker) -> int:
        teller = Teller(worker, is_jsonl=is_jsonl)
        options = DrainOptions(session=session, follows=follows, stops_on_failure=stops, jobs=jobs)
        end = await drain(
            worker.runtime, worker.invocation, options, worker.sink, worker.scope, teller.tell_delivered
        )
        return _code_of(worker, teller, end)

    return run_worker(ctx, flags, work)


def run_steer(ctx: click.Context, item_id: str, flags: dict[str, Any]) -> int:
    """`mcode queue steer`; the exit code."""
    is_json = flags.pop("output_format") == "json"

    async def work(worker: Worker) -> int:
        teller = Teller(worker, is_jsonl=is_json)
        delivered = await send_now(worker.runtime, worker.invocation, item_id, worker.sink, worker.scope)
        teller.tell_delivered(delivered)
        await write_pages(worker.runtime, worker.sink.say)
        return teller.failed_code or 0

    return run_worker(ctx, flags, work)


def _code_of(worker: Worker, teller: Teller, end: DrainEnd) -> int:
    """What the end of a drain is to a script: nothing that waits is passed over in silence."""
    for session_id, left in end.left.items():
        worker.sink.say(f"items of session {session_id} are left: {left.why}")
    if worker.scope.is_tripped or teller.failed_code is not None:
        return teller.failed_code or 0
    if not teller.count and not end.left:
        worker.sink.say("nothing waits")
    if any(left.reason == "busy" for left in end.left.values()):
        raise BusyError(
            "items are left, because another process is at work in their session; try again later"
        )
    paused = [session_id for session_id, left in end.left.items() if left.reason == "paused"]
    if paused:
        raise SessionError(
            f"the queue of {paused[0]} is paused; `mcode queue unpause {paused[0]}` lets it go on"
            if len(paused) == 1
            else f"the queues of {len(paused)} sessions are paused; `mcode queue unpause SESSION` lets one go on",
            code="queue_paused",
        )
    return 0


class Teller:
    """Says what became of each item, and keeps what the command ends with."""

    def __init__(self, worker: Worker, *, is_jsonl: bool) -> None:
        self._worker = worker
        self._sink = worker.sink
        self._is_jsonl = is_jsonl
        #: how many items were taken
        self.count = 0
        #: exit code of the first turn that did not succeed
        self.failed_code: int | None = None

    def tell_delivered(self, delivered: Delivered) -> None:
        self.count += 1
        result, error, item = delivered.result, delivered.error, delivered.item
        if self._is_jsonl:
            line = {
                "itemId": item.id,
                "sessionId": item.session_id,
                "outcome": delivered.outcome,
                **({"turnId": delivered.turn_id} if delivered.outcome == "steered" else {}),
                "result": result,
                "error": None if error is None else {"code": error.code, "message": error.message},
            }
            self._worker.post(to_json_line(line, lambda text: self._sink.redactor.text(delivered.mask(text))))
        elif delivered.outcome == "ran":
            answer = (
                narration.cut(delivered.mask(str(result.output)), 100) if result and result.output else ""
            )
            text = self._sink.redactor.text(f"{item.id} {result.status if result else ''} {answer}".rstrip())
            self._worker.post((text + "\n").encode("utf-8", "replace"))
        if delivered.exit_code:
            self._sink.say_error(f"error: {delivered.sentence()}")
            self.failed_code = self.failed_code or delivered.exit_code
        elif delivered.outcome not in ("ran", "steered"):  # that it was handed over has been said
            self._sink.say(delivered.sentence())

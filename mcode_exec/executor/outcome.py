"""From an ending to the result object: status, exit code, and what there is to tell.

Status, error and exit code are derived together, in one place, so that they
can never disagree (docs/contract.md §3 and §5).
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from mcode_exec.abort import AbortScope
from mcode_exec.agent.turn_state import TurnState
from mcode_exec.durations import format_duration
from mcode_exec.errors import InternalError, McodeError
from mcode_exec.plurals import counted
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.model import ModelRef
from mcode_exec.records.queue import QueueItem
from mcode_exec.records.result import (
    ErrorInfo,
    FileChanges,
    LimitHit,
    QueuePlace,
    Result,
    ResultUsage,
    SandboxInfo,
    Status,
    WorktreeInfo,
    error_info,
)
from mcode_exec.records.tool import LeftoverProcess
from mcode_exec.records.turn import Ending
from mcode_exec.records.usage import Usage
from mcode_exec.redaction import Redactor

TIMEOUT_FLAG = "--timeout"
SANDBOX = SandboxInfo(mechanism="none", policy="off")

_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder(Result)


def encode_result(result: Result, redactor: Redactor) -> bytes:
    """`result` as the receipt keeps it, secrets masked."""
    return _encoder.encode(redactor.json(msgspec.to_builtins(result, builtin_types=(Decimal,))))


def decode_result(data: bytes) -> Result:
    return _decoder.decode(data)


def result_usage(usage: Usage) -> ResultUsage:
    return ResultUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        total_tokens=usage.total_tokens,
    )


class _Verdict(msgspec.Struct, frozen=True, kw_only=True):
    status: Status
    exit_code: int
    error: ErrorInfo | None = None
    is_answered: bool = False
    limit: LimitHit | None = None


def conclude(
    ending: Ending,
    *,
    state: TurnState,
    abort: AbortScope,
    run_id: str,
    session_id: str,
    turn_id: str,
    attempt: int,
    model: ModelRef,
    on_ask: str,
    time_limit: LimitHit | None,
    leftovers: tuple[LeftoverProcess, ...],
    worktree: WorktreeInfo | None,
    file_changes: FileChanges | None,
    duration_ms: int,
) -> Result:
    """The result of a turn that was admitted."""
    verdict = _verdict(ending, state, abort, on_ask, time_limit)
    return Result(
        run_id=run_id,
        session_id=session_id,
        turn_id=turn_id,
        status=verdict.status,
        exit_code=verdict.exit_code,
        attempt=attempt,
        output=state.answer if verdict.is_answered else None,
        partial_output=None if verdict.is_answered else (state.answer or state.latest_text),
        finish_reason=state.finish_reason,
        error=verdict.error,
        retryable=verdict.exit_code in (69, 75),
        model=model,
        model_switches=tuple(state.switches),
        usage=result_usage(state.total_usage()),
        usage_incomplete=state.usage_incomplete,
        cost_usd=_money(state.cost_usd),
        steps=state.steps,
        tool_calls=state.tool_calls,
        tool_errors=len(state.tool_failures),
        tool_failures=tuple(state.tool_failures),
        retries=state.retries,
        permission_denials=tuple(state.denials),
        worktree=worktree,
        sandbox=SANDBOX,
        leftover_processes=leftovers,
        file_changes=file_changes,
        check=state.check,
        limit=verdict.limit,
        duration_ms=duration_ms,
        api_duration_ms=state.api_duration_ms,
    )


def timeout_hit(timeout_s: float, source: str) -> LimitHit:
    return LimitHit(name="timeout", value=format_duration(timeout_s), source=source)


def stopped_before_turn(
    abort: AbortScope, invocation: Invocation, *, time_limit: LimitHit | None = None, duration_ms: int
) -> Result:
    """The result of a run that was stopped before its turn was admitted: nothing was done."""
    ending = Ending(outcome="aborted", abort_reason=abort.reason)
    verdict = _aborted(ending, TurnState(), abort, time_limit or _limit_by_flag(invocation))
    return Result(
        run_id=invocation.run_id,
        status=verdict.status,
        exit_code=verdict.exit_code,
        error=verdict.error,
        limit=verdict.limit,
        duration_ms=duration_ms,
    )


def never_ended(
    invocation: Invocation, *, session_id: str | None, turn_id: str | None, duration_ms: int
) -> Result:
    """The result of a run that did not end at its deadline: nobody can be asked what it has come to."""
    ending = Ending(outcome="aborted", abort_reason="deadline")
    verdict = _aborted(ending, TurnState(), AbortScope(), _limit_by_flag(invocation))
    return Result(
        run_id=invocation.run_id,
        session_id=session_id,
        turn_id=turn_id,
        status=verdict.status,
        exit_code=verdict.exit_code,
        error=verdict.error,
        usage_incomplete=turn_id is not None,
        limit=verdict.limit,
        duration_ms=duration_ms,
    )


def cancelled_before_turn(invocation: Invocation, session_id: str, turn_id: str) -> Result:
    """The result of a submission that somebody took back before it was admitted."""
    info = ErrorInfo(
        category="runtime",
        code="TURN_ABORTED",
        message="the turn did not finish: it was aborted before it began",
        retryable=False,
    )
    return Result(
        run_id=invocation.run_id,
        session_id=session_id,
        turn_id=turn_id,
        status="cancelled",
        exit_code=4,
        error=info,
    )


def steered_into(
    invocation: Invocation, session_id: str, turn_id: str | None, *, is_replayed: bool = False
) -> Result:
    """The result of words that a running turn takes."""
    return Result(
        run_id=invocation.run_id,
        session_id=session_id,
        turn_id=turn_id,
        status="steered",
        exit_code=0,
        replayed=is_replayed,
    )


def queued_as(invocation: Invocation, item: QueueItem, place: int) -> Result:
    """The result of a submission that waits for somebody else to run it."""
    return Result(
        run_id=invocation.run_id,
        session_id=item.session_id,
        turn_id=item.turn_id,
        status="queued",
        exit_code=0,
        queue=QueuePlace(item_id=item.id, position=place),
    )


def _limit_by_flag(invocation: Invocation) -> LimitHit | None:
    return None if invocation.timeout_s is None else timeout_hit(invocation.timeout_s, TIMEOUT_FLAG)


def _money(cost: Decimal | None) -> Decimal | None:
    return None if cost is None else cost.normalize() + Decimal(0)


def _verdict(
    ending: Ending, state: TurnState, abort: AbortScope, on_ask: str, time_limit: LimitHit | None
) -> _Verdict:
    if ending.outcome == "completed":
        asks = state.asks_denied
        if not asks or on_ask != "fail":
            return _Verdict(status="succeeded", exit_code=0, is_answered=True)
        first = asks[0]
        info = ErrorInfo(
            category="runtime",
            code="PERMISSION_ASKED",
            message=f"{counted(len(asks), 'tool call')} needed a permission that nobody could give; "
            f"first: {first.reason}",
            retryable=False,
        )
        return _Verdict(status="interaction_required", exit_code=5, error=info, is_answered=True)
    if ending.outcome == "failed":
        info = error_info(_foreseen(ending.error))
        return _Verdict(status="failed", exit_code=_foreseen(ending.error).exit_code, error=info)
    return _aborted(ending, state, abort, time_limit)


def _foreseen(error: BaseException | None) -> McodeError:
    if isinstance(error, McodeError):
        return error
    return InternalError(f"unexpected {type(error).__name__}: {error}; this is a bug in mcode")


def _aborted(ending: Ending, state: TurnState, abort: AbortScope, time_limit: LimitHit | None) -> _Verdict:
    reason = ending.abort_reason
    if reason == "limit" and ending.error is not None:
        return _Verdict(
            status="limit_exceeded", exit_code=7, error=error_info(_foreseen(ending.error)), limit=state.limit
        )
    if reason == "deadline":
        limit = time_limit or LimitHit(name="timeout", value="some time", source=TIMEOUT_FLAG)
        info = ErrorInfo(
            category="runtime",
            code="TIMEOUT",
            message=f"the run was stopped at its time limit of {limit.value} ({limit.source})",
            retryable=False,
        )
        return _Verdict(status="timeout", exit_code=6, error=info, limit=limit)
    code, why = 4, "it was aborted"
    if reason == "signal":
        code, why = 128 + (abort.signum or 15), f"it was ended by signal {abort.signum or 15}"
    elif reason == "stdout-closed":
        code, why = 141, "the reader of its output was gone"
    elif reason == "session-deleting":
        why = "its session is being deleted"
    info = ErrorInfo(
        category="runtime", code="TURN_ABORTED", message=f"the turn did not finish: {why}", retryable=False
    )
    return _Verdict(status="cancelled", exit_code=code, error=info)

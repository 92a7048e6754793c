"""What a turn says of itself to its sink: how it begins, what is to be noticed, how it ends."""

from __future__ import annotations

from collections.abc import Iterable

from mcode_exec.agent.ports import AgentTask
from mcode_exec.executor import outcome
from mcode_exec.executor.preparation import Prepared
from mcode_exec.output.sink import Sink
from mcode_exec.records.event import (
    Notice,
    SessionForked,
    SessionResumed,
    SessionStarted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from mcode_exec.records.model import ModelRef
from mcode_exec.records.result import Result
from mcode_exec.records.session import Session


class TurnVoice:
    """The events of one turn that are no items."""

    def __init__(self, sink: Sink, prepared: Prepared) -> None:
        self._sink = sink
        self._prepared = prepared

    async def notices(self, notices: Iterable[tuple[str, str]]) -> None:
        """(code, message) of each."""
        for code, message in notices:
            await self._sink.event(Notice(code=code, message=message))

    async def session(self, session: Session) -> None:
        choice = self._prepared.choice
        if choice.is_new and session.forked_from is not None and session.forked_at is not None:
            await self._sink.event(
                SessionForked(
                    workspace=choice.workspace,
                    title=session.title,
                    forked_from=session.forked_from,
                    forked_at=session.forked_at,
                )
            )
            return
        kind = SessionStarted if choice.is_new else SessionResumed
        await self._sink.event(kind(workspace=choice.workspace, title=session.title))

    async def started(self, task: AgentTask, accepted_sequence: int) -> None:
        await self._sink.event(
            TurnStarted(
                model=task.model.ref,
                accepted_sequence=accepted_sequence,
                sandbox=outcome.SANDBOX,
                permission=self._prepared.preset,
            )
        )

    async def ended(self, result: Result, model: ModelRef, duration_ms: int) -> None:
        if result.status in ("succeeded", "interaction_required"):
            await self._sink.event(TurnCompleted(model=model, usage=result.usage, duration_ms=duration_ms))
        else:
            await self._sink.event(
                TurnFailed(status=result.status, error=result.error, duration_ms=duration_ms)
            )

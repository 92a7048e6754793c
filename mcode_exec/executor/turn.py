"""One admitted turn: open the session, commit the prompt, run the loop, conclude.

The user message is committed before the model is asked, behind admission: a
rejected prompt leaves no trace, an accepted one is in history first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcode_exec.abort import AbortScope
from mcode_exec.agent.loop import AgentLoop
from mcode_exec.agent.turn_state import TurnState
from mcode_exec.errors import InternalError, McodeError
from mcode_exec.executor import outcome
from mcode_exec.executor.agent_task import agent_task
from mcode_exec.executor.change_recording import ChangeRecorder, own_paths
from mcode_exec.executor.ports import TurnPorts
from mcode_exec.executor.preparation import Prepared
from mcode_exec.executor.supervisor import Supervisor
from mcode_exec.executor.surroundings import Surroundings
from mcode_exec.executor.turn_prompt import commit_prompt
from mcode_exec.executor.turn_voice import TurnVoice
from mcode_exec.faults import fault
from mcode_exec.ids import user_message_id
from mcode_exec.output.sink import Sink
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.model import ModelRef
from mcode_exec.records.result import FileChanges, LimitHit, Result
from mcode_exec.records.signal import TurnSignal
from mcode_exec.records.turn import Accepted, Ending
from mcode_exec.sessions.attachments import Attachments
from mcode_exec.sessions.commit import CommitDoor
from mcode_exec.sessions.history import CanonicalHistory
from mcode_exec.sessions.layout import history_paths
from mcode_exec.sessions.opening import open_door
from mcode_exec.sessions.stream import SessionStream
from mcode_exec.sessions.transcript import missing_results, transcript
from mcode_exec.store.database import Patience
from mcode_exec.turns.execution import execute
from mcode_exec.turns.steering import notices_of

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.executor.tape import Tape
    from mcode_exec.permissions.judge import Judge


#: how long a stopped turn waits for what was said to it; source: turn-system notes, steering
STEERING_S = 2.0


class TurnRun:
    """Everything one admitted turn has open."""

    def __init__(
        self,
        runtime: Runtime,
        invocation: Invocation,
        prepared: Prepared,
        accepted: Accepted,
        sink: Sink,
        abort: AbortScope,
        *,
        time_limit: LimitHit | None,
    ) -> None:
        self._runtime = runtime
        self._invocation = invocation
        self._prepared = prepared
        self._accepted = accepted
        self._sink = sink
        self._voice = TurnVoice(sink, prepared)
        self._abort = abort
        self._time_limit = time_limit
        #: as it was at admission: it may have gone on since it was chosen
        self._session = accepted.session or prepared.choice.session
        self._turn_id = accepted.receipt.turn_id
        #: the message that brings the prompt
        self._prompt_id = (
            prepared.retry.message_id if prepared.retry is not None else None
        ) or user_message_id(self._session.id, "turn:" + self._turn_id)
        self._state = TurnState(runtime.budget)
        self._patience = Patience(abort)
        self._stream = SessionStream()
        self._history: CanonicalHistory | None = None
        self._attachments = Attachments(
            history_paths(runtime.sessions_dir, self._session.history_relative_dir), runtime.data
        )
        self._surroundings = Surroundings(runtime, prepared, invocation)
        self._changes = ChangeRecorder(
            runtime,
            session=self._session,
            workspace=prepared.choice.directory,
            turn_id=self._turn_id,
            lease_token=accepted.lease_token,
            patience=self._patience,
            own_paths=own_paths(
                invocation, prepared.choice.directory, runtime.data, self._surroundings.temp_dir
            ),
        )
        self._supervisor = Supervisor(
            store=runtime.store,
            stream=self._stream,
            session_id=accepted.receipt.session_id,
            turn_id=self._turn_id,
            prompt_id=self._prompt_id,
            sink=sink,
            with_deltas=invocation.deltas
            and (invocation.output_format == "stream-json" or invocation.events_file is not None),
            settle=self._rows_settled,
        )
        self._watching: asyncio.Task[None] | None = None
        self._made_judge: Judge | None = None
        self._door: CommitDoor | None = None
        self._tape: Tape | None = None
        self._agent: AgentLoop | None = None

    async def run(self) -> Result:
        """Run to the settled result."""
        self._sink.bind(session_id=self._session.id, turn_id=self._turn_id)
        fault("after-admission")
        started_s = self._runtime.clock.monotonic_s()
        try:
            left: list[TurnSignal] = []
            result = await execute(
                store=self._runtime.store,
                accepted=self._accepted,
                loop=self._loop,
                conclude=self._conclude,
                abort=self._abort,
                clock=self._runtime.clock,
                patience=self._patience,
                is_in_history=self._is_in_history,
                left=left,
            )
            fault("after-settlement")
            self._note_end()
            await self._finish_watching()
            await self._voice.notices(notices_of(left))
            await self._voice.ended(
                result, self._model(), int((self._runtime.clock.monotonic_s() - started_s) * 1000)
            )
            return result
        finally:
            if self._watching is not None:
                self._watching.cancel()
            if self._history is not None:
                await self._runtime.store.on_thread(self._history.close)
            if self._tape is not None:
                self._tape.close()
            self._surroundings.remove()

    async def _loop(self) -> None:
        try:
            if self._agent is not None and self._door is not None:
                await self._door.look()  # words came for a turn that was answered, behind its last commit
                await self._go_on(self._agent, self._door)
            else:
                await self._converse()
        except McodeError as error:
            # What a server said may repeat our key, and from here the message goes into the store.
            error.args = (self._prepared.redactor.text(error.message), *error.args[1:])
            raise

    async def _converse(self) -> None:
        runtime, prepared, session = self._runtime, self._prepared, self._session
        await self._voice.session(session)
        await self._voice.notices(prepared.notices)
        door, self._history = await open_door(
            store=runtime.store,
            sessions_dir=runtime.sessions_dir,
            session=session,
            stream=self._stream,
            turn_id=self._turn_id,
            lease_token=self._accepted.lease_token,
            is_takeover=self._accepted.is_takeover or session.status == "interrupted",
            agent=prepared.agent.name if prepared.agent else None,
            redactor=prepared.redactor,
            clock=runtime.clock,
            patience=self._patience,
        )
        self._door = door
        await self._voice.notices(self._history.notices)
        task, notices = agent_task(
            self._invocation,
            prepared,
            session_id=session.id,
            turn_id=self._turn_id,
            judge=self._judge,
            now_ms=runtime.clock.now_ms(),
        )
        await self._voice.notices(notices)
        tape = self._tape = self._begin_tape()
        if tape is not None:
            task = tape.task(task)
        await asyncio.shield(runtime.store.on_thread(self._keep_attachments))
        await commit_prompt(
            door, prepared, self._accepted, task, message_id=self._prompt_id, now_ms=runtime.clock.now_ms()
        )
        fault("after-prompt")
        await self._voice.started(task, self._accepted.receipt.sequence)
        self._watching = asyncio.ensure_future(self._supervisor.run())
        ports = TurnPorts(
            task=task,
            door=door,
            stream=self._stream,
            client=(lambda _callee: runtime.client(prepared.settings)) if tape is None else tape.client,
            tape=tape,
            sink=self._sink,
            state=self._state,
            tools=self._surroundings.tool_context,
            attachments=self._attachments,
            redactor=prepared.redactor,
            store=runtime.store,
            clock=runtime.clock,
            changes=self._changes,
            set_phase=self._set_phase,
        )
        self._agent = AgentLoop(
            task=task, ports=ports, judge=self._judge, state=self._state, messages=transcript(door.records)
        )
        await self._go_on(self._agent, door)

    async def _go_on(self, agent: AgentLoop, door: CommitDoor) -> None:
        tape = self._tape
        try:
            await agent.run()
        except McodeError:
            await self._voice.notices(() if tape is None else tape.notices())
            raise
        finally:
            await door.settle()
        if tape is not None:
            await self._voice.notices(tape.notices())
            tape.check()

    def _begin_tape(self) -> Tape | None:
        """What records the turn or plays it back; None for any other."""
        prepared = self._prepared
        models = (prepared.model, *(model for model, _ in prepared.fallbacks))
        if self._invocation.record is None and all(model.recording is None for model in models):
            return None
        from mcode_exec.executor.tape import Tape

        return Tape(self._runtime, self._invocation, prepared, turn_id=self._turn_id)

    async def _rows_settled(self) -> None:
        if self._door is not None:
            try:
                await self._door.settle()
            except McodeError:
                pass  # the turn itself ends by it; a reader only takes what is there

    def _is_in_history(self, message_id: str) -> bool:
        return self._door is not None and any(record.id == message_id for record in self._door.records)

    def _judge(self) -> Judge:
        """The judge of this turn, made when it is first asked: a turn without tools pays for none."""
        if self._made_judge is None:
            from mcode_exec.permissions.judge import Judge

            rules, others = self._prepared.rules, self._prepared.other_rules
            if not others:
                self._made_judge = Judge(rules, self._surroundings.scope)
            else:
                from mcode_exec.permissions.stricter import StricterJudge

                self._made_judge = StricterJudge(rules, others, self._surroundings.scope)
        return self._made_judge

    def _set_phase(self, phase: str) -> None:
        self._supervisor.phase = phase

    def _keep_attachments(self) -> None:
        for attachment in self._prepared.prompt.attachments:
            self._attachments.keep(attachment.data)

    async def _conclude(self, ending: Ending) -> tuple[Result, bytes]:
        if isinstance(ending.error, InternalError):
            self._sink.bug(ending.error.__cause__ or ending.error)
        await self._rows_settled()  # a commit that the end cut off goes on, and counts
        if ending.outcome == "aborted":
            await self._take_steering()
        leftovers = await self._surroundings.end_leftovers()
        file_changes = await self._file_changes(ending)
        result = outcome.conclude(
            ending,
            state=self._state,
            abort=self._abort,
            run_id=self._invocation.run_id,
            session_id=self._session.id,
            turn_id=self._turn_id,
            attempt=self._accepted.receipt.attempt,
            model=self._model(),
            on_ask=self._invocation.on_ask,
            time_limit=self._time_limit,
            leftovers=leftovers,
            worktree=self._prepared.choice.worktree,
            file_changes=file_changes,
            duration_ms=int(
                (self._runtime.clock.monotonic_s() - self._invocation.started_monotonic_s) * 1000
            ),
        )
        return result, outcome.encode_result(result, self._prepared.redactor)

    async def _file_changes(self, ending: Ending) -> FileChanges | None:
        """What the turn changed in files; nothing that goes wrong there changes how the turn ends."""
        try:
            return await self._changes.finish(is_stopped=ending.outcome == "aborted")
        except Exception as error:
            self._sink.bug(error)
            return None

    async def _take_steering(self) -> None:
        """What was said to a turn that was stopped goes into its conversation, if it can in time; else settlement
        makes queue items of it."""
        if self._agent is None or self._door is None:
            return
        try:
            async with asyncio.timeout(STEERING_S):
                await self._door.look()
                # the end may have come between an answer and its calls: nothing stands between them and their results
                for record in missing_results(self._door.records, self._runtime.clock.now_ms()):
                    await self._door.commit(record)
                await self._agent.take_all()
        except (McodeError, TimeoutError):
            pass

    def _note_end(self) -> None:
        """Whoever has given the result out writes the session's page, if it is to have one."""
        if self._invocation.ephemeral:
            return
        from mcode_exec.executor.sharing import EndedTurn

        share, redactor = self._prepared.settings.config.share, self._prepared.redactor
        self._runtime.ended.append(EndedTurn(self._session.id, share.auto_dir, redactor))

    def _model(self) -> ModelRef:
        """The last one that was called."""
        switches = self._state.switches
        return switches[-1].to_model if switches else self._prepared.model.info.ref

    async def _finish_watching(self) -> None:
        """Let the reader see the end; a reader that takes nothing is the sink's to give up on."""
        self._stream.publish_terminal(self._turn_id)
        if self._watching is not None:
            await self._watching
            self._watching = None

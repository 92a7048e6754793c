"""`mcode retry`: what the last turn of a session needs to be brought to its end.

A turn that the model has not answered by anything is said again: the same
words and attachments under the same message, which so stands in the
conversation once.  One that has done something goes on: a reminder follows what
stands there, nothing of it is done again.  Reads, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from mcode_exec.clock import Clock
from mcode_exec.errors import SessionDeletingError, SessionError
from mcode_exec.executor.asked import Attachment, asked, attachments, first_line, is_reminder
from mcode_exec.executor.prompt import Prompt
from mcode_exec.executor.submission import reject
from mcode_exec.records.history import Block, HistoryRecord, TextBlock
from mcode_exec.records.session import Session
from mcode_exec.records.turn import Receipt, Rejected, TurnRequest
from mcode_exec.sessions import finding
from mcode_exec.sessions.files import read_file
from mcode_exec.sessions.layout import history_paths
from mcode_exec.sessions.lines import parse
from mcode_exec.store import queue_rows, session_rows, turn_rows
from mcode_exec.store.database import Store
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.admission import REJECTED_BY, Policy
from mcode_exec.turns.lease import is_expired

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.records.invocation import Invocation

Mode = Literal["resubmit", "continue", "none", "busy"]

_PAGE = 50  # receipts per query

_REMINDER = (
    "[mcode: the turn before this message ended without a finished answer: it was stopped, it failed, or its "
    "process died. What it said and did stands above. Look at how far it came, go on from there, do not repeat "
    "what is done already, and bring the request to its end.]"
)

#: what a last error means for another try; docs/contract.md §6
_DOUBTS = {
    "LLM_AUTH_ERROR": "the provider refused the key or the permission: unless that has changed, it will again",
    "KEY_MISSING": "the provider had no key: unless one is set now, this ends in the same way",
    "LLM_CREDITS_EXHAUSTED": "the credit was used up: unless it was filled up, this ends in the same way",
    "USAGE_LIMIT_EXCEEDED": "the plan's limit was reached: until it is lifted, this ends in the same way",
    "LLM_CONTENT_REFUSED": "the model refused the request: the same words will probably be refused again",
}


class Retry(Struct, frozen=True, kw_only=True):
    """What a retry of a session's last turn comes to."""

    mode: Mode
    session_id: str
    #: the turn that is retried; with `none` and `busy` the last one there is
    receipt: Receipt | None = None
    #: why there is nothing to retry
    why: str | None = None
    code: str = "nothing_to_retry"
    lock: Lock | None = None
    #: what is said, and the message that says it: None is a new one
    content: tuple[Block, ...] = ()
    message_id: str | None = None
    #: first line of what was asked for
    asked: str = ""
    attachments: tuple[Attachment, ...] = ()
    #: of the last attempt that had one
    error_code: str | None = None
    #: the session's newest turn, when this was found out
    last_turn_id: str | None = None

    @property
    def warning(self) -> str | None:
        """Why it may end as it did before."""
        doubt = _DOUBTS.get(self.error_code or "")
        return None if doubt is None else f"the last attempt ended with {self.error_code}: {doubt}"

    def prompt(self) -> Prompt:
        words = [block.text for block in self.content if isinstance(block, TextBlock) and not block.synthetic]
        return Prompt(text="\n\n".join(words), content=self.content)

    def notices(self) -> tuple[tuple[str, str], ...]:
        """(code, message) for people."""
        assert self.receipt is not None
        turn = self.receipt.turn_id
        if self.mode == "resubmit":
            told = ("retry.resubmit", f"turn {turn} had no answer: its prompt is sent again")
        else:
            told = ("retry.continue", f"turn {turn} was not finished: it goes on from what stands there")
        return (told,) if self.warning is None else (told, ("retry.doubtful", self.warning))

    def submission(self, request: TurnRequest) -> TurnRequest:
        """`request` as another attempt of the turn that is retried: a request id keeps its meaning."""
        from msgspec import structs

        assert self.receipt is not None
        return structs.replace(
            request,
            digest=self.receipt.digest,
            request_id=self.receipt.request_id,
            request_scope=self.receipt.request_scope,
        )

    def policy(self) -> Policy:
        """Refuses, inside admission, what another turn has overtaken since."""

        def refuse(request: TurnRequest) -> str | None:
            session = session_rows.find_session(request.session_id)
            if session is None or session.last_turn_id == self.last_turn_id:
                return None
            return f"another turn has run meanwhile; `mcode retry {session.id} --inspect` shows what is there now"

        return refuse


async def begin_retry(runtime: Runtime, invocation: Invocation) -> Retry:
    """What `mcode retry` of the named session is to run.

    Raises: SessionError where there is nothing, BusyError where something runs.
    """
    assert invocation.session is not None
    session = (await finding.find_named(runtime.store, invocation.session)).session
    owner = runtime.owner
    retry = await plan_retry(
        runtime.store,
        runtime.sessions_dir,
        session,
        is_alive=owner.is_alive,
        boot_id=owner.boot_id,
        clock=runtime.clock,
    )
    check(retry, history_paths(runtime.sessions_dir, session.history_relative_dir).attachments)
    return retry


async def plan_retry(
    store: Store,
    sessions_dir: str,
    session: Session,
    *,
    is_alive: Callable[[str], bool],
    boot_id: str,
    clock: Clock,
) -> Retry:
    """What a retry of `session` would do now.  Raises: HistoryCorruptError, StoreFailedError."""
    lock, newest = await store.read(
        lambda: (turn_rows.find_lock(session.id), turn_rows.newest_receipts(session.id, None, 1))
    )
    last = newest[0] if newest else None
    if session.deleting_by is not None:
        return Retry(
            mode="none", session_id=session.id, receipt=last, why="it is being deleted",
            code=SessionDeletingError.code,
        )  # fmt: skip
    if session.revert is not None:
        why = f"its last prompt was taken back; `mcode sessions rewind {session.id} --undo` brings it back"
        return Retry(mode="none", session_id=session.id, receipt=last, why=why)
    if lock is not None and is_alive(lock.owner) and not is_expired(lock, boot_id=boot_id, clock=clock):
        return Retry(mode="busy", session_id=session.id, receipt=last, lock=lock)
    # read after the look at the lock: a turn that begins later is refused by `policy`
    records = await store.on_thread(lambda: _records(sessions_dir, session))
    found = await store.read(lambda: _find_turn(session.id, records))
    if found.mode == "none":
        return found
    return _fill(found, records, last, sessions_dir, session)


def _records(sessions_dir: str, session: Session) -> tuple[HistoryRecord, ...]:
    path = history_paths(sessions_dir, session.history_relative_dir).messages
    try:
        data = read_file(path)
    except OSError:
        return ()  # none was written; one that is lost is told of when the session is opened
    return tuple(line.record for line in parse(data, path).lines) if data else ()


def _find_turn(session_id: str, records: Sequence[HistoryRecord]) -> Retry:
    """The turn to retry: the last one, or the one that the last retries were about; inside a read."""
    said = {record.turn_id for record in records if record.message.role == "user"}
    last: Receipt | None = None
    error_code: str | None = None
    before: int | None = None
    while page := turn_rows.newest_receipts(session_id, before, _PAGE):
        for receipt in page:
            last = last or receipt
            error_code = error_code or _code_of(receipt)
            if receipt.outcome in ("completed", "waiting"):
                why = f"its last turn {receipt.turn_id} was answered"
                return Retry(mode="none", session_id=session_id, receipt=receipt, why=why)
            if receipt.turn_id in said:
                return Retry(mode="resubmit", session_id=session_id, receipt=receipt, error_code=error_code)
            if receipt.source != "retry":
                return Retry(
                    mode="none", session_id=session_id, receipt=receipt,
                    why=_why_lost(session_id, receipt), code="prompt_not_kept", error_code=error_code,
                )  # fmt: skip
        before = page[-1].sequence
    return Retry(mode="none", session_id=session_id, receipt=last, why="no turn has run in it")


def _code_of(receipt: Receipt) -> str | None:
    """The code that its run ended with; a turn that was stopped has it in its result alone.  Inside a read."""
    if receipt.code is not None or receipt.outcome != "aborted":
        return receipt.code
    from mcode_exec.executor.outcome import decode_result

    whole = turn_rows.find_receipt(receipt.turn_id)
    if whole is None or whole.result is None:
        return None
    error = decode_result(whole.result).error
    return None if error is None else error.code


def _why_lost(session_id: str, receipt: Receipt) -> str:
    turn = receipt.turn_id
    item_id = queue_rows.find_by_earlier_turn(session_id, turn)
    if item_id is not None:
        return (
            f"the prompt of its last turn {turn} waits in the queue again as {item_id}; "
            f"`mcode queue drain --session {session_id}` runs it"
        )
    return (
        f"its last turn {turn} ended before its prompt was kept; "
        f"run it again: `mcode exec --session {session_id} PROMPT`"
    )


def _fill(
    found: Retry, records: Sequence[HistoryRecord], last: Receipt | None, sessions_dir: str, session: Session
) -> Retry:
    """What is said, and how, to bring the found turn to its end."""
    from msgspec import structs

    assert found.receipt is not None
    turn_id = found.receipt.turn_id
    of_turn = [record for record in records if record.turn_id == turn_id]
    prompt = next(record for record in of_turn if record.message.role == "user")
    is_answered = any(record.message.role == "assistant" for record in of_turn)
    wanted = asked(records)
    content = (TextBlock(text=_REMINDER, synthetic=True),) if is_answered else prompt.message.content
    return structs.replace(
        found,
        mode="continue" if is_answered or is_reminder(prompt.message.content) else "resubmit",
        content=content,
        message_id=None if is_answered else prompt.id,
        asked=first_line(wanted),
        attachments=attachments(
            wanted, history_paths(sessions_dir, session.history_relative_dir).attachments
        ),
        last_turn_id=last.turn_id if last is not None else None,
    )


def check(retry: Retry, directory: str) -> None:
    """Raise SessionError where there is nothing that could be run, BusyError where something runs."""
    if retry.code == SessionDeletingError.code:
        raise SessionDeletingError(retry.session_id)
    if retry.lock is not None:
        rejected = Rejected(reason=REJECTED_BY[retry.lock.kind], holder=retry.lock.holder())
        reject(rejected, TurnRequest(session_id=retry.session_id, turn_id="", digest="", source="retry"))
    if retry.mode == "none":
        raise SessionError(f"nothing to retry in session {retry.session_id}: {retry.why}", code=retry.code)
    gone = [attachment for attachment in retry.attachments if attachment.is_missing]
    if gone:
        named = ", ".join(f"{one.name} ({(one.digest or '')[:12]}…)" for one in gone)
        raise SessionError(
            f"the attachment {named} of session {retry.session_id} is gone from {directory}; put it back, or "
            f"attach it again: `mcode exec --session {retry.session_id} --file … PROMPT`",
            code="attachment_missing",
        )

"""What the client and the wire formats agree on: a request's bytes, and how an answer is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from msgspec import Struct

from mcode_exec.errors import ModelCallError
from mcode_exec.providers.assembly import Assembled, Draft, Emit
from mcode_exec.providers.counting import merge_counts
from mcode_exec.providers.endings import ending_of, finish_reason_of
from mcode_exec.providers.failures import SHOWN_BODY, Headers, from_error_object, printable
from mcode_exec.providers.payload import BeyondLimitsError, PayloadError, as_object, decode
from mcode_exec.providers.sse import SseEvent
from mcode_exec.records.history import Block, TextBlock
from mcode_exec.records.model import WireFormat
from mcode_exec.records.usage import Usage

Auth = Literal["bearer", "x-api-key", "api-key", "none"]

#: names and types of events that only hold a connection open
_KEEP_ALIVES = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})

_OPENAI_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
#: the levels of effort that each format has words for, weakest first
EFFORTS: dict[WireFormat, tuple[str, ...]] = {
    "anthropic-messages": (*_OPENAI_EFFORTS, "max"),
    "openai-completions": _OPENAI_EFFORTS,
    "openai-responses": _OPENAI_EFFORTS,
}


def _is_refused(base_resp: Any) -> bool:
    """Whether MiniMax's status in an answer is that of a failure."""
    return bool(as_object(base_resp).get("status_code"))


def _no_json(data: bytes, error: PayloadError) -> ModelCallError:
    if isinstance(error, BeyondLimitsError):
        return ModelCallError("LLM_BAD_RESPONSE", f"an event of the provider's stream is {error}")
    shown = data[: SHOWN_BODY * 4].decode("utf-8", "replace")[:SHOWN_BODY]
    return ModelCallError(
        "LLM_UPSTREAM_ERROR", printable(f"an event of the provider's stream is no JSON: {shown}")
    )


def _reason_in(content: Sequence[Block], label: str) -> str:
    """What a refusal says that only its label calls one."""
    said = " ".join(block.text.strip() for block in content if isinstance(block, TextBlock))
    return f"{said} ({label})" if said else f"it gave no reason ({label})"


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where a provider is, how it is spoken to, and with which key."""

    provider_id: str
    api: WireFormat
    base_url: str
    api_key: str | None
    #: the header that carries the key
    auth: Auth = "bearer"
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    #: the variables that may hold the key, for people: `A_KEY` or `A_KEY or B_KEY`
    key_env: str | None = None
    #: where the key is from, for people; None where there is none
    key_source: str | None = None

    @property
    def host(self) -> str:
        """The host of the address, in lower case."""
        return self.base_url.partition("://")[2].partition("/")[0].partition(":")[0].lower()

    @property
    def key_header(self) -> str | None:
        """The header of the configuration that is sent in place of the key; None where the key is sent."""
        carrier = "authorization" if self.auth in ("bearer", "none") else self.auth
        return next((name for name in self.headers if name.lower() == carrier), None)

    def __repr__(self) -> str:
        return f"Endpoint({self.provider_id!r}, {self.api!r})"


#: OpenAI's own address, which takes what those that stand in for it may not know
OPENAI_HOST = "api.openai.com"


class WireRequest(Struct, frozen=True):
    """A call, encoded; `path` goes onto the base URL."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    #: why the effort that was wanted is not in it
    effort_left_out: str | None = None


class AnswerReader(ABC):
    """Reads one answer of one wire format; `finish` may be called once `is_complete`."""

    def __init__(self, emit: Emit, provider_id: str, headers: Headers, now_ms: int) -> None:
        self.draft = Draft(emit, provider_id)
        self.counts: dict[str, int] = {}
        self._told_counts: dict[str, int] = {}
        self.label: str | None = None
        self.refusals: list[str] = []
        #: the terminal frame has arrived; nothing that follows matters
        self.is_terminal = False
        #: the answer may end here; something that matters (the usage) may still follow
        self.is_complete = False
        #: a failure came with its usage: no more is billed
        self.is_counted = False
        #: how many events of this format have come; pings and comments are none
        self.events = 0
        #: whether any byte of a body has come, and whether that body is one JSON text
        self.has_bytes = self.is_whole_body = False
        #: whether the first event has begun, and is not whole yet
        self.is_inside_event = False
        #: the beginning of the first event that is none of this format
        self.foreign = b""
        self._headers = headers
        self._now_ms = now_ms

    def feed(self, event: SseEvent) -> bool:
        """Take in an event; whether it was progress (a ping is none).

        Raises: ModelCallError for an error the provider reports in its stream.
        """
        data = event.data
        if not data.startswith(b"{"):
            data = data.strip()
        if not data or event.name in _KEEP_ALIVES:
            return False
        if data == b"[DONE]":
            is_progress = is_ours = self.take_done()
        else:
            try:
                value = decode(data)
            except PayloadError as error:
                if self.is_complete:
                    return False  # the answer is told; what was broken is its usage at most
                raise _no_json(data, error) from None
            is_progress = is_ours = False
            if isinstance(value, dict):  # any other value says nothing
                kind = value.get("type")
                if not kind or not isinstance(kind, str):
                    kind = event.name
                if kind in _KEEP_ALIVES:
                    return False
                is_error = kind == "error" or event.name == "error"
                if is_error or ("base_resp" in value and _is_refused(value["base_resp"])):
                    self.fail(value)
                self.draft.has_moved = False
                is_ours = self.take(kind, value)
                is_progress = is_ours and (self.draft.has_moved or self.brings(kind, value))
                if not is_progress:
                    self.check(value)
                if not is_ours:
                    self.check_bare(value)
            if not is_ours and not self.foreign:
                self.foreign = data[: SHOWN_BODY * 4]
        self.events += is_progress
        return is_progress

    @abstractmethod
    def take(self, kind: str, value: dict[str, Any]) -> bool:
        """Take in the object of an event; False if it is no event of this format.

        `kind` is the type that the object or else its event names, perhaps "".
        Raises: ModelCallError for an error the provider reports in its stream.
        """

    @abstractmethod
    def brings(self, kind: str, value: dict[str, Any]) -> bool:
        """Whether an event that was taken in says anything; empty ones only hold a dead connection open."""

    def has_new_counts(self) -> bool:
        """Whether another usage is known than when this was last asked."""
        told, self._told_counts = self._told_counts, self.counts.copy()
        return self.counts != told

    def take_done(self) -> bool:
        """Take in `[DONE]`, which says something in one format only."""
        return False

    @abstractmethod
    def feed_body(self, body: dict[str, Any]) -> bool:
        """Take in a whole answer in one JSON object; False if it is no answer of this format."""

    @abstractmethod
    def usage(self) -> Usage:
        """What the provider counted so far, in our classes."""

    @property
    def has_usage(self) -> bool:
        return bool(self.counts)

    def check(self, value: dict[str, Any]) -> None:
        """Raise the failure that an object means which is an error by any of the ways to say so."""
        if value.get("error") or value.get("object") == "error" or value.get("type") == "error":
            self.fail(value)
        if "base_resp" in value and _is_refused(value["base_resp"]):
            self.fail(value)

    def check_bare(self, value: dict[str, Any]) -> None:
        """Raise the failure that an object means which is no part of an answer, and has no `error` either."""
        if self.is_complete:
            return
        from mcode_exec.providers.error_report import is_bare_error

        if is_bare_error(value):
            self.fail(value)

    def fail(self, value: dict[str, Any], usage: Any = None) -> NoReturn:
        """Raise the failure that an error object means; it may say what was used, as `usage` beside it may."""
        for told in (usage, value.get("usage")):
            if isinstance(told, dict):
                merge_counts(self.counts, told)
                self.is_counted = True
        raise from_error_object(value, self._headers, self._now_ms)

    def finish(self) -> Assembled:
        """The answer; content decides what it is, the provider's label only where it must."""
        content = self.draft.content()
        ending = ending_of(self.label)
        refusal = "".join(self.refusals) or (
            _reason_in(content, str(self.label)) if ending == "refusal" else None
        )
        return Assembled(
            content=content,
            finish_reason=finish_reason_of(ending, has_calls=self.draft.has_calls),
            usage=self.usage(),
            refusal=refusal,
            label=self.label,
            ending=ending,
        )

"""What the client and the wire formats agree on: a request's bytes, and how an answer is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, NoReturn

from msgspec import Struct

from mcode_exec.providers.assembly import (
    FAILURE_LABELS,
    REFUSAL_LABELS,
    Assembled,
    Draft,
    Emit,
    finish_reason_of,
)
from mcode_exec.providers.failures import Headers, from_error_object
from mcode_exec.providers.payload import PayloadError, decode
from mcode_exec.providers.sse import SseEvent
from mcode_exec.records.model import WireFormat
from mcode_exec.records.usage import Usage

Auth = Literal["bearer", "x-api-key", "api-key", "none"]

_OPENAI_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
#: the levels of effort that each format has words for, weakest first
EFFORTS: dict[WireFormat, tuple[str, ...]] = {
    "anthropic-messages": (*_OPENAI_EFFORTS, "max"),
    "openai-completions": _OPENAI_EFFORTS,
    "openai-responses": _OPENAI_EFFORTS,
}


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

    def __repr__(self) -> str:
        return f"Endpoint({self.provider_id!r}, {self.api!r})"


class WireRequest(Struct, frozen=True):
    """A call, encoded; `path` goes onto the base URL."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes


class AnswerReader(ABC):
    """Reads one answer of one wire format; `finish` may be called once `is_complete`."""

    def __init__(self, emit: Emit, provider_id: str, headers: Headers, now_ms: int) -> None:
        self.draft = Draft(emit, provider_id)
        self.counts: dict[str, int] = {}
        self.label: str | None = None
        self.refusal = ""
        #: the terminal frame has arrived; nothing that follows matters
        self.is_terminal = False
        #: the answer may end here; something that matters (the usage) may still follow
        self.is_complete = False
        self._headers = headers
        self._now_ms = now_ms

    @abstractmethod
    def feed(self, event: SseEvent) -> bool:
        """Take in an event; whether it was progress (a ping is none).

        Raises: ModelCallError for an error the provider reports in its stream.
        """

    @abstractmethod
    def feed_body(self, body: dict[str, Any]) -> bool:
        """Take in a whole answer in one JSON object; False if it is no answer of this format."""

    @abstractmethod
    def usage(self) -> Usage:
        """What the provider counted so far, in our classes."""

    @property
    def has_usage(self) -> bool:
        return bool(self.counts)

    def decoded(self, data: bytes) -> dict[str, Any] | None:
        """The JSON object of an event; None for another JSON value, which says nothing."""
        try:
            value = decode(data)
        except PayloadError:
            shown = data[:200].decode("utf-8", "replace")
            self.fail({"error": {"message": f"an event of the stream is no JSON: {shown}"}})
        return value if isinstance(value, dict) else None

    def fail(self, value: Any) -> NoReturn:
        """Raise the failure that an error object means."""
        raise from_error_object(value, self._headers, self._now_ms)

    def finish(self) -> Assembled:
        """The answer; content decides what it is, the provider's label only where it must."""
        content = self.draft.content()
        label = (self.label or "").lower() or None
        refusal = self.refusal or (f"it gave no reason ({label})" if label in REFUSAL_LABELS else None)
        return Assembled(
            content=content,
            finish_reason=finish_reason_of(label, has_calls=self.draft.has_calls),
            usage=self.usage(),
            refusal=refusal,
            failure_label=label if label in FAILURE_LABELS else None,
        )

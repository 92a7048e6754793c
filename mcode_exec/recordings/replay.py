"""A provider that answers from a recording: the same bytes in the same order, without a network.

Each request must be the one that was recorded in its place, and is compared
before it is answered.  Time passes as it did then, but nothing is waited for:
the replay's clock runs ahead by what answers took and retries waited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from mcode_exec.clock import Clock
from mcode_exec.errors import MODEL_CALL_CODES, ModelCallError
from mcode_exec.ids import is_call_id
from mcode_exec.plurals import counted
from mcode_exec.providers.failures import Headers, printable
from mcode_exec.providers.url import Url
from mcode_exec.recordings.comparison import Normal, around, differences, first_difference, nearest
from mcode_exec.recordings.layout import Exchange, Place, RecordedCall, Recording
from mcode_exec.recordings.places import finder, moved, named
from mcode_exec.recordings.rewriting import Find, masked, recut, relocated, replaced
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.redaction import MASK, Redactor
from mcode_exec.version import VERSION

_MISMATCH = "REPLAY_MISMATCH"


class ReplayClock:
    """A clock that whoever would wait moves on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_s = 0.0

    def now_ms(self) -> int:
        return self._clock.now_ms() + round(self._ahead_s * 1000)

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s() + self._ahead_s

    def boot_ms(self) -> int:
        return self._clock.boot_ms() + round(self._ahead_s * 1000)

    def advance(self, seconds: float) -> None:
        self._ahead_s += max(0.0, seconds)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


class Replay:
    """One run's way through a recording; a transport."""

    def __init__(
        self,
        recording: Recording,
        *,
        here: Sequence[Place],
        clock: ReplayClock,
        redactor: Redactor,
        is_strict: bool,
    ) -> None:
        self._recording = recording
        self._clock = clock
        self._redactor = redactor
        self._is_strict = is_strict
        self._asked = 0
        self._calls = list(recording.calls)
        was = recording.manifest.places
        self._moved = moved(was, here)
        #: finds directories of this run, to name them; those of the recorded one, to take them here
        self._name: Find = finder(named(here, was))
        self._take: Find = finder(self._moved)
        #: ids of recorded calls and of those that are now what they were
        self._ids: list[tuple[str, str]] = []
        #: takes texts of the recorded run here, ids as well
        self._move: Find = finder(()) if is_strict else self._take

    @property
    def left(self) -> int:
        """How many recorded requests were not made."""
        return self._recording.requests - self._asked

    async def post(
        self, _url: Url, _headers: Headers, body: bytes, *, on_connected: Callable[[], None]
    ) -> _ReplayedResponse:
        """The next recorded answer.

        Raises: ModelCallError: REPLAY_MISMATCH, or what was recorded in place of an answer: LLM_STALLED where
            the recorded run gave up waiting.
        """
        number = self._asked + 1
        if number > self._recording.requests:
            raise ModelCallError(
                _MISMATCH,
                f"the recording {self._recording.directory} holds {counted(self._recording.requests, 'request')}; "
                f"this run makes one more",
            )
        self._compare(number, body)
        self._asked = number
        on_connected()
        exchange = self._recording.exchange(number)
        if exchange is None:
            raise ModelCallError(
                _MISMATCH,
                f"the recording {self._recording.directory} has no answer to request {number}: "
                "the recorded run ended before it came",
            )
        self._clock.advance(exchange.head_ms / 1000)
        if exchange.status is None:
            raise self.failure(exchange)
        answer = relocated(self._recording.response(number, exchange), self._move)
        return _ReplayedResponse(self, self._clock, exchange, answer)

    async def close(self) -> None:
        """There is nothing to close."""

    def failure(self, exchange: Exchange) -> ModelCallError:
        """What ended an exchange whose answer did not come to its end."""
        self._clock.advance((exchange.end_ms - exchange.head_ms) / 1000)
        failure = self._failure(exchange)
        failure.is_final = self._asked == self._recording.requests
        return failure

    def _failure(self, exchange: Exchange) -> ModelCallError:
        if exchange.failure is None:
            came_ms = exchange.pieces[-1][0] if exchange.pieces else exchange.head_ms
            waited = f", {exchange.end_ms - came_ms} ms after what had come last" if exchange.status else ""
            return ModelCallError(
                "LLM_STALLED",
                f"the recorded run gave request {self._asked} up after {exchange.end_ms} ms{waited}",
            )
        code = exchange.failure.code if exchange.failure.code in MODEL_CALL_CODES else "LLM_UPSTREAM_ERROR"
        return ModelCallError(code, printable(exchange.failure.message))

    def key_after_refusal(self) -> str | None:
        """What stands for another key, where the recorded run went on with one after a refusal."""
        following = self._asked + 1
        if following > self._recording.requests:
            return None
        is_same = self._recording.request(self._asked) == self._recording.request(following)
        return f"recorded-{following}" if is_same else None

    def outcome(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """What a call of a tool gave back in the recorded run.  Raises: ModelCallError: REPLAY_MISMATCH."""
        call = self.recognise(call_id, name, arguments)
        if call is not None:
            return self._here_now(call.outcome)
        raise ModelCallError(
            _MISMATCH,
            f"the recording {self._recording.directory} holds no result for this call of {printable(name)}: "
            f'{printable(json.dumps(arguments)[:300])} (tools = "live" runs it)',
        )

    def check_whole(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Raise ModelCallError: REPLAY_MISMATCH for a call that cannot be run: what was masked is not known."""
        if MASK in json.dumps(arguments):
            raise ModelCallError(
                _MISMATCH,
                f"a secret of this call of {printable(name)} is masked in the recording, so it cannot be run "
                f'(tools = "recorded" gives back what it gave): {printable(json.dumps(arguments)[:200])}',
            )

    def recognise(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> RecordedCall | None:
        """The recorded call that this one is; from here on its id stands for that one's."""
        wanted = self._redactor.json(dict(arguments))
        for call in self._calls:
            if call.name == name and not self._differences(call.arguments, wanted):
                self._calls.remove(call)
                if not self._is_strict and is_call_id(call.id):
                    self._ids.append((call.id, call_id))
                    self._move = finder(self._moved, self._ids)
                return call
        return None

    def _here_now(self, outcome: ToolOutcome) -> ToolOutcome:
        return msgspec.structs.replace(outcome, content=replaced(outcome.content, self._move))

    def _compare(self, number: int, body: bytes) -> None:
        recorded, now = self._recording.request(number), masked(body, self._redactor)
        if self._is_strict:
            if recorded != now:
                raise self._mismatch(number, [_first_byte(recorded, now)])
            return
        if recorded == now:
            return
        try:
            was = json.loads(recorded)
        except (ValueError, RecursionError):
            raise self._mismatch(number, ["the recorded request is no JSON any more"]) from None
        if found := self._differences(was, json.loads(now)):
            raise self._mismatch(number, found)

    def _differences(self, recorded: Any, now: Any) -> list[str]:
        is_now = Normal(self._name).json(now)
        was = Normal(self._name, self._take).json(recorded)
        if not differences(was, is_now):
            return []
        # what the two runs have in common (a file above the workspace) may be in a directory that moved
        return differences(nearest(was, Normal(self._name).json(recorded), is_now), is_now)

    def _mismatch(self, number: int, found: Sequence[str]) -> ModelCallError:
        made_by = self._recording.manifest.mcode_version
        by = f" (made by mcode {made_by}, this is {VERSION})" if made_by != VERSION else ""
        return ModelCallError(
            _MISMATCH, printable(f"request {number} is not the recorded one{by}: {'; '.join(found)}")
        )


class _ReplayedResponse:
    """A recorded answer in its recorded pieces."""

    def __init__(self, replay: Replay, clock: ReplayClock, exchange: Exchange, body: bytes) -> None:
        self.status = exchange.status or 0
        self.proxy = exchange.proxy
        self.headers: Headers = [
            (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in exchange.response_headers
        ]
        self._replay = replay
        self._clock = clock
        self._exchange = exchange
        self._body = body
        self._pieces = recut(exchange.pieces, len(body))
        self._next = 0
        self._at = 0
        self._at_ms = exchange.head_ms

    async def read(self) -> bytes:
        while self._next < len(self._pieces):
            at_ms, length = self._pieces[self._next]
            self._next += 1
            self._clock.advance((at_ms - self._at_ms) / 1000)
            self._at_ms = max(at_ms, self._at_ms)
            if length > 0:
                data = self._body[self._at : self._at + length]
                self._at += length
                return data
        if self._exchange.end in ("failed", "given-up"):
            raise self._replay.failure(self._exchange)
        return b""

    async def read_at_most(self, limit: int, _limit_s: float) -> bytes:
        pieces: list[bytes] = []
        try:
            while data := await self.read():
                pieces.append(data)
        except ModelCallError:
            pass
        return b"".join(pieces)[:limit]

    def release(self) -> None:
        """There is no connection to keep."""

    def abort(self) -> None:
        """There is no connection to close."""


def _first_byte(recorded: bytes, now: bytes) -> str:
    was, is_now = recorded.decode("utf-8", "replace"), now.decode("utf-8", "replace")
    at = first_difference(recorded, now)
    return f"byte {at}: recorded {around(was, is_now)}, now {around(is_now, was)}"

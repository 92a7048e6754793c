"""Server-sent events: bytes to events, as the standard has it.

Lines end at LF, CR or CRLF and nowhere else (U+2028 and its like are text),
wherever the network cut the bytes.  Comments, `id` and `retry` yield nothing;
an event that the stream's end cut short is not delivered.  Data stays bytes:
UTF-8 cannot be cut inside a character here, and the JSON reader checks it.
"""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.errors import ModelCallError

#: largest event, bytes; a model's whole answer fits into it many times over
MAX_EVENT_BYTES = 32 * 1024 * 1024
#: what a line of data costs in memory beside its bytes, about
_LINE_BYTES = 64
#: how a line of a stream may begin
_FIELDS = (b"data", b"event", b"id", b"retry", b":")


class SseEvent(Struct, frozen=True, gc=False):
    name: str
    data: bytes


def is_line(begin: bytes) -> bool:
    """Whether a line of a stream begins so, or might if it were not cut."""
    return begin.startswith(_FIELDS) or any(field.startswith(begin) for field in _FIELDS)


class SseParser:
    """Feed it bytes as they come; it gives the events that they complete."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._pieces: list[bytes] = []  # an unfinished line
        self._pieces_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = ""
        #: the newest line that names an event, and the name in it
        self._name_line, self._line_name = b"", ""
        self._skips_lf = False
        self._is_first_line = True

    @property
    def is_inside_event(self) -> bool:
        """Whether an event has begun that is not whole yet; a comment is none."""
        return bool(self._data or self._name) or bool(self._pieces and not self._pieces[0].startswith(b":"))

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Raises: ModelCallError (LLM_BAD_RESPONSE) for an event above the limit."""
        if not chunk:
            return []
        if self._skips_lf and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._skips_lf = chunk[-1:] == b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in chunk:
            self._hold(chunk)
            return []
        if self._pieces:
            chunk = b"".join(self._pieces) + chunk
            self._pieces.clear()
            self._pieces_bytes = 0
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if self._data_bytes + len(chunk) + _LINE_BYTES * len(lines) <= self._max:
            events = self._take(lines)  # no event among them can be too large
        else:
            events = [event for line in lines for event in self._take_checked(line)]
        if tail:
            self._hold(tail)
        return events

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        self._check(self._pieces_bytes)

    def _check(self, more: int) -> None:
        if self._data_bytes + more > self._max:
            raise ModelCallError(
                "LLM_BAD_RESPONSE", f"the provider sent an event of more than {self._max} bytes"
            )

    def _take_checked(self, line: bytes) -> list[SseEvent]:
        if line.startswith(b"data"):
            self._check(len(line))
        return self._take([line])

    def _take(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        if self._is_first_line:
            self._is_first_line = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        data = self._data
        counted = len(data)
        for line in lines:
            if line.startswith(b"data:"):  # nearly every line
                value = line[6:] if line.startswith(b" ", 5) else line[5:]
                data.append(value)
            elif not line:
                if data:
                    events.append(SseEvent(self._name, data[0] if len(data) == 1 else b"\n".join(data)))
                    data.clear()
                    counted = self._data_bytes = 0
                self._name = ""
            elif line.startswith(b"event:"):
                if line != self._name_line:  # most say the same as the one before
                    name = line[7:] if line.startswith(b" ", 6) else line[6:]
                    self._name_line, self._line_name = line, name.decode("utf-8", "replace")
                self._name = self._line_name
            elif line == b"data":
                data.append(b"")
            elif line == b"event":
                self._name = ""
        self._data_bytes += sum(len(value) + _LINE_BYTES for value in data[counted:])
        return events

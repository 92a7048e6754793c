"""What a recording is on disk: one directory, readable by people, private to its owner.

    recording.json       what was run, with which models, in which places
    0001.request.json    the body of the first request, as it was sent
    0001.json            where it went, and the answer's head, pieces and end
    0001.response        the answer's bytes, as they came, transfer and content coding undone
    tools.jsonl          one tool call a line, with what it gave back

Secrets are masked in all of it, nothing else is changed.  A request is on disk
before it is sent; an answer that has no `0001.json` never came to an end.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct

from mcode_exec.errors import ConfigError, InvocationError
from mcode_exec.paths import FILE_MODE, make_private_dir
from mcode_exec.records.model import WireFormat
from mcode_exec.records.tool import ToolOutcome

MANIFEST = "recording.json"
TOOLS = "tools.jsonl"
_NUMBERED = re.compile(r"[0-9]{4,}\.(?:json|request\.json|response)")
_REQUEST = re.compile(r"[0-9]{4,}\.request\.json")
FORMAT = "mcode-recording"
VERSION = 1

# what stands in a recording may be anybody's
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Status = Annotated[int, msgspec.Meta(ge=100, le=599)]
#: largest file that is read
_MAX_BYTES = 256 * 1024 * 1024

#: how an exchange ended: the body was over | the reader had enough | the reader gave it up | it broke
End = Literal["complete", "released", "given-up", "failed"]


class Place(Struct, frozen=True, kw_only=True):
    """A directory of the run; `name` stands for it where two runs are compared."""

    name: str
    path: str


class RecordedModel(Struct, frozen=True, kw_only=True, rename="camel"):
    """A model of the run, as far as requests depend on it."""

    provider_id: str
    model_id: str
    api: WireFormat
    base_url: str
    context_tokens: Tokens
    output_tokens: Tokens
    takes_tools: bool
    takes_images: bool
    reasons: bool
    is_small: bool = False


class Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    format: str = FORMAT
    version: int = VERSION
    mcode_version: str
    created_at_ms: int
    session_id: str
    turn_id: str
    #: longest first
    places: tuple[Place, ...]
    models: tuple[RecordedModel, ...]


class Failure(Struct, frozen=True, kw_only=True, rename="camel"):
    """What broke a request or its answer."""

    code: str
    message: str


class Exchange(Struct, frozen=True, kw_only=True, rename="camel"):
    """One request and what came of it; times are milliseconds since the request went out."""

    url: str
    headers: list[tuple[str, str]]
    #: what a message calls the proxy that could have answered; "": none could
    proxy: str = ""
    #: None: no answer began
    status: Status | None = None
    response_headers: list[tuple[str, str]] = []
    head_ms: Count = 0
    #: [milliseconds, bytes] of each piece
    pieces: list[tuple[Count, Count]] = []
    end: End
    end_ms: Count = 0
    failure: Failure | None = None


class RecordedCall(Struct, frozen=True, kw_only=True, rename="camel"):
    """One tool call that was run."""

    #: the id it had in that run
    id: str
    name: str
    arguments: dict[str, Any]
    outcome: ToolOutcome


class Recording(Struct, frozen=True, kw_only=True):
    """A recording, read: bodies are read when they are asked for."""

    directory: str
    manifest: Manifest
    #: how many requests were made
    requests: int
    calls: tuple[RecordedCall, ...]

    def request(self, number: int) -> bytes:
        """The body of a request; the first is 1.  Raises: ConfigError."""
        return read(request_path(self.directory, number))

    def exchange(self, number: int) -> Exchange | None:
        """What came of a request; None where the run ended before that was known.  Raises: ConfigError."""
        path = exchange_path(self.directory, number)
        return _decoded(path, Exchange) if os.path.exists(path) else None

    def response(self, number: int, exchange: Exchange) -> bytes:
        """The bytes of its answer.  Raises: ConfigError, also where they are not as many as came."""
        path = response_path(self.directory, number)
        body = read(path)
        if len(body) != sum(size for _, size in exchange.pieces):
            raise ConfigError(f"{path} is damaged: it is not as long as its pieces together")
        return body


def request_path(directory: str, number: int) -> str:
    return os.path.join(directory, f"{number:04}.request.json")


def exchange_path(directory: str, number: int) -> str:
    return os.path.join(directory, f"{number:04}.json")


def response_path(directory: str, number: int) -> str:
    return os.path.join(directory, f"{number:04}.response")


def load(directory: str) -> Recording:
    """Read a recording.  Raises: ConfigError where there is none, or one that cannot be used."""
    path = os.path.join(directory, MANIFEST)
    if not os.path.isfile(path):
        raise ConfigError(
            f"{directory} is no recording: it has no {MANIFEST}; `mcode exec --record DIR` makes one"
        )
    manifest = _decoded(path, Manifest)
    if manifest.format != FORMAT or manifest.version != VERSION:
        raise ConfigError(
            f"{path} is of version {manifest.version} of {manifest.format!r}; this mcode reads version {VERSION}"
        )
    names = [name for name in os.listdir(directory) if _NUMBERED.fullmatch(name)]
    numbers = {int(name[:-13]) for name in names if _REQUEST.fullmatch(name)}
    # what came of a request is written after it
    last = max((int(name.partition(".")[0]) for name in names), default=0)
    if len(numbers - {0}) != last:
        missing = next(number for number in range(1, last + 1) if number not in numbers)
        raise ConfigError(f"{directory} is damaged: it lacks {os.path.basename(request_path('', missing))}")
    return Recording(directory=directory, manifest=manifest, requests=last, calls=_calls(directory))


def _calls(directory: str) -> tuple[RecordedCall, ...]:
    path = os.path.join(directory, TOOLS)
    if not os.path.exists(path):
        return ()
    # a run that was killed may have left half a line
    lines = read(path).split(b"\n")[:-1]
    decoder = msgspec.json.Decoder(RecordedCall)
    try:
        return tuple(decoder.decode(line) for line in lines)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} cannot be used: {error}") from None


def _decoded(path: str, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(read(path), type=kind)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} cannot be used: {error}") from None


def read(path: str) -> bytes:
    """The content of a regular file.  Raises: ConfigError."""
    try:
        return _content(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _content(path: str) -> bytes:
    """Likewise; a FIFO would be waited for.  Raises: OSError, ConfigError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as opened:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is no regular file")
        if status.st_size > _MAX_BYTES:
            raise ConfigError(f"{path} is larger than anything that is recorded")
        return opened.read()


def names_to_replace(directory: str) -> list[str]:
    """The files of the recording that is in a directory, what tells it last; none in an empty one.

    Raises: InvocationError where there is anything else; OSError where there is no directory.
    """
    names = sorted(os.listdir(directory), key=lambda name: (name == MANIFEST, name))
    begun = {name[:-13] for name in names if _REQUEST.fullmatch(name)}
    for name in names:
        if MANIFEST not in names or not _is_of_recording(directory, name, begun):
            raise InvocationError(
                f"--record: {directory} holds other things than a recording, such as {name!r}; "
                "name another directory"
            )
    return names


def _is_of_recording(directory: str, name: str, begun: set[str]) -> bool:
    """Whether a file is one that `--record` left, by its name and what is in it; a run may have died writing it.

    `begun` are the numbers of the requests that are there.
    """
    path = os.path.join(directory, name)
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    if name == MANIFEST:
        return _is_one(path, _Marked, f'{{\n  "format": "{FORMAT}"')
    if name == TOOLS:
        return _is_one(path, RecordedCall, '{"id":"')
    if not _NUMBERED.fullmatch(name):
        return False
    number, _, kind = name.partition(".")
    # numbers go up by one, and a request is written before its answer
    if number not in begun or not 0 < int(number) <= len(begun):
        return False
    if kind == "request.json":
        return _is_one(path, dict, "{")
    return kind == "response" or _is_one(path, Exchange, '{"url":"')


class _Marked(Struct, frozen=True):
    """A recording of whatever version."""

    format: Literal["mcode-recording"]


def _is_one(path: str, kind: Any, begin: str) -> bool:
    """Whether the first value in a file is of a kind, or is not whole but begins as it was written."""
    head = begin.encode()
    try:
        data = _content(path)
        if data[: len(head)] == head[: len(data)]:
            return True
        msgspec.json.decode(data.partition(b"\n")[0] if kind is RecordedCall else data, type=kind)
    except (ConfigError, msgspec.DecodeError):
        return False
    return True


def make_directory(directory: str) -> None:
    """Make the directory of a recording, private; one of the user's is taken as it is.  Raises: OSError."""
    make_private_dir(directory)


def write(path: str, data: bytes, *, flags: int = os.O_TRUNC) -> None:
    """Write a file that only its owner reads.  Raises: OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flags, FILE_MODE)
    try:
        os.fchmod(fd, FILE_MODE)  # whatever the umask
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)

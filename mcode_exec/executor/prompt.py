"""Where a prompt comes from: the argument, `--input`, attachments.

stdin is read only when it is asked for.  Up to 10 MiB; a BOM is dropped; bytes
that are no UTF-8 are an error that gives the offset; NUL and lone surrogates
become U+FFFD with a notice.
"""

from __future__ import annotations

import os
import stat

import msgspec
from msgspec import Struct

from mcode_exec.errors import InvocationError
from mcode_exec.executor.reading import STDIN, read_source
from mcode_exec.records.history import Block, FileBlock, ImageBlock, TextBlock
from mcode_exec.records.invocation import Invocation

MAX_PROMPT_BYTES = 10 * 1024 * 1024
MAX_FILES = 10
MAX_FILES_BYTES = 100 * 1024 * 1024


class Attachment(Struct, frozen=True, kw_only=True):
    """Bytes that a block names by digest."""

    digest: str
    data: bytes


class Prompt(Struct, frozen=True, kw_only=True):
    """What the user says in this turn."""

    #: the words of the argument or, without one, of the input: what a title is made of
    text: str
    content: tuple[Block, ...]
    attachments: tuple[Attachment, ...] = ()
    #: (code, message)
    notices: tuple[tuple[str, str], ...] = ()

    def digest(self) -> str:
        """Identifies the input for `--request-id`; never the input itself."""
        import hashlib

        return hashlib.sha256(msgspec.json.encode(self.content)).hexdigest()


async def read_prompt(invocation: Invocation) -> Prompt:
    """Everything the invocation gives as input.

    Raises: InvocationError when there is nothing to run, or an input cannot be used.
    """
    notices: list[tuple[str, str]] = []
    words = clean_text(invocation.prompt, "the prompt", notices) if invocation.prompt is not None else None
    given = None
    if invocation.input_source is not None:
        given = await _read_input(invocation.input_source, notices)
        if invocation.input_format == "json":
            given = _json_prompt(given, notices)
        if words is not None and not given.strip():
            empty = f"--input {invocation.input_source} gave nothing; the prompt runs without it"
            notices.append(("input.empty", empty))
            given = None
    blocks: list[Block] = []
    if words is not None and words.strip():
        text = words if given is None else f"{words}\n\n{_block('input', '', given.rstrip(chr(10)))}"
        blocks.append(TextBlock(text=text))
    elif given is not None and given.strip():
        blocks.append(TextBlock(text=given))
    attachments: list[Attachment] = []
    for block, attachment in _attachments(invocation.files, notices):
        blocks.append(block)
        if attachment is not None:
            attachments.append(attachment)
    if not blocks:
        raise InvocationError("there is nothing to run: give a prompt, or --input - to read one from stdin")
    return Prompt(
        text=words if words is not None and words.strip() else given or "",
        content=tuple(blocks),
        attachments=tuple(attachments),
        notices=tuple(notices),
    )


def clean_text(text: str, what: str, notices: list[tuple[str, str]]) -> str:
    """`text` as a message may hold it; what had to be replaced is said.  Raises: InvocationError."""
    cleaned = text.removeprefix("\ufeff").replace("\0", "\ufffd")
    if not cleaned.isascii():
        cleaned = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in cleaned)
    if cleaned != text.removeprefix("\ufeff"):
        notices.append(
            (
                "prompt.replaced",
                f"{what} holds NUL characters or lone surrogates; they were replaced by U+FFFD",
            )
        )
    if len(cleaned.encode()) > MAX_PROMPT_BYTES:
        raise InvocationError(f"{what} is larger than {MAX_PROMPT_BYTES} bytes (10 MiB)")
    return cleaned


async def _read_input(source: str, notices: list[tuple[str, str]]) -> str:
    what = "stdin" if source == STDIN else source
    named = "stdin" if source == STDIN else f"--input {source}"
    data = await read_source(source, MAX_PROMPT_BYTES, what=named)
    if len(data) > MAX_PROMPT_BYTES:
        raise InvocationError(f"the input from {what} is larger than {MAX_PROMPT_BYTES} bytes (10 MiB)")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InvocationError(f"the input from {what} is UTF-16, not UTF-8 (byte offset 0); convert it first")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvocationError(
            f"the input from {what} is not valid UTF-8 at byte offset {error.start}"
        ) from error
    return clean_text(text, f"the input from {what}", notices)


def _json_prompt(text: str, notices: list[tuple[str, str]]) -> str:
    value = _json_value(text)
    if isinstance(value, dict):
        unknown = sorted(set(value) - {"prompt"})
        if unknown:
            raise InvocationError(
                f"the JSON input has the unknown key {unknown[0]!r}; it may have `prompt` alone"
            )
        value = value.get("prompt")
    if not isinstance(value, str):
        raise InvocationError("the JSON input must be a string, or an object with the string `prompt`")
    return clean_text(value, "the JSON input", notices)


def _json_value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        import json  # reads lone surrogates, and says where the text is wrong

        try:
            return json.loads(text)
        except RecursionError:
            raise InvocationError("the input is not usable JSON: it is nested too deeply") from None
        except ValueError as error:
            raise InvocationError(f"the input is not valid JSON: {error}") from error


def _attachments(
    paths: tuple[str, ...], notices: list[tuple[str, str]]
) -> list[tuple[Block, Attachment | None]]:
    if len(paths) > MAX_FILES:
        raise InvocationError(f"at most {MAX_FILES} files can be attached, not {len(paths)}")
    found: list[tuple[Block, Attachment | None]] = []
    left = MAX_FILES_BYTES
    for path in paths:
        data = _attachment_bytes(path, left)
        left -= len(data)
        found.append(_attachment_block(path, data, notices))
    return found


def _attachment_bytes(path: str, left: int) -> bytes:
    try:
        descriptor = os.open(
            os.path.expanduser(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        )
    except OSError as error:
        raise InvocationError(f"--file {path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvocationError(f"--file {path} is not a regular file")
    with open(descriptor, "rb") as file:
        data = file.read(left + 1)
    if len(data) > left:
        raise InvocationError(
            f"--file {path} goes beyond the {MAX_FILES_BYTES} bytes (100 MiB) that may be attached"
        )
    if not data:
        raise InvocationError(f"--file {path} is empty")
    return data


def _attachment_block(
    path: str, data: bytes, notices: list[tuple[str, str]]
) -> tuple[Block, Attachment | None]:
    import hashlib

    name = os.fsencode(os.path.basename(path)).decode("utf-8", "replace")
    mime = _mime_of(path, data)
    if mime is None:
        try:
            text = clean_text(data.decode("utf-8"), f"--file {path}", notices)
        except UnicodeDecodeError as error:
            raise InvocationError(
                f"--file {path} is neither UTF-8 text, an image (PNG, JPEG, GIF, WebP) nor a PDF"
            ) from error
        return TextBlock(text=_block("file", f' name="{name}"', text)), None
    digest = hashlib.sha256(data).hexdigest()
    attachment = Attachment(digest=digest, data=data)
    if mime.startswith("image/"):
        return ImageBlock(digest=digest, mime=mime, filename=name), attachment
    return FileBlock(digest=digest, mime=mime, filename=name), attachment


def name_of_text(text: str) -> str | None:
    """The name of the file that a block of text was attached from; None for words."""
    import re

    found = re.fullmatch(r'<(file(?:-\d+)?) name="([^\n]*)">\n.*</\1>', text, re.DOTALL)
    return None if found is None else found[2]


def _block(tag: str, attributes: str, text: str) -> str:
    """`text` between tags; a text that closes such a block itself is put between others."""
    number = 1
    name = tag
    while f"</{name}>" in text:
        number += 1
        name = f"{tag}-{number}"
    closing = text if text.endswith("\n") else text + "\n"
    return f"<{name}{attributes}>\n{closing}</{name}>"


def _mime_of(path: str, data: bytes) -> str | None:
    """What the content is; None for text.

    Raises: InvocationError for what no provider would take: it would fail the turn, and every later one.
    """
    from mcode_exec.executor.images import MAX_ENCODED_BYTES
    from mcode_exec.tools import images
    from mcode_exec.tools.failure import ToolFailure

    mime = images.mime_of(data[:16])
    if mime is None:
        mime, most = ("application/pdf" if data.startswith(b"%PDF-") else None), MAX_ENCODED_BYTES
    else:
        most = images.MAX_ENCODED_BYTES
        try:
            images.check_image(mime, data, f"--file {path}")
        except ToolFailure as failure:
            raise InvocationError(str(failure)) from failure
    encoded = (len(data) + 2) // 3 * 4
    if mime is not None and encoded > most:
        raise InvocationError(
            f"--file {path} is {encoded} bytes in base64, and at most {most} can be sent; make it smaller"
        )
    return mime

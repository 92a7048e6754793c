"""Why an old_string was not found: what a model can do better at its next try.

Lines are counted as `read` counts them.  Bounded work, whatever the file.
"""

from __future__ import annotations

from mcode_exec.tools import files

_MAX_BYTES = 1 << 20
_MAX_LINES = 20_000
_COMPARED_LINES = 5000
_SHOWN_CHARS = 200


def not_found(content: bytes, old: str, shown: str) -> str:
    hint = _other_form(content, old) or _nearest(content, old)
    return f"old_string was not found in {shown}; {hint or 'read the file and give the text exactly'}"


def _other_form(content: bytes, old: str) -> str | None:
    if "\ufffd" in old and not files.is_utf8(content):
        return (
            "\ufffd stands for bytes of the file that are not UTF-8 and matches nothing:"
            " choose a part of the text without it"
        )
    plain = old.replace("\r\n", "\n")
    if plain != old and plain.encode("utf-8", "replace") in content:
        return "the file has that text with LF line ends, not CRLF"
    if "\n" in plain and plain.replace("\n", "\r").encode("utf-8", "replace") in content:
        return "the file has that text with line ends that are a lone CR (\\r)"
    return None


def _nearest(content: bytes, old: str) -> str | None:
    """Where the file is most like `old`, if anywhere."""
    if len(content) > _MAX_BYTES:
        return None
    wanted = [line.strip() for line in old.split("\n") if line.strip()]
    if not wanted:
        return None
    lines = content.decode("utf-8", "replace").split("\n")[:_MAX_LINES]
    stripped = [line.strip() for line in lines]
    first = wanted[0]
    for number, line in enumerate(stripped, 1):
        if line == first and stripped[number - 1 : number - 1 + len(wanted)] == wanted:
            return f"line {number} has the same text with other indentation or blanks: {_quoted(lines[number - 1])}"
    from difflib import get_close_matches

    compared = {line[:_SHOWN_CHARS] for line in stripped[:_COMPARED_LINES] if line}
    near = get_close_matches(first[:_SHOWN_CHARS], compared, n=1, cutoff=0.7)
    if not near:
        return None
    number = next(index for index, line in enumerate(stripped, 1) if line[:_SHOWN_CHARS] == near[0])
    return f"the nearest line is {number}: {_quoted(lines[number - 1])}"


def _quoted(line: str) -> str:
    line = line.removesuffix("\r")
    return repr(line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + "…")

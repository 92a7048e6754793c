"""Changes as a patch in git's form, which `git apply` takes: text as hunks, everything else as git's binary literals.

Bytes as they are: names and contents need not be text.  Names that git would
quote are quoted as git does.  A content that is not known makes no patch: who
asks names such files elsewhere.
"""

from __future__ import annotations

import zlib
from base64 import b85encode
from collections.abc import Iterator

from msgspec import Struct

from mcode_exec.records.change import FileState
from mcode_exec.workspace.git_contents import blob_id
from mcode_exec.workspace.line_matching import Block, is_binary, matching_blocks, split_lines

_CONTEXT = 3  # lines
_NO_BLOB = "0" * 40
_BINARY_LINE_BYTES = 52
_NAMED = {0x07: "a", 0x08: "b", 0x09: "t", 0x0A: "n", 0x0B: "v", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}


class Side(Struct, frozen=True):
    """One side of a change."""

    path: bytes
    state: FileState
    content: bytes


def file_patch(before: Side | None, after: Side | None, *, ignores_mode: bool = False) -> bytes:
    """The patch that makes `after` of `before`; None: no file.  Empty where nothing differs."""
    if before is not None and after is not None and before.state.is_link != after.state.is_link:
        # git has no word for a file that becomes a link
        return file_patch(before, None) + file_patch(None, after)
    there = before or after
    assert there is not None
    old_path = before.path if before is not None else there.path
    new_path = after.path if after is not None else there.path
    is_same = before is not None and after is not None and before.content == after.content
    head = _extended(before, after, ignores_mode=ignores_mode)
    if old_path != new_path:
        head += b"similarity index 100%\n" if is_same else b""
        head += b"rename from " + quoted(old_path) + b"\nrename to " + quoted(new_path) + b"\n"
    if is_same and not head:
        return b""
    first = b"diff --git " + quoted(old_path, b"a/") + b" " + quoted(new_path, b"b/") + b"\n"
    return first + head + (b"" if is_same else _body(before, after))


def _extended(before: Side | None, after: Side | None, *, ignores_mode: bool) -> bytes:
    if before is None:
        assert after is not None
        return b"new file mode " + _mode(after, ignores_mode) + b"\n"
    if after is None:
        return b"deleted file mode " + _mode(before, ignores_mode) + b"\n"
    old, new = _mode(before, ignores_mode), _mode(after, ignores_mode)
    return b"" if old == new else b"old mode " + old + b"\nnew mode " + new + b"\n"


def _mode(side: Side, ignores_mode: bool) -> bytes:
    if side.state.is_link:
        return b"120000"
    return b"100755" if side.state.is_executable and not ignores_mode else b"100644"


def _body(before: Side | None, after: Side | None) -> bytes:
    old, new = before.content if before else b"", after.content if after else b""
    index = f"index {_blob(before)}..{_blob(after)}".encode()
    if before is not None and after is not None and _mode(before, False) == _mode(after, False):
        index += b" " + _mode(after, False)
    index += b"\n"
    if is_binary(old) or is_binary(new):
        return index + b"GIT binary patch\n" + _literal(new) + _literal(old)
    if not old and not new:
        return index
    names = _name_line(b"--- ", before, b"a/") + _name_line(b"+++ ", after, b"b/")
    return index + names + b"".join(hunks(split_lines(old), split_lines(new)))


def _blob(side: Side | None) -> str:
    return _NO_BLOB if side is None else blob_id(side.content).hex()


def _name_line(mark: bytes, side: Side | None, prefix: bytes) -> bytes:
    if side is None:
        return mark + b"/dev/null\n"
    name = quoted(side.path, prefix)
    # a tab ends a name that has blanks
    return mark + name + (b"\t\n" if b" " in name and not name.startswith(b'"') else b"\n")


def quoted(path: bytes, prefix: bytes = b"") -> bytes:
    """A name as git writes it: in quotes, with escapes, where it holds what a line cannot carry."""
    is_text = True
    try:
        path.decode()
    except UnicodeDecodeError:
        is_text = False
    if is_text and not any(byte < 0x20 or byte in (0x22, 0x5C, 0x7F) for byte in path):
        return prefix + path
    escaped = "".join(_escaped(byte, keeps_high=is_text) for byte in path).encode("latin-1")
    return b'"' + prefix + escaped + b'"'


def _escaped(byte: int, *, keeps_high: bool) -> str:
    if byte in _NAMED:
        return "\\" + _NAMED[byte]
    if byte < 0x20 or byte == 0x7F or (byte > 0x7F and not keeps_high):
        return f"\\{byte:03o}"
    return chr(byte)


def hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    """The hunks of a unified diff."""
    for group in _groups(_changed(matching_blocks(old, new), len(old), len(new))):
        old_from, new_from = max(0, group[0][0] - _CONTEXT), max(0, group[0][2] - _CONTEXT)
        old_to, new_to = (min(len(old), group[-1][1] + _CONTEXT), min(len(new), group[-1][3] + _CONTEXT))
        head = f"@@ -{_range(old_from, old_to)} +{_range(new_from, new_to)} @@\n".encode()
        lines = [head]
        at = old_from
        for begin_old, end_old, begin_new, end_new in group:
            lines += (_line(b" ", line) for line in old[at:begin_old])
            lines += (_line(b"-", line) for line in old[begin_old:end_old])
            lines += (_line(b"+", line) for line in new[begin_new:end_new])
            at = end_old
        lines += (_line(b" ", line) for line in old[at:old_to])
        yield b"".join(lines)


#: (from, to) in old, (from, to) in new
_Change = tuple[int, int, int, int]


def _changed(blocks: list[Block], old_count: int, new_count: int) -> list[_Change]:
    changes: list[_Change] = []
    at_old = at_new = 0
    for begin_old, begin_new, length in [*blocks, (old_count, new_count, 0)]:
        if begin_old > at_old or begin_new > at_new:
            changes.append((at_old, begin_old, at_new, begin_new))
        at_old, at_new = begin_old + length, begin_new + length
    return changes


def _groups(changes: list[_Change]) -> list[list[_Change]]:
    """Changes whose contexts touch are one hunk."""
    groups: list[list[_Change]] = []
    for change in changes:
        if groups and change[0] - groups[-1][-1][1] <= 2 * _CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _range(begin: int, end: int) -> str:
    count = end - begin
    first = begin + 1 if count else begin  # of no lines: the one they stand behind
    return str(first) if count == 1 else f"{first},{count}"


def _line(mark: bytes, line: bytes) -> bytes:
    return mark + line if line.endswith(b"\n") else mark + line + b"\n\\ No newline at end of file\n"


def _literal(data: bytes) -> bytes:
    packed = zlib.compress(data)
    lines = [f"literal {len(data)}\n".encode()]
    for at in range(0, len(packed), _BINARY_LINE_BYTES):
        piece = packed[at : at + _BINARY_LINE_BYTES]
        length = len(piece)
        mark = chr(length + 0x40) if length <= 26 else chr(length - 26 + 0x60)
        lines.append(mark.encode() + b85encode(piece, pad=True) + b"\n")
    return b"".join(lines) + b"\n"

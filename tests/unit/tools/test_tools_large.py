from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.tools.failure import ToolFailure
from mcode_exec.tools.large import Part, read_part
from tests.unit.tools.tool_call import Session


def part_of(content: bytes, cut: int, offset: int, limit: int, chars: int) -> Part:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        start = os.read(file.fileno(), cut) if cut else b""
        return read_part(file.fileno(), start, offset, limit, chars=chars, shown="f", size=len(content))


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(alphabet="aé漢🙂\r\n\n\x0c\u2028", max_size=20),
    codec=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    cut=st.integers(4, 60),
    offset=st.integers(1, 6),
    limit=st.integers(1, 4),
)
def test_a_part_is_the_lines_of_the_whole_wherever_a_piece_ends(
    text: str, codec: str, cut: int, offset: int, limit: int
) -> None:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    content = text.encode(codec)
    if offset > len(lines):
        with pytest.raises(ToolFailure, match="beyond its end"):
            part_of(content, cut, offset, limit, 100)
        return
    part = part_of(content, cut, offset, limit, 100)
    assert part.lines == lines[offset - 1 : offset - 1 + limit]
    assert part.is_end == (offset - 1 + limit >= len(lines))
    assert (part.is_torn, part.bad_byte) == (False, None)


def test_a_line_that_does_not_fit_is_torn_and_one_that_begins_before_the_limit_is_left_for_later() -> None:
    part = part_of("é".encode() * 50 + b"\nnext\n", 10, 1, 5, 20)
    assert (part.lines, part.is_end, part.is_torn) == (["é" * 20], False, True)
    part = part_of(b"one\n" + b"x" * 50 + b"\n", 10, 1, 5, 20)
    assert (part.lines, part.is_end, part.is_torn) == (["one"], False, False)
    assert part_of(b"one\ncaf\xe9\n", 7, 2, 5, 20).bad_byte == 0xE9


@pytest.fixture
def large(session: Session) -> Session:
    for name, content in {
        "short lines": b"a\n" * 9_000_000,
        "utf-16": b"\xff\xfe" + "line é\r\n".encode("utf-16-le") * 1_100_000,
        "one line": b"x\n" + "é".encode() * 9_000_000 + b"\nend\n",
        "latin-1": b"caf\xe9\n" * 3_500_000,
    }.items():
        (session.workspace / name).write_bytes(content)
    return session


@pytest.mark.parametrize(
    ("name", "offset", "begin", "end"),
    [
        # each line was once searched for by copying all that follow
        ("short lines", 8_000_000, "8000000\ta\n8000001\ta\n", "go on with offset 8000002]"),
        ("short lines", 9_000_000, "9000000\ta\n", "nothing follows]"),
        ("utf-16", 1_000_000, "1000000\tline é\n1000001\tline é\n[the file is UTF-16", "offset 1000002]"),
        ("one line", 2, "     2\téé", "go on with offset 3]"),
        ("one line", 3, "     3\tend\n", "nothing follows]"),
        ("latin-1", 3_000_000, "3000000\tcaf\ufffd\n3000001\tcaf\ufffd\n[the file is not UTF-8", "3000002]"),
    ],
)
def test_lines_far_inside_a_large_file_are_found_in_any_encoding(
    large: Session, name: str, offset: int, begin: str, end: str
) -> None:
    content = large.call("read", file_path=name, offset=offset, limit=2).content
    assert content.startswith(begin)
    assert content.endswith(end)
    assert ("not UTF-8" in content) == (name == "latin-1")

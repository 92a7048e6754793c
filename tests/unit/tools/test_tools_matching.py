from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.tools.capping import decode
from mcode_exec.tools.failure import ToolFailure
from mcode_exec.tools.matching import replace_text

LINES = st.lists(
    st.tuples(st.text(alphabet="ab \tß🙂\x0c", max_size=4), st.sampled_from(["\n", "\r\n"])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=400, deadline=None)
@given(lines=LINES, data=st.data(), new=st.text(alphabet="ab\nß", max_size=6))
def test_only_the_match_changes_whatever_the_line_ends(
    lines: list[tuple[str, str]], data: st.DataObject, new: str
) -> None:
    text = "".join(line + end for line, end in lines)
    shown = text.replace("\r\n", "\n")
    start = data.draw(st.integers(0, len(shown) - 1))
    end = data.draw(st.integers(start + 1, len(shown)))
    old = shown[start:end]
    content = text.encode()
    try:
        edited = replace_text(content, old, new, replace_all=False, shown="f")
    except ToolFailure:
        assert shown.count(old) != 1 or sum(shown.startswith(old, at) for at in range(len(shown))) != 1
        return
    assert edited.content.decode().replace("\r\n", "\n") == shown[:start] + new + shown[end:]
    before = len(shown[:start].split("\n")) - 1
    after = len(shown[end:].split("\n")) - 1
    ends = [line_end for _, line_end in lines]
    kept = [piece.endswith("\r") for piece in edited.content.decode().split("\n")[:-1]]
    assert kept[:before] == [line_end == "\r\n" for line_end in ends[:before]]
    if after:
        assert kept[-after:] == [line_end == "\r\n" for line_end in ends[-after:]]


@settings(max_examples=300, deadline=None)
@given(
    content=st.binary(max_size=30),
    old=st.text(alphabet="aé\n\\あ", min_size=1, max_size=3),
    new=st.text(alphabet="bé\n", max_size=3),
)
def test_any_bytes_are_edited_exactly_or_refused(content: bytes, old: str, new: str) -> None:
    body = content + old.encode() + content[::-1]
    try:
        edited = replace_text(body, old, new, replace_all=False, shown="f")
    except ToolFailure:
        return
    # what was replaced is one region: both ends of the file are the old bytes
    limit = min(len(body), len(edited.content))
    same_before = next((at for at in range(limit) if body[at] != edited.content[at]), limit)
    same_after = next((at for at in range(limit) if body[-1 - at] != edited.content[-1 - at]), limit)
    longest = max(len(old.encode()), len(old.encode("utf-16-le"))) + old.count("\n") * 2
    assert len(body) - same_before - same_after <= longest


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="aß中🙂", max_size=12), start=st.integers(0, 48), end=st.integers(0, 48))
def test_a_piece_of_valid_text_decodes_without_replacements(text: str, start: int, end: int) -> None:
    piece = text.encode()[start:end]
    decoded = decode(piece, is_start_cut=True, is_end_cut=True)
    assert "\ufffd" not in decoded
    assert decoded in text


def test_many_matches_far_from_any_line_end_take_no_long_work() -> None:
    """Each of these took minutes when every match looked through the whole content."""
    for start, end in ((b"x\n", b"\n"), (b"x\r\n", b"\r\n"), (b"caf\xe9\r\n", b"\r\n")):
        content = start + b"statement;" * 50_000
        edited = replace_text(content, ";", ";\n", replace_all=True, shown="f")
        assert edited.content == start + (b"statement;" + end) * 50_000
    legacy = replace_text(b"caf\xe9\n" * 50_000, "é", "è", replace_all=True, shown="f")
    assert legacy.content == b"caf\xe8\n" * 50_000
    lines = b"line\r\n" * 50_000
    assert replace_text(lines, "line\n" * 50_000, "", replace_all=False, shown="f").content == b""


def test_a_hint_is_found_in_a_large_file_without_long_work() -> None:
    content = b"".join(b"def function_%d(argument_%d): return %d\n" % (n, n, n * 7) for n in range(15_000))
    with pytest.raises(ToolFailure, match="nearest line"):
        replace_text(content, "def function_77(argument_77) return 539", "x", replace_all=False, shown="f")


@settings(max_examples=400, deadline=None)
@given(
    content=st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r", "ß".encode()]), max_size=12).map(b"".join),
    old=st.lists(st.sampled_from(["a", "\n", "ß"]), min_size=1, max_size=4).map("".join),
)
def test_every_match_is_found_whatever_the_line_ends(content: bytes, old: str) -> None:
    pattern = rb"\r?\n".join(re.escape(line) for line in old.encode().split(b"\n"))
    expected = re.sub(pattern, b"-", content)
    try:
        edited = replace_text(content, old, "-", replace_all=True, shown="f")
    except ToolFailure:
        assert expected == content
        return
    assert edited.content == expected


@pytest.mark.parametrize(
    ("content", "old"),
    [
        (b"a\n" * 4_000_000 + b"\r\n", "a\n" * 4000 + "b"),
        (b"\r\n" * 4_000_000, "\n" * 4000 + "b"),
        (b"x" * 8_000_000, "x" * 4000 + "y"),
        (b"x\xe9" * 300_000, "xé"),
        ("表".encode("shift_jis") * 300_000 + b"\xfd", "\\"),
    ],
    ids=["equal lines", "empty lines", "one long line", "latin-1", "trail bytes"],
)
def test_a_file_that_repeats_itself_takes_no_longer_than_another(content: bytes, old: str) -> None:
    """Each of these took minutes or hours where the work grew with the square of the file."""
    with pytest.raises(ToolFailure):
        replace_text(content, old, "z", replace_all=False, shown="f")


@pytest.mark.parametrize(
    ("content", "old", "said"),
    [
        (b"one\x0ctwo\xe2\x80\xa8three\x85\x1c\nfour\n  target = 1\n", "target =  1", "nearest line is 3"),
        (b"\x0c\na\n  b\n  c\n", "b\nc", "line 3 has the same text with other indentation"),
        (b"caf\xe9 = 1\n", "caf\ufffd = 1", "stands for bytes of the file that are not UTF-8"),
        (b"a\nb\n", "a\r\nb", "with LF line ends, not CRLF"),
        (b"a\rb\r", "a\nb", "a lone CR"),
    ],
)
def test_a_hint_names_the_line_as_read_counts_it_or_what_is_wrong_with_the_text(
    content: bytes, old: str, said: str
) -> None:
    with pytest.raises(ToolFailure, match=re.escape(said)):
        replace_text(content, old, "x", replace_all=False, shown="f")

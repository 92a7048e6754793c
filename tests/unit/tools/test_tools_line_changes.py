from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.tools.line_changes import count_changes

TEXT = st.lists(st.sampled_from([b"a", b"b", b"\n", b"a\n", b"line\n" * 900, b"x" * 4096])).map(b"".join)


@settings(max_examples=200, deadline=None)
@given(before=TEXT, old=TEXT, new=TEXT, after=TEXT)
def test_lines_are_counted_as_if_all_of_both_files_were_compared(
    before: bytes, old: bytes, new: bytes, after: bytes
) -> None:
    first, second = (before + old + after).splitlines(True), (before + new + after).splitlines(True)
    counted = count_changes(b"".join(first), b"".join(second))
    while first and second and first[0] == second[0]:
        del first[0], second[0]
    while first and second and first[-1] == second[-1]:
        del first[-1], second[-1]
    if min(len(first), len(second)) < 2:
        assert counted == (len(second), len(first))
    else:
        assert counted[0] - counted[1] == len(second) - len(first)
        assert counted[1] <= len(first)


def test_one_changed_line_of_many_is_one_addition_and_one_deletion() -> None:
    lines = b"a line\n" * 3_000_000
    assert count_changes(lines + b"old\n" + lines, lines + b"new\n" + lines) == (1, 1)
    assert count_changes(b"x\n", b"a\nx\n") == (1, 0)
    assert count_changes(b"x", b"a\nx") == (1, 0)
    assert count_changes(b"x\n", b"x\ny\n") == (1, 0)
    assert count_changes(b"a\nx\n", b"b\nx\n") == (1, 1)
    assert count_changes(b"ax\n", b"bx\n") == (1, 1)
    assert count_changes(b"", b"a") == (1, 0)

"""Lines are read one at a time; what is cut short, too long or no JSON is told from what is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcode_exec.importers import json_lines
from mcode_exec.importers.json_lines import open_lines, read_line_at, read_lines
from mcode_exec.importers.source import UnusableSourceError


def test_bad_lines_are_none_and_a_torn_end_is_no_line(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"n": 1}\n\n{"n":\n[1]\n{"n": 2}\n{"n": 3')
    with open_lines(str(file)) as lines:
        found = list(read_lines(lines))
        assert [None if line is None else line["n"] for _, line in found] == [1, None, None, 2]
        again = [read_line_at(lines, offset) for offset, _ in found]
    assert again == [line for _, line in found]


def test_a_line_that_is_too_long_is_passed_over_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "MAX_JSON_BYTES", 64)
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"n": 1}\n{"n": "' + b"x" * 1000 + b'"}\n{"n": 2}\n')
    with open_lines(str(file)) as lines:
        assert [None if line is None else line["n"] for _, line in read_lines(lines)] == [1, None, 2]


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UnusableSourceError):
            open_lines(str(path))

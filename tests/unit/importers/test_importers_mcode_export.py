"""mcode's own export is read back as what it is, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.importers.mcode_export import UnusableExportError, is_mcode_export, parse_export, read_export

SESSION = "mvs_" + "a" * 32


def whole(**changes: Any) -> bytes:
    info = {
        "id": SESSION,
        "title": "t",
        "workspace": "/w",
        "createdMs": 1,
        "updatedMs": 2,
        "activityMs": 3,
        "someday": "ignored",
    }
    record = {
        "id": "msg-user-v1-1",
        "turn_id": "turn_1",
        "at_ms": 1,
        "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    }
    document: dict[str, Any] = {
        "format": "mcode.session",
        "formatVersion": 2,
        "session": info,
        "generation": {"generation": 1, "session_id": SESSION, "at_ms": 1},
        "history": [record],
    }
    return msgspec.json.encode({**document, **changes})


def test_a_whole_document_is_read_and_what_is_new_in_it_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_bytes(whole(someday=[1, 2]))
    assert is_mcode_export(str(file))
    found = read_export(str(file))
    assert found.session.id == SESSION
    assert found.history[0].message.role == "user"
    assert (found.turns, found.usage, found.attachments) == ((), (), {})


def test_a_byte_order_mark_before_a_document_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_bytes(b"\xef\xbb\xbf" + whole())
    assert is_mcode_export(str(file))
    assert read_export(str(file)).session.id == SESSION


def test_other_files_are_told_apart_by_how_they_begin(tmp_path: Path) -> None:
    for text in ("", '{"info":{}}', '{"type":"session_meta"}', '["format","mcode.session"]'):
        file = tmp_path / "x"
        file.write_text(text)
        assert not is_mcode_export(str(file))


@pytest.mark.parametrize(
    "changes",
    [
        {"session": {}},
        {"history": [{}]},
        {"history": 1},
        {"generation": None},
        {"turns": [{"turnId": "x"}]},
        {"usage": [None]},
        {"attachments": {"x": 1}},
        {"formatVersion": "2"},
    ],
)
def test_what_is_not_of_its_type_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UnusableExportError, match="it"):
        parse_export(whole(**changes), "it")


@given(st.binary(max_size=200) | st.integers(0, 600).map(lambda cut: whole()[:cut]))
def test_any_other_bytes_are_refused_in_a_sentence(data: bytes) -> None:
    if data == whole():
        assert parse_export(data, "it").session.id == SESSION
        return
    with pytest.raises(UnusableExportError, match=r"^it[ :]"):
        parse_export(data, "it")


def test_endless_nesting_is_refused() -> None:
    nested = b'{"format":"mcode.session","formatVersion":2,"x":' + b"[" * 100_000
    with pytest.raises(UnusableExportError):
        parse_export(nested, "it")

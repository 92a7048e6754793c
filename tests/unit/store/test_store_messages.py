"""Pages of messages for who reads on and on: bounded in rows and in bytes, never empty while there is more."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcode_exec.records.message import DisplayMessage, TextPart
from mcode_exec.store import message_rows
from tests.unit.store.test_store_schema import in_store

SIZES = (10, 5000, 10, 10, 9000, 10)


def message(number: int, size: int) -> DisplayMessage:
    part = TextPart(index=0, text="x" * size)
    return DisplayMessage(
        id=f"m{number}", session_id="s", turn_id="t", role="assistant", created_ms=1, parts=(part,)
    )


@pytest.mark.parametrize(
    ("limit", "most_bytes", "pages"),
    [(10, 1 << 20, [6]), (6, 1 << 20, [6]), (4, 1 << 20, [4, 2]), (10, 6000, [4, 1, 1]), (10, 1, [1] * 6)],
)
def test_pages_have_everything_once_and_say_which_is_the_last(
    tmp_path: Path, limit: int, most_bytes: int, pages: list[int]
) -> None:
    def work() -> None:
        for number, size in enumerate(SIZES):
            message_rows.put_message(message(number, size))
        found, row, is_all = [], 0, False
        while not is_all:
            page, is_all = message_rows.messages_behind("s", row, limit, most_bytes)
            found.append([one.id for _, _, one in page])
            row = page[-1][0]
        assert [len(page) for page in found] == pages
        assert [one for page in found for one in page] == [f"m{number}" for number in range(len(SIZES))]
        assert message_rows.messages_behind("s", row, limit, most_bytes) == ([], True)

    in_store(tmp_path, work)


def test_a_message_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    def work() -> None:
        message_rows.put_message(message(0, 1))
        ((row, revision, _),), _ = message_rows.messages_behind("s", 0, 1, 1)
        assert message_rows.message_at("s", row, revision) is None
        message_rows.put_message(message(0, 2))
        newer = message_rows.message_at("s", row, revision)
        assert newer is not None
        assert newer[0] > revision
        assert message_rows.message_at("other", row, 0) is None

    in_store(tmp_path, work)

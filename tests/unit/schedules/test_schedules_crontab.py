"""The block of the crontab: other lines stay byte for byte, and there is one of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mcode_exec.batch.schedules.calling import Call
from mcode_exec.batch.schedules.crontab import MAX_LINE_BYTES, block_of, has_block, with_block
from mcode_exec.batch.schedules.systemd import units_of
from mcode_exec.errors import ConfigError, InvocationError

DATA = "/home/a b/100% data"


def call(*words: str, data: str = DATA, path: str = "/usr/bin:/bin") -> Call:
    return Call(data=data, path=path, command=("/opt/my venv/bin/python", *words, "--data-dir", data))


BLOCK = block_of(call())
OTHER = block_of(call(data="/other"))


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"MAILTO=me\n\n# note\n5 4 * * * run 50\\% \xff\n",
        b"@daily x\r\n\t\n  # blanks  \n",
        OTHER,
        b"a\n" + OTHER + b"b\n",
    ],
)
def test_install_twice_is_one_block_and_uninstall_leaves_what_was_there(table: bytes) -> None:
    once = with_block(table, DATA, BLOCK)
    assert once == table + BLOCK
    assert with_block(once, DATA, BLOCK) == once
    assert with_block(once, DATA, b"") == table
    assert has_block(once, DATA)
    assert not has_block(table, DATA)


def test_a_block_that_has_changed_is_written_in_its_place() -> None:
    old = block_of(call("--old"))
    assert with_block(b"a\n" + old + b"b\n", DATA, BLOCK) == b"a\n" + BLOCK + b"b\n"
    assert with_block(b"a\n" + old + b"b\n" + old, DATA, BLOCK) == b"a\n" + BLOCK + b"b\n"


def test_a_last_line_without_its_end_gets_one() -> None:
    assert with_block(b"a", DATA, BLOCK) == b"a\n" + BLOCK
    assert with_block(b"a", DATA, b"") == b"a"


@pytest.mark.parametrize("lines", [(0,), (2,), (2, 0), (0, 0, 2), (0, 2, 2)])
def test_a_mark_that_stands_alone_is_left_to_a_person(lines: tuple[int, ...]) -> None:
    marks = BLOCK.splitlines(keepends=True)
    table = b"mine\n".join(marks[line] for line in lines) + b"mine\n"
    with pytest.raises(ConfigError, match="stands alone"):
        with_block(table, DATA, BLOCK)


@given(some.lists(some.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"") + b"\n")))
def test_whatever_else_stands_there_stays(lines: list[bytes]) -> None:
    table = b"".join(lines)
    assert with_block(with_block(table, DATA, BLOCK), DATA, b"") == table


def test_the_line_is_one_that_cron_and_a_shell_read_right() -> None:
    line = BLOCK.decode().splitlines()[1]
    assert line.startswith("* * * * * PATH=/usr/bin:/bin '/opt/my venv/bin/python' --data-dir ")
    assert line.endswith("'/home/a b/100\\% data'")


@pytest.mark.parametrize(
    ("made", "says"),
    [(call(data="/a\\b"), "backslash"), (call(path="/p" * MAX_LINE_BYTES), "cuts it at 1,000")],
)
def test_what_cron_would_damage_is_refused(made: Call, says: str) -> None:
    with pytest.raises(InvocationError, match=says):
        block_of(made)


def test_units_quote_what_systemd_would_read() -> None:
    units = units_of(call('a"b', "$HOME", "50%", "c\\d"))
    (service,) = (text for name, text in units.items() if name.endswith(".service"))
    assert (
        'ExecStart="/opt/my venv/bin/python" "a\\"b" "$$HOME" "50%%" "c\\\\d" '
        '"--data-dir" "/home/a b/100%% data"\n' in service
    )
    assert 'Environment="PATH=/usr/bin:/bin"\n' in service

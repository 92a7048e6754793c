"""`mcode sessions tree`: what came from what, each session once, whatever its links say."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tests.promises.test_sessions_continue import change, copy_row, started
from tests.support.mcode import Mcode


def nodes(mcode: Mcode, *args: str, **how: Any) -> list[dict[str, Any]]:
    run = mcode.run("sessions", "tree", *args, "--output-format", "jsonl", **how).check()
    return [json.loads(line) for line in run.out.splitlines()]


def shape(mcode: Mcode, *args: str) -> list[tuple[int, str, str]]:
    return [(node["depth"], node["relation"], node["id"]) for node in nodes(mcode, *args)]


def family(mcode: Mcode) -> dict[str, str]:
    """A conversation with a fork, a sub-agent with one of its own, and a side conversation of the fork."""
    root = started(mcode, "--title", "The root")
    fork = copy_row(mcode, root, 1, forked_from=root, forked_at="msg-x", created_ms=10, title="A fork")
    agent = copy_row(
        mcode,
        root,
        2,
        parent_id=root,
        session_kind="task",
        visibility="hidden",
        created_ms=20,
        title="Look around",
    )
    inner = copy_row(mcode, root, 3, parent_id=agent, session_kind="task", visibility="hidden", created_ms=30)
    side = copy_row(
        mcode,
        root,
        4,
        parent_id=fork,
        forked_from=fork,
        session_kind="peek",
        visibility="hidden",
        created_ms=40,
    )
    return {"root": root, "fork": fork, "agent": agent, "inner": inner, "side": side}


def test_a_tree_is_the_same_from_whichever_of_its_sessions_it_is_asked_for(mcode: Mcode) -> None:
    one = family(mcode)
    other = copy_row(mcode, one["root"], 9, title="Another", activity_ms=1)
    expected = [
        (0, "root", one["root"]),
        (1, "fork", one["fork"]),
        (2, "side", one["side"]),
        (1, "sub-agent", one["agent"]),
        (2, "sub-agent", one["inner"]),
    ]
    # an internal session resolves to its public parent, and names are prefixes
    for name in one.values():
        assert shape(mcode, name) == expected
    assert shape(mcode, one["inner"][:36]) == expected
    assert shape(mcode, one["root"][:12]) == expected
    assert shape(mcode) == [*expected, (0, "root", other)]
    lines = mcode.run("sessions", "tree", one["inner"]).check().out.splitlines()
    column = lines[0].index("The root")
    assert [line[column:] for line in lines] == [
        "The root",
        "├─ fork: A fork",
        "│  └─ side: The root",
        "└─ sub-agent: Look around",
        "   └─ sub-agent: The root",
    ]


def test_forks_and_side_conversations_stand_under_what_they_came_from(mcode: Mcode) -> None:
    root = started(mcode)
    run = mcode.run("sessions", "fork", root, "--output-format", "json").check()
    fork = json.loads(run.out)["sessionId"]
    mcode.run("sessions", "btw", fork, "what is this?").check()
    found = shape(mcode, root)
    assert [one[:2] for one in found] == [(0, "root"), (1, "fork"), (2, "side")]
    assert [one[2] for one in found[:2]] == [root, fork]
    # of a list it is no part, unless it is asked for
    side = found[2][2]
    listed = mcode.run("sessions", "list").check().out
    assert root in listed
    assert fork in listed
    assert side not in listed
    assert side in mcode.run("sessions", "list", "--kind", "peek").check().out


def test_filters_say_where_trees_begin(mcode: Mcode) -> None:
    one = family(mcode)
    change(mcode, "UPDATE sessions SET workspace = '/elsewhere' WHERE id = ?", one["root"])
    assert shape(mcode)[0] == (0, "root", one["fork"])
    assert [name for depth, _, name in shape(mcode, "--all") if not depth] == [one["root"]]
    assert shape(mcode, "--cwd", "/elsewhere")[0] == (0, "root", one["root"])
    change(mcode, "UPDATE sessions SET visibility = 'hidden' WHERE id = ?", one["fork"])
    assert one["fork"] not in [name for _, _, name in shape(mcode, one["root"])]
    assert one["fork"] in [name for _, _, name in shape(mcode, one["root"], "--hidden")]


def test_pages_are_parts_of_the_tree_while_new_sessions_come(mcode: Mcode) -> None:
    one = family(mcode)
    for number in range(20, 23):
        copy_row(mcode, one["root"], number, activity_ms=100 + number)
    for args in ((), (one["root"],)):
        whole = shape(mcode, *args)
        found: list[tuple[int, str, str]] = []
        flags: tuple[str, ...] = ()
        while True:
            run = mcode.run(
                "sessions", "tree", *args, "--limit", "2", *flags, "--output-format", "json"
            ).check()
            document = json.loads(run.out)
            found += [(row["depth"], row["relation"], row["id"]) for row in document["sessions"]]
            if document["nextCursor"] is None:
                break
            copy_row(mcode, one["root"], 1_000 + len(found), activity_ms=9_000_000_000_000)
            flags = ("--after", document["nextCursor"])
        assert found == whole
        change(mcode, "DELETE FROM sessions WHERE activity_ms = 9000000000000")


def test_links_that_go_round_in_a_circle_are_said_and_end(mcode: Mcode) -> None:
    first = started(mcode)
    second = copy_row(mcode, first, 1, parent_id=first, activity_ms=5)
    change(mcode, "UPDATE sessions SET parent_id = ? WHERE id = ?", second, first)
    for args in ((), ("--all",), (first,), (second,)):
        run = mcode.run("sessions", "tree", *args, "--output-format", "jsonl").check()
        assert sorted(json.loads(line)["id"] for line in run.out.splitlines()) == sorted([first, second])
        assert "circle" in run.err


def test_what_is_deeper_than_32_levels_is_named_and_not_followed(mcode: Mcode) -> None:
    made = [started(mcode)]
    for number in range(1, 41):
        made.append(copy_row(mcode, made[0], number, parent_id=made[-1], created_ms=number))
    run = mcode.run("sessions", "tree", made[0], "--output-format", "jsonl").check()
    assert [json.loads(line)["depth"] for line in run.out.splitlines()] == list(range(33))
    assert f"mcode sessions tree {made[32]}" in run.err
    assert made[40] in mcode.run("sessions", "tree", made[40]).check().out


def test_every_format_carries_the_same_and_nothing_acts_on_a_terminal(mcode: Mcode) -> None:
    one = family(mcode)
    change(mcode, "UPDATE sessions SET title = ? WHERE id = ?", "\x1b[31m\u202e\nred", one["fork"])
    forms = {
        form: mcode.run("sessions", "tree", one["root"], "--output-format", form).check().out
        for form in ("table", "json", "jsonl", "csv")
    }
    for form in ("table", "csv"):
        assert not set("\x1b\u202e") & set(forms[form])
    assert len(forms["table"].splitlines()) == 5
    rows = json.loads(forms["json"])["sessions"]
    assert [json.loads(line) for line in forms["jsonl"].splitlines()] == rows
    cells = list(csv.DictReader(io.StringIO(forms["csv"])))
    assert [row["id"] for row in cells] == [row["id"] for row in rows]
    assert list(cells[0]) == list(rows[0])


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("mvs_" + "0" * 32,), 4, "there is no session"),
        (("mvs_00000000",), 4, "no session id starts with"),
        (("nonsense",), 2, "mvs_"),
        (("mvs_" + "0" * 32, "--archived"), 2, "cannot be combined"),
        (("--after", "x"), 2, "no cursor of this tree"),
        (("--after", "5:mvs_a"), 2, "no cursor of this tree"),
        (("--after", "99999999999999999999:mvs_a:mvs_b"), 2, "no cursor of this tree"),
    ],
)
def test_a_bad_value_is_told_in_one_sentence(
    mcode: Mcode, args: tuple[str, ...], code: int, told: str
) -> None:
    started(mcode)
    run = mcode.run("sessions", "tree", *args).check(code)
    assert told in run.err
    assert "Traceback" not in run.err

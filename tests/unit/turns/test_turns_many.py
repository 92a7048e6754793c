"""Many processes on one database, and many items in it: each is taken once, at a cost that stays flat."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcode_exec.clock import SystemClock
from mcode_exec.records.queue import MAX_ITEMS
from mcode_exec.store import queue_rows, queue_state_rows, tables
from mcode_exec.turns import claims
from mcode_exec.turns.owner import Owner
from tests.unit.turns.line_world import LineWorld, accepted

_ROOT = Path(__file__).parents[3]


@pytest.fixture
def world() -> Iterator[LineWorld]:
    # In memory where that can be: what is tested is who wins, not the disk.
    root = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    made = LineWorld(root, SystemClock())
    yield made
    made.close()
    shutil.rmtree(root)


def run_many(world: LineWorld, count: int, what: str, sessions: list[str]) -> list[list[str]]:
    """What each of `count` processes wrote, all set off at once and alive until the last has done."""
    command = [sys.executable, "-m", "tests.unit.turns.turn_process", what, str(world.root), *sessions]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
        for _ in range(count)
    ]
    outputs: list[list[str]] = []
    try:
        for process in processes:
            assert lines_until(process, "ready") == []
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs += [lines_until(process, "done") for process in processes]
    finally:
        for process in processes:
            process.communicate(timeout=30)
    assert [process.returncode for process in processes] == [0] * count
    return outputs


def lines_until(process: subprocess.Popen[str], last: str) -> list[str]:
    assert process.stdout is not None
    lines = []
    while (line := process.stdout.readline().strip()) != last:
        assert line, "a process ended early"
        lines.append(line)
    return lines


def fill(world: LineWorld, owner: Owner, sessions: list[str], each: int) -> None:
    """`each` items in every session, made inside SQLite from one."""
    names = list(tables.QueueItems._meta.fields)
    fresh = {"id": "'qi_' || s.value || n", "turn_id": "'turn_' || s.value || n", "session_id": "s.value"}
    # the rows lie as they would have come: one item of every session after the other
    first = world.add(owner, sessions[0])
    columns = [name for name in names if name not in ("row", "position")]
    values = ", ".join(fresh.get(name, f"i.{name}") for name in columns)

    def make() -> None:
        database = tables.QueueItems._meta.database
        database.execute_sql(
            f"WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {each})"
            f" INSERT INTO queue_items (position, {', '.join(columns)}) SELECT 0, {values}"
            " FROM counted, json_each(?) AS s, queue_items AS i WHERE i.id = ?",
            (json.dumps(sessions), first.id),
        )
        queue_rows.delete_item(first.id)
        tables.QueueItems.update(position=tables.QueueItems.row).execute()

    world.write(make)


@pytest.mark.parametrize(("what", "count", "each"), [("claim", 8, 100), ("drain", 4, 20)])
def test_each_item_is_taken_by_exactly_one_of_many_processes_and_in_order(
    world: LineWorld, what: str, count: int, each: int
) -> None:
    sessions = [world.session().id for _ in range(10)]
    fill(world, world.owner(), sessions, each)
    wanted = {one: [item.id for item in world.items(one)] for one in sessions}
    outputs = run_many(world, count, what, sessions)
    taken = [tuple(line.split()) for lines in outputs for line in lines]
    assert sorted(taken) == sorted((one, item) for one, items in wanted.items() for item in items)
    for lines in outputs:
        for session_id, items in wanted.items():
            own = [line.split()[1] for line in lines if line.startswith(session_id)]
            assert own == [item for item in items if item in set(own)]
    assert sum(bool(lines) for lines in outputs) > 1
    assert world.read(lambda: tables.tuples(tables.QueueItems.raw("PRAGMA integrity_check"))) == [("ok",)]


def test_of_sixteen_processes_exactly_one_is_admitted(world: LineWorld) -> None:
    sessions = [world.session().id for _ in range(3)]
    lines = [line for lines in run_many(world, 16, "admit", sessions) for line in lines]
    for session_id in sessions:
        answers = sorted(line.split(maxsplit=1)[1] for line in lines if line.startswith(session_id))
        assert answers == ["Accepted"] + ["Rejected active-turn"] * 15


# the cost of one of many


def steps(world: LineWorld, work: Callable[[], Any]) -> int:
    """How many steps of SQLite's machine `work` takes, in tens."""
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    database = tables.QueueItems._meta.database
    world.read(lambda: database.connection().set_progress_handler(count, 10))
    work()
    world.read(lambda: database.connection().set_progress_handler(None, 10))
    return counted[0]


def test_an_item_costs_the_same_among_100_000_as_among_500(world: LineWorld) -> None:
    owner = world.owner()
    sessions = [world.session().id for _ in range(100)]
    session = sessions[50]

    def deliver() -> None:
        claimed = world.claim(owner, session)
        assert claimed is not None
        turn = accepted(world.admit_item(owner, claimed))
        world.write(lambda: queue_rows.delete_by_turn(claimed.turn_id))
        world.settle(turn)

    def claim() -> None:
        claimed = world.claim(owner, session)
        assert claimed is not None
        world.do(claims.release(world.store, claimed))

    works: dict[str, Callable[[], Any]] = {
        "claim": claim,
        "deliver": deliver,
        "first page": lambda: world.read(lambda: queue_rows.page_items(session, limit=2)),
        "page of all": lambda: world.read(lambda: queue_rows.page_all_items(after=50, limit=5)),
        "sessions": lambda: world.read(lambda: queue_rows.sessions_with_items("", 10)),
        "recover": lambda: world.recover(owner),
        "wakes": lambda: world.read(lambda: queue_state_rows.find_wake(session)),
    }
    costs = []
    for each in (5, MAX_ITEMS):
        fill(world, owner, sessions, each)
        for work in works.values():
            work()  # statements are prepared once
        costs.append({name: steps(world, work) for name, work in works.items()})
        world.write(lambda: tables.QueueItems.delete().execute())
    few, many = costs
    for name, cost in many.items():
        assert cost <= few[name] * 1.5 + 20, (name, few[name], cost)

"""Specs: what is wrong with one is a sentence with its line, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcode_exec.batch.plan import plan_of
from mcode_exec.batch.readiness import Readiness
from mcode_exec.batch.spec import read_spec
from mcode_exec.errors import InvocationError
from mcode_exec.records.job import Plan

TASK = '[[tasks]]\nid = "a"\nprompt = "go"\n'


def planned(tmp_path: Path, text: str, name: str = "job.toml", **files: str) -> Plan:
    for other, content in files.items():
        (tmp_path / other.replace("_", ".")).write_text(content)
    path = tmp_path / name
    path.write_text(text)
    return plan_of(read_spec(str(path)))


FAULTS = {
    "unknown key": (TASK + "promt = 'x'\n", 4, 'did you mean "tasks.prompt"?'),
    "unknown table": ("[jobs]\n" + TASK, 1, "unknown key 'jobs'"),
    "no tasks": ("[job]\nname = 'x'\n", None, "a job needs tasks"),
    "no prompt": ("[[tasks]]\nid = 'a'\n", 1, 'needs a "prompt" or a "prompt_file"'),
    "no id": ("[[tasks]]\nprompt = 'a'\n", 1, 'needs an "id"'),
    "empty id": ('[[tasks]]\nid = ""\nprompt = "a"\n', 2, "must not be empty"),
    "same id": (TASK + TASK, 4, "is that of"),
    "same id as number": (TASK.replace('"a"', "1") + TASK.replace('"a"', '"1"'), 4, "is that of"),
    "prompt of another type": ('[[tasks]]\nid = "a"\nprompt = 123\n', 3, "must be a string, not a number"),
    "need that is none": (TASK + 'needs = ["b"]\n', 1, "needs 'b', and no task has that id"),
    "needs itself": (TASK + 'needs = ["a"]\n', 1, "in a circle: a → a"),
    "circle": (
        TASK + 'needs = ["b"]\n[[tasks]]\nid = "b"\nprompt = "x"\nneeds = ["a"]\n',
        5,
        "in a circle: a → b → a",
    ),
    "template": (TASK.replace("go", "{{ nothing }}"), 1, 'unknown name "nothing"'),
    "template of another need": (
        TASK.replace("go", "{{ needs.b.output }}"),
        1,
        'unknown name "needs.b.output"; known in "needs": nothing',
    ),
    "template that is open": (TASK.replace("go", "{{ x"), 1, 'has no "}}"'),
    "item without the name": (
        TASK.replace("go", "{{ item.x }}") + 'items = [{ x = "1" }, { y = "2" }]\n',
        1,
        'unknown name "item.x"; known in "item": y',
    ),
    "condition": (TASK + 'when = "a ="\n', 1, "cannot be read"),
    "template in a check": (TASK + 'check = "pytest {{ item.path }}"\n', 4, "$MCODE_ITEM_NAME"),
    "session of nobody": (TASK + 'session = "from:b"\n', 1, "wants 'b' among its \"needs\""),
    "session of no kind": (TASK + 'session = "old"\n', 4, "must be new, continue, key:NAME"),
    "items and matrix": (TASK + 'items = [{}]\nmatrix = { x = ["1"] }\n', 5, "cannot be combined"),
    "same item": (TASK + 'items = [{ id = "x" }, { id = "x" }]\n', 4, "item 2: the id 'x' is that of item 1"),
    "bare timeout": (TASK + "timeout = 30\n", 4, 'such as "30s"'),
    "variable of a taken name": ("[vars]\nitem = 1\n" + TASK, 2, "is a name that templates have already"),
    "not TOML": ("[job\n", 1, "not valid TOML"),
    "concurrency": ("[job]\nconcurrency = 0\n" + TASK, 2, "whole number from 1 up"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_a_sentence_with_its_line(tmp_path: Path, case: str) -> None:
    text, line, said = FAULTS[case]
    with pytest.raises(InvocationError) as caught:
        planned(tmp_path, text)
    place = f"{tmp_path}/job.toml" + (f":{line}:" if line is not None else "")
    assert caught.value.message.startswith(place), caught.value.message
    assert said in caught.value.message


def test_a_line_of_a_file_of_tasks_is_named(tmp_path: Path) -> None:
    for text, line, said in (
        ('{"prompt": "a"}\n{"prompt": 123}\n', 2, "must be a string, not a number"),
        ('{"prompt": "a"}\n\nnothing\n', 3, "not valid JSON"),
        ('{"id": 1, "prompt": "a"}\n{"id": "1", "prompt": "b"}\n', 2, "is that of"),
        ('{"prompt": null}\n', 1, "not null"),
        ("[1]\n", 1, "must be an object"),
    ):
        with pytest.raises(InvocationError, match=f"tasks.jsonl:{line}: ") as caught:
            planned(tmp_path, text, "tasks.jsonl")
        assert said in caught.value.message


def test_items_and_matrices_become_tasks_behind_their_needs(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        '[[tasks]]\nid = "sum"\nneeds = ["each"]\nprompt = "{{ needs.each.output }}"\n'
        '[[tasks]]\nid = "each"\nitems = "items.jsonl"\nprompt = "{{ item.path }}"\n'
        '[[tasks]]\nid = "m"\nmatrix = { py = ["3.11", "3.12"], fast = [true, false] }\nprompt = "{{ item.py }}"\n',
        items_jsonl='{"path": "a"}\n\n{"id": "b", "path": "c"}\n',
    )
    assert [task.id for task in plan.tasks] == [
        "each/1", "each/b", "sum", "m/3.11-true", "m/3.11-false", "m/3.12-true", "m/3.12-false",
    ]  # fmt: skip
    assert plan.tasks[2].needs == {"each": ("each/1", "each/b")}


def test_a_digest_is_of_what_the_task_does_and_of_nothing_else(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        return planned(tmp_path, text).tasks[0].digest

    first = digest(TASK)
    assert digest("# a comment\n[job]\nconcurrency = 9\n" + TASK) == first
    assert digest(TASK.replace("go", "{{ v }}") + '[vars]\nv = "go"\n') == first
    assert digest(TASK + 'model = "a/b"\n') != first
    assert digest(TASK.replace("go", "stop")) != first


def taken(readiness: Readiness) -> list[str]:
    found = []
    while (task := readiness.take()) is not None:
        found.append(task.id)
    return found


def test_tasks_that_write_in_one_workspace_take_turns_and_those_that_share_a_session_too(
    tmp_path: Path,
) -> None:
    plan = planned(
        tmp_path,
        "".join(
            f'[[tasks]]\nid = "{name}"\nprompt = "x"\n{more}\n'
            for name, more in {
                "w1": "",
                "w2": "",
                "r1": 'permission = "read-only"',
                "r2": 'permission = "read-only"',
                "own": "worktree = true",
                "shared": "shared_workspace = true",
                "k1": 'session = "key:a"\npermission = "read-only"',
                "k2": 'session = "key:a"\npermission = "read-only"',
                "f1": 'needs = ["r1"]\nsession = "from:r1"',
                "f2": 'needs = ["r1"]\nsession = "from:r1"',
            }.items()
        ),
    )
    by_id = {task.id: task for task in plan.tasks}
    readiness = Readiness(plan, [False] * len(plan.tasks), "/w")
    assert taken(readiness) == ["w1", "r1", "r2", "own", "shared", "k1"]
    readiness.over(by_id["w1"], held=True)
    readiness.over(by_id["k1"], held=True)
    assert taken(readiness) == ["w2", "k2"]
    readiness.over(by_id["r1"], held=True)
    assert taken(readiness) == ["f1"]
    readiness.put_back(by_id["f1"])
    assert taken(readiness) == ["f1"]
    readiness.over(by_id["f1"], held=True)
    assert taken(readiness) == ["f2"]


def test_what_is_over_already_is_not_waited_for(tmp_path: Path) -> None:
    plan = planned(tmp_path, TASK + '[[tasks]]\nid = "b"\nprompt = "x"\nneeds = ["a"]\n')
    assert taken(Readiness(plan, [True, False], "/w")) == ["b"]

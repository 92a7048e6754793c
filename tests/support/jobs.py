"""Job specs for tests, and models that answer each task by the words of its prompt."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.mcode import Mcode, Run
from tests.support.steps import Step, say


class Tasks:
    """A step that looks at the prompt: `Tasks(b=status(500))` answers the task whose prompt is `do b`.

    A value may be a list: its steps in order, the last one again.  Every other task is answered by `default`.
    """

    def __init__(self, default: Step | None = None, **steps: Any) -> None:
        self._default = default or say("done")
        self._steps: Mapping[str, Any] = steps
        self._lock = threading.Lock()
        #: requests of each task
        self.asked: Counter[str] = Counter()

    def __call__(self, request: Any) -> Step:
        name = name_in(request)
        with self._lock:
            self.asked[name] += 1
            count = self.asked[name]
        found = self._steps.get(name, self._default)
        if isinstance(found, list):
            found = found[min(count, len(found)) - 1]
        return found  # type: ignore[no-any-return]


def name_in(request: Any) -> str:
    """The task whose prompt the request carries last."""
    text = request.text
    at = text.rfind("do <")
    return text[at + 4 : text.index(">", at)] if at >= 0 else ""


def spec(
    mcode: Mcode, *tasks: str | Mapping[str, Any], name: str = "job.toml", **tables: Mapping[str, Any]
) -> Path:
    """A spec with these tasks: a name, or the keys of a task; a prompt that is not given is `do <id>`."""
    lines = []
    for table, values in tables.items():
        lines += [f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    for one in tasks:
        keys = {"id": one} if isinstance(one, str) else dict(one)
        keys.setdefault("prompt", f"do <{keys['id']}>")
        keys.setdefault("shared_workspace", True)
        lines += ["[[tasks]]", *(f"{key} = {_toml(value)}" for key, value in keys.items())]
    path = mcode.workspace / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def records(path: Path) -> dict[str, dict[str, Any]]:
    """The records of a results file, by task; every line is whole, and no task stands there twice."""
    raw = path.read_bytes()
    assert not raw or raw.endswith(b"\n"), "torn"
    found: dict[str, dict[str, Any]] = {}
    for line in raw.splitlines():
        record = json.loads(line)
        assert record["taskId"] not in found, f"twice: {record['taskId']}"
        found[record["taskId"]] = record
    return found


def states(mcode: Mcode, run_id: str) -> dict[str, str]:
    """What has become of each task of a run."""
    run = mcode.run("jobs", "status", run_id, "--output-format", "json").check()
    return {task["taskId"]: task["status"] for task in json.loads(run.out)["tasks"]}


def summary(run: Run) -> dict[str, Any]:
    """The summary object on stdout."""
    found: dict[str, Any] = json.loads(run.out)
    assert found["type"] == "job.result"
    return found

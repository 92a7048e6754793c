"""Reading a spec: TOML, or JSON Lines with one task a line.

Everything that is wrong with the file itself is one sentence with its line, and
exit code 2.  What its tasks mean to each other is plan's to judge.  A relative
path in a spec begins at the directory of the spec.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from mcode_exec.config import values
from mcode_exec.config.document import Document, parse_document
from mcode_exec.config.lines import Index
from mcode_exec.config.schema import Named, Schema, held_to
from mcode_exec.config.values import WrongValueError
from mcode_exec.errors import InvocationError
from mcode_exec.paths import open_regular
from mcode_exec.records.job import JobSpec, JobTable, ScheduleTable, TaskSettings, TaskSpec
from mcode_exec.records.labels import check_label

MAX_BYTES = 64 << 20
MAX_PROMPT_BYTES = 10 << 20
MAX_TASKS = 100_000
MAX_ID = 200  # characters
MAX_CONCURRENCY = 256

#: names that templates have of their own
RESERVED = ("item", "needs", "task", "job", "run")

_decode_line = msgspec.json.Decoder(float_hook=Decimal).decode


def _id(value: object) -> str:
    """What a task or an item is called; a number is its digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    name = values.text(value)
    if len(name) > MAX_ID or not name.isprintable() or name != name.strip():
        raise WrongValueError(
            f"must be at most {MAX_ID} characters that can be seen, without blanks at its ends"
        )
    return name


def _concurrency(value: object) -> int:
    count = values.positive_integer(value)
    if count > MAX_CONCURRENCY:
        raise WrongValueError(f"must be at most {MAX_CONCURRENCY}")
    return count


def _tools(value: object) -> tuple[str, ...]:
    return () if value == "none" else values.names(value)


def _models(value: object) -> tuple[str, ...]:
    return tuple(values.model(one) for one in values.texts(value))


def _label(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValueError(f"must be a string, not {values.kind(value)}")
    return value


def _check(value: object) -> str:
    command = values.text(value)
    if "{{" in command:
        raise WrongValueError(
            "is a command, and takes no template: a value comes as $MCODE_ITEM_NAME or $MCODE_VAR_NAME, in quotes"
        )
    return command


def _session(value: object) -> str:
    text = values.text(value)
    kind, colon, rest = text.partition(":")
    if text in ("new", "continue") or (kind in ("key", "id", "from", "fork") and colon and rest.strip()):
        return text
    raise WrongValueError(
        f"must be new, continue, key:NAME, id:ID, from:TASK or fork:TASK, not {text[:60]!r}"
    )


def _variable(value: object) -> Any:
    if isinstance(value, str | bool | int | Decimal | list | dict):
        return value
    raise WrongValueError(f"must be a string, number, boolean, list or table, not {values.kind(value)}")


def _matrix_values(value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or not value:
        raise WrongValueError('must be a list of values, such as ["3.11", "3.12"]')
    if not all(isinstance(one, str | int | Decimal) for one in value):
        raise WrongValueError("must be a list of strings, numbers or booleans")
    return tuple(value)


def _items(value: object) -> str | list[Any]:
    if isinstance(value, list):
        return value
    return values.text(value)


_SETTINGS: Schema = {
    "model": values.model,
    "fallback_models": _models,
    "effort": values.text,
    "agent": values.text,
    "tools": _tools,
    "append_system_prompt": values.text,
    "system_prompt_file": values.text,
    "no_project_instructions": values.boolean,
    "files": values.texts,
    "cwd": values.text,
    "permission": values.one_of("smart", "full", "off", "read-only"),
    "allow": values.texts,
    "deny": values.texts,
    "on_ask": values.one_of("fail", "deny"),
    "env": values.variable_names,
    "timeout": values.positive_duration,
    "max_steps": values.positive_integer,
    "max_cost": values.positive_amount,
    "max_tokens": values.positive_integer,
    "title": values.text,
    "labels": Named(_label, key=values.text),
    "worktree": values.boolean,
    "worktree_branch": values.text,
    "shared_workspace": values.boolean,
    "check": _check,
    "check_attempts": values.count,
    "retries": values.count,
}

_TASK: Schema = {
    **_SETTINGS,
    "id": _id,
    "prompt": values.text,
    "prompt_file": values.text,
    "needs": values.texts,
    "when": values.text,
    "session": _session,
    "items": _items,
    "matrix": Named(_matrix_values, key=values.name),
}

_JOB: Schema = {
    "name": _id,
    "concurrency": _concurrency,
    "max_cost": values.positive_amount,
    "max_failures": values.positive_integer,
    "timeout": values.positive_duration,
    "on_overlap": values.one_of("skip", "wait", "replace"),
}

_SCHEDULE: Schema = {
    "cron": values.text,
    "timezone": values.text,
    "catch_up": values.one_of("none", "one", "all"),
}

_TOP = ("job", "defaults", "vars", "tasks", "schedule")


class _Line(Document):
    """One line of a JSON Lines file, which is its own place."""

    def __init__(self, path: str, number: int, table: dict[str, Any]) -> None:
        super().__init__(path, "", table, InvocationError)
        self._number = number

    def place(self, key: tuple[str, ...]) -> str:
        return f"{self.path}:{self._number}"


def read_spec(path: str) -> JobSpec:
    """The spec in `path`.  Raises: InvocationError with file and line."""
    data = read_file(path, MAX_BYTES, "job spec")
    name = os.path.basename(path).rpartition(".")[0] or os.path.basename(path)
    if path.endswith((".jsonl", ".ndjson")):
        return _of_lines(path, name, data)
    return _of_toml(path, name, data)


def read_file(path: str, limit: int, what: str) -> bytes:
    """The bytes of a regular file.  Raises: InvocationError."""
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InvocationError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > limit:
        raise InvocationError(f"{path} is larger than {limit >> 20} MiB; that is no {what}.")
    return data


def _of_toml(path: str, name: str, data: bytes) -> JobSpec:
    document = parse_document(path, data, InvocationError)
    table = document.table
    for key in table:
        if key not in _TOP:
            raise document.fault((key,), f"unknown key {key!r}; known here: {', '.join(_TOP)}.")
    job = held_to(document, table.get("job", {}), _JOB, ("job",))
    defaults = TaskSettings(
        **_settled(
            document, held_to(document, table.get("defaults", {}), _SETTINGS, ("defaults",)), ("defaults",)
        )
    )
    variables = _variables(document, table.get("vars", {}))
    raw = table.get("tasks")
    if not isinstance(raw, list) or not raw:
        raise document.fault(("tasks",), 'a job needs tasks: [[tasks]] with an "id" and a "prompt".')
    tasks = tuple(
        _task(document, one, ("tasks", Index(number)), None, defaults) for number, one in enumerate(raw)
    )
    schedule = table.get("schedule")
    return JobSpec(
        path=path,
        job=JobTable(**{"name": name, **job}),
        vars=variables,
        tasks=_distinct(tasks),
        schedule=None if schedule is None else _schedule(document, schedule),
    )


def _schedule(document: Document, table: object) -> ScheduleTable:
    checked = held_to(document, table, _SCHEDULE, ("schedule",))
    if "cron" not in checked:
        raise document.fault(("schedule",), 'a schedule needs "cron", such as "0 3 * * 1-5".')
    return ScheduleTable(**checked)


def _variables(document: Document, table: object) -> dict[str, Any]:
    checked = held_to(document, {"vars": table}, {"vars": Named(_variable)}, ())["vars"]
    for key in checked:
        if key in RESERVED:
            raise document.fault(("vars", key), f'"{key}" is a name that templates have already.')
    return dict(checked)


def _of_lines(path: str, name: str, data: bytes) -> JobSpec:
    tasks = [
        _task(_Line(path, number, table), table, (), str(number), TaskSettings())
        for number, table in json_objects(path, data)
    ]
    if not tasks:
        raise InvocationError(f"{path} has no task: one JSON object a line, with a prompt.")
    return JobSpec(path=path, job=JobTable(name=name), vars={}, tasks=_distinct(tuple(tasks)))


def json_objects(path: str, data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line that is not blank.  Raises: InvocationError."""
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = _decode_line(line)
        except (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError) as error:
            raise InvocationError(
                f"{path}:{number}: not valid JSON: {str(error).splitlines()[0]}."
            ) from error
        if not isinstance(value, dict):
            raise InvocationError(f"{path}:{number}: must be an object, not {values.kind(value)}.")
        yield number, value


def _task(
    document: Document,
    table: object,
    at: tuple[str, ...],
    absent_id: str | None,
    defaults: TaskSettings,
) -> TaskSpec:
    checked = held_to(document, table, _TASK, at)
    task_id = checked.pop("id", absent_id)
    if task_id is None:
        raise document.fault(at, 'a task needs an "id".')
    prompt = _prompt(document, checked, at)
    items = _expansion(document, checked, at)
    own = {key: checked.pop(key) for key in list(checked) if key in _SETTINGS}
    settings = _over(defaults, _settled(document, own, at))
    return TaskSpec(
        id=task_id, prompt=prompt, place=document.place(at), items=items, settings=settings, **checked
    )


def _over(defaults: TaskSettings, own: dict[str, Any]) -> TaskSettings:
    """A task's own settings over the defaults; its labels stand beside theirs."""
    if defaults.labels and "labels" in own:
        own["labels"] = {**defaults.labels, **own["labels"]}
    return msgspec.structs.replace(defaults, **own)


def _settled(document: Document, settings: dict[str, Any], at: tuple[str, ...]) -> dict[str, Any]:
    """Settings with their paths made absolute and their labels looked at."""
    directory = os.path.dirname(os.path.abspath(document.path))
    for key in ("cwd", "system_prompt_file"):
        if key in settings:
            settings[key] = absolute(directory, settings[key])
    if "files" in settings:
        settings["files"] = tuple(absolute(directory, one) for one in settings["files"])
    for key, value in settings.get("labels", {}).items():
        try:
            check_label(key, value)
        except InvocationError as error:
            raise document.fault((*at, "labels", key), error.message) from None
    if settings.get("worktree_branch") is not None:
        settings.setdefault("worktree", True)
    return settings


def absolute(directory: str, path: str) -> str:
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


def _prompt(document: Document, checked: dict[str, Any], at: tuple[str, ...]) -> str:
    prompt, file = checked.pop("prompt", None), checked.pop("prompt_file", None)
    if (prompt is None) == (file is None):
        raise document.fault(at, 'a task needs a "prompt" or a "prompt_file", and not both.')
    if file is None:
        return str(prompt)
    path = absolute(os.path.dirname(os.path.abspath(document.path)), file)
    try:
        text = read_file(path, MAX_PROMPT_BYTES, "prompt").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise document.fault((*at, "prompt_file"), f"{path} is not UTF-8 (at byte {error.start}).") from error
    except InvocationError as error:
        raise document.fault((*at, "prompt_file"), error.message) from None
    if not text.strip():
        raise document.fault((*at, "prompt_file"), f"{path} is empty.")
    return text


def _expansion(
    document: Document, checked: dict[str, Any], at: tuple[str, ...]
) -> tuple[tuple[str, Mapping[str, Any]], ...] | None:
    """(id, values) of each task that an entry stands for; None for one that is a task itself."""
    items, matrix = checked.pop("items", None), checked.pop("matrix", None)
    if items is not None and matrix is not None:
        raise document.fault((*at, "matrix"), '"items" and "matrix" cannot be combined.')
    if matrix is not None:
        return tuple(_combinations(document, matrix, (*at, "matrix")))
    if items is None:
        return None
    if isinstance(items, str):
        path = absolute(os.path.dirname(os.path.abspath(document.path)), items)
        try:
            pairs = list(json_objects(path, read_file(path, MAX_BYTES, "list of items")))
        except InvocationError as error:
            raise document.fault((*at, "items"), error.message) from None
        places = [f"{path}:{number}" for number, _ in pairs]
    else:
        pairs = list(enumerate(items, 1))
        places = [f"item {number}" for number, _ in pairs]
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for place, (number, item) in zip(places, pairs, strict=True):
        if not isinstance(item, dict):
            raise document.fault((*at, "items"), f"{place} must be a table, not {values.kind(item)}.")
        try:
            name = _id(item["id"]) if "id" in item else str(number)
        except WrongValueError as wrong:
            raise document.fault((*at, "items"), f'{place}: "id" {wrong}') from None
        if name in found:
            raise document.fault(
                (*at, "items"), f"{place}: the id {name!r} is that of {found[name][0]} already."
            )
        found[name] = (place, item)
    return tuple((name, item) for name, (_, item) in found.items())


def _combinations(
    document: Document, matrix: dict[str, tuple[Any, ...]], at: tuple[str, ...]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import itertools

    seen: set[str] = set()
    count = 1
    for one in matrix.values():
        count *= len(one)
    if count > MAX_TASKS:
        raise document.fault(at, f"the matrix comes to {count:,} tasks; at most {MAX_TASKS:,} are possible.")
    for combination in itertools.product(*matrix.values()):
        name = "-".join(str(one).lower() if isinstance(one, bool) else str(one) for one in combination)
        if name in seen:
            raise document.fault(at, f"two combinations are called {name!r}.")
        seen.add(name)
        yield name, dict(zip(matrix, combination, strict=True))


def _distinct(tasks: tuple[TaskSpec, ...]) -> tuple[TaskSpec, ...]:
    seen: dict[str, TaskSpec] = {}
    for task in tasks:
        other = seen.setdefault(task.id, task)
        if other is not task:
            raise InvocationError(f"{task.place}: the id {task.id!r} is that of {other.place} already.")
    return tasks

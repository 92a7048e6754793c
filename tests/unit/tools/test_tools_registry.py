from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from mcode_exec.tools import registry


def test_all_schemas_together_stay_below_four_kilobytes() -> None:
    schemas = registry.schemas(registry.tool_names())
    assert len(msgspec.json.encode(schemas)) < 4000
    for schema in schemas:
        jsonschema_rs.meta.validate(schema.parameters)


def test_the_same_set_of_tools_is_always_the_same_bytes() -> None:
    assert registry.schemas(["read", "bash"]) == registry.schemas(["bash", "read"])
    assert [schema.name for schema in registry.schemas(["read", "bash", "nothing"])] == ["bash", "read"]


def test_schemas_are_there_without_anything_heavy() -> None:
    program = """
import sys
from mcode_exec.tools.registry import schemas, tool_names
schemas(tool_names())
import json
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = set(json.loads(done.stdout))
    heavy = {
        "jsonschema_rs",
        "ctypes",
        "difflib",
        "psutil",
        "tempfile",
        "shutil",
        "hashlib",
        "peewee",
        "mcode_exec.tools.bash",
        "mcode_exec.tools.edit",
        "mcode_exec.workspace.git",
    }
    assert loaded & heavy == set()


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("read", {}, '"file_path" is a required property'),
        ("read", {"file_path": 5}, "file_path: 5 is not of type"),
        ("read", {"file_path": "f", "offset": "5"}, 'offset: "5" is not of type "integer"'),
        ("read", {"file_path": "f", "offset": 0}, "offset: 0 is less than the minimum of 1"),
        ("read", {"file_path": "f", "path": "g", "lines": 3}, "'lines'"),
        ("edit", {"file_path": "f", "old_string": "a", "new_string": "b", "replace_all": "true"}, "boolean"),
        ("bash", {"command": ["ls"]}, "command"),
        ("bash", {"command": "ls", "timeout_ms": 1.5}, "timeout_ms"),
        ("todo_write", {"todos": [{"content": "x", "status": "done"}]}, "todos.0.status"),
        ("read", {"file_path": "a\0b"}, "NUL"),
        ("read", {"file_path": "\ud800"}, "lone surrogate"),
        ("edit", {"file_path": "", "old_string": "a", "new_string": "b"}, "empty"),
        ("glob", {"pattern": "*/../x"}, "cannot follow a wildcard"),
        ("nothing", {}, "there is no tool named 'nothing'; the tools are bash, read"),
    ],
)
def test_wrong_arguments_are_answered_in_a_sentence(name: str, arguments: dict[str, Any], said: str) -> None:
    problem = registry.check_arguments(name, arguments)
    assert problem is not None
    assert said in problem


def test_a_message_does_not_quote_a_whole_file() -> None:
    problem = registry.check_arguments("write", {"file_path": "f", "content": ["x" * 100_000]})
    assert problem is not None
    assert len(problem) < 1000


def test_right_arguments_pass() -> None:
    assert registry.check_arguments("bash", {"command": "ls", "timeout_ms": 5, "description": "x"}) is None
    assert registry.check_arguments("list", {}) is None


def test_needs_name_the_permission_and_the_absolute_path() -> None:
    def needs(name: str, **arguments: Any) -> list[tuple[str, str]]:
        return [(need.permission, need.subject) for need in registry.needs(name, arguments, "/w")]

    assert needs("read", file_path="a/../b") == [("read", "/w/a/../b")]
    assert needs("write", file_path="/x", content="") == [("edit", "/x")]
    assert needs("edit", file_path="./x", old_string="", new_string="") == [("edit", "/w/x")]
    assert needs("bash", command="ls | wc") == [("bash", "ls | wc")]
    assert needs("list") == [("list", "/w")]
    assert needs("glob", pattern="*.py") == [("glob", "/w")]
    assert needs("glob", pattern="/etc/*") == [("glob", "/etc")]
    assert needs("glob", pattern="../x/**/*.py", path="sub") == [("glob", "/w/sub/../x")]
    assert needs("grep", pattern="x", path="/") == [("grep", "/")]
    assert needs("grep", pattern="x", path="/etc/passwd") == [
        ("grep", "/etc/passwd"),
        ("read", "/etc/passwd"),
    ]
    assert needs("todo_write", todos=[]) == []


def test_only_tools_that_change_nothing_may_run_side_by_side() -> None:
    assert [name for name in registry.tool_names() if registry.is_read_only(name)] == [
        "read",
        "glob",
        "grep",
        "list",
    ]

"""What the model is told of the tools.

Every byte here is sent with every request: descriptions say what a model gets
wrong without them, nothing else.  All of them together stay below 4 kB of JSON.
"""

from __future__ import annotations

from typing import Any

from mcode_exec.records.model import ToolSchema

_STRING: dict[str, Any] = {"type": "string"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}


def _schema(
    name: str, description: str, required: tuple[str, ...], /, **properties: dict[str, Any]
) -> ToolSchema:
    return ToolSchema(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        },
    )


def _described(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


SCHEMAS: dict[str, ToolSchema] = {
    schema.name: schema
    for schema in (
        _schema(
            "bash",
            "Run a bash script in the workspace. No terminal and no stdin: pass flags that avoid prompts. "
            "Each call is a new shell; background processes end with the turn.",
            ("command",),
            command=_STRING,
            timeout_ms=_COUNT,
            description=_described(_STRING, "what it does, in a few words"),
        ),
        _schema(
            "read",
            "Read a text file with line numbers, or an image. Large files: go on with offset and limit (lines).",
            ("file_path",),
            file_path=_STRING,
            offset=_described(_COUNT, "first line"),
            limit=_COUNT,
        ),
        _schema(
            "write",
            "Create a file or replace its whole content. Prefer edit for changes.",
            ("file_path", "content"),
            file_path=_STRING,
            content=_STRING,
        ),
        _schema(
            "edit",
            "Replace old_string, which must occur exactly once (or set replace_all), by new_string. "
            "Give it exactly as in the file, without line numbers, with enough lines around to be unique. "
            "An empty old_string creates a new file.",
            ("file_path", "old_string", "new_string"),
            file_path=_STRING,
            old_string=_STRING,
            new_string=_STRING,
            replace_all={"type": "boolean"},
        ),
        _schema(
            "glob",
            "Find files by name, e.g. src/**/*.py; a pattern without a slash matches at any depth. "
            "Ignored files are left out.",
            ("pattern",),
            pattern=_STRING,
            path=_described(_STRING, "directory to search"),
        ),
        _schema(
            "grep",
            "Search file contents by regular expression. Ignored, binary and .env files are left out.",
            ("pattern",),
            pattern=_STRING,
            path=_described(_STRING, "file or directory"),
            glob=_described(_STRING, "only files like *.py"),
            ignore_case={"type": "boolean"},
            context=_described({"type": "integer", "minimum": 0}, "lines around a match"),
            limit=_described(_COUNT, "most lines shown"),
        ),
        _schema("list", "List a directory.", (), path=_STRING),
        _schema(
            "todo_write",
            "Replace your list of steps; for work of three steps or more.",
            ("todos",),
            todos={
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "content": _STRING,
                        "status": {"enum": ["pending", "in_progress", "completed", "cancelled"]},
                        "priority": {"enum": ["high", "medium", "low"]},
                    },
                    "required": ["content", "status"],
                    "additionalProperties": False,
                },
            },
        ),
    )
}

#: they change nothing, so those of one step may run side by side
READ_ONLY = frozenset({"read", "glob", "grep", "list"})

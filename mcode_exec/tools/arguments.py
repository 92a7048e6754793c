"""Arguments of a tool call against the tool's schema, answered in a sentence for the model.

Strict: nothing is coerced ("5" is no integer) and unknown arguments are named.
The schemas are ours and hold no `$ref`, so nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from mcode_exec.tools.schemas import SCHEMAS

if TYPE_CHECKING:
    import jsonschema_rs

#: a message quotes the offending value, which may be a whole file
_MESSAGE_CHARS = 300
_MAX_MESSAGES = 5


def check(name: str, arguments: Mapping[str, Any]) -> str | None:
    """None when the arguments fit; else what is wrong and what the tool takes."""
    schema = SCHEMAS.get(name)
    if schema is None:
        return f"there is no tool named {name!r}; the tools are {', '.join(SCHEMAS)}"
    validator = _validator(name)
    if validator.is_valid(arguments):
        return None
    problems = []
    for error in validator.iter_errors(arguments):
        where = ".".join(str(part) for part in error.instance_path)
        message = error.message
        if len(message) > _MESSAGE_CHARS:
            message = message[:100] + " … " + message[-150:]
        problems.append(f"{where}: {message}" if where else message)
        if len(problems) == _MAX_MESSAGES:
            break
    return f"invalid arguments for {name}: {'; '.join(problems)}. It takes {_signature(name)}."


@cache
def _validator(name: str) -> jsonschema_rs.Draft202012Validator:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(SCHEMAS[name].parameters)


def whole_numbers(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments that fit, with 3.0 as 3: to JSON Schema both are the same integer."""
    return {name: int(value) if isinstance(value, float) else value for name, value in arguments.items()}


def _signature(name: str) -> str:
    parameters = SCHEMAS[name].parameters
    required = parameters["required"]
    parts = []
    for key, schema in parameters["properties"].items():
        kind = schema.get("type", "string")
        parts.append(f"{key} ({kind}{'' if key in required else ', optional'})")
    return ", ".join(parts)

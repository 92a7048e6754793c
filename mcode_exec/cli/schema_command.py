"""`mcode schema`: the JSON Schema of what mcode prints, made from the records themselves."""

from __future__ import annotations

from typing import Any

import click

from mcode_exec.cli.list_options import emit

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


@click.command("schema", short_help="JSON Schema of the events, the result or a job.")
@click.argument("what", type=click.Choice(["events", "result", "job"]))
def command(what: str) -> int:
    """Print the JSON Schema of an event line, of the result object, or of what `mcode jobs run` gives out.

    job: the summary object, and the lines of --results.
    """
    import json

    emit(json.dumps(schema_of(what), indent=2).encode() + b"\n")
    return 0


def schema_of(what: str) -> dict[str, Any]:
    """The schema as JSON data."""
    from typing import get_args

    import msgspec

    from mcode_exec.records.event import AnyEvent
    from mcode_exec.records.job import JobResult, TaskRecord, UnrunTask
    from mcode_exec.records.result import Result

    kinds = {
        "events": get_args(AnyEvent),
        "result": (Result,),
        "job": (JobResult, TaskRecord, UnrunTask),
    }[what]
    schemas, components = msgspec.json.schema_components(
        kinds, schema_hook=None, ref_template="#/$defs/{name}"
    )
    for name, component in components.items():
        component.setdefault("title", name)
        _numbers(component)
    body: dict[str, Any] = schemas[0] if what == "result" else {"anyOf": list(schemas)}
    return {"$schema": _DRAFT, "title": f"mcode {what}", **body, "$defs": components}


def _numbers(component: dict[str, Any]) -> None:
    """Decimals leave as numbers, whatever the library says of them by default."""
    for field in component.get("properties", {}).values():
        for form in (field, *field.get("anyOf", ())):
            if form.get("format") == "decimal":
                form.pop("format")
                form["type"] = "number"

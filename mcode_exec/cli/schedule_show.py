"""`mcode schedule show`: all of a schedule, for people and for programs."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from mcode_exec.batch.schedules.looking import row_of
from mcode_exec.cli.schedule_rows import outcome_of
from mcode_exec.output.escape import escape

if TYPE_CHECKING:
    from mcode_exec.batch.schedules.looking import Seen


def show_document(seen: Seen) -> dict[str, Any]:
    """What `list` has of it, and its settings."""
    one = seen.schedule
    fields: dict[str, Any] = msgspec.to_builtins(row_of(seen))
    settings = msgspec.to_builtins(one.settings, builtin_types=(Decimal,))
    return {
        **fields,
        "settings": {key: value for key, value in settings.items() if value is not None},
        "configFile": one.config_file,
        "trustWorkspace": one.trust_workspace,
        "createdMs": one.created_ms,
        "updatedMs": one.updated_ms,
    }


def show_lines(seen: Seen) -> bytes:
    """A line for each thing that is set."""
    one, row = seen.schedule, row_of(seen)
    lines: list[tuple[str, object]] = [
        ("name", one.name),
        ("state", row.state),
        ("problem", one.problem),
        ("cron", f"{one.cron} ({one.timezone})"),
        ("next", row.next_at),
        ("last", row.last_due_at),
        ("outcome", outcome_of(row.last_status, row.last_exit_code)),
        ("error", row.last_error),
        ("catch-up", one.catch_up),
        ("on-overlap", one.on_overlap),
        ("when-interrupted", one.when_interrupted),
        ("on-failure", " ".join(map(repr, one.on_failure))),
        ("workspace", one.workspace),
        ("spec", one.spec_path),
        ("prompt file", one.prompt_file),
        ("session", one.session if one.spec_path is None else None),
        *((key.replace("_", "-"), value) for key, value in _settings(seen)),
        ("config", one.config_file),
        ("prompt", one.prompt),
    ]
    shown = [f"{label + ':':18}{escape(str(value))}" for label, value in lines if value not in (None, "")]
    return ("\n".join(shown) + "\n").encode("utf-8", "replace")


def _settings(seen: Seen) -> list[tuple[str, object]]:
    data = msgspec.to_builtins(seen.schedule.settings)
    return [
        (key, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for key, value in data.items()
    ]

"""`mcode doctor`: what would stop a run, before one is tried."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format, notice

_COLUMNS = {"state": "", "name": "CHECK", "detail": "DETAIL"}
_CHECK_FIELDS = ("state", "name", "ok", "detail")

_LOCK_COLUMNS = {
    "what": "WHAT",
    "sessionId": "SESSION",
    "kind": "KIND",
    "turnId": "TURN",
    "pid": "PID",
    "host": "HOST",
    "since": "SINCE",
    "until": "LEASE UNTIL",
    "state": "STATE",
    "why": "WHY",
}


@click.command(
    "doctor",
    short_help="What would stop a run here, and why.",
    epilog="""\b
Examples:
  mcode doctor
  mcode doctor --model acme/big-1
  mcode doctor --locks         who holds or deletes which session, and why it is believed alive or dead""",
)
@click.option(
    "--locks",
    is_flag=True,
    help="Instead: locks, claims, places in line, drainers, deletions; nothing is changed.",
)
@click.option("--cwd", metavar="DIR", help="Workspace [default: the current directory].")
@click.option(
    "--model", metavar="P/M[#V]", help="The model that a run would name [default: the configured one]."
)
@click.option("--config", metavar="FILE", help="Configuration instead of the user's.")
@click.option("--trust-workspace", is_flag=True, help="Read all of the workspace's own configuration.")
@list_format
@data_dir
def command(
    locks: bool,
    cwd: str | None,
    model: str | None,
    config: str | None,
    trust_workspace: bool,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Check data directory, store, configuration, providers and tools; exit 4 if something would stop a run."""
    if locks:
        return _show_locks(data_dir, output_format)
    from mcode_exec.executor.doctor import doctor
    from mcode_exec.output.tables import render

    checks = await_result(
        doctor(
            data_dir, os.environ, cwd=cwd, config_file=config, trust_workspace=trust_workspace, model=model
        )
    )
    states = {True: "ok", False: "FAIL", None: "note"}
    rows = [
        {"state": states[check.ok], "name": check.name, "ok": check.ok, "detail": check.detail}
        for check in checks
    ]
    if output_format == "table":
        from mcode_exec.output.escape import escape

        width = max((len(str(row["name"])) for row in rows), default=0)
        lines = (f"{row['state']:<4}  {row['name']:<{width}}  {escape(str(row['detail']))}\n" for row in rows)
        emit("".join(lines).encode("utf-8", "replace"))
    else:
        emit(render(rows, output_format, name="checks", fields=_CHECK_FIELDS, columns=_COLUMNS))
    return 4 if any(check.ok is False for check in checks) else 0


def _show_locks(data_dir: str | None, output_format: str) -> int:
    """Pid and host are for people; whether a holder lives is told by its liveness file alone."""
    import msgspec

    from mcode_exec.executor.locks import Held, held_locks
    from mcode_exec.output.tables import field_names, render
    from mcode_exec.output.transcript import local_time

    rows = [msgspec.to_builtins(held) for held in await_result(held_locks(data_dir, os.environ))]
    if output_format == "table":
        for row in rows:
            row["since"] = local_time(row["sinceMs"]) if row["sinceMs"] is not None else None
            row["until"] = local_time(row["untilMs"]) if row["untilMs"] is not None else None
        if not rows:
            notice("nothing is held")
        for row in rows:
            if row["what"] == "deletion":  # a cell has no room for the path that it is about
                notice(f"session {row['sessionId']} is being deleted: {row['why']}")
    emit(render(rows, output_format, name="locks", fields=field_names(Held), columns=_LOCK_COLUMNS))
    return 0

"""`mcode doctor`: what would stop a run, before one is tried."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.list_options import await_result, data_dir, emit, list_format

_COLUMNS = {"state": "", "name": "CHECK", "detail": "DETAIL"}


@click.command("doctor", short_help="What would stop a run here, and why.")
@click.option("--cwd", metavar="DIR", help="Workspace [default: the current directory].")
@click.option(
    "--model", metavar="P/M[#V]", help="The model that a run would name [default: the configured one]."
)
@click.option("--config", metavar="FILE", help="Configuration instead of the user's.")
@click.option("--trust-workspace", is_flag=True, help="Read all of the workspace's own configuration.")
@list_format
@data_dir
def command(
    cwd: str | None,
    model: str | None,
    config: str | None,
    trust_workspace: bool,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Check data directory, store, configuration, providers and tools; exit 4 if something would stop a run."""
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
        emit(render(rows, output_format, name="checks", columns=_COLUMNS))
    return 4 if any(check.ok is False for check in checks) else 0

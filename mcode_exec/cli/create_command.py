"""`mcode sessions create`: a session without a turn; its id is all of stdout."""

from __future__ import annotations

import os

import click

from mcode_exec.cli.flag_types import KEY, LABEL, SESSION_ID, TEXT
from mcode_exec.cli.grouped_command import GroupedCommand, GroupedOption, in_order
from mcode_exec.cli.list_options import await_result, emit, emit_document, notice

_SESSION, _RIGHTS, _SETUP = "Session", "Permissions of its own", "Setup"


def _flag(group: str, *names: str, **settings: object) -> click.Option:
    return GroupedOption(names, group=group, **settings)


# fmt: off
_OPTIONS = (
    _flag(_SESSION, "--title", type=TEXT,
          help="What it is called [default: by its first prompt, when that comes]."),
    _flag(_SESSION, "--session-key", type=KEY, metavar="KEY",
          help="Bind it to KEY in this project; where one is bound already, that one's id is printed."),
    _flag(_SESSION, "--parent", type=SESSION_ID,
          help="Make it under this session: what that one forbids is forbidden to it."),
    _flag(_SESSION, "--label", "labels", type=LABEL, multiple=True,
          help="Label (repeatable)."),
    _flag(_SESSION, "--cwd", type=TEXT, metavar="DIR",
          help="Workspace [default: the current directory]."),
    _flag(_SESSION, "--model", type=KEY, metavar="P/M[#V]",
          help="Model of its turns [default: of each turn the one that is configured then]."),
    _flag(_SESSION, "--agent", type=KEY, metavar="NAME",
          help="Agent of its turns, one of the configuration."),
    _flag(_RIGHTS, "--permission", type=click.Choice(["smart", "full", "off", "read-only"]),
          help="Preset of rules for its turns [default: smart]."),
    _flag(_RIGHTS, "--allow", multiple=True, type=TEXT, metavar="RULE",
          help="Allow, as PERMISSION:PATTERN (repeatable; the last match of --allow and --deny wins)."),
    _flag(_RIGHTS, "--deny", multiple=True, type=TEXT, metavar="RULE",
          help="Deny, likewise."),
    _flag(_SETUP, "--output-format", type=click.Choice(["text", "json"]), default="text",
          help="text (default): the id; json: the whole session."),
    _flag(_SETUP, "--config", "config_file", type=KEY, metavar="FILE",
          help="The configuration that --model and --agent are looked up in."),
    _flag(_SETUP, "--data-dir", metavar="DIR",
          help="Where sessions are kept."),
)
# fmt: on

_EPILOG = """\b
Examples:
  id=$(mcode sessions create --title "Release 4.2" --label team=core)
  mcode exec --session "$id" "write the changelog"
  mcode sessions create --session-key nightly --permission read-only --allow 'bash:make *'
  mcode sessions create --parent "$id" --deny 'edit:docs/*'"""


@click.command(
    "create",
    cls=GroupedCommand,
    params=list(_OPTIONS),
    short_help="Make a session without running a turn.",
    epilog=_EPILOG,
)
@click.pass_context
def create(
    ctx: click.Context,
    title: str | None,
    session_key: str | None,
    parent: str | None,
    labels: tuple[tuple[str, str], ...],
    cwd: str | None,
    model: str | None,
    agent: str | None,
    permission: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    output_format: str,
    config_file: str | None,
    data_dir: str | None,
) -> int:
    """Make a session without running a turn, and print its id.

    Its permissions hold for each of its turns; flags of a turn are laid over them. It is in lists at once;
    `--continue` goes by turns, and does not find it before its first.
    """
    if cwd == "":
        raise click.UsageError("--cwd is empty.")
    from mcode_exec.executor.creating import create_session
    from mcode_exec.ids import new_run_id
    from mcode_exec.records.invocation import FlagRule, Invocation

    rules = in_order(ctx, allow=allow, deny=deny)
    invocation = Invocation(
        run_id=new_run_id(),
        cwd=cwd,
        title=title,
        session_key=session_key,
        labels=labels,
        model=model,
        agent=agent,
        permission=permission,  # type: ignore[arg-type]  # the choices are the presets
        rules=tuple(
            FlagRule(verdict="allow" if name == "allow" else "deny", text=text) for name, text in rules
        ),
        config_file=config_file,
        data_dir=data_dir,
    )
    created = await_result(create_session(invocation, os.environ, parent))
    for _, message in created.notices:
        notice(message)
    session = created.session
    if not created.is_new:
        notice(
            f"the key {session_key!r} was bound to session {session.id} already; nothing of it was changed"
        )
    if output_format == "json":
        from mcode_exec.cli.session_rows import row_of

        emit_document("sessions.create", {"isNew": created.is_new, "session": row_of(session, None)})
    else:
        emit(f"{session.id}\n".encode())
    return 0

"""`mcode sessions rewind`: a session goes back to before a prompt, or forward again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mcode_exec.cli.flag_types import KEY, SESSION_ID
from mcode_exec.cli.list_options import await_result, data_dir, emit_document, notice
from mcode_exec.plurals import counted

if TYPE_CHECKING:
    from mcode_exec.executor.rewinding import RewoundSession

_SHOWN = 10


@click.command(
    "rewind",
    short_help="Take back a prompt and all after it.",
    epilog="""\b
Examples:
  mcode sessions rewind mvs_1a2b3c4d --to last
  mcode sessions rewind mvs_1a2b3c4d --to msg-user-v1-0c1d2e3f
  mcode sessions rewind mvs_1a2b3c4d --to last --files         and what it did to files
  mcode sessions rewind mvs_1a2b3c4d --undo
  mcode sessions edit-last mvs_1a2b3c4d "the other way"      takes the last prompt back and runs another

\b
Exit codes: 75 while a turn runs, 4 where there is nothing to take back or to bring back.""",
)
@click.argument("session", type=SESSION_ID)
@click.option("--to", type=KEY, metavar="MSG|last", help="The prompt that is taken back, with all after it.")
@click.option("--undo", is_flag=True, help="Bring back what the last rewind took, if nothing was run since.")
@click.option("--files", is_flag=True, help="Also take back what these turns did to files.")
@click.option("--force", is_flag=True, help="Over files that have changed since.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
@data_dir
def rewind(
    session: str,
    to: str | None,
    undo: bool,
    files: bool,
    force: bool,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Take back a prompt of SESSION and all that came after it: the next turn goes on from before.

    MSG is the id of a message that a person said, or a unique prefix of one; `last` is the last prompt. What is
    taken back is kept in the session's directory, and --undo brings it back, with the files that were taken back with
    it. What it cost stays in `mcode usage`. Without --files, files stay as they are; with it a file that has changed
    since refuses it all, unless --force is given. Changes of files are known for 7 days.

    SESSION is an id or a unique prefix of one.
    """
    from mcode_exec.executor.rewinding import rewind_session

    if undo == (to is not None):
        raise click.UsageError("name either --to MSG or --undo.")
    if force and not (files or undo):
        raise click.UsageError("--force goes with --files or --undo.")
    rewound = await_result(
        rewind_session(data_dir, os.environ, session, to, say=notice, with_files=files, force=force)
    )
    if output_format == "json":
        from msgspec import to_builtins

        emit_document("sessions.rewind", to_builtins(rewound))
    else:
        notice(_sentence(rewound))
        if rewound.files:
            notice(f"{counted(len(rewound.files), 'file')} put back: {', '.join(rewound.files[:_SHOWN])}")
        for one in rewound.left_files[:_SHOWN]:
            notice(f"left as it is: {one.path or 'a turn'}: {one.reason}")
    return 0


def _sentence(rewound: RewoundSession) -> str:
    what = f"{counted(rewound.messages, 'message')} of {counted(rewound.turns, 'turn')}"
    if rewound.is_undo:
        return f"{what} brought back to session {rewound.session_id}"
    return f"{what} taken back; `mcode sessions rewind {rewound.session_id} --undo` brings them back"

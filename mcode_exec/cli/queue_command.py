"""`mcode queue`: what waits for a session, and who runs it."""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from mcode_exec.cli.exec_flags import options_named, values_of_absent
from mcode_exec.cli.flag_types import DURATION, KEY, SESSION_ID, TEXT, Count, ItemId
from mcode_exec.cli.grouped_command import GroupedCommand
from mcode_exec.cli.list_options import await_result, data_dir, emit, emit_document, list_format, notice
from mcode_exec.cli.queue_rows import COLUMNS, FIELDS, row_of, rows_of, tell_state
from mcode_exec.errors import InvocationError

if TYPE_CHECKING:
    from mcode_exec.records.queue import QueueItem

ITEM_ID = ItemId()


@click.group(
    "queue",
    short_help="What waits for a session, and who runs it.",
    epilog="""\b
Examples:
  mcode queue add mvs_1a2b3c4d "then update the docs"
  mcode queue list mvs_1a2b3c4d
  mcode queue drain --session mvs_1a2b3c4d             run what waits, then end
  mcode queue drain --all --follow --output-format jsonl
  mcode queue move qi_5e6f7a8b --to 1""",
)
def command() -> None:
    """Prompts that wait for a session: first in, first run, one at a time."""


@command.command("list", short_help="What waits.")
@click.argument("session", type=SESSION_ID, required=False)
@click.option("--all", "every", is_flag=True, help="Of every session.")
@list_format
@data_dir
def list_(session: str | None, every: bool, output_format: str, data_dir: str | None) -> int:
    """Items of SESSION in the order in which they run, or of every session (--all)."""
    from mcode_exec.executor.queue_actions import list_items
    from mcode_exec.output.tables import render

    if (session is None) != every:
        raise click.UsageError("give a SESSION or --all.")
    line = await_result(list_items(data_dir, os.environ, session))
    rows = rows_of(line)
    emit(render(rows, output_format, name="items", fields=FIELDS, columns=COLUMNS))
    if output_format == "table":
        tell_state(line, rows)
    return 0


_ADD_FLAGS = (
    "input_source", "input_format", "files", "title", "labels", "model", "fallback_models", "effort", "agent",
    "tools", "append_system_prompt", "no_project_instructions", "permission", "allow", "deny", "on_ask",
    "timeout", "max_steps", "max_cost", "max_tokens", "config_file", "data_dir", "trust_workspace",
)  # fmt: skip


@command.command(
    "add",
    cls=GroupedCommand,
    params=[
        *options_named(*_ADD_FLAGS),
        click.Option(["--dedupe-key"], type=KEY, metavar="KEY", help="The same key again is the same item."),
        click.Option(
            ["--expires"], type=DURATION, default="24h", help="Leaves the queue unrun after this long."
        ),
        click.Option(["--output-format"], type=click.Choice(["text", "json"]), default="text"),
    ],
    short_help="Queue a prompt.",
)
@click.argument("session", type=SESSION_ID)
@click.argument("prompt", required=False)
@click.pass_context
def add(ctx: click.Context, /, session: str, dedupe_key: str | None, expires: float, **flags: Any) -> int:
    """Queue PROMPT for SESSION, whether anybody drains its queue or not.

    The item runs with the model and the limits given here, when a process drains the queue:
    `mcode queue drain`, or `mcode exec --drain` in that session. Its model, agent and rules are checked here
    (--config FILE: by the configuration that drainer has); its key is not.
    """
    from mcode_exec.cli.exec_command import to_invocation
    from mcode_exec.executor.queue_actions import add_item

    output_format = flags.pop("output_format")
    filled = {**values_of_absent(), **flags, "session": session}
    invocation = to_invocation(ctx, filled, ctx.obj[0])
    added = await_result(add_item(invocation, os.environ, ttl_s=expires, dedupe_key=dedupe_key))
    item = added.item
    for _, message in added.notices:
        notice(message)
    if output_format == "json":
        _emit_json({**row_of(item), "position": added.position, "isNew": added.is_new})
    else:
        emit(f"{item.id}\n".encode())
        done = "queued" if added.is_new else "queued before"
        if added.position is None:
            notice(f"not queued again: it has begun as turn {item.turn_id} of session {item.session_id}")
        else:
            notice(f"{done}, at place {added.position} in the line of session {item.session_id}")
    return 0


def _emit_json(row: dict[str, Any]) -> None:
    emit_document(None, row)


def _item_json(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--output-format", type=click.Choice(["text", "json"]), default="text")(function)


@command.command("edit", short_help="Change what an item says or runs with.")
@click.argument("item", type=ITEM_ID)
@click.argument("prompt", type=TEXT, required=False)
@click.option(
    "--input", "input_source", type=KEY, metavar="FILE|-", help="Read the words from FILE or stdin."
)
@click.option("--model", type=KEY, metavar="P/M[#V]", help="Provider and model.")
@click.option("--effort", type=KEY, metavar="LEVEL", help="Reasoning effort.")
@click.option("--agent", type=KEY, metavar="NAME", help="An agent of the configuration.")
@click.option("--max-steps", type=Count(min=1), metavar="N", help="Model calls.")
@click.option("--max-tokens", type=Count(min=1), metavar="N", help="Tokens.")
@click.option(
    "--config", "config_file", type=KEY, metavar="FILE", help="Configuration instead of the user's."
)
@click.option("--trust-workspace", is_flag=True, help="Read all of the workspace's own configuration.")
@_item_json
@data_dir
def edit(
    item: str,
    prompt: str | None,
    input_source: str | None,
    model: str | None,
    effort: str | None,
    agent: str | None,
    max_steps: int | None,
    max_tokens: int | None,
    config_file: str | None,
    trust_workspace: bool,
    output_format: str,
    data_dir: str | None,
) -> int:
    """Change the words of ITEM (images and PDF files stay), or what it runs with; an id or a unique prefix.

    PROMPT - reads them from stdin; with PROMPT and --input the input is appended as a block.
    """
    from mcode_exec.executor.queue_actions import edit_item
    from mcode_exec.records.invocation import Invocation

    changes: dict[str, str | int | Decimal | None] = {
        "model": model,
        "effort": effort,
        "agent": agent,
        "max_steps": max_steps,
        "max_tokens": max_tokens,
    }
    has_words = prompt is not None or input_source is not None
    if not has_words and not any(changes.values()):
        raise click.UsageError("nothing to change: give a PROMPT or a flag.")
    if prompt is not None and not prompt.strip():
        raise InvocationError("PROMPT is empty.")
    if prompt == "-":
        if input_source not in (None, "-"):
            raise InvocationError("PROMPT - and --input FILE cannot be combined.")
        prompt, input_source = None, "-"
    drainer = Invocation(
        run_id="",
        prompt=prompt,
        input_source=input_source,
        data_dir=data_dir,
        config_file=config_file,
        trust_workspace=trust_workspace,
    )
    changed = await_result(edit_item(drainer, os.environ, item, has_words=has_words, **changes))
    for _, message in changed.notices:
        notice(message)
    return _answer(changed.item, "changed", output_format, position=changed.position)


def _answer(item: QueueItem, what: str, output_format: str, **more: Any) -> int:
    if output_format == "json":
        _emit_json({**row_of(item), **more})
    else:
        notice(f"{item.id}: {what}")
    return 0


@command.command("move", short_help="Change an item's place.")
@click.argument("item", type=ITEM_ID)
@click.option("--to", "place", type=Count(min=1), required=True, metavar="PLACE", help="1: the first.")
@_item_json
@data_dir
def move(item: str, place: int, output_format: str, data_dir: str | None) -> int:
    """Put ITEM at PLACE of its session's line."""
    from mcode_exec.executor.queue_actions import move_item

    moved = await_result(move_item(data_dir, os.environ, item, place))
    what = f"at place {moved.position} in its line"
    return _answer(moved.item, what, output_format, position=moved.position)


@command.command("remove", short_help="Take items back.")
@click.argument("items", type=ITEM_ID, nargs=-1, required=True)
@_item_json
@data_dir
def remove(items: tuple[str, ...], output_format: str, data_dir: str | None) -> int:
    """Take ITEMS out of the queue; one that is being run stays (`mcode abort` ends its turn).

    Each is tried; the exit code is that of the first that is not taken back.
    """
    from mcode_exec.executor.queue_actions import remove_items

    code = 0
    rows: list[dict[str, Any]] = []
    for removed in await_result(remove_items(data_dir, os.environ, items)):
        error = removed.error
        if error is not None:
            code = code or error.exit_code
            notice(f"error: {error.message} ({error.code})")
            rows.append(
                {"itemId": removed.name, "outcome": "kept", "code": error.code, "message": error.message}
            )
        elif removed.item is not None:
            rows.append({"itemId": removed.name, "outcome": "removed", "item": row_of(removed.item)})
            if output_format != "json":
                notice(f"{removed.name}: taken back")
    if output_format == "json":
        gone = [row["itemId"] for row in rows if row["outcome"] == "removed"]
        emit_document("queue.remove", {"removed": gone, "items": rows})
    return code


@command.command("pause", short_help="Hold a queue.")
@click.argument("session", type=SESSION_ID)
@data_dir
def pause(session: str, data_dir: str | None) -> int:
    """Run nothing of SESSION's queue until it is unpaused."""
    from mcode_exec.executor.queue_actions import pause_queue

    session_id, is_held = await_result(pause_queue(data_dir, os.environ, session))
    notice(f"the queue of {session_id} {'is paused' if is_held else 'has nothing to hold'}")
    return 0


@command.command("unpause", short_help="Let a paused queue go on.")
@click.argument("session", type=SESSION_ID)
@data_dir
def unpause(session: str, data_dir: str | None) -> int:
    """Let SESSION's queue go on, for who drains it."""
    from mcode_exec.executor.queue_actions import unpause_queue

    session_id, was_held = await_result(unpause_queue(data_dir, os.environ, session))
    notice(f"the queue of {session_id} {'goes on' if was_held else 'was not paused'}")
    return 0


_DRAIN_FLAGS = (
    "permission",
    "allow",
    "deny",
    "env",
    "config_file",
    "data_dir",
    "trust_workspace",
    "quiet",
    "verbose",
)


@command.command(
    "drain",
    cls=GroupedCommand,
    params=[
        click.Option(["--session"], type=SESSION_ID, help="Of this session."),
        click.Option(["--all", "every"], is_flag=True, help="Of every session."),
        click.Option(["--jobs"], type=Count(min=1), metavar="N", help="With --all: so many sessions at once (4)."),
        click.Option(["--follow"], is_flag=True, help="Wait for more until a signal ends it."),
        click.Option(["--stop-on-failure"], is_flag=True, help="End after the first turn that does not succeed."),
        *options_named(*_DRAIN_FLAGS),
        click.Option(
            ["--output-format"], type=click.Choice(["text", "jsonl"]), default="text",
            help="What stdout gets: a line for people, or one object, per item.",
        ),
    ],
    epilog="""\b
Exit codes: 0 everything ran and succeeded, or nothing waited; that of the first item that did not
succeed or could not be run here (77 no key, 3 configuration, …); 75 items are left because somebody
else is at work there; 4 items are left in a paused queue.""",
    short_help="Run what waits.",
)  # fmt: skip
@click.pass_context
def drain(ctx: click.Context, /, **flags: Any) -> int:
    """Run the items of a session's queue, or of all: one after the other in each session.

    An item runs with its own model and limits, and with this process's configuration and keys; of its
    permissions and the ones given here the stricter count.
    """
    from mcode_exec.cli.queue_drain import run_drain

    if (flags["session"] is None) != flags["every"]:
        raise click.UsageError("give --session ID or --all.")
    if flags["jobs"] is not None and not flags["every"]:
        raise click.UsageError("--jobs goes with --all: a session runs one item at a time.")
    return run_drain(ctx, flags)


@command.command(
    "steer",
    cls=GroupedCommand,
    params=[
        *options_named(*_DRAIN_FLAGS),
        click.Option(
            ["--output-format"], type=click.Choice(["text", "json"]), default="text",
            help="What stdout gets: the answer where it ran here, or one object.",
        ),
    ],
    short_help="Send an item now.",
)  # fmt: skip
@click.argument("item", type=ITEM_ID)
@click.pass_context
def steer(ctx: click.Context, /, item: str, **flags: Any) -> int:
    """Send ITEM now: to the turn that runs in its session, or as a turn of this process if none does.

    A paused queue does not hold it.
    """
    from mcode_exec.cli.queue_drain import run_steer

    return run_steer(ctx, item, flags)

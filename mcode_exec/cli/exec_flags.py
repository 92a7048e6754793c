"""The flags of `mcode exec`, in the groups and the order in which help shows them.

Only what a flag is called, what values it takes and what help says; what the
values mean together is exec_command's.
"""

from __future__ import annotations

from typing import Any

import click

from mcode_exec.cli.flag_types import (
    DURATION,
    FORK_SOURCE,
    KEY,
    LABEL,
    MONEY,
    SESSION_ID,
    TEXT,
    TOOL_NAMES,
    VARIABLE_NAME,
    Count,
)
from mcode_exec.cli.grouped_command import GroupedOption

FORMATS = {"text": "text", "json": "json", "stream-json": "stream-json", "jsonl": "stream-json"}

_PROMPT, _SESSION, _AGENT = "Prompt", "Session", "Model and agent"
_RIGHTS, _LIMITS, _OUTPUT, _SETUP = "Permissions", "Limits", "Output", "Setup"


def _flag(group: str, *names: str, **settings: Any) -> click.Option:
    return GroupedOption(names, group=group, **settings)


# fmt: off
OPTIONS: tuple[click.Option, ...] = (
    _flag(_PROMPT, "--input", "input_source", metavar="FILE|-",
          help="Read the prompt from FILE, or from stdin to its end; with PROMPT it is appended as a "
               "block."),
    _flag(_PROMPT, "--input-format", type=click.Choice(["text", "json"]),
          help="json: a string, or an object with 'prompt'."),
    _flag(_PROMPT, "--file", "files", multiple=True, metavar="PATH",
          help="Attach a file (repeatable, 10 files, 100 MiB)."),
    _flag(_SESSION, "--session", type=SESSION_ID,
          help="Continue this session; a unique prefix is enough."),
    _flag(_SESSION, "-c", "--continue", "continue_latest", is_flag=True,
          help="Continue the newest session of this workspace."),
    _flag(_SESSION, "--resume", type=SESSION_ID, hidden=True),
    _flag(_SESSION, "--session-key", type=KEY, metavar="KEY",
          help="Get or create the session bound to KEY in this project."),
    _flag(_SESSION, "--fork", type=FORK_SOURCE,
          help="A new session that begins with the history of another: of the named one, up to and including "
               "MSG, or of the newest one here (latest)."),
    _flag(_SESSION, "--worktree", is_flag=True,
          help="Work in a new git worktree, made from HEAD: what is not committed here stays here."),
    _flag(_SESSION, "--worktree-branch", type=KEY, metavar="NAME",
          help="Likewise, on a new branch of that name [default: mcode/…]."),
    _flag(_SESSION, "--ephemeral", is_flag=True,
          help="Keep nothing: a private store that goes with the run."),
    _flag(_SESSION, "--title", type=TEXT,
          help="Call the session so from this turn on; a new one without a title is called by its prompt."),
    _flag(_SESSION, "--label", "labels", type=LABEL, multiple=True,
          help="Label of the session (repeatable)."),
    _flag(_SESSION, "--request-id", type=KEY, metavar="ID",
          help="Run once: the same ID again gives the stored result."),
    _flag(_SESSION, "--when-busy", type=click.Choice(["fail", "wait", "queue", "steer"]), default="fail",
          help="What a busy session means: an error (fail, the default), stand in its line (wait), leave the"
               " prompt for who drains it (queue), hand it to the running turn (steer)."),
    _flag(_SESSION, "--wait-timeout", type=DURATION, default="10m",
          help="How long to wait in line, or for a running request of the same ID [default: 10m]."),
    _flag(_SESSION, "--drain", "drains", is_flag=True,
          help="After the turn, run the session's queued items until none is left."),
    _flag(_SESSION, "--paused-queue", type=click.Choice(["keep", "clear"]), default="keep",
          help="What happens to the items of a paused queue [default: keep]."),
    _flag(_SESSION, "--cwd", metavar="DIR",
          help="Workspace [default: the current directory]; @recorded: the session's."),
    _flag(_AGENT, "--model", type=TEXT, metavar="P/M[#V]",
          help="Provider, model and, as variant, an effort."),
    _flag(_AGENT, "--fallback-model", "fallback_models", type=TEXT, multiple=True, metavar="P/M[#V]",
          help="Goes on for the rest of the turn when the model stays unavailable (repeatable)."),
    _flag(_AGENT, "--effort", type=TEXT, metavar="LEVEL",
          help="Reasoning effort: none, minimal, low, medium, high, xhigh; max where Anthropic's format is "
               "spoken."),
    _flag(_AGENT, "--agent", type=TEXT, metavar="NAME",
          help="An agent of the configuration."),
    _flag(_AGENT, "--tools", type=TOOL_NAMES,
          help="Offer only these tools to the model."),
    _flag(_AGENT, "--system-prompt-file", metavar="FILE",
          help="Replace the system prompt."),
    _flag(_AGENT, "--append-system-prompt", type=TEXT, metavar="TEXT",
          help="Add to the system prompt."),
    _flag(_AGENT, "--no-project-instructions", is_flag=True,
          help="Do not read AGENTS.md and CLAUDE.md."),
    _flag(_RIGHTS, "--permission", type=click.Choice(["smart", "full", "off", "read-only"]),
          help="Preset of rules [default: smart]."),
    _flag(_RIGHTS, "--allow", multiple=True, type=TEXT, metavar="RULE",
          help="Allow, as PERMISSION:PATTERN (repeatable; the last match of --allow and --deny wins)."),
    _flag(_RIGHTS, "--deny", multiple=True, type=TEXT, metavar="RULE",
          help="Deny, likewise."),
    _flag(_RIGHTS, "--on-ask", type=click.Choice(["fail", "deny"]), default="fail",
          help="What a call that needs a decision does: it is denied, and the run ends with 5 (fail, the"
               " default) or as it would (deny)."),
    _flag(_RIGHTS, "--env", multiple=True, type=VARIABLE_NAME,
          help="Pass this variable to commands (repeatable)."),
    _flag(_LIMITS, "--timeout", type=DURATION,
          help="Wall clock of the whole run, such as 90s or 30m."),
    _flag(_LIMITS, "--max-steps", type=Count(min=1), metavar="N",
          help="Model calls."),
    _flag(_LIMITS, "--max-cost", type=MONEY,
          help="Cost of the run."),
    _flag(_LIMITS, "--max-tokens", type=Count(min=1), metavar="N",
          help="Tokens of the run."),
    _flag(_LIMITS, "--check", type=TEXT, metavar="CMD",
          help="A command that must succeed after the answer; when it fails, its output goes back to the agent."),
    _flag(_LIMITS, "--check-attempts", type=Count(min=0), metavar="N",
          help="How often it goes back before the run fails [default: 3]."),
    _flag(_OUTPUT, "--output-format", type=click.Choice(list(FORMATS)), default="text",
          help="What stdout gets: the answer, one result object, or one event a line [default: text]."),
    _flag(_OUTPUT, "--deltas/--no-deltas", default=True,
          help="Partial text in stream-json [default: on]."),
    _flag(_OUTPUT, "--events", "events_file", metavar="FILE",
          help="Also write the event lines here."),
    _flag(_OUTPUT, "--result", "result_file", metavar="FILE",
          help="Write the result object here, for every outcome."),
    _flag(_OUTPUT, "-o", "--output-last-message", "output_file", metavar="FILE",
          help="Write the answer here; an earlier one goes when the turn begins."),
    _flag(_OUTPUT, "--session-id-file", metavar="FILE",
          help="Write the session's id here as soon as it is known; an earlier one goes likewise."),
    _flag(_OUTPUT, "--record", metavar="DIR",
          help="Keep every request, answer and tool result in DIR, secrets masked; an earlier recording there"
               " is replaced. A provider with api = \"replay\" plays it back."),
    _flag(_OUTPUT, "-q", "--quiet", is_flag=True,
          help="On stderr only errors."),
    _flag(_OUTPUT, "-v", "--verbose", is_flag=True,
          help="On stderr also progress."),
    _flag(_SETUP, "--config", "config_file", metavar="FILE",
          help="Configuration instead of the user's."),
    _flag(_SETUP, "--data-dir", metavar="DIR",
          help="Where sessions are kept."),
    _flag(_SETUP, "--trust-workspace", is_flag=True,
          help="Read all of the workspace's own configuration."),
    _flag(_SETUP, "--diagnostics-dir", metavar="DIR",
          help="Leave a masked report of a run that did not succeed."),
    _flag(_SETUP, "--dry-run", is_flag=True,
          help="Show what would run: flags, configuration, tools, permissions; no model call."),
)
# fmt: on


def options_without(*names: str) -> list[click.Option]:
    """The flags of a command that runs a turn as `exec` does, but for those that it decides itself."""
    return [option for option in OPTIONS if option.name not in names]


def options_named(*names: str) -> list[click.Option]:
    """These flags of `exec`, in its order."""
    return [option for option in OPTIONS if option.name in names]


def values_of_absent() -> dict[str, Any]:
    """What every flag of `exec` is when it does not stand on the command line."""
    absent: dict[str, Any] = {}
    for option in OPTIONS:
        assert option.name is not None
        absent[option.name] = () if option.multiple else False if option.is_flag else None
    return {
        **absent,
        "deltas": True,
        "on_ask": "fail",
        "output_format": "text",
        "when_busy": "fail",
        "wait_timeout": 600.0,
        "paused_queue": "keep",
    }

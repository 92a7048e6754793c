"""One `mcode exec` as it was asked for: parsed flags, nothing resolved yet."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from msgspec import Struct

from mcode_exec.records.permission import Preset, Verdict
from mcode_exec.records.turn import Priority, Source

OutputFormat = Literal["text", "json", "stream-json"]
OnAsk = Literal["fail", "deny"]
WhenBusy = Literal["fail", "wait", "queue", "steer"]


#: who steers, unless it says otherwise
DEFAULT_PRODUCER = "mcode"


#: value of `fork` that means the newest conversation of the workspace
LATEST = "latest"


class FlagRule(Struct, frozen=True, kw_only=True):
    """An `--allow` or `--deny` rule, in the order it stood on the command line."""

    verdict: Verdict
    text: str


class SteerFlags(Struct, frozen=True, kw_only=True):
    """What `mcode steer` says beside the words."""

    producer: str = DEFAULT_PRODUCER
    idempotency_key: str | None = None
    #: no person's words
    is_machine: bool = False


#: how often a failed check goes back to the agent, unless somebody says otherwise
CHECK_ATTEMPTS = 3


class Check(Struct, frozen=True, kw_only=True):
    """A command that must succeed after the turn's answer."""

    command: str
    #: how often the agent is told that it failed and may mend that; 0: the first failure is the last
    attempts: int = CHECK_ATTEMPTS
    #: variables that it gets beside those of the model's commands
    environment: tuple[tuple[str, str], ...] = ()


class Invocation(Struct, frozen=True, kw_only=True):
    run_id: str
    #: the prompt argument; None when the prompt comes from `input_source` alone
    prompt: str | None = None
    #: `-` for stdin, or a path; read to its end only when asked for
    input_source: str | None = None
    input_format: Literal["text", "json"] = "text"
    #: attachment paths
    files: tuple[str, ...] = ()

    session: str | None = None
    continue_latest: bool = False
    session_key: str | None = None
    #: what a new session begins with: an id or a prefix of one, or `latest`
    fork: str | None = None
    #: the last message of it that is taken, None for all that is whole
    fork_at: str | None = None
    #: the session that this is a side conversation of
    side_of: str | None = None
    #: the session's last prompt is taken back before the turn, and comes back if none is admitted
    edits_last: bool = False
    #: a new session gets a git worktree of its own, on that branch or one that is made up
    worktree: bool = False
    worktree_branch: str | None = None
    ephemeral: bool = False
    #: None: the current directory; `@recorded`: the session's own
    cwd: str | None = None

    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    effort: str | None = None
    agent: str | None = None
    #: None: all; () for `--tools none`
    tools: tuple[str, ...] | None = None
    no_project_instructions: bool = False
    system_prompt_file: str | None = None
    append_system_prompt: str | None = None
    title: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    permission: Preset | None = None
    rules: tuple[FlagRule, ...] = ()
    on_ask: OnAsk = "fail"
    #: environment variables passed to commands although their names look secret
    env: tuple[str, ...] = ()

    #: the turn's id, where who asks for it has to know it beforehand
    turn_id: str | None = None
    #: who asks for the turn, and how it stands to what is queued
    source: Source = "api"
    priority: Priority = "ordinary"
    #: it is `mcode retry`: another attempt of the session's last turn
    retries: bool = False
    #: it is `mcode steer`: words first, a turn only where none runs
    steering: SteerFlags | None = None
    #: what a busy session means for this run
    when_busy: WhenBusy = "fail"
    #: how long a place in line, or a running request of the same id, is kept
    wait_timeout_s: float = 600.0
    #: after the turn, run what is queued
    drains: bool = False
    paused_queue: Literal["keep", "clear"] = "keep"

    #: what the answer has to stand
    check: Check | None = None

    request_id: str | None = None
    timeout_s: float | None = None
    #: monotonic second at which the process started; the timeout counts from here
    started_monotonic_s: float = 0.0
    max_steps: int | None = None
    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None

    output_format: OutputFormat = "text"
    deltas: bool = True
    events_file: str | None = None
    output_file: str | None = None
    result_file: str | None = None
    session_id_file: str | None = None
    #: directory that a recording of the run is made in
    record: str | None = None

    config_file: str | None = None
    data_dir: str | None = None
    trust_workspace: bool = False
    dry_run: bool = False
    diagnostics_dir: str | None = None
    quiet: bool = False
    verbose: bool = False

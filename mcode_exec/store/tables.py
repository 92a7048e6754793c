"""The tables, as peewee models of the newest schema.

Times are integer UTC milliseconds ending in `_ms`; ids are text; JSON columns
hold msgspec-encoded records.  Every list query has an index that serves it.
Changing a column here means a migration in migrations.py: the two are compared
by a test.
"""

from __future__ import annotations

from peewee import (
    AutoField,
    BigIntegerField,
    BlobField,
    IntegerField,
    SqliteDatabase,
    TextField,
)

from mcode_exec.store.job_tables import JOB_TABLES
from mcode_exec.store.schedule_tables import SCHEDULE_TABLES
from mcode_exec.store.table import Table, dicts, tuples

__all__ = ["dicts", "tuples"]  # beside the tables


class Projects(Table):
    id = TextField(primary_key=True)
    kind = TextField()
    identity = TextField()
    created_ms = BigIntegerField()

    class Meta:
        table_name = "projects"
        indexes = ((("kind", "identity"), True),)


class Sessions(Table):
    id = TextField(primary_key=True)
    project_id = TextField()
    workspace = TextField()
    runtime = TextField()
    session_type = TextField()
    session_kind = TextField()
    status = TextField()
    visibility = TextField()
    origin = TextField()
    session_key = TextField(null=True)
    agent = TextField(null=True)
    provider_id = TextField(null=True)
    model_id = TextField(null=True)
    variant = TextField(null=True)
    effort = TextField(null=True)
    context_tokens = IntegerField(null=True)
    parent_id = TextField(null=True)
    run_location = TextField(null=True)
    forked_from = TextField(null=True)
    forked_at = TextField(null=True)
    summary = TextField(null=True)
    revert = TextField(null=True)
    title = TextField()
    title_is_default = IntegerField()
    version = TextField(null=True)
    error_code = TextField(null=True)
    error_message = TextField(null=True)
    error_source = TextField(null=True)
    labels = TextField()
    permission = TextField()
    history_relative_dir = TextField()
    history_bytes = BigIntegerField()
    last_turn_id = TextField(null=True)
    created_ms = BigIntegerField()
    updated_ms = BigIntegerField()
    activity_ms = BigIntegerField()
    archived_ms = BigIntegerField(null=True)
    compacting_ms = BigIntegerField(null=True)
    #: owner token of the process that deletes it: sealed from then on
    deleting_by = TextField(null=True)
    #: what an internal session was made for
    purpose = TextField(null=True)
    #: session whose prompt cache at the provider it goes on with
    cache_key = TextField(null=True)
    #: 1: made without a turn on purpose, and listed before it has one
    is_made_ahead = IntegerField()
    #: workspace before `projects relocate`, until a turn has told the model
    relocated_from = TextField(null=True)

    class Meta:
        table_name = "sessions"


class SessionLabels(Table):
    """The labels of sessions one by one, kept by triggers: how a list finds those that have one."""

    label = TextField()
    value = TextField()
    session_id = TextField()

    class Meta:
        table_name = "session_labels"
        primary_key = False
        indexes = ((("label", "value", "session_id"), True), (("session_id",), False))


class Messages(Table):
    #: rowid: order of commitment, and the cursor of pages
    row = AutoField()
    id = TextField()
    session_id = TextField()
    turn_id = TextField()
    role = TextField()
    created_ms = BigIntegerField()
    #: a DisplayMessage
    data = BlobField()
    #: increases with every change of a session's messages: what a watcher has not seen yet
    revision = BigIntegerField()

    class Meta:
        table_name = "messages"
        indexes = (
            (("session_id", "id"), True),
            (("session_id", "row"), False),
            (("session_id", "revision"), False),
            (("session_id", "turn_id", "row"), False),
        )


class TokenUsage(Table):
    """One row per provider answer, committed or not."""

    row = AutoField()
    session_id = TextField()
    turn_id = TextField()
    message_id = TextField()
    provider_id = TextField()
    model_id = TextField()
    agent = TextField(null=True)
    #: `answer`, or `failed` for an attempt that the provider billed
    kind = TextField()
    input_tokens = IntegerField(null=True)
    output_tokens = IntegerField(null=True)
    reasoning_tokens = IntegerField(null=True)
    cache_read_tokens = IntegerField(null=True)
    cache_write_tokens = IntegerField(null=True)
    #: decimal digits; null when a price or the usage is unknown
    cost_usd = TextField(null=True)
    at_ms = BigIntegerField()

    class Meta:
        table_name = "token_usage"
        indexes = ((("message_id", "kind", "row"), True), (("session_id", "row"), False))


class SessionLocks(Table):
    """At most one row per session: the right to change it."""

    session_id = TextField(primary_key=True)
    kind = TextField()
    #: names the liveness lock of the process
    owner = TextField()
    #: signs the writes of this one turn
    token = TextField()
    turn_id = TextField(null=True)
    acquired_ms = BigIntegerField()
    #: wall clock, for people
    expires_ms = BigIntegerField()
    boot_id = TextField()
    #: boot clock; within one boot only this decides
    expires_boot_ms = BigIntegerField()
    pid = IntegerField()
    host = TextField()

    class Meta:
        table_name = "session_locks"
        indexes = ((("owner",), False),)


class TurnReceipts(Table):
    #: globally increasing
    sequence = AutoField()
    turn_id = TextField(unique=True)
    session_id = TextField()
    digest = TextField()
    source = TextField()
    request_scope = TextField(null=True)
    request_id = TextField(null=True)
    attempt = IntegerField()
    accepted_ms = BigIntegerField()
    settled_ms = BigIntegerField(null=True)
    outcome = TextField(null=True)
    reason = TextField(null=True)
    code = TextField(null=True)
    result = BlobField(null=True)
    #: it ran a queue item
    is_dispatched = IntegerField()

    class Meta:
        table_name = "turn_receipts"
        indexes = ((("session_id", "sequence"), False),)


class ClientRequests(Table):
    """The newest attempt of each `--request-id`, in every scope that it is found in."""

    request_scope = TextField()
    request_id = TextField()
    session_id = TextField()
    turn_id = TextField()

    class Meta:
        table_name = "client_requests"
        primary_key = False
        indexes = ((("request_scope", "request_id"), True),)


class QueueItems(Table):
    """Waiting submissions, and the places of those that wait themselves."""

    row = AutoField()
    id = TextField(unique=True)
    session_id = TextField()
    #: the order of the line; its row number until it is moved
    position = BigIntegerField()
    #: `queued` or `claimed`; at most one of a session is claimed
    state = TextField()
    source = TextField()
    digest = TextField()
    dedupe_key = TextField(null=True)
    #: fixed when it was submitted; another one for each delivery after that
    turn_id = TextField(unique=True)
    earlier_turns = TextField()
    #: owner token of the process that stands in line itself; nobody else delivers this item
    waiter = TextField(null=True)
    claim_owner = TextField(null=True)
    claim_token = TextField(null=True)
    claim_boot_id = TextField(null=True)
    claim_expires_ms = BigIntegerField(null=True)
    claim_expires_boot_ms = BigIntegerField(null=True)
    created_ms = BigIntegerField()
    expires_ms = BigIntegerField()
    #: a QueuePayload, up to 1 MiB; the last column, so that no query reads past it to another one
    payload = BlobField()

    class Meta:
        table_name = "queue_items"
        indexes = ((("session_id", "position"), False), (("expires_ms",), False))


class QueuePauses(Table):
    session_id = TextField(primary_key=True)
    reason = TextField()
    turn_id = TextField(null=True)
    at_ms = BigIntegerField()

    class Meta:
        table_name = "queue_pauses"


class QueueDrainers(Table):
    """Processes that stand behind a session's items; `*` for those of every session."""

    session_id = TextField()
    owner = TextField()
    since_ms = BigIntegerField()

    class Meta:
        table_name = "queue_drainers"
        primary_key = False
        indexes = ((("session_id", "owner"), True),)


class QueueWakes(Table):
    """Counts the reasons to drain a session's queue; present once it has had an item."""

    session_id = TextField(primary_key=True)
    counter = BigIntegerField()

    class Meta:
        table_name = "queue_wakes"


class QueueRemovals(Table):
    """What became of an item that its waiter did not run; the waiter takes the row away."""

    item_id = TextField(primary_key=True)
    waiter = TextField()
    reason = TextField()
    turn_id = TextField(null=True)
    at_ms = BigIntegerField()

    class Meta:
        table_name = "queue_removals"


class TurnSignals(Table):
    """What other processes say to a running turn: steers and aborts."""

    row = AutoField()
    id = TextField(unique=True)
    session_id = TextField()
    turn_id = TextField()
    #: `steer` or `abort`
    kind = TextField()
    producer = TextField()
    idempotency_key = TextField(null=True)
    #: 1: no person's words; holds the turn's close, and is never queued
    is_machine = IntegerField()
    text = TextField()
    #: the user message it becomes
    message_id = TextField(null=True)
    #: `pending`, `consumed`, `requeued` or `dropped`
    state = TextField()
    reason = TextField(null=True)
    #: the queue item that it became
    item_id = TextField(null=True)
    created_ms = BigIntegerField()
    settled_ms = BigIntegerField(null=True)
    #: an Origin: what it becomes if its turn ends without it
    origin = BlobField(null=True)

    class Meta:
        table_name = "turn_signals"
        indexes = ((("turn_id", "state", "row"), False), (("session_id", "row"), False))


class SessionChanges(Table):
    """Which sessions were made, changed, deleted: written by triggers, read by who watches all."""

    row = AutoField()
    session_id = TextField()
    kind = TextField()
    at_ms = BigIntegerField()

    class Meta:
        table_name = "session_changes"


class TurnChanges(Table):
    """What each turn changed in files; one row from before the first thing that may change any."""

    turn_id = TextField(primary_key=True)
    session_id = TextField()
    workspace = TextField()
    begun_ms = BigIntegerField()
    #: null: it runs, or its process died and nothing is known
    ended_ms = BigIntegerField(null=True)
    gap = TextField()
    reason = TextField(null=True)
    #: null: not known
    files = IntegerField(null=True)
    additions = IntegerField(null=True)
    deletions = IntegerField(null=True)
    ignores_mode = IntegerField()
    reverted_ms = BigIntegerField(null=True)
    #: packed FileChanges; the last column, so that no query reads past it to another one
    changes = BlobField(null=True)

    class Meta:
        table_name = "turn_changes"
        indexes = ((("session_id", "begun_ms"), False), (("begun_ms",), False), (("ended_ms",), False))


class Tombstones(Table):
    """Deleted sessions that an import would bring back."""

    session_id = TextField(primary_key=True)
    origin = TextField()
    at_ms = BigIntegerField()

    class Meta:
        table_name = "tombstones"


class SessionAliases(Table):
    """What other programs call sessions that were imported from them."""

    name = TextField()
    session_id = TextField()

    class Meta:
        table_name = "session_aliases"
        primary_key = False
        indexes = ((("name", "session_id"), True), (("session_id",), False))


class Imports(Table):
    """Where an imported session came from, and how much of it was taken."""

    session_id = TextField(primary_key=True)
    origin = TextField()
    source_id = TextField()
    #: the file or directory, for people
    source = TextField()
    source_version = TextField(null=True)
    #: changes with the source
    fingerprint = TextField()
    #: `writing` while its rows are being made, then `done`
    state = TextField()
    records = IntegerField()
    #: records before the newest answer, and the digest of their ids: what a later import must begin with
    settled = IntegerField()
    digest = TextField()
    #: size of `messages.jsonl` as it was written; another one: it was changed here
    history_bytes = BigIntegerField()
    #: {what: how often} of what could not be taken along
    losses = TextField()
    at_ms = BigIntegerField()

    class Meta:
        table_name = "imports"


class Deletions(Table):
    """Who began to delete a session, and what its files said to that; goes with the session."""

    session_id = TextField(primary_key=True)
    #: for people, like those of a lock
    pid = IntegerField()
    host = TextField()
    since_ms = BigIntegerField()
    #: why the last try ended without the session's end
    reason = TextField(null=True)

    class Meta:
        table_name = "deletions"


class Operations(Table):
    """Sessions that are being made in several steps; goes when they are whole, or gone again."""

    session_id = TextField(primary_key=True)
    owner = TextField()
    phase = TextField()
    #: a Manifest
    manifest = TextField()

    class Meta:
        table_name = "operations"


class Shares(Table):
    """Pages of sessions that are kept up to date for readers elsewhere."""

    session_id = TextField(primary_key=True)
    #: `shared`, or `unshared`: not even where all are
    state = TextField()
    #: directory of its page; null: none is written
    directory = TextField(null=True)
    at_ms = BigIntegerField()

    class Meta:
        table_name = "shares"


class Prefixes(Table):
    """System prompt and tool schemas of turns, once per distinct digest."""

    digest = TextField(primary_key=True)
    body = BlobField()

    class Meta:
        table_name = "prefixes"


class Repositories(Table):
    """What names a git repository, by a key of its directory: finding it out walks the whole history."""

    directory_key = TextField(primary_key=True)
    identity = TextField()

    class Meta:
        table_name = "repositories"


class SchemaMigrations(Table):
    name = TextField(primary_key=True)
    applied_ms = BigIntegerField()

    class Meta:
        table_name = "schema_migrations"


ALL_TABLES: tuple[type[Table], ...] = (
    Projects,
    Sessions,
    SessionLabels,
    Messages,
    TokenUsage,
    SessionLocks,
    TurnReceipts,
    ClientRequests,
    QueueItems,
    QueuePauses,
    QueueDrainers,
    QueueWakes,
    QueueRemovals,
    TurnSignals,
    SessionChanges,
    TurnChanges,
    Deletions,
    Operations,
    Tombstones,
    Shares,
    SessionAliases,
    Imports,
    Prefixes,
    Repositories,
    SchemaMigrations,
    *JOB_TABLES,
    *SCHEDULE_TABLES,
)


def bind(database: SqliteDatabase) -> None:
    """Make every table use `database`; one process opens one store at a time."""
    for table in ALL_TABLES:
        table.bind(database, bind_refs=False, bind_backrefs=False)

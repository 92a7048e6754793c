"""Versioned migrations: plain SQL, frozen once released.

`PRAGMA user_version` is the number of applied migrations, so that an up-to-date
database is recognised without reading a table.  The caller holds an exclusive
file lock: any number of processes may start at once on an empty or old
database.  A migration is one transaction: all of it or nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from peewee import SqliteDatabase

from mcode_exec.errors import StoreFailedError

#: `PRAGMA application_id`: "mcod"; tells our database from any other SQLite file
APPLICATION_ID = 0x6D636F64

_M001_FIRST = """
CREATE TABLE projects (
    id TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, identity TEXT NOT NULL, created_ms INTEGER NOT NULL);
CREATE UNIQUE INDEX projects_identity ON projects (kind, identity);
CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY, project_id TEXT NOT NULL, workspace TEXT NOT NULL,
    runtime TEXT NOT NULL, session_type TEXT NOT NULL, session_kind TEXT NOT NULL, status TEXT NOT NULL,
    visibility TEXT NOT NULL, origin TEXT NOT NULL, session_key TEXT, agent TEXT, provider_id TEXT,
    model_id TEXT, variant TEXT, effort TEXT, context_tokens INTEGER, parent_id TEXT, run_location TEXT,
    forked_from TEXT,
    forked_at TEXT, summary TEXT, revert TEXT, title TEXT NOT NULL,
    title_is_default INTEGER NOT NULL, version TEXT, error_code TEXT, error_message TEXT, error_source TEXT,
    labels TEXT NOT NULL, permission TEXT NOT NULL, history_relative_dir TEXT NOT NULL,
    history_bytes INTEGER NOT NULL, last_turn_id TEXT, created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL, activity_ms INTEGER NOT NULL, archived_ms INTEGER,
    compacting_ms INTEGER);
CREATE UNIQUE INDEX sessions_key ON sessions (project_id, session_key) WHERE session_key IS NOT NULL;
CREATE INDEX sessions_continue ON sessions (workspace, activity_ms DESC)
    WHERE visibility = 'visible' AND session_kind = 'conversation' AND archived_ms IS NULL;
CREATE INDEX sessions_activity ON sessions (activity_ms DESC, id DESC);
CREATE INDEX sessions_workspace ON sessions (workspace, activity_ms DESC, id DESC);
CREATE INDEX sessions_started ON sessions (status) WHERE status = 'started';
CREATE TABLE messages (
    row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, session_id TEXT NOT NULL,
    turn_id TEXT NOT NULL, role TEXT NOT NULL, created_ms INTEGER NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX messages_id ON messages (session_id, id);
CREATE INDEX messages_order ON messages (session_id, row);
CREATE TABLE token_usage (
    row INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, turn_id TEXT NOT NULL,
    message_id TEXT NOT NULL, provider_id TEXT NOT NULL, model_id TEXT NOT NULL, agent TEXT,
    kind TEXT NOT NULL, input_tokens INTEGER, output_tokens INTEGER, reasoning_tokens INTEGER,
    cache_read_tokens INTEGER, cache_write_tokens INTEGER, cost_usd TEXT, at_ms INTEGER NOT NULL);
CREATE INDEX token_usage_message ON token_usage (message_id, kind);
CREATE INDEX token_usage_session ON token_usage (session_id, row);
CREATE TABLE session_locks (
    session_id TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, owner TEXT NOT NULL, token TEXT NOT NULL,
    turn_id TEXT, acquired_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, boot_id TEXT NOT NULL,
    expires_boot_ms INTEGER NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL);
CREATE INDEX session_locks_owner ON session_locks (owner);
CREATE TABLE turn_receipts (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, turn_id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL,
    digest TEXT NOT NULL, source TEXT NOT NULL, request_scope TEXT, request_id TEXT,
    attempt INTEGER NOT NULL, accepted_ms INTEGER NOT NULL, settled_ms INTEGER, outcome TEXT, reason TEXT,
    code TEXT, result BLOB);
CREATE INDEX turn_receipts_session ON turn_receipts (session_id, sequence);
CREATE TABLE client_requests (
    request_scope TEXT NOT NULL, request_id TEXT NOT NULL, session_id TEXT NOT NULL, turn_id TEXT NOT NULL,
    PRIMARY KEY (request_scope, request_id));
CREATE TABLE prefixes (digest TEXT NOT NULL PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE repositories (directory_key TEXT NOT NULL PRIMARY KEY, identity TEXT NOT NULL);
"""

_M003_QUEUE = """
CREATE TABLE queue_items (
    row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL,
    position INTEGER NOT NULL, state TEXT NOT NULL, source TEXT NOT NULL, digest TEXT NOT NULL,
    dedupe_key TEXT, turn_id TEXT NOT NULL UNIQUE, earlier_turns TEXT NOT NULL,
    waiter TEXT, claim_owner TEXT, claim_token TEXT, claim_boot_id TEXT, claim_expires_ms INTEGER,
    claim_expires_boot_ms INTEGER, created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,
    payload BLOB NOT NULL);
CREATE INDEX queue_items_order ON queue_items (session_id, position);
CREATE UNIQUE INDEX queue_items_dedupe ON queue_items (session_id, dedupe_key)
    WHERE dedupe_key IS NOT NULL;
CREATE UNIQUE INDEX queue_items_claim ON queue_items (session_id) WHERE state = 'claimed';
CREATE INDEX queue_items_waiter ON queue_items (session_id, position) WHERE waiter IS NOT NULL;
CREATE INDEX queue_items_expiry ON queue_items (expires_ms);
CREATE TABLE queue_pauses (
    session_id TEXT NOT NULL PRIMARY KEY, reason TEXT NOT NULL, turn_id TEXT, at_ms INTEGER NOT NULL);
CREATE TABLE queue_drainers (
    session_id TEXT NOT NULL, owner TEXT NOT NULL, since_ms INTEGER NOT NULL,
    PRIMARY KEY (session_id, owner));
CREATE TABLE queue_wakes (session_id TEXT NOT NULL PRIMARY KEY, counter INTEGER NOT NULL);
CREATE TABLE queue_removals (
    item_id TEXT NOT NULL PRIMARY KEY, waiter TEXT NOT NULL, reason TEXT NOT NULL, turn_id TEXT,
    at_ms INTEGER NOT NULL);
CREATE TABLE turn_signals (
    row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL,
    turn_id TEXT NOT NULL, kind TEXT NOT NULL, producer TEXT NOT NULL, idempotency_key TEXT,
    is_machine INTEGER NOT NULL, text TEXT NOT NULL, message_id TEXT, state TEXT NOT NULL, reason TEXT,
    item_id TEXT, created_ms INTEGER NOT NULL, settled_ms INTEGER);
CREATE UNIQUE INDEX turn_signals_key ON turn_signals (session_id, producer, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX turn_signals_pending ON turn_signals (row) WHERE state = 'pending';
CREATE INDEX turn_signals_turn ON turn_signals (turn_id, state, row);
CREATE INDEX turn_signals_message ON turn_signals (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX turn_signals_session ON turn_signals (session_id, row);
ALTER TABLE turn_receipts ADD COLUMN is_dispatched INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN deleting_by TEXT;
CREATE INDEX sessions_deleting ON sessions (deleting_by) WHERE deleting_by IS NOT NULL;
CREATE INDEX sessions_parent ON sessions (parent_id) WHERE parent_id IS NOT NULL;
ALTER TABLE messages ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
UPDATE messages SET revision = row;
CREATE INDEX messages_revision ON messages (session_id, revision);
CREATE TABLE session_changes (
    row INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, kind TEXT NOT NULL,
    at_ms INTEGER NOT NULL);
CREATE TABLE tombstones (
    session_id TEXT NOT NULL PRIMARY KEY, origin TEXT NOT NULL, at_ms INTEGER NOT NULL);
CREATE TRIGGER session_changes_bound AFTER INSERT ON session_changes WHEN NEW.row % 1000 = 0 BEGIN
    DELETE FROM session_changes WHERE row <= NEW.row - 10000; END;
CREATE TRIGGER session_created AFTER INSERT ON sessions BEGIN
    INSERT INTO session_changes (session_id, kind, at_ms) VALUES (NEW.id, 'created', NEW.created_ms); END;
CREATE TRIGGER session_updated AFTER UPDATE OF status, title, archived_ms, workspace, labels, model_id
    ON sessions WHEN NEW.status IS NOT OLD.status OR NEW.title IS NOT OLD.title
        OR NEW.archived_ms IS NOT OLD.archived_ms OR NEW.workspace IS NOT OLD.workspace
        OR NEW.labels IS NOT OLD.labels OR NEW.model_id IS NOT OLD.model_id BEGIN
    INSERT INTO session_changes (session_id, kind, at_ms) VALUES (NEW.id, 'updated', NEW.updated_ms); END;
CREATE TRIGGER session_errored AFTER UPDATE OF status ON sessions
    WHEN NEW.status = 'error' AND OLD.status IS NOT 'error' BEGIN
    INSERT INTO session_changes (session_id, kind, at_ms) VALUES (NEW.id, 'error', NEW.updated_ms); END;
CREATE TRIGGER session_diffed AFTER UPDATE OF summary ON sessions
    WHEN NEW.summary IS NOT OLD.summary BEGIN
    INSERT INTO session_changes (session_id, kind, at_ms) VALUES (NEW.id, 'diff', NEW.updated_ms); END;
CREATE TRIGGER session_deleted AFTER DELETE ON sessions BEGIN
    INSERT INTO session_changes (session_id, kind, at_ms)
    VALUES (OLD.id, 'deleted', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)); END;
"""

_M004_DELETIONS = """
CREATE TABLE deletions (
    session_id TEXT NOT NULL PRIMARY KEY, pid INTEGER NOT NULL, host TEXT NOT NULL, since_ms INTEGER NOT NULL,
    reason TEXT);
DROP INDEX sessions_deleting;
CREATE INDEX sessions_deleting ON sessions (id, deleting_by) WHERE deleting_by IS NOT NULL;
CREATE TRIGGER session_sealed AFTER UPDATE OF deleting_by ON sessions
    WHEN (NEW.deleting_by IS NULL) IS NOT (OLD.deleting_by IS NULL) BEGIN
    INSERT INTO session_changes (session_id, kind, at_ms)
    VALUES (NEW.id, 'updated', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)); END;
"""

# Sessions that were there have no purpose and go on with their own prompt cache.
_M005_OPERATIONS = """
ALTER TABLE sessions ADD COLUMN purpose TEXT;
ALTER TABLE sessions ADD COLUMN cache_key TEXT;
CREATE TABLE operations (
    session_id TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, phase TEXT NOT NULL, manifest TEXT NOT NULL);
CREATE INDEX sessions_run_location ON sessions (run_location) WHERE run_location IS NOT NULL;
"""

# Sessions of before were all made by a run: one without a turn is what a process left that died before its first.
_M006_LIFE = """
ALTER TABLE sessions ADD COLUMN is_made_ahead INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN relocated_from TEXT;
CREATE INDEX sessions_project ON sessions (project_id, workspace, activity_ms);
CREATE INDEX sessions_archived ON sessions (activity_ms, id) WHERE archived_ms IS NOT NULL;
"""

# Wide enough that the filters of a list are judged in the index: a row is read only when it is shown.
_M007_FINDING = """
DROP INDEX sessions_activity;
CREATE INDEX sessions_activity ON sessions (activity_ms DESC, id DESC, session_kind, visibility, archived_ms,
    status, deleting_by);
DROP INDEX sessions_workspace;
CREATE INDEX sessions_workspace ON sessions (workspace, activity_ms DESC, id DESC, session_kind, visibility,
    archived_ms, status, deleting_by);
CREATE INDEX sessions_tree ON sessions (COALESCE(parent_id, forked_from), created_ms, id)
    WHERE COALESCE(parent_id, forked_from) IS NOT NULL;
CREATE INDEX messages_prompts ON messages (session_id, row) WHERE role = 'user';
CREATE TABLE session_labels (
    label TEXT NOT NULL, value TEXT NOT NULL, session_id TEXT NOT NULL,
    PRIMARY KEY (label, value, session_id)) WITHOUT ROWID;
CREATE INDEX session_labels_session ON session_labels (session_id);
INSERT OR IGNORE INTO session_labels (label, value, session_id)
    SELECT found.key, found.value, sessions.id FROM sessions, json_each(
        CASE WHEN json_valid(sessions.labels) THEN sessions.labels ELSE '{}' END) AS found
    WHERE found.type = 'text';
CREATE TRIGGER session_labelled AFTER INSERT ON sessions WHEN NEW.labels != '{}' BEGIN
    INSERT OR IGNORE INTO session_labels (label, value, session_id)
    SELECT key, value, NEW.id FROM json_each(CASE WHEN json_valid(NEW.labels) THEN NEW.labels ELSE '{}' END)
    WHERE type = 'text'; END;
CREATE TRIGGER session_relabelled AFTER UPDATE OF labels ON sessions WHEN NEW.labels IS NOT OLD.labels BEGIN
    DELETE FROM session_labels WHERE session_id = NEW.id;
    INSERT OR IGNORE INTO session_labels (label, value, session_id)
    SELECT key, value, NEW.id FROM json_each(CASE WHEN json_valid(NEW.labels) THEN NEW.labels ELSE '{}' END)
    WHERE type = 'text'; END;
CREATE TRIGGER session_unlabelled AFTER DELETE ON sessions WHEN OLD.labels != '{}' BEGIN
    DELETE FROM session_labels WHERE session_id = OLD.id; END;
"""

_M008_SHARES = """
CREATE INDEX messages_turn ON messages (session_id, turn_id, row);
CREATE TABLE shares (
    session_id TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, directory TEXT, at_ms INTEGER NOT NULL);
"""

_M009_CHANGES = """
CREATE TABLE turn_changes (
    turn_id TEXT NOT NULL PRIMARY KEY, session_id TEXT NOT NULL, workspace TEXT NOT NULL,
    begun_ms INTEGER NOT NULL, ended_ms INTEGER, gap TEXT NOT NULL, reason TEXT, files INTEGER,
    additions INTEGER, deletions INTEGER, ignores_mode INTEGER NOT NULL, reverted_ms INTEGER, changes BLOB);
CREATE INDEX turn_changes_session ON turn_changes (session_id, begun_ms);
CREATE INDEX turn_changes_begun ON turn_changes (begun_ms);
CREATE INDEX turn_changes_ended ON turn_changes (ended_ms);
"""

_M010_IMPORTS = """
CREATE TABLE session_aliases (
    name TEXT NOT NULL, session_id TEXT NOT NULL, PRIMARY KEY (name, session_id));
CREATE INDEX session_aliases_session ON session_aliases (session_id);
CREATE TABLE imports (
    session_id TEXT NOT NULL PRIMARY KEY, origin TEXT NOT NULL, source_id TEXT NOT NULL, source TEXT NOT NULL,
    source_version TEXT, fingerprint TEXT NOT NULL, state TEXT NOT NULL, records INTEGER NOT NULL,
    settled INTEGER NOT NULL, digest TEXT NOT NULL, history_bytes INTEGER NOT NULL, losses TEXT NOT NULL,
    at_ms INTEGER NOT NULL);
"""

_M012_JOBS = """
CREATE TABLE job_runs (
    id TEXT NOT NULL PRIMARY KEY, job_name TEXT NOT NULL, spec_path TEXT NOT NULL, workspace TEXT NOT NULL,
    state TEXT NOT NULL, owner TEXT, started_ms INTEGER NOT NULL, ended_ms INTEGER, exit_code INTEGER,
    cancel_ms INTEGER, ended_tasks INTEGER NOT NULL);
CREATE INDEX job_runs_running ON job_runs (job_name) WHERE state = 'running';
CREATE INDEX job_runs_started ON job_runs (started_ms DESC, id DESC);
CREATE TABLE job_tasks (
    run_id TEXT NOT NULL, task_id TEXT NOT NULL, position INTEGER NOT NULL, digest TEXT NOT NULL,
    state TEXT NOT NULL, attempt INTEGER NOT NULL, deaths INTEGER NOT NULL, owner TEXT, turn_id TEXT,
    session_id TEXT, started_ms INTEGER, ended_ms INTEGER, exit_code INTEGER, cost_usd TEXT,
    ended_sequence INTEGER, record BLOB, PRIMARY KEY (run_id, position));
CREATE UNIQUE INDEX job_tasks_id ON job_tasks (run_id, task_id);
CREATE INDEX job_tasks_state ON job_tasks (run_id, state, position);
CREATE INDEX job_tasks_ended ON job_tasks (run_id, ended_sequence) WHERE ended_sequence IS NOT NULL;
"""

_M013_SCHEDULES = """
CREATE TABLE schedules (
    id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, cron TEXT NOT NULL, timezone TEXT NOT NULL,
    catch_up TEXT NOT NULL, on_overlap TEXT NOT NULL, when_interrupted TEXT NOT NULL, workspace TEXT NOT NULL,
    spec_path TEXT, prompt TEXT, prompt_file TEXT, session TEXT NOT NULL, settings TEXT NOT NULL,
    on_failure TEXT NOT NULL, config_file TEXT, trust_workspace INTEGER NOT NULL, is_paused INTEGER NOT NULL,
    problem TEXT, cursor_ms INTEGER NOT NULL, next_ms INTEGER, created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL);
CREATE UNIQUE INDEX schedules_name ON schedules (name);
CREATE TABLE schedule_runs (
    schedule_id TEXT NOT NULL, due_ms INTEGER NOT NULL, state TEXT NOT NULL, until_ms INTEGER NOT NULL,
    count INTEGER, owner TEXT, attempt INTEGER NOT NULL, deaths INTEGER NOT NULL, job_run_id TEXT,
    session_id TEXT, started_ms INTEGER, ended_ms INTEGER, exit_code INTEGER, error_code TEXT, error TEXT,
    cost_usd TEXT, hook TEXT, PRIMARY KEY (schedule_id, due_ms));
CREATE INDEX schedule_runs_open ON schedule_runs (due_ms, schedule_id) WHERE state IN ('due', 'running');
CREATE INDEX schedule_runs_hook ON schedule_runs (due_ms) WHERE hook = 'pending';
"""

#: in order; a released entry is never edited, a change is a new entry
MIGRATIONS: tuple[tuple[str, str], ...] = (
    ("0001_first", _M001_FIRST),
    ("0002_usage_time", "CREATE INDEX token_usage_time ON token_usage (at_ms);"),
    ("0003_queue", _M003_QUEUE),
    ("0004_deletions", _M004_DELETIONS),
    ("0005_operations", _M005_OPERATIONS),
    ("0006_life", _M006_LIFE),
    ("0007_finding", _M007_FINDING),
    ("0008_shares", _M008_SHARES),
    ("0009_changes", _M009_CHANGES),
    ("0010_imports", _M010_IMPORTS),
    ("0011_origins", "ALTER TABLE turn_signals ADD COLUMN origin BLOB;"),
    ("0012_jobs", _M012_JOBS),
    ("0013_schedules", _M013_SCHEDULES),
)

VERSION = len(MIGRATIONS)


def check_identity(database: SqliteDatabase, path: str) -> int:
    """The schema version of an open database; StoreFailedError for a file that is not ours or is newer."""
    with database.atomic("DEFERRED"):  # one state of the file: another process may be making it ours
        (application_id,) = database.execute_sql("PRAGMA application_id").fetchone()
        (version,) = database.execute_sql("PRAGMA user_version").fetchone()
        (tables,) = database.execute_sql("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id != APPLICATION_ID and (tables or application_id or version):
        raise StoreFailedError(
            f"{path} is a database of another program; name another directory with --data-dir"
        )
    if version > VERSION:
        raise StoreFailedError(
            f"{path} was written by a newer mcode (schema {version}, this one knows {VERSION}); update mcode"
        )
    return int(version)


def migrate(database: SqliteDatabase, version: int, now_ms: int) -> None:
    """Apply what is missing beyond `version`; the caller holds the migration lock."""
    for number, (name, script) in enumerate(MIGRATIONS[version:], start=version + 1):
        with database.atomic("IMMEDIATE"):
            if number == 1:
                database.execute_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                database.execute_sql(
                    "CREATE TABLE schema_migrations (name TEXT NOT NULL PRIMARY KEY, applied_ms INTEGER NOT NULL)"
                )
            for statement in _statements(script):
                database.execute_sql(statement)
            database.execute_sql("INSERT INTO schema_migrations VALUES (?, ?)", (name, now_ms))
            database.execute_sql(f"PRAGMA user_version = {number}")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one; a trigger has semicolons within."""
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            if statement.strip() != ";":
                yield statement
            statement = ""

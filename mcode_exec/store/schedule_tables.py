"""The tables of schedules, as peewee models of the newest schema; tables.py says what holds for all."""

from __future__ import annotations

from peewee import BigIntegerField, IntegerField, TextField

from mcode_exec.store.table import Table


class Schedules(Table):
    id = TextField(primary_key=True)
    name = TextField()
    cron = TextField()
    timezone = TextField()
    catch_up = TextField()
    on_overlap = TextField()
    when_interrupted = TextField()
    workspace = TextField()
    spec_path = TextField(null=True)
    prompt = TextField(null=True)
    prompt_file = TextField(null=True)
    session = TextField()
    settings = TextField()
    on_failure = TextField()
    config_file = TextField(null=True)
    trust_workspace = IntegerField()
    is_paused = IntegerField()
    problem = TextField(null=True)
    cursor_ms = BigIntegerField()
    next_ms = BigIntegerField(null=True)
    created_ms = BigIntegerField()
    updated_ms = BigIntegerField()

    class Meta:
        table_name = "schedules"


class ScheduleRuns(Table):
    """A row per due time: whoever changes it from `due` to `running` runs it, and nobody else."""

    schedule_id = TextField()
    due_ms = BigIntegerField()
    state = TextField()
    until_ms = BigIntegerField()
    count = IntegerField(null=True)
    owner = TextField(null=True)
    attempt = IntegerField()
    deaths = IntegerField()
    job_run_id = TextField(null=True)
    session_id = TextField(null=True)
    started_ms = BigIntegerField(null=True)
    ended_ms = BigIntegerField(null=True)
    exit_code = IntegerField(null=True)
    error_code = TextField(null=True)
    error = TextField(null=True)
    cost_usd = TextField(null=True)
    hook = TextField(null=True)

    class Meta:
        table_name = "schedule_runs"
        primary_key = False


SCHEDULE_TABLES: tuple[type[Table], ...] = (Schedules, ScheduleRuns)

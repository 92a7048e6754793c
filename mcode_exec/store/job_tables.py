"""The tables of job runs, as peewee models of the newest schema; tables.py says what holds for all."""

from __future__ import annotations

from peewee import BigIntegerField, BlobField, IntegerField, TextField

from mcode_exec.store.table import Table


class JobRuns(Table):
    id = TextField(primary_key=True)
    job_name = TextField()
    spec_path = TextField()
    workspace = TextField()
    state = TextField()
    owner = TextField(null=True)
    started_ms = BigIntegerField()
    ended_ms = BigIntegerField(null=True)
    exit_code = IntegerField(null=True)
    cancel_ms = BigIntegerField(null=True)
    ended_tasks = IntegerField()

    class Meta:
        table_name = "job_runs"


class JobTasks(Table):
    run_id = TextField()
    task_id = TextField()
    position = IntegerField()
    digest = TextField()
    state = TextField()
    attempt = IntegerField()
    deaths = IntegerField()
    owner = TextField(null=True)
    turn_id = TextField(null=True)
    session_id = TextField(null=True)
    started_ms = BigIntegerField(null=True)
    ended_ms = BigIntegerField(null=True)
    exit_code = IntegerField(null=True)
    cost_usd = TextField(null=True)
    ended_sequence = IntegerField(null=True)
    record = BlobField(null=True)

    class Meta:
        table_name = "job_tasks"
        primary_key = False


JOB_TABLES: tuple[type[Table], ...] = (JobRuns, JobTasks)

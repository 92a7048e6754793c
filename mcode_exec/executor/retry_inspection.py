"""`mcode retry --inspect`: what a retry would do, and what would refuse it.

Reads the store as it stands; nothing is made or changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mcode_exec import paths
from mcode_exec.clock import SystemClock
from mcode_exec.errors import McodeError
from mcode_exec.executor.dry_run import describe
from mcode_exec.executor.retrying import Retry, check, plan_retry
from mcode_exec.executor.runtime import check_data_directory
from mcode_exec.executor.submission import holder_line
from mcode_exec.executor.workspaces import RECORDED, workspace_path
from mcode_exec.records.invocation import Invocation
from mcode_exec.sessions import finding
from mcode_exec.sessions.layout import history_paths
from mcode_exec.store.database import Store
from mcode_exec.turns.owner import is_alive, read_boot_id
from mcode_exec.turns.settlement import PROCESS_RESTART


async def inspect_retry(
    invocation: Invocation, env: Mapping[str, str]
) -> tuple[dict[str, Any], McodeError | None]:
    """What the retry would do, as plain values, and what would refuse it.

    Raises: SessionError for a session that does not exist; HistoryCorruptError, StoreFailedError.
    """
    assert invocation.session is not None
    data = paths.data_dir(invocation.data_dir, dict(env))
    check_data_directory(data)
    run_dir, clock = paths.run_dir(data), SystemClock()
    store = await Store.open_read_only(paths.database_file(data), clock)
    try:
        session = (await finding.find_named(store, invocation.session)).session
        retry = await plan_retry(
            store,
            paths.sessions_dir(data),
            session,
            is_alive=lambda token: is_alive(run_dir, token),
            boot_id=read_boot_id(),
            clock=clock,
        )
    finally:
        await store.close()
    attachments = history_paths(paths.sessions_dir(data), session.history_relative_dir).attachments
    refusal = await _refusal(retry, attachments, invocation)
    workspace = workspace_path(invocation.cwd, env) if invocation.cwd != RECORDED else session.workspace
    return {**_described(retry, refusal), "workspace": workspace}, refusal


async def _refusal(retry: Retry, attachments: str, invocation: Invocation) -> McodeError | None:
    """What the run itself would raise before its first model call, as far as that is known without it."""
    try:
        check(retry, attachments)
        await describe(invocation, retry.prompt())
    except McodeError as error:
        return error
    return None


def _described(retry: Retry, refusal: McodeError | None) -> dict[str, Any]:
    receipt = retry.receipt
    outcome, reason = (None, None) if receipt is None else (receipt.outcome, receipt.reason)
    if receipt is not None and outcome is None and retry.mode != "busy":
        outcome, reason = "failed", PROCESS_RESTART  # what the next process will settle it as
    why = retry.why
    if retry.mode == "busy" and retry.lock is not None:
        why = holder_line(retry.lock.holder())
    elif refusal is not None and why is None:
        why = f"it could not run: {refusal.message}"
    return {
        "mode": retry.mode,
        "sessionId": retry.session_id,
        "turnId": None if receipt is None else receipt.turn_id,
        "prompt": retry.asked,
        "outcome": outcome,
        "reason": reason,
        "errorCode": retry.error_code,
        "warning": retry.warning,
        "attachments": msgspec.to_builtins(retry.attachments),
        "why": why,
        "exitCode": 0 if refusal is None else refusal.exit_code,
        "code": None if refusal is None else refusal.code,
    }

"""`mcode retry --inspect`: what a retry would do.  Reads the store as it stands; nothing is made or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mcode_exec import paths
from mcode_exec.clock import SystemClock
from mcode_exec.executor.retrying import Retry, plan_retry
from mcode_exec.executor.runtime import check_data_directory
from mcode_exec.executor.submission import holder_line
from mcode_exec.sessions import finding
from mcode_exec.store.database import Store
from mcode_exec.turns.owner import is_alive, read_boot_id
from mcode_exec.turns.settlement import PROCESS_RESTART


async def inspect_retry(data_dir: str | None, env: Mapping[str, str], name: str) -> dict[str, Any]:
    """What a retry of the session would do, as plain values.

    Raises: SessionError for a session that does not exist; HistoryCorruptError, StoreFailedError.
    """
    data = paths.data_dir(data_dir, dict(env))
    check_data_directory(data)
    run_dir, clock = paths.run_dir(data), SystemClock()
    store = await Store.open_read_only(paths.database_file(data), clock)
    try:
        session = (await finding.find_named(store, name)).session
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
    return {**_described(retry), "workspace": session.workspace}


def _described(retry: Retry) -> dict[str, Any]:
    receipt = retry.receipt
    outcome, reason = (None, None) if receipt is None else (receipt.outcome, receipt.reason)
    if receipt is not None and outcome is None and retry.mode != "busy":
        outcome, reason = "failed", PROCESS_RESTART  # what the next process will settle it as
    why = retry.why
    if retry.mode == "busy" and retry.lock is not None:
        why = holder_line(retry.lock.holder())
    elif any(attachment.is_missing for attachment in retry.attachments):
        why = "it could not run: attachments are missing"
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
    }

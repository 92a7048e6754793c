"""Queue items as rows: what a list shows, and what commands that change one give back as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcode_exec.cli.list_options import notice

if TYPE_CHECKING:
    from mcode_exec.executor.queue_actions import Line
    from mcode_exec.records.queue import QueueItem

#: field -> heading of the table
COLUMNS = {
    "id": "ITEM",
    "sessionId": "SESSION",
    "position": "PLACE",
    "state": "STATE",
    "source": "SOURCE",
    "model": "MODEL",
    "text": "PROMPT",
}
#: of a row of a list, in their order
FIELDS = (
    "id", "sessionId", "state", "source", "text", "attachments", "model", "fallbackModels", "effort", "agent",
    "tools", "permission", "rules", "onAsk", "maxSteps", "maxCostUsd", "maxTokens", "timeoutMs", "title", "labels",
    "turnId", "earlierTurns", "dedupeKey", "createdMs", "expiresMs", "position", "paused", "drained",
)  # fmt: skip


def rows_of(line: Line) -> list[dict[str, Any]]:
    """The items of each line in their order, with what holds or runs them."""
    places: dict[str, int] = {}
    rows = []
    for item in sorted(line.items, key=lambda one: (one.session_id, one.position)):
        places[item.session_id] = places.get(item.session_id, 0) + 1
        pause = line.pauses.get(item.session_id)
        rows.append(
            {
                **row_of(item),
                "position": places[item.session_id],
                "paused": None if pause is None else pause.reason,
                "drained": line.is_run(item),
            }
        )
    return rows


def row_of(item: QueueItem) -> dict[str, Any]:
    """What an item says and runs with."""
    from mcode_exec.executor.queue_actions import first_words

    payload = item.payload
    return {
        "id": item.id,
        "sessionId": item.session_id,
        "state": "waiting" if item.waiter is not None and item.state == "queued" else item.state,
        "source": item.source,
        "text": first_words(item),
        "attachments": sum(1 for block in payload.content if not hasattr(block, "text")),
        "model": payload.model,
        "fallbackModels": list(payload.fallback_models),
        "effort": payload.effort,
        "agent": payload.agent,
        "tools": None if payload.tools is None else list(payload.tools),
        "permission": payload.permission,
        "rules": [f"--{rule.verdict} {rule.text}" for rule in payload.rules],
        "onAsk": payload.on_ask,
        "maxSteps": payload.max_steps,
        "maxCostUsd": None if payload.max_cost_usd is None else str(payload.max_cost_usd),
        "maxTokens": payload.max_tokens,
        "timeoutMs": None if payload.timeout_s is None else round(payload.timeout_s * 1000),
        "title": payload.title,
        "labels": dict(payload.labels),
        "turnId": item.turn_id,
        "earlierTurns": list(item.earlier_turns),
        "dedupeKey": item.dedupe_key,
        "createdMs": item.created_ms,
        "expiresMs": item.expires_ms,
    }


def tell_state(line: Line, rows: list[dict[str, Any]]) -> None:
    """Why what waits does not run, on stderr."""
    if not rows:
        notice("nothing waits")
    for session_id, pause in line.pauses.items():
        notice(f"the queue of {session_id} is paused ({pause.reason}); `mcode queue unpause {session_id}`")
    undrained = {row["sessionId"] for row in rows if row["paused"] is None and not row["drained"]}
    for session_id in sorted(undrained):
        notice(f"no live process drains {session_id}; `mcode queue drain --session {session_id}` does")

"""Records for tests of history, transcripts and the commit door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcode_exec.records.history import (
    Block,
    HistoryRecord,
    Message,
    StepMeta,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from mcode_exec.records.usage import Usage
from mcode_exec.sessions.history import CanonicalHistory, open_history
from mcode_exec.sessions.layout import HistoryPaths, history_paths

SESSION = "mvs_" + "0" * 32


def record(
    number: int, role: Any, *blocks: Block, turn_id: str = "turn_1", meta: StepMeta | None = None
) -> HistoryRecord:
    return HistoryRecord(
        id=f"msg-{number}",
        turn_id=turn_id,
        at_ms=1000 + number,
        message=Message(role=role, content=tuple(blocks)),
        meta=meta,
    )


def user(number: int, text: str = "naïve é") -> HistoryRecord:
    return record(number, "user", TextBlock(text=text))


def answer(number: int, text: str, *call_ids: str) -> HistoryRecord:
    calls = [ToolCallBlock(id=one, name="bash", arguments={"command": "ls"}) for one in call_ids]
    meta = StepMeta(
        provider_id="p",
        model_id="m",
        step=1,
        finish_reason="stop",
        usage=Usage(input_tokens=3, output_tokens=2),
    )
    return record(number, "assistant", TextBlock(text=text), *calls, meta=meta)


def result(number: int, call_id: str, content: str = "out") -> HistoryRecord:
    return record(number, "tool", ToolResultBlock(call_id=call_id, name="bash", content=content))


CONVERSATION = (user(1), answer(2, "ja: é", "call_1"), result(3, "call_1"), answer(4, "fertig é"))


def paths_in(root: Path) -> HistoryPaths:
    return history_paths(str(root / "sessions"), "2026/01/02/x-" + SESSION)


def opened(root: Path, *, known_bytes: int = 0, takeover: bool = False) -> CanonicalHistory:
    return open_history(
        paths_in(root),
        SESSION,
        str(root / "sessions"),
        known_bytes=known_bytes,
        takeover=takeover,
        now_ms=5000,
    )


def written(root: Path, *records: HistoryRecord) -> bytes:
    """The file that holds `records`, as the product writes it."""
    (root / "sessions").mkdir(parents=True, exist_ok=True)
    history = opened(root)
    for one in records or CONVERSATION:
        history.append((one,), 1000)
    history.close()
    return Path(history.paths.messages).read_bytes()

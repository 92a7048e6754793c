"""One conversation over the three wire formats: the same canonical history, the same results, the same cost.

What only one format has is taken out before the comparison, by name, in `_normal`: where reasoning came from
and what proves it (`form`, `signature`, `encrypted`), and two token classes that a format does not count apart
(Anthropic has no reasoning tokens of their own, the OpenAI formats no cache writes): not reported there, zero
in the script.  Ids and times differ from run to run.
"""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path
from typing import Any

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.pictures import images_of, png
from tests.support.steps import Answer, Step, answer, call, say, think
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

STREAM = ("--output-format", "stream-json")
JSON = ("--output-format", "json")

_IDS = re.compile(r"\b(mvs_|turn_|msg-|call_|prj_|run_)[0-9A-Za-z-]+")
_TIMES = {"at_ms", "duration_ms", "durationMs", "apiDurationMs", "startedAt", "endedAt", "timestamp"}
_OF_ONE_FORMAT = {"form", "signature", "encrypted"}
_COUNTED_BY_SOME = {
    "reasoning_tokens": 0,
    "cache_write_tokens": 0,
    "reasoningTokens": 0,
    "cacheWriteTokens": 0,
}


def _normal(value: Any) -> Any:
    """`value` without what must differ: see the head of this module."""
    names: dict[str, str] = {}
    numbers = itertools.count(1)

    def walk(one: Any) -> Any:
        if isinstance(one, dict):
            kept = {
                key: walk(item)
                for key, item in one.items()
                if key not in _TIMES | _OF_ONE_FORMAT and key not in _COUNTED_BY_SOME
            }
            counted = {
                key: item for key, item in one.items() if key in _COUNTED_BY_SOME and item not in (0, None)
            }
            return {**kept, **counted}
        if isinstance(one, list):
            return [walk(item) for item in one]
        if isinstance(one, str):
            return _IDS.sub(name, one)
        return one

    def name(found: re.Match[str]) -> str:
        """Equal ids stay equal, in the order in which they came."""
        return names.setdefault(found.group(), f"{found.group(1)}{next(numbers)}")

    return walk(value)


def _in_order_of_calls(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of calls that ran side by side are kept as they come: here, as they were asked for."""
    places: dict[str, tuple[int, int]] = {}

    def place(numbered: tuple[int, dict[str, Any]]) -> tuple[int, int]:
        number, record = numbered
        blocks = record.get("message", {}).get("content", [])
        for block in blocks:
            if block["type"] == "tool_call":
                places[block["id"]] = (number, len(places))
        return places.get(blocks[0].get("call_id"), (number, 0)) if blocks else (number, 0)

    return [record for _, record in sorted(enumerate(history), key=place)]


def _used(
    step: Answer, *, given: int, said: int, read: int = 0, travel: dict[str, Any] | None = None
) -> Answer:
    usage = {"input": given, "output": said, "reasoning": 0, "cache_read": read, "cache_write": 0}
    return answer(step, usage=usage, **(travel or {}))


def _script() -> list[Step]:
    """Reasoning and text, parallel calls of which one fails, a call without arguments, an image, answers."""
    parallel = (
        think("Two files at once.")
        + say("I look at both.")
        + call("read", {"file_path": "a.txt"}, call_id="toolu_a")
        + call("read", {"file_path": "missing.txt"}, call_id="toolu_b")
        + call("bash", {"command": "echo out; echo err >&2; exit 3"}, call_id="toolu_c")
    )
    return [
        _used(parallel, given=1000, said=120),
        _used(call("list", "", call_id="toolu_d"), given=150, said=20, read=1000),
        _used(call("read", {"file_path": "a.png"}, call_id="toolu_e"), given=90, said=30, read=1150),
        _used(call("bash", '{"command": "cut of', call_id="toolu_e"), given=50, said=9, read=1240),
        _used(think("So that is it.") + say("Two lines, é 🙂."), given=80, said=44, read=1290),
        _used(say("The half "), given=7, said=8, read=1370, travel={"finish": "length"}),
        _used(say("and the rest."), given=9, said=10, read=1377),
    ]


def _conversation(root: Path, api: str, steps: list[Step]) -> tuple[Any, list[str]]:
    """Two turns of one session, each in a process of its own: all that is kept and told; images as sent."""
    data = png()
    with Peer(*steps, strict=True) as peer:
        mcode = Mcode(root, peer, api=api)
        try:
            (mcode.workspace / "a.txt").write_text("one\ntwo é\n")
            (mcode.workspace / "a.png").write_bytes(data)
            first = mcode.exec("look at the files", *STREAM).check()
            session = first.result["sessionId"]
            second = mcode.exec("say it at length", "--session", session, *JSON).check()
            assert [request.violations for request in peer.calls] == [[]] * len(steps)
            order = [record.get("id") for record in mcode.history()]
            told = {
                "results": [first.result, second.result],
                "history": _in_order_of_calls(mcode.history()),
                "items": sorted(
                    (event["item"] for event in first.of_type("item.completed")),
                    key=lambda item: (order.index(item["id"].partition(":")[0]), item["id"]),
                ),
            }
            return _normal(told), images_of(peer.last)
        finally:
            mcode.close()


def test_one_conversation_is_the_same_over_every_format(tmp_path: Path) -> None:
    steps = _script()
    told = {}
    for api in (ANTHROPIC, CHAT, RESPONSES):
        told[api], images = _conversation(tmp_path / "same", api, steps)
        shutil.rmtree(tmp_path / "same")
        assert len(images) == 1
    assert told[CHAT] == told[ANTHROPIC]
    assert told[RESPONSES] == told[ANTHROPIC]
    first, second = told[ANTHROPIC]["results"]
    assert first["output"] == "Two lines, é 🙂."
    assert second["output"] == "The half and the rest."
    usage = {"inputTokens": 1370, "outputTokens": 223, "cacheReadTokens": 4680}
    assert {key: first["usage"][key] for key in usage} == usage
    # input 3, output 15, cached 0.3 dollars for a million
    assert first["costUsd"] == (1370 * 3.0 + 223 * 15.0 + 4680 * 0.3) / 1e6
    assert (first["steps"], second["steps"]) == (5, 2)
    assert len(first["toolFailures"]) == 3

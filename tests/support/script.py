"""A script at work: which step comes next; and scripts written as JSON."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.support import steps as language
from tests.support.steps import Answer, Forever, Step


class Script:
    """Hands out steps in order; the last one, or one marked `forever`, repeats.  Threads may share it."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps) or [language.say("hello")]
        self._at = 0
        self._lock = threading.Lock()

    def next(self, request: Any) -> Step:
        with self._lock:
            step = self._steps[self._at]
            if self._at < len(self._steps) - 1 and not isinstance(step, Forever):
                self._at += 1
        if isinstance(step, Forever):
            step = step.step
        while callable(step):
            step = step(request)
        return language.say(step) if isinstance(step, str) else step


def steps_from_json(source: Sequence[Mapping[str, Any]]) -> list[Step]:
    """`[{"say": "hi"}, {"call": ["bash", {"command": "ls"}]}, {"status": 429, "body": {…}, "headers": {…}}]`.

    A step may hold `think`, `say` and `call` (or `calls`) together, and any field of `Answer` beside them;
    `{"hang": true}`, `{"reset": true}`; `"forever": true` on any of them; `"times": N` repeats one.
    """
    steps: list[Step] = []
    for one in source:
        fields = dict(one)
        is_forever, times = fields.pop("forever", False), fields.pop("times", 1)
        for _ in range(times):
            step = _step_from_json(dict(fields))
            steps.append(language.forever(step) if is_forever else step)
    return steps


def _step_from_json(fields: dict[str, Any]) -> Step:
    if "status" in fields:
        return language.status(fields["status"], fields.get("body"), fields.get("headers"))
    if fields.pop("hang", False):
        return language.hang()
    if fields.pop("reset", False):
        return language.reset()
    step = Answer()
    if "think" in fields:
        step = step + language.think(fields.pop("think"))
    if "say" in fields:
        step = step + language.say(fields.pop("say"))
    calls = fields.pop("calls", [])
    if "call" in fields:
        calls = [*calls, fields.pop("call")]
    for name, arguments in calls:
        step = step + language.call(name, arguments)
    return replace(step, **fields)

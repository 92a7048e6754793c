"""Rows hold no secrets, wherever in a message they stand; a message without any is not made anew."""

from __future__ import annotations

import pytest

from mcode_exec.records.message import DisplayMessage, TextPart, ToolCompleted, ToolPart
from mcode_exec.redaction import Redactor
from mcode_exec.sessions.masking import masked

SECRET = "correct-horse-battery-1"


def message(text: str, arguments: dict[str, object]) -> DisplayMessage:
    state = ToolCompleted(input=arguments, output="fine")
    parts = (TextPart(index=0, text=text), ToolPart(index=1, call_id="call_1", tool="bash", state=state))
    return DisplayMessage(
        id="msg-1", session_id="s", turn_id="t", role="assistant", created_ms=1, parts=parts
    )


@pytest.mark.parametrize(
    "made",
    [
        message(f"it is {SECRET}", {}),
        message("", {"deep": [{"in": SECRET}]}),
        message("", {SECRET: "a key"}),
        message("Authorization: Bearer abcdef0123456789abcdef", {}),
        message("", {"url": "https://me:hunter2hunter2@example.invalid/"}),
    ],
)
def test_a_secret_is_masked_wherever_it_stands(made: DisplayMessage) -> None:
    shown = repr(masked(made, Redactor((SECRET,))))
    assert SECRET not in shown
    assert "abcdef0123456789abcdef" not in shown
    assert "hunter2" not in shown


def test_halves_of_a_secret_in_two_texts_are_no_secret() -> None:
    made = message(SECRET[:9], {"rest": SECRET[9:]})
    assert masked(made, Redactor((SECRET,))) is made

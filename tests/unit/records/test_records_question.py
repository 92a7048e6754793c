"""The query view: turns under the question that they belong to, folded up to the turn that runs."""

from __future__ import annotations

from mcode_exec.records.message import DisplayMessage, StepFinishPart, TextPart, ToolError, ToolPart
from mcode_exec.records.question import Question, TurnFacts, questions_of
from mcode_exec.records.usage import Usage


def said(number: int, turn: str, role: str = "user", **more: object) -> DisplayMessage:
    parts = more.pop("parts", (TextPart(index=0, text=f"text {number}"),))
    fields = {"id": f"m{number}", "session_id": "s", "turn_id": turn, "created_ms": number, **more}
    return DisplayMessage(role=role, parts=parts, **fields)  # type: ignore[arg-type]


def reminder(number: int, turn: str) -> DisplayMessage:
    return said(number, turn, parts=(TextPart(index=0, text="go on", synthetic=True),))


def shape(questions: tuple[Question, ...]) -> list[list[tuple[str, bool]]]:
    return [[(turn.turn_id, turn.is_folded) for turn in question.turns] for question in questions]


def facts(turn: str, **more: object) -> dict[str, TurnFacts]:
    return {turn: TurnFacts(turn_id=turn, **more)}  # type: ignore[arg-type]


def test_each_prompt_is_a_question() -> None:
    messages = [said(1, "a"), said(2, "a", "assistant"), said(3, "b"), said(4, "b", "assistant")]
    found = questions_of(messages, {}, None)
    assert shape(found) == [[("a", False)], [("b", False)]]
    assert [question.message_id for question in found] == ["m1", "m3"]


def test_a_turn_that_goes_on_stands_under_its_question_and_folds_what_came_before() -> None:
    messages = [said(1, "a"), said(2, "a", "assistant"), reminder(3, "b"), said(4, "b", "assistant")]
    assert shape(questions_of(messages, {}, None)) == [[("a", True), ("b", False)]]


def test_the_turn_that_runs_and_what_follows_it_is_not_folded() -> None:
    messages = [said(1, "a"), reminder(2, "b"), reminder(3, "c")]
    assert shape(questions_of(messages, {}, "b")) == [[("a", True), ("b", False), ("c", False)]]


def test_words_to_a_running_turn_ask_nothing() -> None:
    messages = [said(1, "a"), said(2, "a", steered_by="somebody"), said(3, "b")]
    late = facts("b", source="steer", is_dispatched=True)
    assert shape(questions_of(messages, late, None)) == [[("a", True), ("b", False)]]
    idle = facts("b", source="steer")
    assert shape(questions_of(messages, idle, None)) == [[("a", False)], [("b", False)]]


def test_another_attempt_at_a_request_is_the_same_question() -> None:
    messages = [said(1, "a"), said(2, "b"), said(3, "c")]
    known = {
        **facts("a", request=("s", "r1")),
        **facts("b", request=("s", "r1"), attempt=2),
        **facts("c", request=("s", "r2")),
    }
    assert shape(questions_of(messages, known, None)) == [[("a", True), ("b", False)], [("c", False)]]


def test_what_begins_before_the_page_has_no_question_here() -> None:
    found = questions_of([said(1, "a", "assistant"), said(2, "b")], {}, None)
    assert [question.message_id for question in found] == [None, "m2"]


def test_what_no_result_tells_is_counted_and_unknown_costs_are_not_zero() -> None:
    from mcode_exec.records.message import ToolPending

    done = StepFinishPart(reason="stop", usage=Usage(input_tokens=3, output_tokens=4), cost_usd="0.1")
    unknown = StepFinishPart(reason="stop", usage=None, cost_usd=None)
    failed = ToolPart(index=1, call_id="c", tool="bash", state=ToolError(input={}, error="no"))
    open_call = ToolPart(index=2, call_id="d", tool="bash", state=ToolPending(input={}))
    messages = [said(1, "a"), said(2, "a", "assistant", parts=(failed, open_call, done))]
    (question,) = questions_of(messages, {}, None)
    found = question.turns[0].facts
    assert (found.steps, found.tool_calls, found.tool_errors, found.cost_usd) == (1, 2, 1, "0.1")
    messages.append(said(3, "a", "assistant", parts=(unknown,)))
    found = questions_of(messages, {}, None)[0].turns[0].facts
    assert (found.cost_usd, found.usage_incomplete) == (None, True)
    assert found.usage == Usage(input_tokens=3, output_tokens=4)

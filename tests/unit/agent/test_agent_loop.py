"""The loop: what counts, what is sent again, what runs, and when it ends."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from mcode_exec.agent.limits import Limits
from mcode_exec.errors import LeaseLostError, LimitReachedError, ModelCallError, TurnFailedError
from mcode_exec.records.frame import Denied, Said, ToolRunning
from mcode_exec.records.history import TextBlock, ThinkingBlock, ToolCallBlock
from mcode_exec.records.model import Answer
from mcode_exec.records.usage import Usage
from tests.unit.agent.loop_ports import Turn, answer, usd


def bash(command: str, call_id: str = "c1") -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="bash", arguments={"command": command})


def read(path: str, call_id: str) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="read", arguments={"file_path": path})


# answers


def test_an_answer_without_calls_ends_the_turn(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer("done")).run()
    assert (turn.state.answer, turn.state.steps, turn.state.finish_reason) == ("done", 1, "stop")
    assert [record.message.role for record in turn.ports.records] == ["assistant"]


def test_a_call_runs_and_its_result_is_sent_back(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer("look", bash("echo hi")), answer("done")).run()
    assert [record.message.role for record in turn.ports.records] == ["assistant", "tool", "assistant"]
    assert "hi" in turn.ports.results[0].content
    assert (turn.state.answer, turn.state.steps, turn.state.tool_calls) == ("done", 2, 1)
    turn.check_history()


@pytest.mark.parametrize("finish", ["stop", "unknown", "tool_calls"])
def test_content_decides_whether_there_are_calls_not_the_finish_reason(tmp_path: Path, finish: str) -> None:
    turn = Turn(tmp_path, answer(bash("echo hi"), finish=finish), answer("done")).run()
    assert turn.state.tool_calls == 1


def test_the_answer_is_the_text_of_the_last_step(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer("first", bash("true")), answer("last")).run()
    assert turn.state.answer == "last"


@pytest.mark.parametrize("nothing", [(), ("",), (" \n",), (ThinkingBlock(text="hm"),)])
def test_an_empty_last_step_is_asked_once_more_and_then_earlier_text_counts_with_a_notice(
    tmp_path: Path, nothing: tuple[object, ...]
) -> None:
    empty = answer(*nothing)  # type: ignore[arg-type]
    turn = Turn(tmp_path, answer("The answer is 4.", bash("true")), empty, empty).run()
    assert turn.state.answer == "The answer is 4."
    assert len(turn.ports.requests) == 3
    assert [fact.code for fact in turn.ports.facts if isinstance(fact, Said)] == ["answer.earlier-text"]
    # only after earlier text may a call say nothing
    assert turn.ports.empty_allowed == [False, True, True]
    turn.check_history()


def test_an_empty_step_that_is_asked_again_may_still_answer(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer("earlier", bash("true")), answer(), answer("now")).run()
    assert turn.state.answer == "now"
    assert not [fact for fact in turn.ports.facts if isinstance(fact, Said)]


def test_a_refusal_is_an_error_with_its_words(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer("I will not", finish="refusal"))
    with pytest.raises(ModelCallError, match="I will not") as caught:
        turn.run()
    assert (caught.value.code, caught.value.exit_code) == ("LLM_CONTENT_REFUSED", 4)


def test_a_refusal_runs_no_call(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer(bash("touch ran"), finish="refusal"))
    with pytest.raises(ModelCallError):
        turn.run()
    assert not (turn.ports.session.workspace / "ran").exists()


# the output limit


def test_an_answer_that_was_cut_off_is_continued_and_put_together(tmp_path: Path) -> None:
    cut = answer("one ", finish="length")
    turn = Turn(tmp_path, cut, answer("two ", finish="length"), answer("three")).run()
    assert turn.state.answer == "one two three"
    assert len(turn.ports.requests) == 3
    assert [message.role for message in turn.ports.requests[1].messages] == ["user", "assistant", "user"]
    turn.check_history()


def test_it_is_continued_three_times_at_most(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer("x", finish="length"))
    with pytest.raises(ModelCallError) as caught:
        turn.run()
    assert caught.value.code == "LLM_OUTPUT_TRUNCATED"
    assert len(turn.ports.requests) == 4
    assert turn.state.latest_text == "xxxx"
    assert turn.state.answer is None


def test_a_call_that_was_cut_off_never_runs_and_the_model_is_told(tmp_path: Path) -> None:
    cut = answer("look", bash("touch ran", "c1"), bash("touch ran too", "c2"), finish="length")
    turn = Turn(tmp_path, cut, answer("done")).run()
    assert list(turn.ports.session.workspace.iterdir()) == []
    assert [result.is_error for result in turn.ports.results] == [True, True]
    assert all("cut off by the output limit" in result.content for result in turn.ports.results)
    assert turn.state.answer == "done"
    turn.check_history()


def test_calls_that_are_cut_off_again_and_again_end_the_turn(tmp_path: Path) -> None:
    steps = [answer(bash(f"echo {number}", f"c{number}"), finish="length") for number in range(9)]
    turn = Turn(tmp_path, *steps)
    with pytest.raises(ModelCallError) as caught:
        turn.run()
    assert caught.value.code == "LLM_OUTPUT_TRUNCATED"
    assert len(turn.ports.requests) == 4


def test_nothing_but_cut_off_silence_after_earlier_text_is_no_answer(tmp_path: Path) -> None:
    turn = Turn(
        tmp_path, answer("earlier", bash("true")), answer("", finish="length"), answer(""), answer("")
    ).run()
    assert turn.state.answer == "earlier"


# limits


def test_no_step_is_made_beyond_the_limit_and_a_run_that_answers_at_it_succeeds(tmp_path: Path) -> None:
    limits = Limits(max_steps=2, sources={"steps": "--max-steps"})
    assert Turn(tmp_path, answer(bash("true")), answer("done"), limits=limits).run().state.answer == "done"
    turn = Turn(tmp_path, answer(bash("true"), bash("echo", "c2")), limits=limits)
    turn.ports.steps = [answer(bash(f"echo {n}", f"c{n}")) for n in range(5)]
    with pytest.raises(LimitReachedError, match=r"2 steps \(--max-steps\)") as caught:
        turn.run()
    assert (caught.value.code, caught.value.exit_code) == ("LIMIT_STEPS", 7)
    assert len(turn.ports.requests) == 2
    assert turn.state.limit is not None
    assert (turn.state.limit.name, turn.state.limit.value) == ("steps", "2")
    # every call that was asked for has its result all the same
    assert len(turn.ports.results) == 2


def test_one_call_may_overshoot_a_token_limit_but_no_further_one_starts(tmp_path: Path) -> None:
    usage = Usage(input_tokens=80, output_tokens=30)
    turn = Turn(tmp_path, answer(bash("true"), usage=usage), answer("done"), limits=Limits(max_tokens=100))
    with pytest.raises(LimitReachedError) as caught:
        turn.run()
    assert caught.value.code == "LIMIT_TOKENS"
    assert len(turn.ports.requests) == 1


def test_the_output_of_a_call_is_cut_to_what_is_left(tmp_path: Path) -> None:
    usage = Usage(input_tokens=80, output_tokens=20)
    turn = Turn(
        tmp_path, answer(bash("true"), usage=usage), answer("done"), limits=Limits(max_tokens=150)
    ).run()
    assert [request.max_output_tokens for request in turn.ports.requests] == [150, 50]
    # a limit beyond the model's own changes nothing
    turn = Turn(tmp_path, answer("done"), limits=Limits(max_tokens=5000)).run()
    assert turn.ports.requests[0].max_output_tokens is None


def test_a_cost_limit_counts_every_call_in_decimals(tmp_path: Path) -> None:
    usage = Usage(input_tokens=1000, output_tokens=1000)
    limits = Limits(max_cost_usd=Decimal("0.02"))
    turn = Turn(tmp_path, limits=limits, price=usd("3", "15"), output_tokens=100_000)
    turn.ports.steps = [answer(bash(f"echo {n}", f"c{n}"), usage=usage) for n in range(5)]
    with pytest.raises(LimitReachedError) as caught:
        turn.run()
    assert caught.value.code == "LIMIT_COST"
    assert turn.state.cost_usd == Decimal("0.036")
    assert len(turn.ports.requests) == 2
    # 0.02 USD buy 1333 output tokens, then 0.002 buy 133
    assert [request.max_output_tokens for request in turn.ports.requests] == [1333, 133]


def test_unknown_usage_is_not_zero_and_ends_a_limited_run(tmp_path: Path) -> None:
    unknown = Usage()
    turn = Turn(tmp_path, answer(bash("true"), usage=unknown), answer("done"), limits=Limits(max_tokens=100))
    with pytest.raises(LimitReachedError, match="did not report"):
        turn.run()
    assert turn.state.usage_incomplete
    unlimited = Turn(
        tmp_path, answer(bash("true"), usage=unknown), answer("done"), price=usd("3", "15")
    ).run()
    assert (unlimited.state.answer, unlimited.state.cost_usd) == ("done", None)
    assert unlimited.state.total_usage().input_tokens == 10
    assert unlimited.state.usage_incomplete


def test_a_failed_attempt_that_nobody_counted_is_unknown_and_held_against_the_limits(tmp_path: Path) -> None:
    usage = Usage(input_tokens=1000, output_tokens=1000)
    limits = Limits(max_cost_usd=Decimal("0.05"))
    turn = Turn(tmp_path, limits=limits, price=usd("3", "15"), output_tokens=100_000)
    failed = (Usage(), Usage(input_tokens=1000))
    turn.ports.steps = [answer(bash("true"), usage=usage, failed_usage=failed), answer("done")]
    with pytest.raises(LimitReachedError, match=r"0\.054 USD were spent, failed attempts of unknown usage"):
        turn.run()
    assert len(turn.ports.requests) == 1, "0.018 USD three times"
    assert (turn.state.cost_usd, turn.state.usage_incomplete) == (None, True)


def test_failed_attempts_that_were_billed_are_counted_on_every_ending(tmp_path: Path) -> None:
    billed = Usage(input_tokens=7, output_tokens=1)
    turn = Turn(tmp_path, answer("done", failed_usage=(billed, billed))).run()
    assert turn.state.total_usage().input_tokens == 24
    failing = ModelCallError("LLM_UPSTREAM_ERROR", "no", failed_usage=(billed,))
    turn = Turn(tmp_path, failing)
    with pytest.raises(ModelCallError):
        turn.run()
    assert turn.state.total_usage().input_tokens == 7
    assert turn.ports.failed == [billed]


# the loop guard


def same(times: int, command: str = "echo same") -> list[Answer]:
    return [answer(bash(command, f"c{number}")) for number in range(times)]


def test_three_identical_calls_with_identical_results_end_the_turn(tmp_path: Path) -> None:
    turn = Turn(tmp_path, *same(9))
    with pytest.raises(TurnFailedError) as caught:
        turn.run()
    assert (caught.value.code, caught.value.exit_code) == ("LOOP_DETECTED", 4)
    assert (len(turn.ports.requests), len(turn.ports.results)) == (3, 3)


def test_two_identical_calls_are_no_loop(tmp_path: Path) -> None:
    assert Turn(tmp_path, *same(2), answer("done")).run().state.answer == "done"


def test_another_result_or_another_call_between_is_no_loop(tmp_path: Path) -> None:
    counting = "echo x >> n; wc -l < n"
    assert Turn(tmp_path, *same(6, counting), answer("done")).run().state.answer == "done"
    mixed = [*same(2), answer(bash("echo other", "o1")), *same(2), answer("done")]
    assert Turn(tmp_path, *mixed).run().state.answer == "done"


def rounds(commands: str, times: int) -> list[Answer]:
    """`commands` one a step, round and round."""
    return [
        answer(bash(f"echo {command}", f"c{number}"))
        for number, command in enumerate((commands * times)[: len(commands) * (times - 1) + 1])
    ]


@pytest.mark.parametrize("commands", ["ab", "abc", "aab", "abcdefgh"])
def test_going_round_in_several_calls_ends_the_turn_at_the_third_round(tmp_path: Path, commands: str) -> None:
    turn = Turn(tmp_path, *rounds(commands, 3), answer("done"))
    with pytest.raises(TurnFailedError, match=f"goes round in {len(commands)} calls"):
        turn.run()
    assert len(turn.ports.requests) == 2 * len(commands) + 1
    assert Turn(tmp_path, *rounds(commands, 3)[:-1], answer("done")).run().state.answer == "done"


def test_the_same_failing_test_after_each_different_edit_is_no_loop(tmp_path: Path) -> None:
    steps = [answer(bash("false" if n % 2 else f"echo {n} > f", f"c{n}")) for n in range(12)]
    assert Turn(tmp_path, *steps, answer("done")).run().state.answer == "done"


def test_the_order_of_arguments_makes_no_difference(tmp_path: Path) -> None:
    def call(number: int) -> Answer:
        pairs = [("command", "echo a"), ("description", "b")]
        arguments = dict(reversed(pairs) if number % 2 else pairs)
        return answer(ToolCallBlock(id=f"c{number}", name="bash", arguments=arguments))

    with pytest.raises(TurnFailedError):
        Turn(tmp_path, *(call(number) for number in range(5))).run()


def test_three_identical_calls_in_one_step_end_the_turn_with_all_their_results(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer(*(bash("echo same", f"c{number}") for number in range(4))))
    with pytest.raises(TurnFailedError):
        turn.run()
    assert len(turn.ports.results) == 4


def test_where_loops_are_allowed_the_model_is_reminded_at_three_and_ended_at_five(tmp_path: Path) -> None:
    turn = Turn(tmp_path, *same(9), allow=["doom_loop"])
    with pytest.raises(TurnFailedError):
        turn.run()
    assert len(turn.ports.results) == 5
    assert ["identical" in result.content for result in turn.ports.results] == [
        False,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("preset", ["full", "off", "smart"])
def test_no_preset_allows_loops(tmp_path: Path, preset: str) -> None:
    turn = Turn(tmp_path, *same(9), preset=preset)
    with pytest.raises(TurnFailedError):
        turn.run()
    assert len(turn.ports.results) == 3


def test_calls_whose_arguments_cannot_be_read_are_bounded(tmp_path: Path) -> None:
    def broken(number: int) -> Answer:
        return answer(
            ToolCallBlock(
                id=f"c{number}", name="bash", arguments={}, broken_arguments=f'{{"command": "{number}'
            )
        )

    turn = Turn(tmp_path, *(broken(number) for number in range(20)))
    with pytest.raises(TurnFailedError):
        turn.run()
    assert len(turn.ports.requests) <= 5
    assert all("no JSON object" in result.content for result in turn.ports.results)
    assert turn.ports.facts == []
    recovered = Turn(tmp_path, broken(1), answer(bash("echo ok")), answer("done")).run()
    assert recovered.state.answer == "done"


# calls


def test_read_only_calls_run_side_by_side_and_their_results_keep_the_order_of_the_calls(
    tmp_path: Path,
) -> None:
    turn = Turn(tmp_path, answer(*(read(f"f{n}", f"c{n}") for n in range(4))), answer("done"))
    for number in range(4):
        (turn.ports.session.workspace / f"f{number}").write_text(f"content {number}")
    turn.run()
    sent = turn.ports.requests[-1].messages[-1]
    assert [block.call_id for block in sent.content] == ["c0", "c1", "c2", "c3"]  # type: ignore[union-attr]
    assert [f"content {n}" in block.content for n, block in enumerate(sent.content)] == [True] * 4  # type: ignore[union-attr]
    running = [number for number, fact in enumerate(turn.ports.facts) if isinstance(fact, ToolRunning)]
    assert running == list(range(running[0], running[0] + 4)), "they did not begin together"
    turn.check_history()


def test_other_calls_run_one_after_the_other_in_their_order(tmp_path: Path) -> None:
    turn = Turn(
        tmp_path,
        answer(bash("sleep 0.1; echo a >> log", "c1"), bash("echo b >> log", "c2"), read("log", "c3")),
        answer("done"),
    ).run()
    assert (turn.ports.session.workspace / "log").read_text() == "a\nb\n"
    assert "b" in turn.ports.results[2].content


def test_a_tool_that_is_not_there_and_arguments_that_do_not_fit_are_results(tmp_path: Path) -> None:
    calls = [
        ToolCallBlock(id="c1", name="no_such_tool", arguments={}),
        ToolCallBlock(id="c2", name="bash", arguments={"cmd": "ls"}),
        ToolCallBlock(id="c3", name="read", arguments={"file_path": 5}),
    ]
    turn = Turn(tmp_path, answer(*calls), answer("done")).run()
    assert [result.status for result in turn.ports.results] == ["error"] * 3
    assert "the tools are" in turn.ports.results[0].content
    assert turn.state.answer == "done"
    assert [failure.call_id for failure in turn.state.tool_failures] == ["c1", "c2", "c3"]


def test_a_denied_call_does_not_run_and_is_counted_apart_from_failures(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer(bash("sudo touch ran")), answer("done"), preset="smart").run()
    assert turn.ports.results[0].status == "denied"
    assert len([fact for fact in turn.ports.facts if isinstance(fact, Denied)]) == 1
    assert ([denial.verdict for denial in turn.state.denials], turn.state.tool_failures) == (["ask"], [])
    assert turn.state.answer == "done"


def test_an_abort_during_a_call_commits_a_result_for_every_call(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer("look", bash("touch up; sleep 30", "c1"), bash("touch never", "c2")))

    async def main() -> None:
        task = asyncio.ensure_future(turn.loop.run())
        while not (turn.ports.session.workspace / "up").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await turn.ports.session.runner.end_leftovers()

    asyncio.run(main())
    assert [(result.call_id, result.status) for result in turn.ports.results] == [
        ("c1", "interrupted"),
        ("c2", "interrupted"),
    ]
    assert not (turn.ports.session.workspace / "never").exists()


def test_an_abort_during_calls_side_by_side_gives_each_exactly_one_result(tmp_path: Path) -> None:
    turn = Turn(tmp_path, answer(*(read(f"f{n}", f"c{n}") for n in range(5))))

    async def main() -> None:
        task = asyncio.ensure_future(turn.loop.run())
        while not turn.ports.began:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    found = sorted(result.call_id for result in turn.ports.results)
    assert found == [f"c{n}" for n in range(5)]


@pytest.mark.parametrize("lost_at", [1, 2, 3])
def test_a_lost_lease_ends_the_loop_and_nothing_runs_behind_it(tmp_path: Path, lost_at: int) -> None:
    turn = Turn(tmp_path, answer(bash("touch one", "c1"), bash("touch two", "c2")), answer("done"))
    turn.ports.lease_lost_at = lost_at
    with pytest.raises(LeaseLostError):
        turn.run()
    names = {path.name for path in turn.ports.session.workspace.iterdir()}
    assert names == {1: set(), 2: {"one"}, 3: {"one", "two"}}[lost_at]
    assert len(turn.ports.requests) == 1


def test_what_is_sent_only_ever_grows_at_its_end(tmp_path: Path) -> None:
    steps = [answer(f"step {n}", bash(f"echo {n}", f"c{n}")) for n in range(4)]
    turn = Turn(tmp_path, *steps, answer("done")).run()
    for before, after in zip(turn.ports.requests, turn.ports.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
        assert (after.system, after.tools) == (before.system, before.tools)


def test_thinking_alone_is_kept_in_history_but_not_sent_on(tmp_path: Path) -> None:
    turn = Turn(
        tmp_path,
        answer("x", bash("true")),
        answer(ThinkingBlock(text="hm", provider_id="p")),
        answer("done"),
    ).run()
    assert [record.message.role for record in turn.ports.records] == [
        "assistant",
        "tool",
        "assistant",
        "assistant",
    ]
    assert turn.ports.requests[2].messages == turn.ports.requests[1].messages
    assert isinstance(turn.ports.records[2].message.content[0], ThinkingBlock)
    assert turn.state.answer == "done"
    assert isinstance(turn.ports.records[-1].message.content[0], TextBlock)

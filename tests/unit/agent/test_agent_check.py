"""The check of an answer in the loop: its variables, its place beside steering and the loop guard."""

from __future__ import annotations

from pathlib import Path

from mcode_exec.agent.ports import Steer
from mcode_exec.records.history import ToolCallBlock
from mcode_exec.records.invocation import Check
from tests.unit.agent.loop_ports import Turn, answer


def test_values_come_as_variables_and_never_as_words_of_the_command(tmp_path: Path) -> None:
    value = "$(touch hit) \"; touch hit; 'é"
    check = Check(
        command='printf %s "$MCODE_ITEM_PATH" >seen', environment=(("MCODE_ITEM_PATH", value),), attempts=0
    )
    turn = Turn(tmp_path, answer("done"), check=check).run()
    workspace = turn.ports.session.workspace
    assert (workspace / "seen").read_text() == value
    assert not (workspace / "hit").exists()


def test_the_same_calls_after_each_failure_are_no_loop(tmp_path: Path) -> None:
    def step(number: int) -> ToolCallBlock:
        return ToolCallBlock(id=f"c{number}", name="bash", arguments={"command": "echo same"})

    check = Check(command="[ -e 3 ] && exit; [ -e 2 ] && touch 3; [ -e 1 ] && touch 2; touch 1; exit 1")
    steps = [one for number in range(4) for one in (answer(step(number)), answer(f"answer {number}"))]
    turn = Turn(tmp_path, *steps, check=check).run()
    assert (turn.state.answer, turn.state.tool_calls) == ("answer 3", 4)
    assert turn.state.check is not None
    assert turn.state.check.runs == 4
    turn.check_history()


def test_what_was_said_while_the_check_ran_is_taken_when_it_has_failed(tmp_path: Path) -> None:
    steer = Steer(message_id="msg-s", producer="mcode", text="use the other one", is_machine=False)
    check = Check(command="[ -e seen ] || { touch seen; exit 1; }")
    turn = Turn(tmp_path, answer("one"), answer("two"), check=check)
    turn.ports.said = [(), (), (steer,)]
    turn.run()
    last = turn.ports.requests[-1].messages
    assert [message.role for message in last] == ["user", "assistant", "user", "user"]
    assert turn.state.answer == "two"
    turn.check_history()

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from mcode_exec.tools import capping, registry
from tests.unit.tools.tool_call import Session


def test_bash_tells_output_and_exit_code(session: Session) -> None:
    outcome = session.call("bash", command="echo out; echo err >&2; exit 3", description="try it")
    assert outcome.content == "out\nerr\n\nexit code: 3"
    assert outcome.is_error, "a command that failed is counted"
    assert outcome.title == "try it"
    assert outcome.metadata["exit_code"] == 3
    assert session.call("bash", command="true").content == "(no output)"
    assert session.call("bash", command="false").content == "exit code: 1"


def test_bash_says_its_limit_and_ends_within_it(session: Session) -> None:
    outcome = session.call("bash", command="echo before; sleep 60", timeout_ms=200)
    assert outcome.is_error
    assert outcome.content.startswith("before\n\ntimed out after 200 ms")
    assert outcome.metadata["timed_out"] is True
    assert outcome.metadata["exit_code"] is None


def test_bash_names_the_signal_and_what_is_left_running(session: Session) -> None:
    assert session.call("bash", command="kill -9 $$").content == "ended by signal 9 (SIGKILL)"
    outcome = session.call("bash", command="sleep 77 >/dev/null 2>&1 & echo ok")
    assert "left running in the background: sleep 77 (pid " in outcome.content


def test_bash_shows_head_and_tail_of_a_large_output_and_keeps_the_whole(session: Session) -> None:
    for count in (10_000, 100_000):
        outcome = session.call("bash", command=f"seq 1 {count}; exit 1")
        assert outcome.content.startswith("1\n2\n3\n")
        assert outcome.content.endswith(f"{count}\n\nexit code: 1")
        assert outcome.metadata["truncated"] is True
        path = Path(outcome.metadata["output_path"])
        assert str(path) in outcome.content
        assert path.read_text().splitlines() == [str(number) for number in range(1, count + 1)]
        assert path.stat().st_mode & 0o777 == 0o600
        assert len(outcome.content) < 60_000
        assert not session.call("read", file_path=str(path)).is_error


@pytest.mark.parametrize("shift", range(4))
def test_no_cap_cuts_a_character(session: Session, shift: int) -> None:
    for count in (20_000, 50_000):
        script = f'{sys.executable} -c \'print("a"*{shift} + "🙂"*{count})\''
        content = session.call("bash", command=script).content
        assert "\ufffd" not in content
        content.encode("utf-8")


def test_output_that_is_no_text_becomes_valid_text(session: Session) -> None:
    content = session.call("bash", command=r"printf 'a\377\000b\355\240\200'").content
    content.encode("utf-8")
    assert content.startswith("a\ufffd\ufffdb")


@pytest.mark.parametrize("size", range(3, 40))
def test_a_cap_of_any_size_leaves_valid_text_and_says_what_is_missing(tmp_path: Path, size: int) -> None:
    text = "aß🙂中" * 20
    capped = capping.cap(text, str(tmp_path / "out"), max_bytes=size)
    assert capped.is_cut
    assert "\ufffd" not in capped.text
    assert f"of {len(text.encode())} bytes" in capped.text
    assert (tmp_path / "out").read_text() == text


def test_an_output_that_cannot_be_kept_is_still_shown(session: Session) -> None:
    session.outputs_dir.write_text("in the way")
    for count in (10_000, 100_000):
        outcome = session.call("bash", command=f"seq 1 {count}")
        assert not outcome.is_error
        assert outcome.metadata["truncated"] is True
        assert outcome.metadata["output_path"] is None
        assert "left out here]" in outcome.content


def test_a_workspace_that_is_gone_is_a_result(session: Session) -> None:
    session.workspace.rmdir()
    outcome = session.call("bash", command="true")
    assert outcome.is_error
    assert "could not be started" in outcome.content
    assert session.call("bash", command="a\0b").is_error


def test_cancelling_a_tool_call_raises_and_nothing_else_does(session: Session) -> None:
    async def main() -> None:
        task = asyncio.create_task(registry.run("bash", {"command": "sleep 60"}, session.context()))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # as every turn does: a runner that has not counts as one that may still own orphans
        await session.runner.end_leftovers()

    asyncio.run(main())


def test_todo_write_replaces_the_list(session: Session) -> None:
    todos = session.todos
    session.call(
        "todo_write", todos=[{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]
    )
    outcome = session.call(
        "todo_write", todos=[{"content": "c", "status": "in_progress", "priority": "high"}]
    )
    assert outcome.content == "1 of 1 open\n[~] c"
    assert todos == [{"content": "c", "status": "in_progress", "priority": "high"}]

"""What a person at a terminal sees of a job run while it goes on, and afterwards."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.jobs import Tasks, spec
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, call, gated, say
from tests.support.terminal import Terminal


def test_running_tasks_have_a_line_each_that_goes_with_them(
    mcode: Mcode, peer: Peer, terminal: Callable[..., Terminal]
) -> None:
    first, second = Gate(), Gate()
    peer.script(
        Tasks(a=[call("bash", {"command": "true"}), gated(say("done"), first)], b=gated(say("done"), second))
    )
    path = spec(mcode, "a", "b", {"id": "c", "needs": ["b"]}, job={"name": "live", "concurrency": 2})
    run = terminal([*mcode.command, "jobs", "run", str(path), "--run-id", "r"])
    run.read(lambda _: any("a · step 2" in line for line in run.seen()))
    shown = run.seen()
    assert shown[0] == "mcode: job run r: 3 tasks"
    assert sorted(line.split(" · ")[0] for line in shown[1:3]) == ["  a", "  b"]
    assert shown[3].startswith("0 of 3 over · 2 running · ")
    assert len(shown) == 4
    second.open()
    run.read(lambda _: any("[2/3] c succeeded" in line for line in run.seen()))
    run.read(lambda _: run.seen()[-1].startswith("2 of 3 over · 1 running"))
    assert next(line for line in run.seen() if line.startswith("  ")).startswith("  a · step 2 · ")
    first.open()
    assert run.end() == 0
    shown = run.seen()
    assert [line for line in shown if " · " in line] == [], "it is taken away"
    assert [line.split()[1] for line in shown if line.startswith("mcode: [")] == ["[1/3]", "[2/3]", "[3/3]"]
    table = [line.split()[:2] for line in shown if line.split()[0] in ("TASK", "a", "b", "c")]
    assert table == [["TASK", "STATUS"], *([task, "succeeded"] for task in "abc")]
    assert shown[-1].startswith("mcode: job live: 3 tasks, 3 succeeded")


def test_no_line_is_rewritten_where_nobody_looks(mcode: Mcode, peer: Peer) -> None:
    peer.script(Tasks())
    run = mcode.run("jobs", "run", spec(mcode, "a", "b"), env={"TERM": "xterm"}).check()
    assert "\x1b" not in run.err + run.out
    assert " over" not in run.err

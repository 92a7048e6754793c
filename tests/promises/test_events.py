"""The event stream: every line valid, numbered without gaps, ended by the result, whatever the reader's pace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.steps import answer, call, cut_after, drip, forever, hang, say, status, think


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `mcode schema` prints, as validators."""
    product = Mcode(tmp_path_factory.mktemp("schema"))
    return {
        what: jsonschema_rs.validator_for(json.loads(product.run("schema", what).check(0).out))
        for what in ("events", "result")
    }


def check_stream(events: list[dict[str, Any]], schemas: dict[str, Any]) -> None:
    """What holds for every stream, however its run ended."""
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "exec.started"
    assert [e["type"] for e in events].count("exec.completed") == 1
    assert events[-1]["type"] == "exec.completed"
    assert len({event["runId"] for event in events}) == 1
    times = [event["timestampMs"] for event in events]
    assert all(isinstance(t, int) for t in times)
    for event in events:
        schemas["events"].validate(event)
    schemas["result"].validate(events[-1]["result"])
    known = [event["sessionId"] for event in events]
    first = next((i for i, session in enumerate(known) if session), len(known))
    assert len(set(known[first:])) <= 1, "a session id, once known, stays"
    check_items(events)


def check_items(events: list[dict[str, Any]]) -> None:
    """Every item is completed or discarded exactly once, and nothing is said of it afterwards."""
    closed: set[str] = set()
    opened: set[str] = set()
    for event in events:
        if event["type"] == "item.discarded":
            key = event["itemId"]
        elif event["type"].startswith("item."):
            key = event["item"]["id"]
        else:
            continue
        assert key not in closed, f"{key} goes on after its end"
        opened.add(key)
        if event["type"] in ("item.completed", "item.discarded"):
            closed.add(key)
    assert opened == closed


def test_a_turn_with_everything_is_told_in_order(
    mcode: Mcode, peer: Peer, api: str, schemas: dict[str, Any]
) -> None:
    peer.script(
        answer(think("let me see"), say("First, "), call("bash", {"command": "echo out"})),
        answer(call("bash", {"command": "exit 3"}), call("read", {"file_path": "none"})),
        answer(
            call("bash", {"command": "sudo true"}),
            call("todo_write", {"todos": [{"content": "a", "status": "pending"}]}),
        ),
        status(503),
        say("Done é"),
    )
    run = mcode.exec("go", "--output-format", "stream-json").check(5)
    check_stream(run.events, schemas)
    types = [event["type"] for event in run.events]
    assert types[:3] == ["exec.started", "session.started", "turn.started"]
    assert types[-2:] == ["turn.completed", "exec.completed"]
    assert types.count("llm.retry") == 1
    assert types.count("permission.denied") == 1
    completed = [event["item"] for event in run.of_type("item.completed")]
    calls = {
        item["toolCall"]["name"] + item["toolCall"]["status"] for item in completed if "toolCall" in item
    }
    assert {"bashcompleted", "basherror", "readerror", "bashdenied", "todo_writecompleted"} <= calls
    assert [item["content"] for item in completed if item["type"] == "agent_message"][-1] == "Done é"
    assert any(item["type"] == "todo_list" for item in completed)
    deltas = [event["item"] for event in run.of_type("item.updated") if "contentDelta" in event["item"]]
    last = completed[-1]
    assert "".join(d["contentDelta"] for d in deltas if d["id"] == last["id"]) == "Done é"


def test_a_resumed_session_says_so(mcode: Mcode, schemas: dict[str, Any]) -> None:
    mcode.exec("hi", "--title", "named").check(0)
    run = mcode.exec("-c", "again", "--output-format", "stream-json").check(0)
    check_stream(run.events, schemas)
    (resumed,) = run.of_type("session.resumed")
    assert (resumed["workspace"], resumed["title"]) == (str(mcode.workspace), "named")


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (status(401), 77),
        (status(400), 4),
        (cut_after("half"), 69),
        (answer(say("half"), finish="refusal"), 4),
    ],
    ids=["401", "400", "cut", "refusal"],
)
def test_a_failed_turn_is_a_valid_stream_too(
    mcode: Mcode, peer: Peer, schemas: dict[str, Any], step: Any, code: int
) -> None:
    mcode.configure(retry='base_delay = "1ms"\nmax_retries = 1')
    peer.script(forever(step))
    run = mcode.exec("go", "--output-format", "stream-json").check(code)
    check_stream(run.events, schemas)
    assert run.events[-2]["type"] == "turn.failed"
    assert run.events[-2]["error"]["code"] == run.result["error"]["code"]


def test_an_unadmitted_run_is_a_valid_stream_too(mcode: Mcode, schemas: dict[str, Any]) -> None:
    for args in (
        ("--nope",),
        ("--session", "mvs_" + "0" * 32, "x"),
        ("x", "--model", "no/x"),
        ("x", "--events", "/proc/no"),
    ):
        run = mcode.exec(*args, "--output-format", "stream-json")
        check_stream(run.events, schemas)
        assert run.code == run.result["exitCode"] != 0


def test_without_deltas_no_partial_text_is_sent(mcode: Mcode, peer: Peer, schemas: dict[str, Any]) -> None:
    peer.script(answer(say("a" * 500), call("bash", {"command": "echo x"}), piece=10), say("done"))
    run = mcode.exec("go", "--output-format", "stream-json", "--no-deltas").check(0)
    check_stream(run.events, schemas)
    assert not [event for event in run.of_type("item.updated") if "contentDelta" in event["item"]]
    assert [
        e["item"]["content"] for e in run.of_type("item.completed") if e["item"]["type"] == "agent_message"
    ] == ["a" * 500, "done"]


def test_the_events_file_has_the_same_lines_as_stdout(
    mcode: Mcode, peer: Peer, tmp_path: Path, schemas: dict[str, Any]
) -> None:
    peer.script(answer(say("text"), call("bash", {"command": "echo x"})), say("done"))
    run = mcode.exec("go", "--output-format", "stream-json", "--events", tmp_path / "e").check(0)
    assert (tmp_path / "e").read_bytes() == run.out_bytes
    peer.script(say("done"))
    mcode.exec("go", "--events", tmp_path / "e").check(0)
    check_stream([json.loads(line) for line in (tmp_path / "e").read_bytes().splitlines()], schemas)


def test_json_and_the_result_file_are_the_result_of_the_stream(
    mcode: Mcode, tmp_path: Path, schemas: dict[str, Any]
) -> None:
    run = mcode.exec("go", "--output-format", "stream-json", "--result", tmp_path / "r").check(0)
    written = json.loads((tmp_path / "r").read_bytes())
    schemas["result"].validate(written)
    assert written == run.result
    run = mcode.exec("go", "--output-format", "json").check(0)
    assert run.out_bytes.endswith(b"\n")
    assert run.out_bytes.count(b"\n") == 1
    schemas["result"].validate(run.result)


def slow_reader(mcode: Mcode, *args: str, pause_s: float) -> tuple[int, bytes, bytes]:
    """Runs mcode with a reader that takes nothing at all for `pause_s`, then everything."""
    process = subprocess.Popen(
        [*mcode.command, "exec", *args],
        env=mcode.environment(),
        cwd=mcode.workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 10)
    time.sleep(pause_s)
    out, err = process.communicate(timeout=50)
    return process.returncode, first + out, err


def test_a_reader_slower_than_the_ring_misses_deltas_but_no_committed_item(
    mcode: Mcode, peer: Peer, schemas: dict[str, Any]
) -> None:
    steps = [
        answer(
            say(f"step {n} " + "z" * 24_000),
            call("bash", {"command": f"echo out-{n}"}, call_id=f"toolu_{n}"),
            piece=20,
        )
        for n in range(4)
    ]
    peer.script(*steps, say("the end"))
    # longer than the whole turn takes: the pipe is full after a few hundred lines
    code, out, err = slow_reader(mcode, "go", "--output-format", "stream-json", pause_s=6)
    assert code == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    check_stream(events, schemas)
    (resync,) = [e for e in events if e["type"] == "notice" and e["code"] == "stream.resync"]
    assert resync["missed"] > 0
    completed = [e["item"] for e in events if e["type"] == "item.completed"]
    texts = [item["content"] for item in completed if item["type"] == "agent_message"]
    assert texts == [f"step {n} " + "z" * 24_000 for n in range(4)] + ["the end"]
    outputs = [item["toolCall"]["output"].strip() for item in completed if "toolCall" in item]
    assert outputs == [f"out-{n}" for n in range(4)]
    assert len({item["id"] for item in completed}) == len(completed)
    assert events[-1]["result"]["output"] == "the end"


def test_ids_of_items_are_the_same_live_and_without_deltas_and_in_the_history(
    mcode: Mcode, peer: Peer
) -> None:
    peer.script(answer(say("one"), call("bash", {"command": "echo x"})), say("two"))
    run = mcode.exec("go", "--output-format", "stream-json").check(0)
    ids = [event["item"]["id"] for event in run.of_type("item.completed")]
    records = [line for line in mcode.history() if line.get("message", {}).get("role") == "assistant"]
    assert ids == [f"{records[0]['id']}:0", f"{records[0]['id']}:1", f"{records[1]['id']}:0"]


def test_a_secret_is_masked_in_every_line_however_it_is_cut(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(
        answer(say(f"it is {KEY} indeed"), call("bash", {"command": f"echo {KEY}"}), piece=5), say(f"{KEY}")
    )
    run = mcode.exec(
        "go", "--output-format", "stream-json", "-v", "--events", tmp_path / "e", "--result", tmp_path / "r"
    ).check(0)
    told = run.out + run.err + (tmp_path / "e").read_text() + (tmp_path / "r").read_text()
    assert KEY not in told
    deltas = "".join(
        e["item"]["contentDelta"] for e in run.of_type("item.updated") if "contentDelta" in e["item"]
    )
    assert KEY not in deltas
    assert "it is *** indeed" in deltas
    exported = mcode.run("sessions", "export", run.result["sessionId"]).check(0)
    assert exported.out.count("it is") >= 1


@pytest.mark.slow
def test_a_silent_run_has_a_heartbeat(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang())
    running = mcode.start("exec", "hi", "--output-format", "stream-json", "--timeout", "17s")
    running.wait_event("heartbeat", timeout=25)
    assert running.finish().code == 6


@pytest.mark.parametrize(
    "rounds", [pytest.param(12), pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_the_last_line_is_the_result_in_every_sink_every_time(
    mcode: Mcode, peer: Peer, tmp_path: Path, rounds: int
) -> None:
    peer.script(forever(say("hello " * 50)))
    for number in range(rounds):
        target = tmp_path / "o.jsonl"
        if number % 2:
            with target.open("wb") as file:
                mcode.start(
                    "exec", "hi", "--output-format", "stream-json", "--ephemeral", stdout=file
                ).finish().check(0)
            lines = target.read_bytes().splitlines()
        else:
            lines = (
                mcode.exec("hi", "--output-format", "stream-json", "--ephemeral")
                .check(0)
                .out_bytes.splitlines()
            )
        assert json.loads(lines[-1])["type"] == "exec.completed"


def test_a_dripping_stream_is_passed_on_as_it_comes(mcode: Mcode, peer: Peer) -> None:
    peer.script(drip(say("one two three four five", piece=4), 0.2))
    running = mcode.start("exec", "hi", "--output-format", "stream-json")
    running.wait_event("item.updated")
    assert not [e for e in running.events if e["type"] == "item.completed"]
    running.finish().check(0)


def test_schemas_are_json_schema_and_refuse_nonsense(schemas: dict[str, Any], mcode: Mcode) -> None:
    assert not schemas["events"].is_valid({"type": "exec.completed"})
    assert not schemas["result"].is_valid({"status": "great"})
    assert mcode.run("schema").code == 2
    assert mcode.run("schema", "nothing").code == 2
    assert sys.version_info >= (3, 11)

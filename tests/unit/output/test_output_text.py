"""Escapes, JSON lines, masking, sentences, tables, transcripts."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from mcode_exec.output.encoding import to_json_line
from mcode_exec.output.escape import escape, escape_text, prefixed, valid
from mcode_exec.output.narration import continue_line, of_ending, of_event
from mcode_exec.output.outline import outline
from mcode_exec.output.sinks import SinkOptions, open_sink
from mcode_exec.output.tables import render
from mcode_exec.output.transcript import heading, transcript
from mcode_exec.output.writer import Writer
from mcode_exec.records.event import (
    Item,
    ItemCompleted,
    ItemDiscarded,
    ItemUpdated,
    LlmRetry,
    PermissionDenied,
)
from mcode_exec.records.message import (
    DisplayMessage,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
    ToolPending,
)
from mcode_exec.records.result import Result
from mcode_exec.records.session import Session
from mcode_exec.redaction import Redactor


def test_characters_that_act_are_shown() -> None:
    assert escape("a\x1b[31mb\r\a\x9b2J\u202e\x7f") == "a\\e[31mb\\r\\a\\x9b2J\\u202e\\x7f"
    assert escape("tab\tstays, 漢字 too") == "tab\tstays, 漢字 too"
    assert escape_text("two\nlines\x1b") == "two\nlines\\e"


@given(st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "L"])))
def test_a_line_never_acts_and_always_encodes(text: str) -> None:
    shown = prefixed(text).encode().decode()

    assert all(line.startswith("mcode: ") for line in shown[:-1].split("\n"))
    assert not set(shown) & {
        chr(code) for code in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066)
    }


def test_lone_surrogates_become_replacements_and_pairs_become_characters() -> None:
    assert valid("a\ud83d") == "a\ufffd"
    assert valid("\ud83d\ude00") == "\U0001f600"


def test_json_lines_have_numbers_no_nan_and_escaped_surrogates() -> None:
    assert to_json_line({"c": Decimal("0.10"), "n": float("nan")}) == b'{"c":0.10,"n":null}\n'
    assert json.loads(to_json_line({"t": "a\ud83d", "c": Decimal("0.5")})) == {"t": "a\ud83d", "c": 0.5}


def test_secrets_are_masked_before_they_are_encoded() -> None:
    redactor = Redactor(['quo"te\\secret-1'])

    line = to_json_line({'k quo"te\\secret-1': ['quo"te\\secret-1', 1]}, redactor.text)

    assert json.loads(line) == {"k ***": ["***", 1]}


def stream(events: list[Any], redactor: Redactor) -> list[dict[str, Any]]:
    read_end, write_end = os.pipe()

    async def scene() -> None:
        err = os.open(os.devnull, os.O_WRONLY)
        writer = Writer(stdout_fd=write_end, stderr_fd=err)
        sink = open_sink(SinkOptions(run_id="run_1", output_format="stream-json"), writer, {})
        sink.redact_with(redactor)
        for event in events:
            await sink.event(event)
        await sink.result(Result(run_id="run_1", status="succeeded", exit_code=0, output="x"))
        await sink.close()
        writer.stop()
        os.close(err)
        os.close(write_end)

    asyncio.run(scene())
    with os.fdopen(read_end, "rb") as reader:
        return [json.loads(line) for line in reader]


def delta(text: str, item_id: str = "m:0") -> ItemUpdated:
    return ItemUpdated(item=Item(id=item_id, type="agent_message", content_delta=text))


def test_a_secret_that_is_cut_by_the_stream_is_masked() -> None:
    whole = "key is hunter2-hunter2, and then hunt"
    events: list[Any] = [delta(character) for character in whole]
    events.append(ItemCompleted(item=Item(id="m:0", type="agent_message", content=whole)))
    lines = stream(events, Redactor(["hunter2-hunter2"]))

    deltas = [line["item"]["contentDelta"] for line in lines if line["type"] == "item.updated"]
    completed = [line["item"]["content"] for line in lines if line["type"] == "item.completed"]
    assert "".join(deltas) == completed[0] == "key is ***, and then hunt"
    assert all(deltas)
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))


def test_what_was_held_of_a_discarded_item_goes_with_it() -> None:
    lines = stream(
        [delta("hunter2-"), ItemDiscarded(item_id="m:0", reason="retry")], Redactor(["hunter2-hunter2"])
    )

    assert [line["type"] for line in lines] == ["exec.started", "item.discarded", "exec.completed"]


def test_events_become_sentences() -> None:
    retry = LlmRetry(
        attempt=1, max_retries=5, delay_ms=1234, code="LLM_RATE_LIMITED", reason="429\nslow down"
    )
    denied = PermissionDenied(
        tool="write", permission="edit", pattern="/w/x", rule="deny edit:*", verdict="deny"
    )
    asked = structs.replace(denied, reason="edit: `/w/x` must be asked for")

    assert of_event(retry, verbose=False) == "retry 1/5 in 1.2s: 429 slow down (LLM_RATE_LIMITED)"
    assert of_event(denied, verbose=False) == "denied write: /w/x"
    assert of_event(asked, verbose=False) == "denied edit: `/w/x` must be asked for"
    assert of_event(delta("x"), verbose=True) is None


def test_failed_tool_calls_of_a_success_are_mentioned() -> None:
    told = list(of_ending(Result(run_id="r", status="succeeded", exit_code=0, output="x", tool_errors=2)))

    assert told == ["2 tool calls failed during the run; the result object names them"]


def test_the_way_to_go_on_is_quoted_for_a_shell() -> None:
    assert continue_line("mvs_1", "mcode", ("--data-dir", "/a b")).endswith(
        "mcode exec --data-dir '/a b' --session mvs_1 \"…\""
    )


ROWS = [
    {"id": "a", "title": "漢字\x1b", "labels": {"k": "v"}, "n": None, "ok": True},
    {"id": "b", "title": 'x,"y"\nz', "labels": {}, "n": 3, "ok": False},
]
COLUMNS = {"id": "ID", "title": "TITLE", "n": "N"}
FIELDS = ("id", "title", "labels", "n", "ok")


def rendered(rows: list[dict[str, Any]], list_format: str, cursor: str | None = None) -> str:
    return render(rows, list_format, name="things", fields=FIELDS, columns=COLUMNS, cursor=cursor).decode()


def test_lists_have_the_same_rows_in_every_format() -> None:
    as_json = json.loads(rendered(ROWS, "json", "c1"))
    as_lines = [json.loads(line) for line in rendered(ROWS, "jsonl").splitlines()]
    as_csv = list(csv.DictReader(io.StringIO(rendered(ROWS, "csv"))))

    assert as_json == {"schemaVersion": 1, "things": ROWS, "nextCursor": "c1"}
    assert as_lines == ROWS
    assert [row["title"] for row in as_csv] == ["漢字\\e", ROWS[1]["title"]]
    assert (as_csv[0]["labels"], as_csv[0]["n"], as_csv[1]["ok"]) == ('{"k":"v"}', "", "false")


def test_tables_align_wide_characters_and_show_what_acts() -> None:
    lines = rendered(ROWS, "table").splitlines()

    assert lines == ["ID    TITLE     N", "a     漢字\\e    -", 'b     x,"y"\\nz  3']
    assert rendered([], "table") == ""


def test_an_empty_list_has_the_csv_header_of_a_full_one() -> None:
    assert rendered([], "csv").splitlines() == rendered(ROWS, "csv").splitlines()[:1]
    with pytest.raises(ValueError, match="not name: other"):
        rendered([{"other": 1}], "csv")


def test_nested_facts_are_outlined() -> None:
    facts = {
        "model": "a/b",
        "limits": {"steps": None, "on": True},
        "tools": ["bash", {"name": "x", "y": 1}, {"z": [2]}],
        "e": [],
    }

    assert outline(facts) == (
        "model: a/b\nlimits:\n  steps: -\n  on: yes\ntools:\n  - bash\n  - name: x, y: 1\n  - z:\n      - 2\ne: -\n"
    )


def test_a_transcript_names_tools_statuses_and_durations() -> None:
    session = Session(
        id="mvs_1", project_id="p", workspace="/w", created_ms=0, updated_ms=0, activity_ms=0,
        history_relative_dir="d", title="T\x1b", provider_id="fake", model_id="big",
    )  # fmt: skip
    ran = ToolCompleted(input={"command": "make"}, output="\n".join("abcdefghij"), duration_ms=1500)
    denied = ToolError(input={"file_path": "x"}, error="no", kind="denied")
    message = DisplayMessage(
        id="m", session_id="mvs_1", turn_id="t", role="assistant", created_ms=0, provider_id="fake", model_id="big",
        parts=(
            TextPart(index=0, text="first\nsecond\x1b[0m"),
            ToolPart(index=1, call_id="c", tool="bash", state=ran),
            ToolPart(index=2, call_id="d", tool="read", state=denied),
            ToolPart(index=3, call_id="e", tool="glob", state=ToolPending(input={})),
        ),
    )  # fmt: skip

    text = transcript([message])

    assert "── assistant · fake/big · " in text
    assert "first\nsecond\\e[0m\n" in text
    assert "▸ bash make [completed in 1.5s]\n    a\n" in text
    assert "    … 2 more lines\n" in text
    assert "▸ read x [denied]\n    no\n" in text
    assert "▸ glob [no result]\n" in text
    assert heading(session).startswith("session mvs_1: T\\e\n")

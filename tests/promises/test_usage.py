"""`mcode usage` tells what the results told: every call once, nothing unknown taken for zero."""

from __future__ import annotations

import csv
import io
import json
import signal
import socket
import sqlite3
from decimal import Decimal
from typing import Any

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Answer, answer, call, hang, say, stall_after, status
from tests.support.wire import ANTHROPIC

JSON = ("--output-format", "json")
TOKENS = ("inputTokens", "outputTokens", "reasoningTokens", "cacheReadTokens", "cacheWriteTokens")


def used(mcode: Mcode, *args: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(mcode.run("usage", *args, *JSON).check().out, parse_float=Decimal)
    return document


def counted(**tokens: int) -> Answer:
    return Answer(usage=tokens)


def test_the_totals_are_the_sum_of_the_results(mcode: Mcode, peer: Peer, api: str) -> None:
    mcode.configure(tables='[agents.reviewer]\nprompt = "review"\n')
    results = []
    for step, args in (
        ([say("a") + counted(input=100, output=10, cache_read=900, cache_write=50, reasoning=7)], ()),
        ([call("bash", {"command": "true"}) + counted(input=10, output=1), say("b") + counted(input=20, output=2)],
         ("--agent", "reviewer")),
        ([status(500), say("c") + counted(input=5, output=5)], ("--session-key", "k")),
        ([say("d") + counted(input=6, output=6)], ("--session-key", "k")),
    ):  # fmt: skip
        peer.script(*step)
        results.append(mcode.exec("hi", *JSON, *args).check().result)
    for by, keys in (
        ("model", ["fake/big-1"]),
        ("agent", [None, "reviewer"]),
        ("session", list(dict.fromkeys(result["sessionId"] for result in results))),
        ("day", None),
    ):
        document = used(mcode, "--by", by)
        rows, total = document["usage"], document["total"]
        assert keys is None or [row["key"] for row in rows] == keys
        for name in TOKENS:
            told = [result["usage"][name] for result in results if result["usage"][name] is not None]
            assert total[name] == (sum(told) if told else None)
            assert sum(row[name] or 0 for row in rows) == (total[name] or 0)
        cost = sum(Decimal(str(result["costUsd"])) for result in results)
        assert total["costUsd"] == total["knownCostUsd"] == cost == sum(row["costUsd"] for row in rows)
        assert (total["answers"], total["failed"], total["usageIncomplete"]) == (5, 0, False)
    one = used(mcode, "--session", results[2]["sessionId"])["total"]
    assert (one["answers"], one["inputTokens"]) == (2, 11)


def test_a_total_is_the_sum_of_its_rows_of_the_results_and_of_its_classes_whatever_is_unknown(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    mcode.configure(retry="max_retries = 0")
    classes = ("inputTokens", "outputTokens", "reasoningTokens", "cacheReadTokens", "cacheWriteTokens")
    peer.script(
        stall_after(answer(say("half"), usage={"input": 10, "output": 5})),
        say("whole") + counted(input=10, output=5),
        Answer(say("silent").parts, usage=None),
    )
    cut = mcode.start("exec", "hi", "--output-format", "stream-json")
    cut.wait_event("item.updated")
    cut.send(signal.SIGTERM)
    results = [cut.finish().result, *(mcode.exec("hi", *JSON).check().result for _ in range(2))]
    document = used(mcode, "--by", "session")
    rows, total = document["usage"], document["total"]
    assert len(rows) == 3
    for one in (total, *rows, *(result["usage"] for result in results)):
        told = [one[name] for name in classes if one[name] is not None]
        assert one["totalTokens"] == (sum(told) if told else None)
    for every in (rows, [result["usage"] for result in results]):
        assert total["totalTokens"] == sum(one["totalTokens"] or 0 for one in every)
    assert total["totalTokens"] == (25 if api == ANTHROPIC else 15)


def test_a_long_prompt_is_charged_at_the_price_of_its_tier(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(cost="cost = { input = 1.0, output = 10.0, over_200k = { input = 2.0, output = 20.0 } }")
    for tokens, cost in (
        ({"input": 200_000, "output": 1000}, Decimal("0.21")),
        ({"input": 200_001, "output": 1000}, Decimal("0.420002")),
        ({"input": 1000, "cache_read": 200_000, "output": 1}, Decimal("0.40202")),
    ):
        peer.script(say("a") + counted(**tokens))
        run = mcode.exec("hi", "--max-tokens", "1000000", *JSON).check()
        assert Decimal(str(run.result["costUsd"])) == cost


def test_what_is_unknown_is_null_and_never_zero(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("a") + counted(input=100, output=10), Answer(say("b").parts, usage=None))
    for _ in range(2):
        mcode.exec("hi").check()
    total = used(mcode)["total"]
    assert (total["inputTokens"], total["usageIncomplete"], total["costUsd"]) == (100, True, None)
    assert total["knownCostUsd"] > 0
    assert "100 + ?" in mcode.run("usage").check().out
    mcode.run("usage", "--by", "day").check()


def test_a_call_that_was_cut_off_makes_the_totals_incomplete_as_it_does_the_result(
    mcode: Mcode, peer: Peer
) -> None:
    peer.script(hang())
    result = mcode.exec("hi", "--timeout", "1s", *JSON).check(6).result
    total = used(mcode)["total"]
    assert (result["usageIncomplete"], result["costUsd"]) == (True, None)
    assert (total["usageIncomplete"], total["costUsd"], total["failed"]) == (True, None, 1)


@pytest.mark.parametrize("finish", ["refusal", None])
def test_an_answer_that_came_whole_is_billed_though_it_says_nothing_and_not_how_much(
    mcode: Mcode, peer: Peer, api: str, finish: str | None
) -> None:
    mcode.configure(retry="max_retries = 0")
    peer.script(Answer(usage=None, finish=finish))
    result = mcode.exec("hi", *JSON).result
    assert result["error"]["code"] in ("LLM_CONTENT_REFUSED", "LLM_EMPTY_RESPONSE")
    total = used(mcode)["total"]
    assert (result["usageIncomplete"], result["costUsd"]) == (True, None)
    assert (total["usageIncomplete"], total["costUsd"], total["failed"]) == (True, None, 1)


def test_an_attempt_that_was_given_up_in_silence_may_have_been_billed(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    mcode.configure(tables='[timeouts]\nfirst_byte = "500ms"\n')
    peer.script(hang(), say("late") + counted(input=10, output=1))
    result = mcode.exec("hi", *JSON).check().result
    total = used(mcode)["total"]
    assert (result["usage"]["inputTokens"], result["usageIncomplete"], result["costUsd"]) == (10, True, None)
    assert (total["inputTokens"], total["failed"], total["usageIncomplete"]) == (10, 1, True)


def test_who_only_waits_to_ask_again_is_billed_for_nothing(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(status(429, headers={"retry-after": "25"}))
    run = mcode.start("exec", "hi", *JSON)
    run.wait_err("retry 1/5")
    run.send(signal.SIGINT)
    result = run.finish().result
    total = used(mcode)["total"]
    assert (result["usageIncomplete"], result["costUsd"]) == (False, 0)
    assert (total["usageIncomplete"], total["costUsd"], total["failed"]) == (False, 0, 0)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_call_that_was_stopped_before_it_went_out_cost_nothing(mcode: Mcode, scheme: str) -> None:
    """A listener that takes no connection, or one that says nothing in the TLS handshake."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        held = [] if scheme == "https" else [socket.create_connection(("127.0.0.1", port)) for _ in range(1)]
        mcode.configure(base_url=f"{scheme}://127.0.0.1:{port}")
        result = mcode.exec("hi", *JSON, "--timeout", "900ms").result
        for one in held:
            one.close()
    total = used(mcode)["total"]
    assert (result["status"], result["usageIncomplete"], result["costUsd"]) == ("timeout", False, 0)
    assert (total["usageIncomplete"], total["costUsd"]) == (False, 0)


def test_what_a_cut_off_stream_and_the_attempts_before_it_reported_is_kept(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(
        answer(say(""), usage={"input": 7, "output": 3}),
        stall_after(answer(say("half"), usage={"input": 10, "output": 5})),
    )
    run = mcode.start("exec", "hi", "--output-format", "stream-json")
    run.wait_event("item.updated")
    run.send(signal.SIGTERM)
    result = run.finish().result
    total = used(mcode)["total"]
    said = 17 if api == ANTHROPIC else 7  # the other formats count at the end only
    for usage in (result["usage"], total):
        assert (usage["inputTokens"], usage["outputTokens"]) == (said, 3)
    assert (total["failed"], total["usageIncomplete"], result["usageIncomplete"]) == (2, True, True)


def test_a_run_that_was_killed_keeps_every_answer_it_had(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(call("bash", {"command": "true"}) + counted(input=10, output=1), hang())
    run = mcode.start("exec", "hi", *JSON)
    peer.wait_for(2)
    run.kill()
    run.finish()
    assert used(mcode)["total"]["inputTokens"] == 10


def test_days_are_those_of_the_zone_across_its_clock_changes(mcode: Mcode) -> None:
    mcode.exec("hi").check()
    moments = {  # UTC
        1774738800000: "2026-03-28T23:00",  # 00:00 on the 29th in Berlin, before the clocks go forward
        1774822800000: "2026-03-29T22:20",  # the 30th there, two hours ahead now
        1792969200000: "2026-10-25T23:00",  # midnight again, one hour ahead
    }
    with sqlite3.connect(mcode.data / "mcode.db") as connection:
        (row,) = connection.execute("SELECT * FROM token_usage").fetchall()
        connection.execute("DELETE FROM token_usage")
        for number, at_ms in enumerate(moments, start=1):
            places = ",".join("?" * len(row))
            connection.execute(f"INSERT INTO token_usage VALUES ({places})", (number, *row[1:-1], at_ms))
    connection.close()

    def days(*args: str) -> list[str]:
        return [row["key"] for row in used(mcode, "--by", "day", *args)["usage"]]

    assert days() == ["2026-03-28", "2026-03-29", "2026-10-25"]
    assert days("--timezone", "Europe/Berlin") == ["2026-03-29", "2026-03-30", "2026-10-26"]
    assert days("--since", "2026-03-29") == ["2026-03-29", "2026-10-25"]
    assert days("--since", "2026-03-29", "--timezone", "Europe/Berlin") == [
        "2026-03-29",
        "2026-03-30",
        "2026-10-26",
    ]
    assert days("--since", "2026-03-28T23:00:01+00:00", "--until", "2026-10-25") == ["2026-03-29"]


def test_every_format_carries_the_same(mcode: Mcode) -> None:
    mcode.exec("hi").check()
    document = used(mcode, "--by", "session")
    lines = [
        json.loads(line, parse_float=Decimal)
        for line in mcode.run("usage", "--by", "session", "--output-format", "jsonl").check().out.splitlines()
    ]
    assert lines == [*document["usage"], document["total"]]
    table = list(
        csv.DictReader(
            io.StringIO(mcode.run("usage", "--by", "session", "--output-format", "csv").check().out)
        )
    )
    assert [row["by"] for row in table] == ["session", "total"]
    assert Decimal(table[0]["costUsd"]) == document["total"]["costUsd"]
    text = mcode.run("usage", "--by", "session").check().out
    assert text.splitlines()[0].startswith("SESSION")
    assert text.splitlines()[-1].startswith("total")


def test_the_table_shows_sums_below_a_hundredth_of_a_cent(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(cost="cost = { input = 0.02, output = 0.02 }")
    peer.script(say("a") + counted(input=500, output=100))
    mcode.exec("hi").check()
    total = mcode.run("usage").check().out.splitlines()[-1]
    assert "0.000012" in total


def test_a_chart_is_plain_text_below_the_table(mcode: Mcode) -> None:
    pytest.importorskip("plotext")
    mcode.exec("hi").check()
    run = mcode.run("usage", "--chart").check()
    assert "US dollars by model" in run.out
    assert "█" in run.out
    assert "\x1b" not in run.out
    mcode.run("usage", "--chart", *JSON).check(2)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--since", "yesterday"), "neither a duration"),
        (("--since", "5"), "neither a duration"),
        (("--until", "2026-13-01"), "neither a duration"),
        (("--timezone", "Mars/Olympus"), "no time zone"),
        (("--timezone", "../../etc/passwd"), "no time zone"),
        (("--since", "99999999d"), "is too long; the longest duration is 36500d"),
        (("--since", "2026-02-01", "--until", "2026-01-01"), "nothing lies between"),
        (("--by", "hour"), "hour"),
        (("--session", "x"), "session id"),
    ],
)
def test_a_bad_value_is_2_in_one_sentence(mcode: Mcode, args: tuple[str, ...], told: str) -> None:
    run = mcode.run("usage", *args).check(2)
    assert told in run.err
    assert run.out == ""


def test_nothing_yet_is_an_empty_list_and_a_sentence(mcode: Mcode) -> None:
    assert used(mcode)["usage"] == []
    assert used(mcode)["total"]["inputTokens"] is None
    assert "no model calls" in mcode.run("usage").check().err

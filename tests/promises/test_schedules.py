"""`mcode schedule`: what is kept, what is refused, and when it is due."""

from __future__ import annotations

import json

import pytest

from tests.support.jobs import spec
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.schedules import START, add, history, lines, listed, run_due
from tests.support.steps import say


def test_a_schedule_runs_when_it_is_due_and_tells_how_it_ended(mcode: Mcode, peer: Peer) -> None:
    added = add(mcode, "tidy", "--prompt", "it is {{ schedule.due }}", zone="Europe/Berlin").check()
    assert "due at 2026-05-04T03:00:00+02:00 (Europe/Berlin)" in added.err
    early = run_due(mcode, "2026-05-04T00:59:59Z").check()
    assert (early.out, early.err, peer.calls) == ("", "", [])
    done = run_due(mcode, "2026-05-04T01:00:20Z").check()
    assert (done.out, done.err) == ("", ""), "cron mails whatever is said"
    (request,) = peer.calls
    assert "it is 2026-05-04T03:00:00+02:00" in request.text
    run_due(mcode, "2026-05-04T01:01:20Z").check()
    assert len(peer.calls) == 1, "a due time is run once"
    row = listed(mcode)["tidy"]
    assert (row["lastStatus"], row["lastExitCode"]) == ("succeeded", 0)
    assert (row["lastDueAt"], row["nextAt"]) == ("2026-05-04T03:00:00+02:00", "2026-05-04T04:00:00+02:00")
    assert history(mcode, "tidy") == [("05-04T03:00", "succeeded", 0)]


def test_its_sessions_are_nobodys_conversation(mcode: Mcode, peer: Peer) -> None:
    add(mcode, "tidy", "--title", "Tidy", "--label", "k=v").check()
    (record,) = lines(run_due(mcode, "2026-05-04T01:00:00Z", "--output-format", "jsonl").check())
    shown = mcode.run("sessions", "list", "--output-format", "jsonl").check()
    assert shown.out == ""
    (session,) = lines(mcode.run("sessions", "list", "--kind", "cron", "--output-format", "jsonl").check())
    assert (session["id"], session["title"]) == (record["sessionId"], "Tidy")
    assert mcode.exec("go on", "--continue").code == 4
    status = json.loads(
        mcode.run("jobs", "status", record["jobRunId"], "--output-format", "json").check().out
    )
    assert [task["status"] for task in status["tasks"]] == ["succeeded"]


def test_a_prompt_has_a_new_session_each_time_or_goes_on_in_one(mcode: Mcode, peer: Peer) -> None:
    add(mcode, "new").check()
    add(mcode, "kept", "--keep-session").check()
    add(mcode, "named", "--session-key", "mine {{ x }}").check()
    sessions: dict[str, list[str]] = {}
    for hour in (1, 2):
        for record in lines(run_due(mcode, f"2026-05-04T0{hour}:00:00Z", "--output-format", "jsonl").check()):
            sessions.setdefault(record["schedule"], []).append(record["sessionId"])
    assert {name: len(set(ids)) for name, ids in sessions.items()} == {"new": 2, "kept": 1, "named": 1}
    keys = {row["session_key"] for row in mcode.query("SELECT session_key FROM sessions")}
    assert keys == {None, "schedule/kept", "mine {{ x }}"}


def test_a_spec_says_when_and_flags_win(mcode: Mcode, peer: Peer) -> None:
    table = {"cron": "0 3 * * 1-5", "timezone": "Europe/Berlin", "catch_up": "all"}
    path = spec(mcode, "a", "b", job={"on_overlap": "wait"}, schedule=table)
    mcode.run("schedule", "add", "one", path, "--now", START).check()
    mcode.run(
        "schedule", "add", "two", path, "--cron", "@hourly", "--catch-up", "none", "--now", START
    ).check()
    found = listed(mcode)
    assert (found["one"]["cron"], found["one"]["timezone"]) == ("0 3 * * 1-5", "Europe/Berlin")
    assert (found["one"]["catchUp"], found["one"]["onOverlap"]) == ("all", "wait")
    assert (found["two"]["cron"], found["two"]["catchUp"]) == ("@hourly", "none")
    assert found["one"]["nextAt"] == "2026-05-04T03:00:00+02:00"
    run = run_due(mcode, "2026-05-04T01:00:00Z", "--output-format", "json").check()
    result = json.loads(run.out)
    assert (result["type"], result["exitCode"]) == ("schedule.result", 0)
    assert {one["schedule"] for one in result["runs"]} == {"one", "two"}
    assert len(peer.calls) == 4


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("x",), "nothing to run"),
        (("x", "--prompt", "p"), "needs --cron"),
        (("x", "--prompt", " ", "--cron", "@daily"), "--prompt is empty"),
        (("x", "--prompt", "p", "--prompt-file", "f", "--cron", "@daily"), "cannot be combined"),
        (("x", "--prompt-file", "gone", "--cron", "@daily"), "cannot be read"),
        (("x", "gone.toml"), "cannot be read"),
        (("x", "job.toml"), "has no [schedule]"),
        (("x", "job.toml", "--cron", "@daily", "--permission", "full"), "--permission goes with --prompt"),
        (("x", "job.toml", "--cron", "@daily", "--keep-session"), "--keep-session goes with --prompt"),
        (("a b", "--prompt", "p", "--cron", "@daily"), "is no name"),
        (("../x", "--prompt", "p", "--cron", "@daily"), "is no name"),
        (("-x", "--prompt", "p", "--cron", "@daily"), "No such option"),
        (("x", "--prompt", "p", "--cron", "0 0 31 2 *"), "no time that comes"),
        (("x", "--prompt", "p", "--cron", "0 0 * * * *"), "6 fields"),
        (("x", "--prompt", "p", "--cron", "@daily", "--timezone", "Mars/Base"), "no time zone"),
        (("x", "--prompt", "{{ nothing.here }}", "--cron", "@daily"), "nothing"),
        (("x", "--prompt", "p", "--cron", "@daily", "--cwd", "/nowhere/at/all"), "not a directory"),
        (("x", "--prompt", "p", "--cron", "@daily", "--on-failure", "no-such-program-at-all x"), "no program"),
        (("x", "--prompt", "p", "--cron", "@daily", "--on-failure", "echo 'x"), "closing quotation"),
        (("x", "--prompt", "p", "--cron", "@daily", "--check-attempts", "2"), "--check"),
        (("x", "--prompt", "p", "--cron", "@daily", "--now", "2026-05-04"), "no offset"),
    ],
)  # fmt: skip
def test_what_could_not_run_is_refused_and_not_kept(mcode: Mcode, args: tuple[str, ...], says: str) -> None:
    spec(mcode, "a")
    run = mcode.run("schedule", "add", *args).check(2)
    assert says in run.err
    assert run.err.count("\n") == 1
    assert listed(mcode) == {}


def test_a_name_is_taken_until_it_is_replaced_or_removed(mcode: Mcode, peer: Peer) -> None:
    add(mcode, "a").check()
    assert "--replace" in add(mcode, "a").check(2).err
    run_due(mcode, "2026-05-04T01:00:00Z").check()
    add(mcode, "a", "--replace", cron="30 * * * *", now="2026-05-04T01:00:30Z").check()
    assert history(mcode, "a") == [("05-04T01:00", "succeeded", 0)], "its history goes on"
    assert listed(mcode)["a"]["nextAt"] == "2026-05-04T01:30:00+00:00"
    removed = mcode.run("schedule", "remove", "a").check()
    assert "history of 1 due time" in removed.err
    assert "there is no schedule a" in mcode.run("schedule", "remove", "a").check(4).err
    add(mcode, "a").check()
    run_due(mcode, "2026-05-04T01:00:00Z").check()
    assert history(mcode, "a") == [("05-04T01:00", "succeeded", 0)], "another schedule, that runs on its own"
    assert len(peer.calls) == 2


def test_a_schedule_that_is_paused_misses_nothing_that_it_would_run_later(mcode: Mcode, peer: Peer) -> None:
    add(mcode, "a", "--catch-up", "all").check()
    mcode.run("schedule", "pause", "a").check()
    assert "already" in mcode.run("schedule", "pause", "a").check().err
    run_due(mcode, "2026-05-04T03:10:00Z").check()
    assert (listed(mcode)["a"]["state"], listed(mcode)["a"]["nextMs"]) == ("paused", None)
    mcode.run("schedule", "unpause", "a", "--now", "2026-05-04T03:10:00Z").check()
    run_due(mcode, "2026-05-04T04:00:00Z").check()
    assert history(mcode, "a") == [("05-04T04:00", "succeeded", 0)]


def test_next_tells_what_comes(mcode: Mcode) -> None:
    add(mcode, "night", cron="30 2 * * *", zone="Europe/Berlin").check()
    run = mcode.run(
        "schedule",
        "next",
        "night",
        "--count",
        "3",
        "--now",
        "2026-03-28T00:00:00Z",
        "--output-format",
        "jsonl",
    ).check()
    assert [one["dueAt"] for one in lines(run)] == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    add(mcode, "noon", cron="0 12 * * *", zone="Europe/Berlin").check()
    table = mcode.run("schedule", "next", "--count", "1", "--now", "2026-03-28T00:00:00Z").check().out
    assert [line.split()[0] for line in table.splitlines()] == ["NAME", "night", "noon"]


def test_show_tells_all_of_it(mcode: Mcode) -> None:
    add(
        mcode, "a", "--prompt", "line one\nline two", "--permission", "read-only", "--max-cost", "0.5"
    ).check()
    text = mcode.run("schedule", "show", "a").check().out
    for part in ("0 * * * * (UTC)", "read-only", "catch-up:", "line one"):
        assert part in text
    shown = json.loads(mcode.run("schedule", "show", "a", "--output-format", "json").check().out)
    assert shown["type"] == "schedule"
    assert shown["settings"]["permission"] == "read-only"
    assert shown["prompt"] == "line one\nline two"


def test_a_long_prompt_from_stdin_and_one_of_a_file_that_changes(mcode: Mcode, peer: Peer) -> None:
    text = "50% of $HOME 'quoted'\n" * 20_000
    mcode.run(
        "schedule",
        "add",
        "long",
        "--prompt",
        "-",
        "--cron",
        "@hourly",
        "--timezone",
        "UTC",
        "--now",
        START,
        input=text,
    ).check()
    file = mcode.workspace / "prompt.md"
    file.write_text("before")
    add(mcode, "file", "--prompt-file", "prompt.md").check()
    file.write_text("after")
    run_due(mcode, "2026-05-04T01:00:00Z", "--concurrency", "1", cwd=mcode.root).check()
    texts = [request.text for request in peer.calls]
    assert any(json.dumps(text.strip())[1:-1] in one for one in texts)
    assert any("after" in one for one in texts)


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        ("none", [("05-04T01:00", "missed", None)]),
        ("one", [("05-04T01:00", "missed", None), ("05-11T00:00", "succeeded", 0)]),
    ],
)
def test_a_machine_that_slept_for_a_week(
    mcode: Mcode, peer: Peer, catch_up: str, expected: list[tuple[str, str, int | None]]
) -> None:
    add(mcode, "a", "--catch-up", catch_up).check()
    run_due(mcode, "2026-05-11T00:20:00Z").check()
    assert history(mcode, "a") == expected
    assert len(peer.calls) == len(expected) - 1
    (missed,) = lines(mcode.run("schedule", "history", "a", "--output-format", "jsonl").check())[-1:]
    assert missed["count"] == 168 - len(expected) + 1


def test_all_that_was_missed_runs_in_order(mcode: Mcode, peer: Peer) -> None:
    add(mcode, "a", "--catch-up", "all", "--prompt", "at {{ schedule.due }}.").check()
    run_due(mcode, "2026-05-04T04:20:00Z").check()
    assert history(mcode, "a") == [(f"05-04T0{hour}:00", "succeeded", 0) for hour in (1, 2, 3, 4)]
    told = [f"at 2026-05-04T0{hour}:00:00+00:00." for hour in (1, 2, 3, 4)]
    assert [next(one for one in told if one in request.text) for request in peer.calls] == told


def test_a_clock_that_is_set_back_runs_nothing_twice_and_does_not_stand_still(
    mcode: Mcode, peer: Peer
) -> None:
    add(mcode, "a").check()
    run_due(mcode, "2026-05-04T02:00:10Z").check()
    run_due(mcode, "2026-05-04T00:45:00Z").check()
    assert listed(mcode)["a"]["nextAt"] == "2026-05-04T01:00:00+00:00"
    run_due(mcode, "2026-05-04T02:00:10Z").check()
    assert len(peer.calls) == 1, "02:00 has been run"
    run_due(mcode, "2027-01-01T00:00:10Z").check()
    run_due(mcode, "2026-05-04T03:00:10Z").check()
    run_due(mcode, "2026-05-04T04:00:10Z").check()
    assert [due for due, status, _ in history(mcode, "a") if status == "succeeded"] == [
        "05-04T02:00", "05-04T04:00", "01-01T00:00",
    ]  # fmt: skip


def test_a_zone_that_is_gone_is_told_once_and_seen_until_it_is_back(mcode: Mcode, peer: Peer) -> None:
    add(mcode, "a", zone="Europe/Berlin").check()
    add(mcode, "b").check()
    none = {"PYTHONTZPATH": str(mcode.root / "none")}
    gone = run_due(mcode, "2026-05-04T01:00:10Z", env=none).check(3)
    assert "no time zone 'Europe/Berlin'" in gone.err
    assert len(peer.calls) == 1, "the other one runs"
    run_due(mcode, "2026-05-04T01:01:10Z", env=none).check()
    assert (listed(mcode)["a"]["state"], listed(mcode)["a"]["lastExitCode"]) == ("broken", 3)
    run_due(mcode, "2026-05-04T02:00:10Z").check()
    assert listed(mcode)["a"]["state"] == "active"
    assert [status for _, status, _ in history(mcode, "a")] == ["failed", "succeeded"]


def test_lists_have_their_forms(mcode: Mcode, peer: Peer) -> None:
    assert "no schedule" in mcode.run("schedule", "list").check().err
    peer.script(say("done"))
    add(mcode, "a").check()
    run_due(mcode, "2026-05-04T01:00:00Z").check()
    for command in (("list",), ("history", "a"), ("next", "a")):
        for form in ("table", "json", "jsonl", "csv"):
            assert mcode.run("schedule", *command, "--output-format", form).check().out
    table = mcode.run("schedule", "list").check().out
    assert "succeeded" in table
    assert "EXIT" in mcode.run("schedule", "history", "a").check().out
    assert "did you mean a-b" in (add(mcode, "a-b"), mcode.run("schedule", "show", "a_b").check(4))[1].err

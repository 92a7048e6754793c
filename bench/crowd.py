"""Eight hellos at once on a data directory that does not exist yet."""

from __future__ import annotations

from timing import Row, world

HELLOS = 8


def run(runs: int) -> list[Row]:
    from tests.support.steps import say

    failures: list[str] = []
    rounds = max(3, runs // 4)
    for _round in range(rounds):
        with world(say("hello")) as (mcode, _):
            started = [mcode.start("exec", f"hello {number}") for number in range(HELLOS)]
            ended = [one.finish() for one in started]
            failures += [run.err for run in ended if run.code != 0 or run.out != "hello\n"]
    row = Row(
        f"{HELLOS} hellos at once, new data directory, {rounds} times",
        f"{len(failures)} failed",
        "none",
        not failures,
    )
    return [row, *(Row("  one said", text.strip()[:80], "", None) for text in failures[:3])]

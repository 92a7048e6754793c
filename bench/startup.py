"""Start-up: the bare interpreter, `mcode --version`, a one-turn hello; and the hello's peak memory."""

from __future__ import annotations

import sys

from timing import Row, median, ms, must_succeed, peak_rss_bytes, timed, world

HELLO_RATIO = 16.0
HELLO_RSS_BYTES = 60 * 1024 * 1024


def run(runs: int) -> list[Row]:
    """The three commands take turns, so that a busy moment of the machine hits all of them alike."""
    from tests.support.steps import say

    with world(say("hello")) as (mcode, _):
        env = mcode.environment()
        commands = {
            "bare": [sys.executable, "-c", "pass"],
            "version": [*mcode.command, "--version"],
            "hello": [*mcode.command, "exec", "say hello"],
        }
        walls: dict[str, list[float]] = {name: [] for name in commands}
        for command in commands.values():
            must_succeed(timed(command, env=env, cwd=mcode.workspace))  # bytecode, page cache, new store
        for _round in range(runs):
            for name, command in commands.items():
                walls[name].append(must_succeed(timed(command, env=env, cwd=mcode.workspace)).wall_s)
        rss = peak_rss_bytes(commands["hello"], env=env, cwd=mcode.workspace)
    bare, version, hello = (median(walls[name]) for name in commands)
    ratio = hello / bare
    return [
        Row("python -c pass", ms(bare), "", None),
        Row("mcode --version", f"{ms(version)} = {version / bare:.1f} ×", "", None),
        Row("hello, one turn", f"{ms(hello)} = {ratio:.1f} ×", f"≤ {HELLO_RATIO:g} ×", ratio <= HELLO_RATIO),
        Row("peak memory of a hello", f"{rss / 2**20:.1f} MiB", "< 60 MiB", rss < HELLO_RSS_BYTES),
    ]

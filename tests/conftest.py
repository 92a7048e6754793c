"""Fixtures for tests that run the real `mcode` against real peers."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer
from tests.support.steps import say
from tests.support.terminal import Terminal
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

# What nohup or a script's `… &` ignores, the children of the tests would ignore too, as they should; tests send it.
for _signum in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_signum, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `sample(n)`, n parameters stay; the others become `slow`: `make test-faults` runs them."""
    families: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sample"):
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for family in families.values():
        marker = family[0].get_closest_marker("sample")
        assert marker is not None
        kept = spread(family, marker.args[0])
        for item in family:
            if item not in kept:
                item.add_marker(pytest.mark.slow)


def spread(family: list[pytest.Function], count: int) -> list[pytest.Function]:
    """`count` tests among which the values of every parameter occur as evenly as can be, the first ones first."""
    seen: Counter[tuple[str, int]] = Counter()
    left, kept = list(family), []
    while left and len(kept) < count:
        best = min(left, key=lambda item: sum(seen[value] for value in item.callspec.indices.items()))
        seen.update(best.callspec.indices.items())
        left.remove(best)
        kept.append(best)
    return kept


@pytest.fixture(params=[ANTHROPIC, CHAT, RESPONSES])
def api(request: pytest.FixtureRequest) -> str:
    """Each of the three wire formats; a test that asks for it runs three times."""
    wire_format: str = request.param
    return wire_format


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A strict scripted model server; `peer.script(…)` says what it does."""
    with Peer(say("hello"), strict=True) as server:
        yield server


@pytest.fixture
def mcode(request: pytest.FixtureRequest, tmp_path: Path, peer: Peer) -> Iterator[Mcode]:
    """The real mcode, isolated, bound to `peer`; over the `api` of the test if it asks for that."""
    wire_format = request.getfixturevalue("api") if "api" in request.fixturenames else ANTHROPIC
    installation = Mcode(tmp_path, peer, api=wire_format)
    yield installation
    installation.close()


@pytest.fixture
def terminal(mcode: Mcode) -> Iterator[Callable[..., Terminal]]:
    """Starts a command on a terminal of its own: `terminal([*mcode.command, "exec", "go"])`."""
    opened: list[Terminal] = []

    def open_(arguments: list[str], **how: Any) -> Terminal:
        opened.append(Terminal(arguments, mcode, **how))
        return opened[-1]

    yield open_
    for one in opened:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def workspace(tmp_path: Path) -> Callable[..., Path]:
    """Makes a directory with files; `git=True`: a repository with one commit.

    `workspace({"a.py": "…"}, git=True, name="repo")`; the default name is the working directory of `mcode`.
    """

    def make(files: dict[str, str] | None = None, *, git: bool = False, name: str = "work") -> Path:
        directory = tmp_path / name
        if git:
            return make_repository(directory, files)
        directory.mkdir(exist_ok=True)
        for path, text in (files or {}).items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text, encoding="utf-8")
        return directory

    return make

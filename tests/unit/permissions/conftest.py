"""A workspace, a home and a data directory on the real disk, and judges over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mcode_exec.permissions.judge import Judge
from mcode_exec.permissions.places import Scope
from mcode_exec.permissions.rules import layer, parse_flag_rule
from mcode_exec.records.permission import Decision, Need, Preset, Rule


class Ground:
    """Directories of one test, and the shortest ways to ask a judge over them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.workspace = self.home / "ws"
        self.temp_dir = root / "session-tmp"
        self.data_dir = self.home / ".local/share/mcode"
        self.config_file = self.home / ".config/mcode/config.toml"
        for directory in (
            self.workspace / "sub",
            self.temp_dir,
            self.data_dir,
            self.config_file.parent,
            root / "outside",
        ):
            directory.mkdir(parents=True)
        self.scope = Scope(
            workspace=str(self.workspace),
            home=str(self.home),
            temp_dir=str(self.temp_dir),
            data_dir=str(self.data_dir),
            config_files=(str(self.config_file),),
        )

    def judge(
        self,
        preset: Preset = "smart",
        *,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        config: Sequence[Rule] = (),
        workspace_deny: Sequence[Rule] = (),
    ) -> Judge:
        """Allow flags first, then deny flags."""
        flags = [parse_flag_rule(text, "allow", "--allow") for text in allow]
        flags += [parse_flag_rule(text, "deny", "--deny") for text in deny]
        return Judge(layer(preset, config=config, flags=flags, workspace_deny=workspace_deny), self.scope)


def bash(judge: Judge, script: str) -> Decision:
    return judge.judge([Need(permission="bash", subject=script)])


def ask_for(judge: Judge, permission: str, subject: object) -> Decision:
    return judge.judge([Need(permission=permission, subject=str(subject))])


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def verdict(ground: Ground) -> Callable[..., str]:
    """`verdict(script, preset, allow=…, deny=…)`."""

    def of(script: str, preset: Preset = "smart", **rules: Sequence[str]) -> str:
        return bash(ground.judge(preset, **rules), script).verdict

    return of

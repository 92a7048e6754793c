"""Runs the real `mcode` in a process of its own, in a world of its own.

`Mcode` owns a directory that holds HOME, the XDG directories, the data directory, TMPDIR and a workspace, and a
user configuration that names the provider `fake`.  It gives the child no provider keys and no proxies.  Every
process it starts, and every command these run, carries a tag in its environment, by which `close()` finds what
has survived.  Nothing here knows the inside of mcode but the places of its files that the contract names.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.peer import Peer
from tests.support.running import Running
from tests.support.wire import ANTHROPIC

REPOSITORY = Path(__file__).resolve().parents[2]
TAG = "TEST_RUN_TAG"
KEY = "fake-key-0123456789abcdef"

_CONFIG = """\
model = "fake/big-1"
{top}
[providers.fake]
api = "{api}"
base_url = "{base_url}"
api_key = "${{FAKE_KEY}}"
[providers.fake.models."big-1"]
context = {context}
output = {output}
{cost}
[retry]
{retry}
{tables}
"""
_COST = "cost = { input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }"
_RETRY = 'base_delay = "10ms"'


@dataclass(frozen=True)
class Run:
    """How one invocation ended."""

    code: int
    out: str
    err: str
    out_bytes: bytes
    duration_s: float

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of stdout under stream-json."""
        return [json.loads(line) for line in self.out_bytes.split(b"\n") if line]

    @property
    def result(self) -> dict[str, Any]:
        """The one result object on stdout, under json or stream-json."""
        last: dict[str, Any] = json.loads(self.out_bytes.rstrip(b"\n").rsplit(b"\n", 1)[-1])
        found: dict[str, Any] = last.get("result", last)
        assert found.get("type") == "exec.result", f"stdout does not end with a result: {self}"
        return found

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def check(self, code: int = 0) -> Run:
        """Itself, if it ended with `code`; else everything it said."""
        assert self.code == code, f"exit {self.code}, not {code}\n--- out\n{self.out}\n--- err\n{self.err}"
        return self


class Mcode:
    """One isolated installation of mcode under `root`."""

    def __init__(self, root: Path, peer: Peer | None = None, *, api: str = ANTHROPIC) -> None:
        self.root = root
        self.peer = peer
        self.home = root / "home"
        self.data = root / "data"
        self.workspace = root / "work"
        self.config = self.home / ".config" / "mcode" / "config.toml"
        for directory in (self.home, self.workspace, root / "tmp", self.config.parent):
            directory.mkdir(parents=True, exist_ok=True)
        self.tag = uuid.uuid4().hex
        #: the installed `mcode` beside this interpreter, else the package of this checkout
        self.command = [str(_script())] if _script().exists() else [sys.executable, "-P", "-m", "mcode_exec"]
        #: set by a test that ends mcode in a way after which processes may stay
        self.may_leave_processes = False
        self._running: list[Running] = []
        self._config: dict[str, Any] = {
            "top": "",
            "api": api,
            "base_url": peer.url if peer else "http://127.0.0.1:9/v1",
            "context": 200_000,
            "output": 16_384,
            "cost": _COST,
            "retry": _RETRY,
            "tables": "",
        }
        self.configure()

    # configuration and environment

    def configure(self, **changes: Any) -> Mcode:
        """Write the user's config anew.

        `top` is put among the top-level keys and `tables` at the end, as TOML; `api`, `base_url`, `context`,
        `output`, `cost` (a whole line, may be empty) and `retry` (lines) stand for themselves.
        """
        unknown = changes.keys() - self._config.keys()
        assert not unknown, f"no such part of the config: {unknown}"
        self._config.update(changes)
        self.config.write_text(_CONFIG.format_map(self._config), encoding="utf-8")
        return self

    def environment(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """What the child gets; a change to None takes a variable away."""
        variables: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_DATA_HOME": str(self.home / ".local" / "share"),
            "XDG_STATE_HOME": str(self.home / ".local" / "state"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "MCODE_HOME": str(self.data),
            "TMPDIR": str(self.root / "tmp"),
            "LANG": "C.UTF-8",
            "FAKE_KEY": KEY,
            TAG: self.tag,
            **GIT_IDENTITY,
        }
        if not _script().exists():
            variables["PYTHONPATH"] = str(REPOSITORY)
        variables.update(changes or {})
        return {name: value for name, value in variables.items() if value is not None}

    # running

    def run(
        self,
        *args: str | Path,
        input: str | bytes | None = None,  # noqa: A002 - as subprocess.run names it
        env: Mapping[str, str | None] | None = None,
        cwd: str | Path | None = None,
        timeout: float = 40.0,
    ) -> Run:
        """One invocation to its end; stdin is /dev/null unless `input` is given."""
        started = self.start(*args, stdin=subprocess.PIPE if input is not None else None, env=env, cwd=cwd)
        started.feed(input.encode() if isinstance(input, str) else input)
        return started.finish(timeout)

    def exec(self, *args: str | Path, **how: Any) -> Run:
        return self.run("exec", *args, **how)

    def start(
        self,
        *args: str | Path,
        stdin: Any = None,
        stdout: Any = subprocess.PIPE,
        env: Mapping[str, str | None] | None = None,
        cwd: str | Path | None = None,
    ) -> Running:
        """A running invocation; its stdout and stderr are drained by threads."""
        process = subprocess.Popen(
            [*self.command, *map(str, args)],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=self.environment(env),
            cwd=cwd or self.workspace,
            start_new_session=True,
        )
        running = Running(process, self)
        self._running.append(running)
        return running

    # what it left

    def session_dirs(self) -> list[Path]:
        """Oldest first."""
        return sorted((self.data / "sessions").glob("*/*/*/*"))

    def session_dir(self, session_id: str | None = None) -> Path:
        """The directory of a session; None: of the only one."""
        found = [one for one in self.session_dirs() if session_id is None or one.name.endswith(session_id)]
        assert len(found) == 1, f"{len(found)} session directories for {session_id}: {found}"
        return found[0]

    def history(self, session_id: str | None = None) -> list[dict[str, Any]]:
        """The lines of `messages.jsonl`, each one whole."""
        raw = (self.session_dir(session_id) / "messages.jsonl").read_bytes()
        assert not raw or raw.endswith(b"\n"), "torn tail"
        return [json.loads(line) for line in raw.split(b"\n")[:-1]]

    def messages(self, session_id: str | None = None) -> list[dict[str, Any]]:
        """The messages of the canonical history, without headers."""
        return [line["message"] for line in self.history(session_id) if "message" in line]

    def query(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of the store, read only."""
        connection = sqlite3.connect(f"file:{self.data / 'mcode.db'}?mode=ro", uri=True, timeout=5)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(sql, parameters)]
        finally:
            connection.close()

    # the end

    def survivors(self) -> list[tuple[int, str]]:
        """Processes that carry our tag: pid and command line."""
        mark = f"{TAG}={self.tag}".encode()
        own = {one.process.pid for one in self._running if one.process.poll() is None}
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                is_ours = int(entry.name) in own or mark in (entry / "environ").read_bytes().split(b"\0")
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            # a zombie has no command line: it is dead, whoever should reap it
            if is_ours and line:
                found.append((int(entry.name), line))
        return found

    def close(self) -> None:
        """End what still runs; fails if commands survived an mcode that could have ended them."""
        for one in self._running:
            if one.process.poll() is None:
                one.kill()
            one.finish(5)
        left = self.survivors()
        deadline = time.monotonic() + 2.0
        while left and not self.may_leave_processes and time.monotonic() < deadline:
            time.sleep(0.05)
            left = self.survivors()
        for pid, _ in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + 2.0
        while left and self.survivors() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left or self.may_leave_processes, f"processes survived their mcode: {left}"


GIT_IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.invalid",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.invalid",
    "GIT_AUTHOR_DATE": "2025-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2025-01-02T03:04:05Z",
}


def git(directory: Path, *args: str) -> str:
    """Run git in `directory` under the tests' identity; its stdout."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(directory), **GIT_IDENTITY}
    done = subprocess.run(
        ["git", *args], cwd=directory, env=variables, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(directory: Path, files: Mapping[str, str] | None = None) -> Path:
    """A git repository with one commit of `files` and whatever stands there already."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in ({"README.md": "a repository\n"} if files is None else files).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(directory, "init", "-q", "-b", "main")
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", "first")
    return directory


def _script() -> Path:
    return Path(sys.executable).with_name("mcode")

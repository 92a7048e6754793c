"""Where things are kept: one directory for every command, private, refused early when it cannot be used."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import call, hang, say

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's rights or a mount")


def modes(root: Path) -> dict[str, set[int]]:
    """Modes of everything below, directories and files apart."""
    found: dict[str, set[int]] = {"directories": set(), "files": set()}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        kind = "directories" if stat.S_ISDIR(status.st_mode) else "files"
        found[kind].add(status.st_mode & 0o777)
    return found


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077, 0o777])
def test_what_is_kept_is_private_and_what_tools_write_follows_the_umask(
    mcode: Mcode, peer: Peer, umask: int
) -> None:
    peer.script(call("write", {"file_path": "new.txt", "content": "x"}), say("done"), say("again"))
    before = os.umask(umask)
    try:
        run = mcode.exec("go", "--output-format", "json")
        again = mcode.exec("--continue", "go")
    finally:
        os.umask(before)
    run.check()
    again.check()
    assert modes(mcode.data) == {"directories": {0o700}, "files": {0o600}}
    assert (mcode.workspace / "new.txt").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "how",
    ["env", "relative env", "spaces", "flag", "relative flag", "flag over env", "xdg", "default", "empty"],
)
def test_every_command_uses_the_same_data_directory(mcode: Mcode, how: str) -> None:
    root = mcode.root
    env: dict[str, str | None] = {"MCODE_HOME": None}
    args: tuple[str, ...] = ()
    expected = root / "elsewhere"
    if how == "env":
        env["MCODE_HOME"] = str(expected)
    elif how == "relative env":
        env["MCODE_HOME"], expected = "inside/it", mcode.workspace / "inside" / "it"
    elif how == "spaces":
        expected = root / "a b  c'\"é"
        env["MCODE_HOME"] = str(expected)
    elif how == "flag":
        args = ("--data-dir", str(expected))
    elif how == "relative flag":
        args, expected = ("--data-dir", "here"), mcode.workspace / "here"
    elif how == "flag over env":
        env["MCODE_HOME"], args = str(root / "ignored"), ("--data-dir", str(expected))
    elif how == "xdg":
        env["XDG_DATA_HOME"], expected = str(root / "share"), root / "share" / "mcode"
    elif how == "default":
        env["XDG_DATA_HOME"], expected = None, mcode.home / ".local" / "share" / "mcode"
    else:
        env["MCODE_HOME"], env["XDG_DATA_HOME"] = "", "relative/is/ignored"
        expected = mcode.home / ".local" / "share" / "mcode"
    mcode.data = expected
    first = mcode.exec("x", *args, "--output-format", "json", env=env).check()
    again = mcode.exec("--continue", "y", *args, "--output-format", "json", env=env).check()
    assert first.result["sessionId"] == again.result["sessionId"]
    listed = mcode.run("sessions", "list", "--output-format", "jsonl", *args, env=env).check()
    assert first.result["sessionId"] in listed.out
    mcode.run("sessions", "show", first.result["sessionId"], *args, env=env).check()
    assert (expected / "mcode.db").exists()
    assert len(mcode.session_dirs()) == 1
    found = {path.parent for path in root.rglob("mcode.db")}
    assert found == {expected}


def refused(mcode: Mcode, peer: Peer, path: Path, **how: Any) -> str:
    run = mcode.exec("x", "--output-format", "json", **how).check(74)
    error = run.result["error"]
    assert (error["category"], error["code"]) == ("storage", "STORE_FAILED")
    assert str(path) in error["message"]
    assert peer.calls == []
    message: str = error["message"]
    return message


def test_a_file_where_the_data_directory_should_be(mcode: Mcode, peer: Peer) -> None:
    mcode.data.write_text("a file")
    refused(mcode, peer, mcode.data)
    assert mcode.data.read_text() == "a file"


@pytest.mark.parametrize("content", [b"x" * 5000, b"x", b"SQLite format 3\0", b"SQLite format 3\0" * 31])
def test_a_database_that_is_none(mcode: Mcode, peer: Peer, content: bytes) -> None:
    mcode.data.mkdir()
    database = mcode.data / "mcode.db"
    database.write_bytes(content)
    assert "not a usable database" in refused(mcode, peer, database)
    assert database.read_bytes() == content


def test_a_database_of_another_program(mcode: Mcode, peer: Peer) -> None:
    mcode.data.mkdir()
    with sqlite3.connect(mcode.data / "mcode.db") as connection:
        connection.execute("CREATE TABLE notes (x)")
    connection.close()
    assert "another program" in refused(mcode, peer, mcode.data / "mcode.db")


@pytest.mark.parametrize("damage", ["labels = '{'", "status = 'odd'", "title = x'ff'", "history_bytes = 'x'"])
def test_a_row_that_is_damaged_is_no_bug_of_ours(mcode: Mcode, peer: Peer, damage: str) -> None:
    session_id = mcode.exec("hi", "--output-format", "json").check().result["sessionId"]
    with sqlite3.connect(mcode.data / "mcode.db", isolation_level=None) as connection:
        connection.execute(f"UPDATE sessions SET {damage}")
    connection.close()
    for args in (["exec", "--continue", "on"], ["sessions", "list"], ["sessions", "show", session_id]):
        run = mcode.run(*args).check(74)
        assert str(mcode.data / "mcode.db") in run.err
    assert len(peer.calls) == 1


def test_a_store_of_a_newer_mcode(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("x").check()
    with sqlite3.connect(mcode.data / "mcode.db") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    run = mcode.exec("x", "--output-format", "json").check(74)
    assert "newer mcode" in run.result["error"]["message"]
    assert len(peer.calls) == 1


@pytest.fixture
def read_only(mcode: Mcode) -> Any:
    """A data directory on a file system that is mounted read only."""
    mcode.data.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(mcode.data)], capture_output=True
    )
    if made.returncode:
        pytest.skip("no mounts here")
    yield mcode.data
    subprocess.run(["umount", "-l", str(mcode.data)], check=True)


@needs_root
def test_a_read_only_file_system_is_found_before_the_model_is_asked(
    mcode: Mcode, peer: Peer, read_only: Path
) -> None:
    refused(mcode, peer, read_only)


@needs_root
def test_a_directory_without_write_permission(mcode: Mcode, peer: Peer) -> None:
    """As another user: root may write anywhere."""
    mcode.data.mkdir(mode=0o555)
    os.chown(mcode.data, 65534, 65534)
    for directory in (mcode.root, *mcode.root.parents[:3]):
        directory.chmod(0o755)
    setpriv = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    reachable = subprocess.run([*setpriv, sys.executable, "-c", "import click"], cwd="/", capture_output=True)
    if reachable.returncode:
        pytest.skip("another user cannot run this interpreter")
    mcode.command = [*setpriv, *mcode.command]
    refused(mcode, peer, mcode.data)


@pytest.fixture
def tiny(mcode: Mcode) -> Any:
    """A data directory with 2 MiB of space."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mcode.data.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(mcode.data)], capture_output=True
    )
    if made.returncode:
        pytest.skip("no mounts here")
    yield mcode.data
    subprocess.run(["umount", "-l", str(mcode.data)], check=True)


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 4096):
                pass
        except OSError:
            return


def test_a_disk_that_is_full_from_the_start(mcode: Mcode, peer: Peer, tiny: Path) -> None:
    fill(tiny / "filler")
    run = mcode.exec("x", "--output-format", "json").check(74)
    assert "full" in run.result["error"]["message"] or "space" in run.result["error"]["message"]
    assert peer.calls == []
    (tiny / "filler").unlink()
    mcode.exec("x").check()


def test_a_disk_that_is_full_under_a_store_is_told_as_full(mcode: Mcode, peer: Peer, tiny: Path) -> None:
    mcode.exec("x").check()
    fill(tiny / "filler")
    asked = len(peer.calls)
    for args in (("exec", "x"), ("exec", "x", "--continue"), ("sessions", "list")):
        run = mcode.run(*args)
        if args[0] == "exec":
            run.check(74)
        if run.code:
            assert "is full; free some space" in run.err, run
    assert len(peer.calls) == asked
    assert "is full; free some space" in mcode.run("doctor").check(4).out


def test_a_disk_that_fills_up_during_a_run(mcode: Mcode, peer: Peer, api: str, tiny: Path) -> None:
    first = mcode.exec("begin", "--output-format", "json").check()
    peer.script(say("x" * 2_000_000), say("and on"))
    run = mcode.exec("--continue", "much", "--output-format", "json").check(74)
    assert run.result["error"]["category"] == "storage"
    assert "free some space" in run.result["error"]["message"]
    assert run.result["partialOutput"].startswith("xxx")
    history = mcode.history()
    assert [line["message"]["role"] for line in history[1:]] == ["user", "assistant", "user"]
    again = mcode.exec("--session", first.result["sessionId"], "go on", "--output-format", "json").check()
    assert again.result["output"] == "and on"
    assert "much" in peer.last.text


# contention


_HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN " + sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def holder(mcode: Mcode, mode: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(mcode.data / "mcode.db"), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_store_that_others_lock_for_good_is_given_up_after_ten_seconds(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("x").check()
    held = holder(mcode, "EXCLUSIVE")
    run = mcode.exec("y", "--output-format", "json")
    held.communicate()
    run.check(75)
    assert (run.result["error"]["code"], run.result["retryable"]) == ("STORE_BUSY", True)
    assert run.duration_s > 9
    assert len(peer.calls) == 1
    mcode.exec("y").check()


def test_a_locked_store_is_waited_for_and_a_deadline_cuts_the_wait(mcode: Mcode) -> None:
    mcode.exec("x").check()
    held = holder(mcode, "IMMEDIATE")
    waiting = mcode.start("exec", "y")
    run = mcode.exec("y", "--timeout", "1s", "--output-format", "json").check(6)
    assert run.result["status"] == "timeout"
    held.communicate()
    assert waiting.finish().code == 0


def test_sixteen_first_runs_at_once_all_succeed(mcode: Mcode) -> None:
    running = [mcode.start("exec", f"hi {number}", "--output-format", "json") for number in range(16)]
    runs = [one.finish(90) for one in running]
    assert [run.code for run in runs] == [0] * 16, [run.err for run in runs if run.code]
    assert len({run.result["sessionId"] for run in runs}) == 16
    assert {row["status"] for row in mcode.query("SELECT status FROM sessions")} == {"idle"}
    sequences = [
        row["sequence"] for row in mcode.query("SELECT sequence FROM turn_receipts ORDER BY sequence")
    ]
    assert sequences == list(range(1, 17))
    assert mcode.query("SELECT * FROM session_locks") == []
    assert list((mcode.data / "run").iterdir()) == []


# ephemeral


def test_an_ephemeral_run_opens_no_data_directory_and_leaves_nothing(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "echo $TMPDIR > where; echo hi"}), say("done"))
    mcode.exec("x", "--ephemeral").check()
    assert not mcode.data.exists()
    assert list((mcode.root / "tmp").iterdir()) == []
    mcode.data.mkdir(mode=0o700)
    (mcode.data / "mcode.db").write_bytes(b"not a database" * 100)
    before = os.stat(mcode.data / "mcode.db")
    mcode.exec("x", "--ephemeral").check()
    assert os.stat(mcode.data / "mcode.db").st_atime_ns == before.st_atime_ns
    assert [path.name for path in mcode.data.iterdir()] == ["mcode.db"]
    assert not list(mcode.home.rglob("*mcode.db"))


def test_a_failed_ephemeral_run_leaves_nothing_either(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("x", "--ephemeral", "--max-steps", "1", "--model", "no/such").check(3)
    assert not mcode.data.exists()
    assert list((mcode.root / "tmp").iterdir()) == []


def test_an_ephemeral_run_that_is_signalled_leaves_nothing(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang())
    running = mcode.start("exec", "x", "--ephemeral")
    peer.wait_for(1)
    running.send(signal.SIGTERM)
    running.finish().check(-signal.SIGTERM)
    assert not mcode.data.exists()
    assert list((mcode.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "flags",
    [["--session-key"], ["--title"], ["--request-id"], ["--label"], ["--file"], ["--append-system-prompt"]],
)
def test_words_that_are_no_utf_8_never_reach_the_store(mcode: Mcode, flags: list[str]) -> None:
    name = os.fsdecode(b"caf\xe9")
    (mcode.workspace / name).write_text("text")
    value = f"k={name}" if flags == ["--label"] else name
    run = mcode.exec("x", *flags, value, "--output-format", "json")
    assert run.code in (0, 2), run.err
    assert run.result["exitCode"] == run.code
    mcode.exec("y").check()


def test_usage_is_kept_as_the_result_tells_it(mcode: Mcode, peer: Peer, api: str) -> None:
    usage = {"input": 100, "output": 30, "cache_read": 50}
    peer.script(call("bash", {"command": "true"}) + say("", usage=usage), say("done", usage=usage))
    result = mcode.exec("x", "--output-format", "json").check().result
    (row,) = mcode.query(
        "SELECT sum(input_tokens) AS i, sum(output_tokens) AS o, sum(cache_read_tokens) AS c, count(*) AS n"
        " FROM token_usage"
    )
    told = result["usage"]
    assert (row["i"], row["o"], row["c"], row["n"]) == (
        told["inputTokens"],
        told["outputTokens"],
        told["cacheReadTokens"],
        2,
    )


def test_a_clean_run_leaves_no_lock_and_no_stray_file(mcode: Mcode) -> None:
    started_s = time.time()
    mcode.exec("x").check()
    directory = mcode.session_dir()
    assert {path.name for path in directory.iterdir()} == {"manifest.json", "messages.jsonl"}
    assert {path.name for path in mcode.data.iterdir()} <= {
        "mcode.db",
        "mcode.db-wal",
        "mcode.db-shm",
        "mcode.db.lock",
        "run",
        "sessions",
    }
    relative = directory.relative_to(mcode.data / "sessions").as_posix()
    assert mcode.query("SELECT history_relative_dir FROM sessions") == [{"history_relative_dir": relative}]
    assert relative.startswith(time.strftime("%Y/%m/%d/", time.gmtime(started_s)))


def test_a_database_that_was_emptied_beside_histories_is_no_new_one(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("hi").check()
    database = mcode.data / "mcode.db"
    for side in mcode.data.glob("mcode.db-*"):
        side.unlink()
    database.write_bytes(b"")
    os.utime(database, (1, 1))
    for command in (["exec", "hi"], ["exec", "--continue", "hi"], ["sessions", "list"]):
        run = mcode.run(*command).check(74)
        assert "is empty, although" in run.err
    assert "is empty, although" in mcode.run("doctor").check(4).out
    assert database.stat().st_size == 0
    assert len(peer.calls) == 1
    database.unlink()
    mcode.exec("hi").check()


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("sessions", "list"), 0),
        (("sessions", "list", "--all", "--output-format", "json"), 0),
        (("sessions", "show", "mvs_12345678"), 4),
        (("sessions", "export", "mvs_12345678"), 4),
        (("sessions", "verify", "mvs_12345678", "--repair"), 4),
        (("doctor",), 0),
    ],
)
def test_who_only_looks_makes_no_data_directory(mcode: Mcode, args: tuple[str, ...], code: int) -> None:
    typo = mcode.root / "typo" / "data"
    mcode.run(*args, "--data-dir", typo).check(code)
    assert not typo.parent.exists()
    typo.mkdir(parents=True)
    mcode.run(*args, "--data-dir", typo).check(code)
    assert list(typo.iterdir()) == []


def test_a_session_without_its_history_is_passed_over_and_its_error_says_what_to_do(
    mcode: Mcode, peer: Peer
) -> None:
    sessions = [mcode.exec(text, "--output-format", "json").check().result["sessionId"] for text in "ab"]
    (mcode.session_dir(sessions[1]) / "messages.jsonl").unlink()
    run = mcode.exec("--session", sessions[1], "x").check(4)
    assert "begin a new session" in run.err
    assert f"sessions show {sessions[1]}" in run.err.splitlines()[-1]
    run = mcode.exec("--continue", "x", "--output-format", "json").check()
    assert run.result["sessionId"] == sessions[0]
    assert sessions[1] in run.err

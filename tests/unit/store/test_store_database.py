"""The store: opened by anybody at any time, waited for when busy, refused with one sentence when unusable."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import peewee
import pytest

from mcode_exec.clock import SystemClock
from mcode_exec.errors import StoreBusyError, StoreFailedError
from mcode_exec.store import database, migrations, session_rows, tables
from mcode_exec.store.database import Store
from mcode_exec.store.filesystem import check_directory

#: holds a lock on a database until its stdin ends
_HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN " + sys.argv[2])
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""

_OPENER = """
import asyncio, os, sys
from mcode_exec.clock import SystemClock
from mcode_exec.store import session_rows
from mcode_exec.store.database import Store
async def main():
    store = await Store.open(sys.argv[1], SystemClock())
    print(await store.read(session_rows.count_sessions))
    await store.close()
sys.stdin.read(1)
asyncio.run(main())
"""


class Hurried(SystemClock):
    """Time that passes `factor` times as fast, for waits that are bounded by it."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def monotonic_s(self) -> float:
        return time.monotonic() * self._factor


class Holder:
    """Another process that holds the database."""

    def __init__(self, path: Path, mode: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(path), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"

    def let_go(self) -> None:
        self.process.communicate(timeout=10)

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.let_go()


def make(path: Path) -> None:
    async def main() -> None:
        await (await Store.open(str(path), SystemClock())).close()

    asyncio.run(main())


def refused(path: Path) -> str:
    async def main() -> None:
        await (await Store.open(str(path), SystemClock())).close()

    with pytest.raises(StoreFailedError) as caught:
        asyncio.run(main())
    assert caught.value.exit_code == 74
    return caught.value.message


@pytest.mark.parametrize("mode", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_write_waits_until_another_process_lets_go(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "mcode.db"
    make(path)

    async def main() -> None:
        store = await Store.open(str(path), SystemClock())
        with Holder(path, mode) as holder:
            writing = asyncio.ensure_future(store.write(lambda: session_rows.update_session("x", title="t")))
            await asyncio.sleep(0.4)
            assert not writing.done()
            # the loop was free meanwhile, and a read is not disturbed
            assert await store.read(session_rows.count_sessions) == 0
            await asyncio.to_thread(holder.let_go)
            assert await writing is False
        await store.close()

    asyncio.run(main())


def test_a_store_that_stays_locked_is_given_up_and_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mcode.db"
    make(path)

    async def main() -> None:
        store = await Store.open(str(path), Hurried(20))
        with Holder(path, "IMMEDIATE"):
            with pytest.raises(StoreBusyError) as caught:
                await store.write(lambda: session_rows.update_session("x", title="t"))
            assert str(path) in caught.value.message
            assert (caught.value.exit_code, caught.value.retryable) == (75, True)
            assert re.search(r" for \d\d s", caught.value.message)
        await store.close()

    asyncio.run(main())


def test_a_locked_store_is_waited_for_abortably(tmp_path: Path) -> None:
    path = tmp_path / "mcode.db"
    make(path)

    async def main() -> None:
        store = await Store.open(str(path), SystemClock())
        with Holder(path, "IMMEDIATE"):
            writing = asyncio.ensure_future(store.write(lambda: session_rows.update_session("x", title="t")))
            await asyncio.sleep(0.1)
            writing.cancel()
            done, _ = await asyncio.wait([writing], timeout=5)
            assert done
            assert writing.cancelled()
        await store.close()

    asyncio.run(main())


def test_an_empty_file_that_another_process_holds_is_waited_for_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "mcode.db"

    async def main() -> None:
        with Holder(path, "EXCLUSIVE") as holder:
            opening = asyncio.ensure_future(Store.open(str(path), SystemClock()))
            await asyncio.sleep(0.3)
            assert not opening.done()
            await asyncio.to_thread(holder.let_go)
            store = await opening
        assert await store.read(session_rows.count_sessions) == 0
        await store.close()

    asyncio.run(main())


def test_a_transaction_that_raises_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mcode.db"

    def half() -> None:
        tables.Prefixes.insert(digest="d", body=b"x").execute()
        raise ZeroDivisionError

    async def main() -> None:
        store = await Store.open(str(path), SystemClock())
        with pytest.raises(ZeroDivisionError):
            await store.write(half)
        assert await store.read(lambda: tables.Prefixes.select().count()) == 0
        await store.close()
        await store.close()

    asyncio.run(main())


def test_a_cancelled_write_comes_to_its_end_before_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        store = await Store.open(str(tmp_path / "mcode.db"), SystemClock())

        def slow() -> None:
            time.sleep(0.1)
            tables.Prefixes.insert(digest="d", body=b"x").execute()

        writing = asyncio.ensure_future(store.write(slow))
        await asyncio.sleep(0.02)
        writing.cancel()
        assert await store.read(lambda: tables.Prefixes.select().count()) == 1
        await store.close()

    asyncio.run(main())


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()


def newer(path: Path) -> None:
    make(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {migrations.VERSION + 1}")
    connection.close()


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database at all, but it is long enough to be one\n" * 200)


def damaged(path: Path) -> None:
    make(path)
    raw = bytearray(path.read_bytes())
    raw[100:4096] = b"\xff" * (4096 - 100)
    path.write_bytes(raw)
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)


def directory(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (foreign, "another program"),
        (newer, "newer mcode"),
        (garbage, "not a usable database"),
        (damaged, "not a usable database"),
        (directory, "cannot be used"),
        (link, "cannot be used"),
    ],
)
def test_a_file_that_cannot_be_the_store_is_named_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "mcode.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    message = refused(path)
    assert said in message
    assert str(path) in message
    if before is not None:
        assert path.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def as_nobody(work: Callable[[], str]) -> str:
    """What `work` returns in a child without privileges."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of earlier tests hold nothing we need
        pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write_end, said.encode()[:4000])
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


def open_for_message(path: Path) -> str:
    try:
        make(path)
    except StoreFailedError as error:
        return error.message
    return "opened"


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's rights by setuid")


@needs_root
def test_a_database_that_may_not_be_written_is_refused_at_opening(tmp_path: Path) -> None:
    make(tmp_path / "mcode.db")
    for directory in (tmp_path, *tmp_path.parents[:3]):
        directory.chmod(0o755)
    (tmp_path / "mcode.db").chmod(0o444)
    said = as_nobody(lambda: open_for_message(tmp_path / "mcode.db"))
    assert str(tmp_path / "mcode.db") in said
    assert "cannot be used" in said


@needs_root
def test_a_data_directory_of_another_user_or_without_rights_is_refused(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents[:3]):
        directory.chmod(0o755)
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, 65534, 65534)
    own.chmod(0o555)

    def check(path: Path) -> str:
        try:
            check_directory(str(path))
        except StoreFailedError as error:
            return error.message
        return "fine"

    assert "belongs to user 0, not to 65534" in as_nobody(lambda: check(tmp_path))
    assert f"{own} is not writable" in as_nobody(lambda: check(own))


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077, 0o777])
def test_files_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make(tmp_path / "mcode.db")
        make(tmp_path / "mcode.db")
    finally:
        os.umask(before)
    assert {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {0o600}


def old_version(path: Path) -> None:
    """Ours, but with nothing applied: what a crash right after the first switch to WAL leaves."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = wal")
    connection.close()


@pytest.mark.parametrize("prepare", [lambda path: None, old_version], ids=["new", "old"])
def test_sixteen_processes_open_a_new_or_old_database_at_once(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    path = tmp_path / "mcode.db"
    prepare(path)
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", _OPENER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        for _ in range(16)
    ]
    for one in openers:
        assert one.stdin is not None
        one.stdin.write(b"x")
        one.stdin.flush()
    for one in openers:
        out, err = one.communicate(timeout=50)
        assert (one.returncode, out) == (0, b"0\n"), err.decode()
    with sqlite3.connect(path) as connection:
        applied = connection.execute("SELECT name FROM schema_migrations ORDER BY name").fetchall()
        assert applied == [(name,) for name, _ in migrations.MIGRATIONS]
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


class _Overtaken(peewee.SqliteDatabase):
    """A connection that another one's migration overtakes between two questions."""

    def execute_sql(self, sql: str, params: object = None) -> object:
        answer = super().execute_sql(sql, params)
        if sql == "PRAGMA application_id":
            other = peewee.SqliteDatabase(self.database)
            migrations.migrate(other, 0, 1)
            other.close()
        return answer


def test_a_database_that_is_made_ours_while_it_is_looked_at_is_not_taken_for_anothers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mcode.db"
    old_version(path)
    overtaken = _Overtaken(str(path))
    assert migrations.check_identity(overtaken, str(path)) == 0
    overtaken.close()
    make(path)


def test_a_failing_migration_leaves_nothing_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mcode.db"
    make(path)
    broken = (*migrations.MIGRATIONS, ("9999_broken", "CREATE TABLE half (x); CREATE TABLE half (x)"))
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", broken)
        patched.setattr(migrations, "VERSION", len(broken))
        assert "half" in refused(path)
    make(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchone() is None
    connection.close()


def test_receipts_and_locks_are_written_with_full_synchronisation(tmp_path: Path) -> None:
    async def main() -> None:
        store = await Store.open(str(tmp_path / "mcode.db"), SystemClock())
        rows = await store.read(lambda: tables.tuples(tables.Sessions.raw("PRAGMA synchronous")))
        assert rows == [(2,)]
        await store.close()

    asyncio.run(main())


def test_the_wait_inside_sqlite_is_short() -> None:
    assert database._SQLITE_WAIT_S <= 1

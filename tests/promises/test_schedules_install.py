"""`mcode schedule install`: one line in the crontab, or one timer, that really runs what is due."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.schedules import add, history

THEIRS = b"MAILTO=me\n# a note, with 100\\% \xff\n5 4 * * * backup 'a b'\n"

CRONTAB = """\
#!/bin/sh
# As the real one: a table in a file, and words where there is none.
table="$CRONTAB_FILE"
case "$1" in
-l) [ -z "$CRONTAB_FAILS" ] || { echo "crontab: must be privileged" >&2; exit 1; }
    [ -f "$table" ] || { echo "no crontab for tester" >&2; exit 1; }
    cat "$table" ;;
-)  cat > "$table.new" && mv "$table.new" "$table"; echo x >> "$table.writes" ;;
*)  exit 2 ;;
esac
"""
SYSTEMCTL = """\
#!/bin/sh
echo "$*" >> "$CRONTAB_FILE.systemctl"
[ -z "$SYSTEMCTL_FAILS" ] || { echo "Failed to connect to bus" >&2; exit 1; }
"""


@pytest.fixture
def world(mcode: Mcode) -> dict[str, str | None]:
    """An environment with a `crontab` and a `systemctl` of its own, and a data directory that needs quotes."""
    programs = mcode.root / "programs of 100%"
    programs.mkdir()
    for name, text in (("crontab", CRONTAB), ("systemctl", SYSTEMCTL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    mcode.data = mcode.root / "data of 100% 'mine'"
    mcode.may_leave_processes = False
    return {
        "PATH": f"{programs}:{programs}:relative:/no/such/dir:{os.environ['PATH']}",
        "CRONTAB_FILE": str(mcode.root / "table"),
        "MCODE_HOME": str(mcode.data),
    }


def table(mcode: Mcode) -> bytes:
    return (mcode.root / "table").read_bytes()


def writes(mcode: Mcode) -> int:
    path = mcode.root / "table.writes"
    return len(path.read_text().splitlines()) if path.exists() else 0


def as_cron_runs(line: bytes) -> str:
    """The command of a line, as cron hands it to a shell."""
    command = os.fsdecode(line.split(maxsplit=5)[5])
    assert "%" not in command.replace("\\%", ""), "cron would cut it there"
    return command.replace("\\%", "%")


def test_installed_twice_there_is_one_line_and_the_others_stay(
    mcode: Mcode, world: dict[str, str | None]
) -> None:
    (mcode.root / "table").write_bytes(THEIRS)
    assert "every minute" in mcode.run("schedule", "install", "--cron", env=world).check().err
    once = table(mcode)
    assert once.startswith(THEIRS)
    assert once.count(b"run-due") == 1
    assert "nothing was changed" in mcode.run("schedule", "install", "--cron", env=world).check().err
    assert table(mcode) == once
    assert writes(mcode) == 1
    mcode.run("schedule", "install", "--cron", "--path", "/usr/bin:/bin", env=world).check()
    assert table(mcode).count(b"run-due") == 1
    assert b"PATH=/usr/bin:/bin " in table(mcode)
    assert "out of the crontab" in mcode.run("schedule", "uninstall", env=world).check().err
    assert table(mcode) == THEIRS
    assert "nothing was installed" in mcode.run("schedule", "uninstall", env=world).check().err


def test_each_data_directory_has_its_own_line(mcode: Mcode, world: dict[str, str | None]) -> None:
    mcode.run("schedule", "install", "--cron", env=world).check()
    first = table(mcode)
    other = str(mcode.root / "other")
    mcode.run("schedule", "install", "--cron", "--data-dir", other, env=world).check()
    assert table(mcode).count(b"run-due") == 2
    mcode.run("schedule", "uninstall", "--cron", "--data-dir", other, env=world).check()
    assert table(mcode) == first


def test_the_line_runs_what_is_due_where_cron_has_no_environment(
    mcode: Mcode, peer: Peer, world: dict[str, str | None]
) -> None:
    key = mcode.home / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    config = mcode.config.read_text().replace('api_key = "${FAKE_KEY}"', f'api_key_file = "{key}"')
    mcode.config.write_text(config)
    add(mcode, "a", "--cwd", str(mcode.workspace), cron="* * * * *", env=world).check()
    mcode.run("schedule", "install", "--cron", env=world).check()
    line = next(line for line in table(mcode).splitlines() if b"run-due" in line)
    done = subprocess.run(
        ["/bin/sh", "-c", as_cron_runs(line)],
        cwd="/",
        env={"HOME": str(mcode.home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "x"}
        | ({"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(peer.calls) == 1
    assert ("succeeded", 0) in [one[1:] for one in history(mcode, "a")]


def test_the_path_is_the_one_that_holds_now_without_what_cannot_last(
    mcode: Mcode, world: dict[str, str | None]
) -> None:
    shown = mcode.run("schedule", "install", "--cron", "--print", env=world).check()
    (path,) = (
        word
        for word in shlex.split(as_cron_runs(shown.out_bytes.splitlines()[1]))
        if word.startswith("PATH=")
    )
    entries = path.removeprefix("PATH=").split(":")
    assert entries[0] == str(mcode.root / "programs of 100%")
    assert len(entries) == len(set(entries))
    assert all(os.path.isdir(entry) for entry in entries)
    assert not (mcode.root / "table").exists(), "--print writes nothing"


def test_a_table_that_cannot_be_read_is_not_written(mcode: Mcode, world: dict[str, str | None]) -> None:
    (mcode.root / "table").write_bytes(THEIRS)
    run = mcode.run("schedule", "install", "--cron", env={**world, "CRONTAB_FAILS": "1"}).check(3)
    assert "must be privileged" in run.err
    assert table(mcode) == THEIRS
    assert writes(mcode) == 0


def test_a_block_that_somebody_has_cut_is_left_to_them(mcode: Mcode, world: dict[str, str | None]) -> None:
    mcode.run("schedule", "install", "--cron", env=world).check()
    cut = b"".join(table(mcode).splitlines(keepends=True)[:-1]) + THEIRS
    (mcode.root / "table").write_bytes(cut)
    for command in ("install", "uninstall"):
        assert "stands alone" in mcode.run("schedule", command, "--cron", env=world).check(3).err
    assert table(mcode) == cut


def test_a_timer_is_written_and_started_and_removed(mcode: Mcode, world: dict[str, str | None]) -> None:
    assert "every minute" in mcode.run("schedule", "install", "--systemd", env=world).check().err
    directory = mcode.home / ".config" / "systemd" / "user"
    service, timer = sorted(directory.iterdir())
    assert service.stem == timer.stem
    before = {path: (path.read_text(), path.stat().st_mtime_ns) for path in (service, timer)}
    assert "nothing was changed" in mcode.run("schedule", "install", "--systemd", env=world).check().err
    assert {path: (path.read_text(), path.stat().st_mtime_ns) for path in (service, timer)} == before
    assert "100%% 'mine'" in service.read_text()
    called = (mcode.root / "table.systemctl").read_text().splitlines()
    assert called[:2] == ["--user daemon-reload", f"--user enable --now {timer.name}"]
    assert "is removed" in mcode.run("schedule", "uninstall", env=world).check().err
    assert list(directory.iterdir()) == []
    called = (mcode.root / "table.systemctl").read_text().splitlines()
    assert called[-2:] == [f"--user disable --now {timer.name}", "--user daemon-reload"]


def test_a_timer_that_cannot_be_started_says_what_is_to_be_done(
    mcode: Mcode, world: dict[str, str | None]
) -> None:
    run = mcode.run("schedule", "install", "--systemd", env={**world, "SYSTEMCTL_FAILS": "1"}).check(3)
    assert "Failed to connect to bus" in run.err
    assert "systemctl --user enable --now mcode-schedule-" in run.err
    assert len(list((mcode.home / ".config" / "systemd" / "user").iterdir())) == 2


def test_a_unit_of_somebody_else_stays(mcode: Mcode, world: dict[str, str | None]) -> None:
    mcode.run("schedule", "install", "--systemd", env=world).check()
    directory = mcode.home / ".config" / "systemd" / "user"
    for path in directory.iterdir():
        path.write_text("[Unit]\nDescription=mine\n")
    assert "was not written by mcode" in mcode.run("schedule", "install", "--systemd", env=world).check(3).err
    assert {path.read_text() for path in directory.iterdir()} == {"[Unit]\nDescription=mine\n"}


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("install",), 2, "either --cron or --systemd"),
        (("install", "--cron", "--systemd"), 2, "either --cron or --systemd"),
        (("install", "--cron", "--path", "relative"), 2, "--path"),
        (("install", "--cron", "--data-dir", "a\nb"), 2, "line break"),
        (("install", "--cron", "--data-dir", "a\\b"), 2, "backslash"),
        (("install", "--cron", "--data-dir", "d" * 1000), 2, "cuts it at 1,000"),
    ],
)
def test_what_cannot_be_installed_says_why(
    mcode: Mcode, world: dict[str, str | None], args: tuple[str, ...], code: int, says: str
) -> None:
    assert says in mcode.run("schedule", *args, env=world).check(code).err


def test_without_a_crontab_program_the_other_way_is_named(mcode: Mcode, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    run = mcode.run("schedule", "install", "--cron", env={"PATH": str(tmp_path / "bare")}).check(3)
    assert "--systemd" in run.err
    assert (
        "nothing was installed"
        in mcode.run("schedule", "uninstall", env={"PATH": str(tmp_path / "bare")}).check().err
    )

"""It runs where nobody has set anything up: cron, containers, odd users, odd locales, odd umasks."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import REPOSITORY, Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say, status

JSON = ("--output-format", "json")
STREAM = ("--output-format", "stream-json")
STRANGER = 12345
NO_XDG: dict[str, str | None] = {
    "XDG_CONFIG_HOME": None,
    "XDG_DATA_HOME": None,
    "XDG_STATE_HOME": None,
    "XDG_CACHE_HOME": None,
}


def _plain(
    mcode: Mcode, command: Sequence[str], *args: str | Path, env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """mcode with exactly this environment, behind `command`."""
    return subprocess.run(
        [*command, *mcode.command, *map(str, args)],
        env=env,
        cwd=cwd or mcode.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )


# HOME


@pytest.mark.parametrize("home", [None, "", "relative", "/nonexistent/home", "~", "/"])
def test_with_mcode_home_and_a_named_config_no_home_is_needed(
    mcode: Mcode, peer: Peer, home: str | None
) -> None:
    before = set(os.listdir("/"))
    run = mcode.exec("hi", "--config", mcode.config, env={**NO_XDG, "HOME": home}).check()
    assert run.out == "hello\n"
    assert not [
        one for one in os.listdir(mcode.workspace) if one in ("~", "None", "relative", ".local", ".config")
    ]
    assert not Path("/nonexistent").exists()
    assert set(os.listdir("/")) == before


@pytest.mark.parametrize("home", ["relative", "~", "/"])
def test_a_home_that_is_none_is_a_config_error_that_says_what_to_set(
    mcode: Mcode, peer: Peer, home: str
) -> None:
    before = set(os.listdir("/"))
    run = mcode.exec("hi", "--config", mcode.config, *JSON, env={**NO_XDG, "MCODE_HOME": None, "HOME": home})
    run.check(3)
    assert "MCODE_HOME" in run.result["error"]["message"]
    assert os.listdir(mcode.workspace) == []
    assert set(os.listdir("/")) == before
    assert peer.calls == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root can make every directory")
def test_a_home_that_does_not_exist_and_cannot_be_made_is_a_storage_error(mcode: Mcode, peer: Peer) -> None:
    env = {**NO_XDG, "MCODE_HOME": None, "HOME": "/nonexistent/home"}
    mcode.exec("hi", "--config", mcode.config, env=env).check(74)


def test_without_home_the_passwd_entry_says_where(mcode: Mcode, peer: Peer) -> None:
    env = {**NO_XDG, "MCODE_HOME": None, "HOME": None}
    run = mcode.exec("hi", "--config", mcode.config, "--dry-run", *JSON, env=env).check()
    assert pwd.getpwuid(os.getuid()).pw_dir in run.out


def test_empty_and_relative_variables_count_as_unset(mcode: Mcode, peer: Peer) -> None:
    env = {"MCODE_HOME": "", "XDG_DATA_HOME": "relative", "XDG_CONFIG_HOME": "", "MCODE_CONFIG": ""}
    mcode.exec("hi", env=env).check()
    assert (mcode.home / ".local" / "share" / "mcode" / "mcode.db").exists()
    assert os.listdir(mcode.workspace) == []


def test_a_relative_mcode_home_counts_from_the_current_directory(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("hi", env={"MCODE_HOME": "state/here"}).check()
    assert (mcode.workspace / "state" / "here" / "mcode.db").exists()


# users


@pytest.fixture
def stranger(peer: Peer) -> Iterator[Mcode]:
    """An installation of a user id that no passwd file knows."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root to become somebody else")
    root = Path(tempfile.mkdtemp(prefix="stranger-", dir="/tmp"))
    installation = Mcode(root, peer)
    for path in (root, *root.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    who = ["setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups"]
    installation.command = [*who, *installation.command]
    try:
        yield installation
        installation.close()
    finally:
        shutil.rmtree(root)


def test_a_user_without_passwd_entry_and_home_runs_with_mcode_home(stranger: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "id -u; touch made"}), say("done"))
    env = {**NO_XDG, "HOME": None, "USER": None, "LOGNAME": None}
    run = stranger.exec("hi", "--config", stranger.config, *STREAM, env=env).check()
    assert str(STRANGER) in run.out
    assert (stranger.workspace / "made").stat().st_uid == STRANGER


def test_the_kernel_bounds_how_many_processes_a_users_commands_have(stranger: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "echo limit=$(ulimit -u)"}), say("done"))
    run = stranger.exec("hi", "--config", stranger.config, *STREAM, env={**NO_XDG, "HOME": None}).check()
    said = re.search(r"limit=(\d+)", run.out)
    assert said is not None
    # what runs on this machine already is added
    assert int(said[1]) < 4096 + 20_000


def test_a_user_without_passwd_entry_and_any_directory_is_told_what_to_set(
    stranger: Mcode, peer: Peer
) -> None:
    env = {**NO_XDG, "HOME": None, "USER": None, "MCODE_HOME": None}
    run = stranger.exec("hi", "--config", stranger.config, *JSON, env=env).check(3)
    assert "MCODE_HOME" in run.result["error"]["message"]
    for args in (["doctor"], ["sessions", "list"], ["--version"], ["models"]):
        done = stranger.run(*args, env=env)
        assert "Traceback" not in done.err
        assert done.code in (0, 3, 4), args


def test_data_of_another_user_is_a_storage_error(stranger: Mcode, peer: Peer) -> None:
    os.chown(stranger.data.parent, STRANGER, STRANGER)
    stranger.data.mkdir()  # root's own
    stranger.data.chmod(0o700)
    run = stranger.exec("hi", *JSON).check(74)
    assert run.result["error"]["category"] == "storage"
    assert peer.calls == []


def test_a_read_only_data_directory_is_a_storage_error(stranger: Mcode, peer: Peer) -> None:
    stranger.exec("hi").check()
    stranger.data.chmod(0o500)
    (stranger.data / "mcode.db").chmod(0o400)
    run = stranger.exec("hi", *JSON)
    stranger.data.chmod(0o700)
    run.check(74)
    assert len(peer.calls) == 1


# locales


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": None},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LANG": "xx_XX", "LC_ALL": None},
        {"LANG": None, "LC_ALL": None},
        {"LC_ALL": "", "LANG": "de_DE.ISO-8859-1", "PYTHONIOENCODING": "latin-1"},
    ],
)
def test_utf_8_everywhere_whatever_the_locale(mcode: Mcode, peer: Peer, env: dict[str, str | None]) -> None:
    (mcode.workspace / "naïve-é.txt").write_text("漢字\n", encoding="utf-8")
    look = "printf '%s|%s\\n' \"$LC_ALL\" \"$LANG\"; ls; cat na*; locale charmap; printf 'é' | wc -m"
    peer.script(
        call("read", {"file_path": "naïve-é.txt"}) + call("list") + call("bash", {"command": look}),
        say("naïve — 漢字 🙂 \ud83d"),
    )
    run = mcode.exec("prüfe das — 漢字", *STREAM, "--title", "Tïtel", env=env).check()
    assert "prüfe das — 漢字" in peer.calls[0].text
    assert run.result["output"].startswith("naïve — 漢字 🙂 ")
    [shown] = [
        event["item"]["toolCall"]["output"]
        for event in run.of_type("item.completed")
        if event["item"]["type"] == "tool_call" and event["item"]["toolCall"]["name"] == "bash"
    ]
    assert "naïve-é.txt" in shown
    assert "漢字" in shown
    assert "UTF-8" in shown
    text = mcode.exec("x", "--continue", env=env).check()
    assert text.out_bytes.decode().startswith("naïve — 漢字 🙂")
    assert "Tïtel" in mcode.run("sessions", "list", env=env).check().out_bytes.decode()


@pytest.fixture(params=["C", "de_DE.ISO-8859-1", "ja_JP.EUC-JP"])
def foreign_locale(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str | None]:
    """A locale in which the interpreter would read file names as something else than UTF-8."""
    name: str = request.param
    if name == "C":
        return {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    language, charmap = name.split(".")
    if shutil.which("localedef") is None or not Path(f"/usr/share/i18n/charmaps/{charmap}.gz").exists():
        pytest.skip("this system cannot make locales")
    made = ["localedef", "-i", language, "-f", charmap, str(tmp_path / name)]
    subprocess.run(made, capture_output=True)
    return {"LC_ALL": name, "LOCPATH": str(tmp_path)}


def test_file_names_are_utf_8_whatever_the_locale(
    mcode: Mcode, peer: Peer, foreign_locale: dict[str, str | None]
) -> None:
    work = mcode.root / "wörk-漢"
    work.mkdir()
    (work / "naïve-漢.txt").write_text("old 漢\n", encoding="utf-8")
    peer.script(
        call("read", {"file_path": "naïve-漢.txt"}) + call("glob", {"pattern": "*漢*"}) + call("list"),
        call("edit", {"file_path": "naïve-漢.txt", "old_string": "old", "new_string": "é"})
        + call("write", {"file_path": "neu-漢", "content": "x"})
        + call("bash", {"command": "echo x > ö-漢"}),
        say("done"),
    )
    flags = ("--file", "naïve-漢.txt", "--session-key", "schlüssel-漢", "-o", "antwort-漢", "--label", "a=")
    run = mcode.exec("prüfe — 漢", *flags, *STREAM, "--cwd", work, env=foreign_locale, cwd=work).check()
    assert (run.result["toolErrors"], run.result["permissionDenials"]) == (0, [])
    assert "prüfe — 漢" in peer.calls[0].text
    assert sorted(os.listdir(work)) == ["antwort-漢", "naïve-漢.txt", "neu-漢", "ö-漢"]
    assert (work / "naïve-漢.txt").read_text(encoding="utf-8") == "é 漢\n"
    assert run.of_type("session.started")[0]["workspace"] == str(work)
    # another locale finds what this one made
    again = mcode.exec("on", "--session-key", "schlüssel-漢", *STREAM, cwd=work).check()
    assert again.result["sessionId"] == run.result["sessionId"]
    refused = mcode.exec("on", "--permission", "é漢", env=foreign_locale, cwd=work).check(2)
    assert "'é漢'" in refused.err


def test_a_prompt_with_bytes_that_are_no_text_is_answered_in_one_sentence(mcode: Mcode, peer: Peer) -> None:
    done = _plain(mcode, [], "exec", os.fsdecode(b"a\xffb"), env=mcode.environment())
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 2)
    if peer.calls:
        peer.calls[0].body.decode()


@pytest.mark.parametrize("name", ["MCODE_MODEL", "FAKE_BASE_URL"])
def test_a_variable_with_bytes_that_are_no_text_is_named(mcode: Mcode, peer: Peer, name: str) -> None:
    good = {"MCODE_MODEL": "fake/big-1", "FAKE_BASE_URL": f"{peer.url}/"}[name]
    run = mcode.exec("x", *JSON, env={name: os.fsdecode(os.fsencode(good) + b"\xff")}).check(3)
    assert run.result["error"]["code"] == "CONFIG_INVALID"
    assert f"{name} is not valid UTF-8 (at byte {len(good)})" in run.result["error"]["message"]
    assert peer.calls == []


# umask


@pytest.mark.parametrize("umask", ["0002", "0077", "0000", "0777"])
def test_state_is_private_and_files_of_tools_follow_the_umask(mcode: Mcode, peer: Peer, umask: str) -> None:
    peer.script(
        call("write", {"file_path": "made", "content": "x"})
        + call("bash", {"command": "head -c 300000 /dev/zero | tr '\\0' x; echo x > by-command"}),
        say("done"),
    )
    command = ["sh", "-c", f'umask {umask}; exec "$@"', "sh"]
    args = ["exec", "hi", "--events", "e", "--result", "r", "-o", "o", "--session-key", "k"]
    for _ in range(2):
        done = _plain(mcode, command, *args, env=mcode.environment())
        assert done.returncode == 0, done
    for path in (mcode.data, *mcode.data.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
    wanted = 0o666 & ~int(umask, 8)
    for name in ("made", "by-command"):
        assert stat.S_IMODE((mcode.workspace / name).stat().st_mode) == wanted, name


# cron


def test_with_nothing_but_what_cron_gives(mcode: Mcode, peer: Peer) -> None:
    project = mcode.root / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("project-rules-apply\n")
    config = mcode.config.read_text().replace("${FAKE_KEY}", "${CRON_KEY}")
    mcode.config.write_text(config)
    env = {"HOME": str(mcode.home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "x"}
    env |= {name: value for name, value in mcode.environment().items() if name == "PYTHONPATH"}
    # the key is missing: said by name, with the place where it was looked for
    done = _plain(mcode, [], "exec", "hi", "--cwd", project, env=env, cwd=mcode.home)
    assert done.returncode == 77, done
    assert b"CRON_KEY" in done.stderr
    peer.script(call("bash", {"command": "pwd; echo $PATH"}), say("done"))
    done = _plain(
        mcode,
        [],
        "exec",
        "hi",
        "--cwd",
        project,
        *STREAM,
        env={**env, "CRON_KEY": "cron-key-1234"},
        cwd=mcode.home,
    )
    assert done.returncode == 0, done
    assert str(project).encode() in done.stdout
    assert "project-rules-apply" in peer.calls[0].text
    session = next(line for line in done.stdout.splitlines() if b"session.started" in line)
    assert str(project).encode() in session
    # from elsewhere, the recorded workspace decides
    found = sorted((mcode.home / ".local/share/mcode/sessions").glob("*/*/*/*"))[0].name
    session_id = found[found.index("mvs_") :]
    peer.script(call("bash", {"command": "pwd"}), say("again"))
    done = _plain(
        mcode,
        [],
        "exec",
        "--session",
        session_id,
        "--cwd",
        "@recorded",
        "hi",
        *STREAM,
        env={**env, "CRON_KEY": "cron-key-1234"},
        cwd=mcode.home,
    )
    assert done.returncode == 0, done
    assert str(project).encode() in done.stdout


def test_an_empty_environment_runs(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "echo $PATH; ls"}), say("done"))
    env = {name: value for name, value in mcode.environment().items() if name in ("PYTHONPATH", "FAKE_KEY")}
    done = _plain(
        mcode, ["env", "-i", *[f"{k}={v}" for k, v in env.items()]], "exec", "hi",
        "--config", mcode.config, "--data-dir", mcode.data, *STREAM, env=os.environ.copy(),
    )  # fmt: skip
    assert done.returncode == 0, done
    assert b"/usr/bin" in done.stdout


@pytest.mark.parametrize("directory", ["missing", "file", "", "~nobody-here"])
def test_a_cwd_that_is_no_directory_is_refused(mcode: Mcode, peer: Peer, directory: str) -> None:
    (mcode.workspace / "file").write_text("x")
    run = mcode.exec("hi", "--cwd", directory, *JSON)
    assert run.code in (2, 3), run
    assert run.result["error"]["message"]
    assert peer.calls == []


def test_a_cwd_is_expanded_and_canonical(mcode: Mcode, peer: Peer) -> None:
    project = mcode.home / "project"
    project.mkdir()
    (mcode.root / "link").symlink_to(project)
    for text in ("~/project", str(mcode.root / "link"), f"{project}/", f"{mcode.home}/../home/./project"):
        run = mcode.exec("hi", "--cwd", text, *STREAM).check()
        assert run.of_type("session.started")[0]["workspace"] == str(project), text


def test_a_current_directory_that_is_gone_is_said(mcode: Mcode, peer: Peer) -> None:
    gone = mcode.root / "gone"
    command = ["sh", "-c", f'mkdir {gone} && cd {gone} && rmdir {gone} && exec "$@"', "sh"]
    done = _plain(mcode, command, "exec", "hi", *JSON, env=mcode.environment())
    assert done.returncode == 2, done
    assert b"--cwd" in done.stdout
    assert b"Traceback" not in done.stderr
    done = _plain(mcode, command, "exec", "hi", "--cwd", mcode.workspace, env=mcode.environment())
    assert done.returncode == 0, done


@pytest.mark.parametrize("directory", ["/nonexistent/tmp", "relative", "", "/dev/null"])
def test_a_temporary_directory_that_cannot_be_used_is_passed_over(
    mcode: Mcode, peer: Peer, directory: str
) -> None:
    for flags in ([], ["--ephemeral"]):
        peer.script(call("bash", {"command": 'echo x > "$TMPDIR/y" && ls -ld "$TMPDIR"'}), say("done"))
        run = mcode.exec("hi", *STREAM, *flags, env={"TMPDIR": directory}).check()
        assert "drwx------" in run.out
    assert not Path("/nonexistent").exists()


def test_the_strangest_umask_locks_nobody_out_of_his_own_files(stranger: Mcode, peer: Peer) -> None:
    (stranger.workspace / "f").write_text("needle\n")
    long_script = (
        "echo started\n"
        + "# comment\n" * 20_000
        + "head -c 300000 /dev/zero | tr '\\0' x; touch \"$TMPDIR/x\""
    )
    command = ["sh", "-c", 'umask 0777; exec "$@"', "sh"]
    for flags in ([], ["--ephemeral"]):
        peer.script(
            call("grep", {"pattern": "needle"}) + call("bash", {"command": long_script}),
            lambda request: call(
                "read",
                {"file_path": request.text.split("whole output is in ")[1].split("]")[0].split("\\")[0]},
            ),
            say("done"),
        )
        done = _plain(stranger, command, "exec", "hi", *STREAM, *flags, env=stranger.environment())
        assert done.returncode == 0, done
        assert done.stdout.count(b'"status":"completed"') == 3, done.stdout.decode()


def test_a_report_is_written_whatever_the_umask(stranger: Mcode, peer: Peer) -> None:
    peer.script(status(400))
    command = ["sh", "-c", 'umask 0777; exec "$@"', "sh"]
    done = _plain(
        stranger, command, "exec", "hi", "--diagnostics-dir", "some/reports", env=stranger.environment()
    )
    assert done.returncode == 4, done
    assert len(list((stranger.workspace / "some" / "reports").iterdir())) == 1, done


def test_closed_standard_descriptors_are_no_trap(mcode: Mcode, peer: Peer) -> None:
    """A file that mcode opens must never become descriptor 0, 1 or 2."""
    for closing in ("<&-", "<&- 2>&-"):
        peer.script(call("bash", {"command": "echo x; echo y >&2"}), say("done"))
        command = ["sh", "-c", f'exec "$@" {closing}', "sh"]
        done = _plain(mcode, command, "exec", "hi", "--result", "r", env=mcode.environment())
        assert done.returncode == 0, done
        assert done.stdout == b"done\n"


def test_warnings_and_python_variables_of_the_caller_do_not_reach_stdout(mcode: Mcode, peer: Peer) -> None:
    env: dict[str, Any] = {
        "PYTHONWARNINGS": "default",
        "PYTHONDEVMODE": "1",
        "PYTHONSTARTUP": "/nonexistent",
        "PYTHONUNBUFFERED": "1",
        "PYTHONOPTIMIZE": "1",
    }
    peer.script(call("bash", {"command": "echo hi"}), say("done"))
    run = mcode.exec("hi", *STREAM, env=env).check()
    assert run.events[-1]["type"] == "exec.completed"
    assert all(line.startswith("mcode: ") for line in run.err.splitlines()), run.err


@pytest.mark.parametrize(
    "value", [".", "src", "./src", "../work/src/", "{workspace}", ":", "/nowhere:{workspace}/"]
)
def test_modules_of_the_workspace_never_run_in_mcode(mcode: Mcode, peer: Peer, value: str) -> None:
    trap = "import os; open('trap', 'w').write(os.environ.get('FAKE_KEY', '')); raise ImportError('shadow')\n"
    for directory in (mcode.workspace, mcode.workspace / "src"):
        directory.mkdir(exist_ok=True)
        for name in (
            "platform",
            "click",
            "msgspec",
            "json",
            "h11",
            "sqlite3",
            "asyncio",
            "peewee",
            "subprocess",
        ):
            (directory / f"{name}.py").write_text(trap)
    peer.script(call("bash", {"command": "echo $PYTHONPATH"}), say("fine"))
    own = os.pathsep + str(REPOSITORY)  # where the product is, for runs from a checkout
    path = value.format(workspace=mcode.workspace)
    env = {"PYTHONPATH": path + own}
    run = mcode.exec("go", "--output-format", "json", env=env).check()
    assert run.result["output"] == "fine"
    assert not (mcode.workspace / "trap").exists()
    assert path in peer.last.text

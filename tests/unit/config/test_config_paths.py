"""Where mcode keeps things, and how private they are whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcode_exec import paths
from mcode_exec.errors import ConfigError, InvocationError

UNKNOWN_UID = 54321


@contextmanager
def umask(mask: int) -> Iterator[None]:
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize(
    ("flag", "env", "expected"),
    [
        ("/flag", {"MCODE_HOME": "/m", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/flag"),
        (None, {"MCODE_HOME": "/m", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/m"),
        (None, {"MCODE_HOME": "", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/mcode"),
        (None, {"XDG_DATA_HOME": "", "HOME": "/h"}, "/h/.local/share/mcode"),
        (None, {"XDG_DATA_HOME": "relative", "HOME": "/h"}, "/h/.local/share/mcode"),
        (None, {"MCODE_HOME": "/a b/ü/../c"}, "/a b/c"),
        (None, {"MCODE_HOME": "~/m", "HOME": "/h"}, "/h/m"),
        ("", {"HOME": "/h/"}, "/h/.local/share/mcode"),
        (None, {"MCODE_HOME": "/m", "HOME": "relative"}, "/m"),
    ],
)
def test_the_data_directory_follows_the_documented_order(
    flag: str | None, env: dict[str, str], expected: str
) -> None:
    assert paths.data_dir(flag, env) == expected


def test_a_relative_data_directory_counts_from_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.data_dir(None, {"MCODE_HOME": "d/e"}) == str(tmp_path / "d/e")


@pytest.mark.parametrize(
    ("flag", "env", "named"),
    [
        (None, {"HOME": "relative"}, "HOME is 'relative'"),
        (None, {"HOME": "/"}, "HOME is '/'"),
        ("/", {"HOME": "/h"}, "--data-dir"),
        (None, {"MCODE_HOME": "//", "HOME": "/h"}, "MCODE_HOME"),
        ("~other/x", {"HOME": "/h"}, "only ~ alone"),
        ("~/x", {"HOME": "relative"}, "write the path out"),
    ],
)
def test_no_data_directory_can_be_told_and_it_is_said_why(
    flag: str | None, env: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        paths.data_dir(flag, env)
    assert named in caught.value.message
    assert caught.value.exit_code == 3


def test_without_home_the_passwd_entry_counts() -> None:
    import pwd

    expected = pwd.getpwuid(os.getuid()).pw_dir
    assert paths.home({}) == paths.home({"HOME": ""}) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_passwd_entry_gets_a_sentence_and_may_name_a_directory() -> None:
    code = (
        "import os, sys\n"
        f"os.setuid({UNKNOWN_UID})\n"
        "from mcode_exec import paths\n"
        "from mcode_exec.errors import ConfigError\n"
        "assert paths.home({}) is None and paths.config_file(None, {}) is None\n"
        "assert paths.data_dir(None, {'MCODE_HOME': '/m'}) == '/m'\n"
        "try:\n    paths.data_dir(None, {})\n"
        "except ConfigError as error:\n    sys.stdout.write(error.message)\n"
    )
    # bytecode and sources may not be readable for that user: everything is imported first
    head = "import pwd\nimport mcode_exec.paths, mcode_exec.errors\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=True)
    assert "MCODE_HOME" in done.stdout


def test_the_current_directory_may_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvocationError, match="--data-dir is relative, and the current directory"):
        paths.data_dir("d", {"HOME": "/h"})
    assert paths.data_dir("/d", {"HOME": "/h"}) == "/d"


@pytest.mark.parametrize(
    ("flag", "env", "expected"),
    [
        ("/c.toml", {"MCODE_CONFIG": "/m.toml", "HOME": "/h"}, "/c.toml"),
        (None, {"MCODE_CONFIG": "/m.toml", "HOME": "/h"}, "/m.toml"),
        (None, {"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/x/mcode/config.toml"),
        (None, {"XDG_CONFIG_HOME": "x", "HOME": "/h"}, "/h/.config/mcode/config.toml"),
        (None, {"HOME": "relative"}, None),
    ],
)
def test_the_config_file_follows_the_documented_order(
    flag: str | None, env: dict[str, str], expected: str | None
) -> None:
    assert paths.config_file(flag, env) == expected


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077, 0o777])
def test_what_is_made_is_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    target = tmp_path / "a" / "b" / "c"
    with umask(mask):
        paths.make_private_dir(str(target))
        os.close(paths.private_open(str(target / "file")))
    assert [mode(p) for p in (target, target.parent, target.parent.parent)] == [0o700] * 3
    assert mode(target / "file") == 0o600


def test_what_exists_keeps_its_mode_and_an_older_file_is_narrowed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    old = shared / "old"
    old.write_text("x")
    old.chmod(0o664)
    paths.make_private_dir(str(shared / "mine"))
    os.close(paths.private_open(str(old), os.O_RDWR))
    assert (mode(shared), mode(shared / "mine"), mode(old)) == (0o755, 0o700, 0o600)
    assert old.read_text() == "x"


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        paths.make_private_dir(str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError):
        paths.make_private_dir(str(tmp_path / "file" / "below"))


def test_inside_is_judged_by_the_real_path(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in-not").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "in-not")
    root = str(tmp_path / "in")
    assert paths.is_inside(root + "/x", root)
    assert paths.is_inside(root, root)
    assert not paths.is_inside(root + "/link/x", root)
    assert not paths.is_inside(str(tmp_path / "in-not"), root)
    assert paths.is_inside("/x", "/")

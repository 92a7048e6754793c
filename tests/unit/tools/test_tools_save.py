"""A file under many hands: other processes, kills, and directories that allow less than usual."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.tools import save
from mcode_exec.tools.failure import ToolFailure
from tests.unit.tools.tool_call import Session

REPOSITORY = str(Path(__file__).parents[3])

_SESSION = """
import os, resource, signal, sys
from pathlib import Path
from tests.unit.tools.tool_call import Session
session = Session(Path(sys.argv[1]))
def edit(old, new):
    return session.call("edit", file_path="f", old_string=old, new_string=new)
"""

#: as root this leaves the user, and takes the right to ignore modes
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def start(program: str, *args: object, prefix: list[str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*(prefix or []), sys.executable, "-c", _SESSION + program, *map(str, args)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_of_two_processes_that_edit_one_file_neither_loses_a_change_of_the_other(session: Session) -> None:
    (session.workspace / "f").write_text("end\n")
    program = """
done = 0
for number in range(150):
    done += not edit("end", f"{sys.argv[2]}{number}\\nend").is_error
print(done)
"""
    editors = [start(program, session.root, name) for name in ("a", "b")]
    said = [editor.communicate(timeout=50)[0] for editor in editors]
    assert len((session.workspace / "f").read_text().splitlines()) - 1 == sum(map(int, said))
    assert os.listdir(session.workspace) == ["f"]


def test_of_two_processes_that_create_one_file_only_one_does(session: Session) -> None:
    program = """
done = 0
for number in range(100):
    outcome = session.call("edit", file_path=f"n{number}", old_string="", new_string=sys.argv[2])
    if not outcome.is_error:
        done += (session.workspace / f"n{number}").read_text() == sys.argv[2]
print(done)
"""
    makers = [start(program, session.root, name) for name in ("a", "b")]
    assert sum(int(maker.communicate(timeout=50)[0]) for maker in makers) == 100
    assert len(os.listdir(session.workspace)) == 100


def test_what_is_killed_while_it_writes_leaves_nothing_behind(session: Session) -> None:
    try:
        os.close(os.open(session.workspace, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        pytest.skip("the file system has no files without a name")
    path = session.workspace / "f"
    path.write_text("old" + "." * 200_000)
    program = """
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
edit("old", "new")
"""
    killed = start(program, session.root)
    killed.communicate(timeout=50)
    assert killed.returncode < 0
    assert path.read_text().startswith("old")
    assert os.listdir(session.workspace) == ["f"]


@pytest.mark.skipif(bool(WITHOUT_RIGHTS) and not shutil.which("setpriv"), reason="needs setpriv")
@pytest.mark.parametrize(
    ("directory_mode", "file_mode", "said"),
    [
        (0o300, 0o600, "edited f"),
        (0o500, 0o600, "no permission to replace files in its directory"),
        (0o700, 0o400, "read-only"),
        (0o700, 0o200, "permission denied"),
    ],
)
def test_modes_of_file_and_directory_decide_and_the_result_is_the_truth(
    session: Session, directory_mode: int, file_mode: int, said: str
) -> None:
    path = session.workspace / "f"
    path.write_text("old")
    path.chmod(file_mode)
    session.workspace.chmod(directory_mode)
    editor = start('print(edit("old", "new").content)', session.root, prefix=WITHOUT_RIGHTS)
    out = editor.communicate(timeout=50)[0]
    session.workspace.chmod(0o700)
    assert said in out
    path.chmod(0o600)
    assert path.read_text() == ("new" if said.startswith("edited") else "old")
    assert os.listdir(session.workspace) == ["f"]


@pytest.fixture
def mounted_file(session: Session) -> Iterator[Path]:
    path = session.workspace / "f"
    path.write_text("old")
    source = session.root / "source"
    source.write_text("old")
    if subprocess.run(["mount", "--bind", source, path], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_a_file_that_is_a_mount_point_is_refused_in_words(session: Session, mounted_file: Path) -> None:
    outcome = session.call("edit", file_path="f", old_string="old", new_string="new")
    assert outcome.content == "f is mounted on its own and cannot be replaced; use a command"
    assert mounted_file.read_text() == "old"
    assert os.listdir(session.workspace) == ["f"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("chattr"), reason="needs root and chattr")
@pytest.mark.parametrize("flag", ["i", "a"])
def test_an_immutable_or_append_only_file_stays(session: Session, flag: str) -> None:
    path = session.workspace / "f"
    path.write_text("old")
    if subprocess.run(["chattr", f"+{flag}", path], capture_output=True).returncode:
        pytest.skip("the file system has no such flag")
    try:
        edited = session.call("edit", file_path="f", old_string="old", new_string="new")
        written = session.call("write", file_path="f", content="new")
    finally:
        subprocess.run(["chattr", f"-{flag}", path], check=True)
    assert (edited.is_error, written.is_error) == (True, True)
    assert path.read_text() == "old"
    assert os.listdir(session.workspace) == ["f"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_an_owner_that_cannot_be_kept_is_told(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("old")
    os.chown(path, 12345, 23456)
    path.chmod(0o6666)
    editor = start('print(edit("old", "new").content)', session.root, prefix=WITHOUT_RIGHTS)
    out = editor.communicate(timeout=50)[0]
    assert "belonged to 12345:23456, which could not be kept; now 0:0, mode 606" in out
    assert path.read_text() == "new"


def test_where_a_file_must_have_a_name_from_the_start_it_is_replaced_as_well(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("old")
    path.chmod(0o640)
    before = path.stat()
    directory = str(session.workspace)
    umask = os.umask(0)
    try:
        save._put(directory, str(path), b"new", before, "f")
        with pytest.raises(ToolFailure, match="changed while it was being changed"):
            save._put(directory, str(path), b"newer", before, "f")
        with pytest.raises(ToolFailure, match="created by someone else"):
            save._put(directory, str(path), b"newer", None, "f")
        save._put(directory, str(session.workspace / "g"), b"made", None, "g")
    finally:
        os.umask(umask)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert sorted(os.listdir(directory)) == ["f", "g"]

from __future__ import annotations

import hashlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mcode_exec.records.tool import ToolOutcome
from tests.unit.tools.tool_call import Session


def edit(session: Session, name: str, old: str, new: str, **more: object) -> ToolOutcome:
    return session.call("edit", file_path=name, old_string=old, new_string=new, **more)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\nc\rd\r\n", "b", "B", b"a\r\nB\nc\rd\r\n"),
        (b"x\r\ny\r\nz\r\n", "x\ny", "x\nq\ny", b"x\r\nq\r\ny\r\nz\r\n"),
        (b"x\r\ny\r\nz\r\n", "x\r\ny", "x\r\nq\r\ny", b"x\r\nq\r\ny\r\nz\r\n"),
        (b"x\r\ny\r\nz\r\n", "y", "y1\ny2", b"x\r\ny1\r\ny2\r\nz\r\n"),
        (b"x\r\ny\r\nz", "z", "z\nend\n", b"x\r\ny\r\nz\r\nend\r\n"),
        (b"x\r\ny\r\nz\r\n", "y\n", "", b"x\r\nz\r\n"),
        (b"a\nb\r\nc\nd\r\n", "a\nb\nc\nd", "a\nb\nX\nc\nd", b"a\nb\r\nX\r\nc\nd\r\n"),
        (b"a\nb\r\nc\n", "c", "c1\nc2", b"a\nb\r\nc1\nc2\n"),
        (b"a\nb\n", "b", "c", b"a\nc\n"),
        (b"a\nb", "b", "c", b"a\nc"),
        (b"a\nb\n", "b\n", "", b"a\n"),
        (b"a\nb", "\nb", "", b"a"),
        (b"a\nb\n", "a\nb\n", "", b""),
        (b"a\nb\n", "b", "    x\n\n", b"a\n    x\n\n\n"),
        (b"a\nb\n", "b", "\n", b"a\n\n\n"),
        (b"a  \nb\n", "a  ", "a", b"a\nb\n"),
        (b"\xef\xbb\xbfa\nb\n", "a", "A", b"\xef\xbb\xbfA\nb\n"),
        ("größe 🙂\n".encode(), "größe 🙂", "Ü", "Ü\n".encode()),
        ("a\nb\n".encode("utf-16"), "b", "ß\nc", "a\nß\nc\n".encode("utf-16")),
        (
            b"\xfe\xff" + "a\r\nb\r\n".encode("utf-16-be"),
            "b",
            "c\nd",
            b"\xfe\xff" + "a\r\nc\r\nd\r\n".encode("utf-16-be"),
        ),
        (b"a.*b\n\\1 \\g<0>\n", "a.*b", "\\1 \\g<0>", b"\\1 \\g<0>\n\\1 \\g<0>\n"),
        (b"a\x0cb\x1c\xe2\x80\xa8c\n", "c", "d", b"a\x0cb\x1c\xe2\x80\xa8d\n"),
        # bytes of unknown encoding stay as they are
        (b"caf\xe9 = 1\nold\n", "old", "new", b"caf\xe9 = 1\nnew\n"),
        (b"caf\xe9 = 1\nold\n", " = 1", " = 2", b"caf\xe9 = 2\nold\n"),
        (b"\xc4\xe3 hao\nold\n", "old", "new", b"\xc4\xe3 hao\nnew\n"),
        (
            b"\x83\x65\x83\x58\x83\x67\n\xc3\xa9t\xc3\xa9\nold\n",
            "old",
            "new",
            b"\x83\x65\x83\x58\x83\x67\n\xc3\xa9t\xc3\xa9\nnew\n",
        ),
        (
            b"\x83\x65\x83\x58\x83\x67\n\xc3\xa9t\xc3\xa9\nold\n",
            "été",
            "è",
            b"\x83\x65\x83\x58\x83\x67\n\xc3\xa8\nold\n",
        ),
    ],
)
def test_an_edit_changes_its_match_and_no_other_byte(
    session: Session, before: bytes, old: str, new: str, after: bytes
) -> None:
    path = session.workspace / "f"
    path.write_bytes(before)
    outcome = edit(session, "f", old, new)
    assert not outcome.is_error, outcome.content
    assert path.read_bytes() == after


@pytest.mark.parametrize(
    ("content", "old", "new", "reason"),
    [
        (b"a\nb\n", "c", "d", "not found"),
        (b"a\na\n", "a", "b", "occurs 2 times in f (lines 1, 2)"),
        (b"a\n", "a", "a", "same"),
        # these ASCII letters are second bytes of Shift-JIS characters
        (b"\x83\x65\x83\x58\n", "e", "E", "not UTF-8"),
        (b"caf\xe9\nold\n", "old", "né", "not UTF-8"),
        (b"caf\xe9\nold\n", "caf\ufffd", "x", "not found"),
        (b"a\0b\n", "a", "c", "binary"),
        (b"    indented = 1\n", "\tindented = 1\n\tmore", "x", "nearest line is 1"),
        (b"if x:\n        y()\n", "if x:\n    y()", "z", "other indentation"),
        (b"exists\n", "", "x", "exists"),
    ],
)
def test_an_edit_that_is_not_certain_is_refused_and_changes_nothing(
    session: Session, content: bytes, old: str, new: str, reason: str
) -> None:
    path = session.workspace / "f"
    path.write_bytes(content)
    outcome = edit(session, "f", old, new)
    assert outcome.is_error
    assert reason in outcome.content
    assert path.read_bytes() == content


@pytest.mark.parametrize("codec", ["latin-1", "gb18030", "shift_jis", "koi8_r", "cp1251", "big5"])
def test_text_in_a_legacy_encoding_is_edited_exactly_or_not_at_all(session: Session, codec: str) -> None:
    word, other = {
        "latin-1": ("café", "thé"),
        "gb18030": ("你好", "再见"),
        "shift_jis": ("テスト", "本"),
        "koi8_r": ("привет", "мир"),
        "cp1251": ("привет", "мир"),
        "big5": ("你好", "再見"),
    }[codec]
    path = session.workspace / "f"
    before = f"x = 1\n{word} = 2\n".encode(codec)
    path.write_bytes(before)
    outcome = edit(session, "f", f"{word} = 2", f"{other} = 3")
    after = path.read_bytes()
    assert after == (before if outcome.is_error else f"x = 1\n{other} = 3\n".encode(codec))


def test_replace_all_replaces_every_occurrence_with_its_own_line_ends(session: Session) -> None:
    path = session.workspace / "f"
    path.write_bytes(b"a\nb\n-\r\na\r\nb\r\n")
    outcome = edit(session, "f", "a\nb", "a\nc\nb", replace_all=True)
    assert path.read_bytes() == b"a\nc\nb\n-\r\na\r\nc\r\nb\r\n"
    assert "2 replacements" in outcome.content
    assert outcome.metadata == {"path": str(path), "additions": 2, "deletions": 0}


def test_an_empty_old_string_creates_a_file_with_the_callers_umask(session: Session) -> None:
    before = os.umask(0o027)
    try:
        outcome = edit(session, "new/dir/f.txt", "", "a\nb\n")
    finally:
        os.umask(before)
    assert not outcome.is_error
    path = session.workspace / "new/dir/f.txt"
    assert path.read_text() == "a\nb\n"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600, 0o2775, 0o444])
def test_the_mode_stays(session: Session, mode: int) -> None:
    path = session.workspace / "s.sh"
    path.write_text("old\n")
    path.chmod(mode)
    before = os.umask(0)
    try:
        outcome = edit(session, "s.sh", "old", "new")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o7777 == mode
    assert path.read_text() == ("old\n" if outcome.is_error else "new\n")


@pytest.mark.skipif(os.getuid() != 0, reason="needs the right to give files away")
def test_owner_and_group_stay(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("old\n")
    os.chown(path, 12345, 23456)
    path.chmod(0o4750)
    assert not edit(session, "f", "old", "new").is_error
    stat = path.stat()
    assert (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777) == (12345, 23456, 0o4750)


def test_extended_attributes_stay(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("old\n")
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("the file system has no user attributes")
    assert not edit(session, "f", "old", "new").is_error
    assert os.getxattr(path, "user.note") == b"kept"


def test_a_symlink_stays_and_its_target_changes(session: Session) -> None:
    target = session.workspace / "real.txt"
    target.write_text("old\n")
    target.chmod(0o600)
    (session.workspace / "l.txt").symlink_to("real.txt")
    before = os.umask(0)
    try:
        assert not edit(session, "l.txt", "old", "new").is_error
    finally:
        os.umask(before)
    assert (session.workspace / "l.txt").readlink() == Path("real.txt")
    assert target.read_text() == "new\n"
    assert target.stat().st_mode & 0o777 == 0o600


def test_other_hard_links_keep_the_old_content_and_that_is_said(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("old\n")
    os.link(path, session.workspace / "other")
    outcome = edit(session, "f", "old", "new")
    assert "2 hard links" in outcome.content
    assert (path.read_text(), (session.workspace / "other").read_text()) == ("new\n", "old\n")


def test_a_file_that_changed_since_it_was_read_is_edited_only_where_the_match_is_certain(
    session: Session,
) -> None:
    path = session.workspace / "f"
    path.write_text("one\ntwo\n")
    session.call("read", file_path="f")
    path.write_text("zero\none\ntwo\n")
    outcome = edit(session, "f", "two", "2")
    assert not outcome.is_error
    assert "had changed" in outcome.content
    assert path.read_text() == "zero\none\n2\n"
    path.write_text("else\n")
    outcome = edit(session, "f", "one", "1")
    assert outcome.is_error
    assert "changed since it was read" in outcome.content
    assert path.read_text() == "else\n"


def test_a_file_that_was_only_touched_has_not_changed(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("one\n")
    session.call("read", file_path="f")
    os.utime(path, (1, 1))
    assert "changed" not in edit(session, "f", "one", "1").content
    assert "changed" not in edit(session, "f", "1", "one").content


def test_a_change_that_restored_size_and_time_is_a_change(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("mine\nold\nold\n")
    session.call("read", file_path="f")
    times = path.stat()
    path.write_text("them\nold\nold\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "changed since it was read" in session.call("write", file_path="f", content="new\n").content
    assert "changed since it was read" in edit(session, "f", "old", "new", replace_all=True).content
    assert path.read_text() == "them\nold\nold\n"


def test_a_name_that_leads_to_another_file_than_when_it_was_read_has_changed(session: Session) -> None:
    current = session.workspace / "current"
    for name in ("v1", "v2"):
        (session.workspace / name).write_text(f"{name}\n")
    current.symlink_to("v1")
    session.call("read", file_path="current")
    current.unlink()
    current.symlink_to("v2")
    assert "changed since it was read" in session.call("write", file_path="current", content="new\n").content
    assert (session.workspace / "v2").read_text() == "v2\n"
    session.call("read", file_path="current")
    assert not session.call("write", file_path="current", content="new\n").is_error
    # by its other name it is the file that was just written
    assert "changed" not in edit(session, "v2", "new", "newer").content
    assert "changed" not in edit(session, "current", "newer", "newest").content


@pytest.mark.parametrize("kind", ["fifo", "directory", "missing", "device", "nul", "dangling"])
def test_what_is_no_regular_file_is_refused_at_once(session: Session, kind: str) -> None:
    name = "odd"
    path = session.workspace / name
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        name = "/dev/null"
    elif kind == "nul":
        name = "a\0b"
    elif kind == "dangling":
        path.symlink_to("nowhere")
    started = time.monotonic()
    outcome = edit(session, name, "a", "b")
    assert outcome.is_error
    assert time.monotonic() - started < 1


def test_a_full_disk_leaves_the_old_content_and_no_other_file(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("old " * 1000)
    program = """
import resource, sys, asyncio
sys.path[:0] = [sys.argv[2]]
from tests.unit.tools.tool_call import Session
from pathlib import Path
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
session = Session(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
outcome = session.call("edit", file_path="f", old_string="old", new_string="new", replace_all=True)
sys.stdout.write(outcome.content)
sys.exit(3 if outcome.is_error else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(session.root), os.path.dirname(__file__)],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert path.read_text() == "old " * 1000
    assert os.listdir(session.workspace) == ["f"]


def test_a_reader_and_a_killed_editor_see_the_old_content_or_the_new(session: Session) -> None:
    path = session.workspace / "f"
    old, new = b"old\n" * 500_000, b"new\n" * 500_000
    digests = {hashlib.sha256(old).digest(), hashlib.sha256(new).digest()}
    program = """
import sys
sys.path[:0] = [sys.argv[2]]
from tests.unit.tools.tool_call import Session
from pathlib import Path
session = Session(Path(sys.argv[1]))
sys.stdout.write("x"); sys.stdout.flush()
while True:
    session.call("edit", file_path="f", old_string="old", new_string="new", replace_all=True)
    session.call("edit", file_path="f", old_string="new", new_string="old", replace_all=True)
"""
    seen = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.add(hashlib.sha256(path.read_bytes()).digest())

    path.write_bytes(old)
    reader = threading.Thread(target=watch)
    reader.start()
    try:
        for attempt in range(4):
            with subprocess.Popen(
                [sys.executable, "-c", program, str(session.root), os.path.dirname(__file__)],
                stdout=subprocess.PIPE,
            ) as editor:
                assert editor.stdout is not None
                editor.stdout.read(1)
                time.sleep(0.02 + attempt * 0.013)
                editor.send_signal(signal.SIGKILL)
            assert hashlib.sha256(path.read_bytes()).digest() in digests
    finally:
        stop.set()
        reader.join()
    assert seen <= digests


def acl(*entries: tuple[int, int, int]) -> bytes:
    """The kernel's form of an ACL: (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OWNER, USER, GROUP, MASK, OTHER, NOBODY = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF


def test_an_acl_stays_and_none_is_inherited(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("old\n")
    path.chmod(0o640)
    wide = acl(
        (OWNER, 7, NOBODY), (USER, 6, 12345), (GROUP, 4, NOBODY), (MASK, 6, NOBODY), (OTHER, 0, NOBODY)
    )
    try:
        os.setxattr(session.workspace, "system.posix_acl_default", wide)
    except OSError:
        pytest.skip("the file system has no ACLs")
    assert not edit(session, "f", "old", "new").is_error
    assert "system.posix_acl_access" not in os.listxattr(path)
    assert path.stat().st_mode & 0o777 == 0o640
    os.setxattr(path, "system.posix_acl_access", wide)
    kept = os.getxattr(path, "system.posix_acl_access")
    assert not edit(session, "f", "new", "newer").is_error
    assert os.getxattr(path, "system.posix_acl_access") == kept

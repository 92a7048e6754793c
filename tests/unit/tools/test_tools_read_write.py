from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from pathlib import Path

import pytest

from tests.unit.tools.tool_call import Session


def png(width: int, height: int, *, padding: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * min((width + 1) * height, 100_000))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"tEXt", b"c" * padding)
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def test_lines_are_shown_with_their_numbers(session: Session) -> None:
    (session.workspace / "f").write_text("one\r\ntwo\n\nfour")
    assert session.call("read", file_path="f").content == "     1\tone\n     2\ttwo\n     3\t\n     4\tfour"
    assert session.call("read", file_path="f", offset=2, limit=1).content == (
        "     2\ttwo\n[lines 2 to 2 of 4; go on with offset 3]"
    )
    beyond = session.call("read", file_path="f", offset=9)
    assert beyond.is_error
    assert "has 4 lines" in beyond.content


def test_only_a_line_feed_ends_a_line(session: Session) -> None:
    (session.workspace / "f").write_bytes("a\x0cb\x1cc\u2028d\x85e\rf\ng\n".encode())
    assert session.call("read", file_path="f").content == "     1\ta\x0cb\x1cc\u2028d\x85e\rf\n     2\tg"


def test_an_empty_file_a_directory_and_a_missing_file_are_told_apart(session: Session) -> None:
    (session.workspace / "empty").touch()
    assert session.call("read", file_path="empty").content == "(empty)"
    assert "use list" in session.call("read", file_path=".").content
    assert "no such file" in session.call("read", file_path="gone").content
    assert "NUL" in session.call("read", file_path="a\0b").content


@pytest.mark.parametrize(
    "path", ["fifo", "socket", "/dev/zero", "/dev/tty", "/dev/null", "/dev/stdin", "link"]
)
def test_what_is_no_regular_file_is_refused_within_a_second(
    session: Session, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(session.workspace / "fifo")
    (session.workspace / "link").symlink_to("/dev/zero")
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        # an absolute socket path may be too long
        monkeypatch.chdir(session.workspace)
        listener.bind("socket")
        started = time.monotonic()
        outcome = session.call("read", file_path=path)
    assert outcome.is_error
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/self/mem", "/proc/self/pagemap", "/proc/cpuinfo"])
def test_the_odd_files_of_proc_are_bounded(session: Session, path: str) -> None:
    started = time.monotonic()
    session.call("read", file_path=path)
    assert time.monotonic() - started < 5


def test_a_three_gigabyte_sparse_file_is_bounded(session: Session) -> None:
    with (session.workspace / "sparse").open("wb") as file:
        file.truncate(3 << 30)
    outcome = session.call("read", file_path="sparse")
    assert outcome.is_error
    assert "binary file of 3221225472 bytes" in outcome.content


def test_a_large_text_file_is_read_in_part(session: Session) -> None:
    line = "x" * 99 + "\n"
    with (session.workspace / "large").open("w") as file:
        for _ in range(20):
            file.write(line * 10_000)
        file.write("the end\n")
    assert "     1\txxx" in session.call("read", file_path="large", limit=3).content
    far = session.call("read", file_path="large", offset=199_999, limit=5)
    assert "200001\tthe end" in far.content
    assert session.call("read", file_path="large", offset=300_000).is_error


def test_long_lines_and_many_lines_are_cut_and_that_is_said(session: Session) -> None:
    (session.workspace / "wide").write_text("🙂" * 10_000 + "\nnext\n")
    wide = session.call("read", file_path="wide").content
    assert "line of 10000 characters cut" in wide
    assert "     2\tnext" in wide
    (session.workspace / "long").write_text("x\n" * 5000)
    long = session.call("read", file_path="long")
    assert "lines 1 to 2000 of 5000; go on with offset 2001" in long.content
    assert long.metadata["truncated"] is True
    (session.workspace / "big").write_text(("y" * 200 + "\n") * 1000)
    assert len(session.call("read", file_path="big").content) < 60_000


def test_text_that_is_not_utf8_is_shown_with_a_notice_and_never_written_back(session: Session) -> None:
    path = session.workspace / "f"
    path.write_bytes(b"caf\xe9\n")
    outcome = session.call("read", file_path="f")
    assert "caf\ufffd" in outcome.content
    assert "not UTF-8 (byte 0xe9 at offset 3)" in outcome.content
    refused = session.call("write", file_path="f", content="caf\ufffd!\n")
    assert refused.is_error
    assert path.read_bytes() == b"caf\xe9\n"


def test_utf16_and_a_byte_order_mark_are_understood(session: Session) -> None:
    (session.workspace / "f").write_bytes("a\r\nß\r\n".encode("utf-16"))
    assert session.call("read", file_path="f").content.startswith("     1\ta\n     2\tß\n[the file is UTF-16")
    (session.workspace / "g").write_bytes(b"\xef\xbb\xbfa\n")
    assert session.call("read", file_path="g").content == "     1\ta"
    (session.workspace / "h").write_bytes(b"\xef\xbb\xbf")
    assert session.call("read", file_path="h").content == "(empty)"
    (session.workspace / "i").write_bytes(b"\xff\xfe")
    assert session.call("read", file_path="i").content.startswith("(empty)\n[the file is UTF-16")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("a\n".encode("utf-16"), "b\n", "was UTF-16 and is UTF-8 now"),
        (b"\xef\xbb\xbfa\n", "b\n", "began with a byte order mark and does not now"),
        (b"a\r\nb\r\n", "a\nc\n", "had CRLF line ends and has LF now"),
        (b"caf\xe9 a\n", "café b\n", "was not UTF-8 and is now"),
        (b"\x89PNG\0", "text\n", ""),
        (b"a\r\nb\r\n", "a\r\nc\r\n", ""),
        (b"\xef\xbb\xbfa\n", "\ufeffb\n", ""),
        (b"a\n", "b\n", ""),
        (b"a\r\n", "", ""),
    ],
)
def test_a_write_that_loses_what_read_does_not_show_says_so(
    session: Session, before: bytes, after: str, said: str
) -> None:
    path = session.workspace / "f"
    path.write_bytes(before)
    content = session.call("write", file_path="f", content=after).content
    assert said in content
    assert ("edit would have kept" in content) == bool(said)
    assert path.read_bytes() == after.encode()


def test_a_whole_number_with_a_decimal_point_is_that_number(session: Session) -> None:
    (session.workspace / "f").write_text("one\ntwo\nthree\n")
    assert session.call("read", file_path="f", offset=2.0, limit=1.0).content.startswith("     2\ttwo\n[")
    assert "two" in session.call("grep", pattern="three", context=1.0, limit=5.0).content
    assert session.call("bash", command="echo ok", timeout_ms=5000.0).content == "ok\n"
    assert "1.5 is not of type" in session.call("read", file_path="f", offset=1.5).content


def test_an_image_is_returned_by_its_content(session: Session) -> None:
    (session.workspace / "shot.dat").write_bytes(png(30, 20))
    outcome = session.call("read", file_path="shot.dat")
    assert outcome.images == (("image/png", png(30, 20)),)
    assert "30x20" in outcome.content
    session.takes_images = False
    assert session.call("read", file_path="shot.dat").is_error


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (png(30, 20, padding=4_900_000), "Scale it down"),
        (png(30, 20, padding=3_800_000), "Scale it down"),
        (png(10_000, 20), "10000x20"),
        (png(0, 20), "0x20"),
        (png(30, 20)[:-20], "damaged or cut short"),
        (b"\x89PNG\r\n\x1a\n", "damaged or cut short"),
        (b"", "empty"),
        (b"not an image\n", "not an image"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 50, "damaged or cut short"),
        (b"GIF89a\x01", "damaged or cut short"),
        (b"RIFF\xff\xff\0\0WEBPVP8 " + b"\0" * 50, "damaged or cut short"),
    ],
)
def test_an_image_that_no_provider_would_take_is_a_tool_error(
    session: Session, content: bytes, reason: str
) -> None:
    (session.workspace / "x.png").write_bytes(content)
    outcome = session.call("read", file_path="x.png")
    assert outcome.is_error
    assert outcome.images == ()
    assert reason in outcome.content


def test_other_image_formats_tell_their_size(session: Session) -> None:
    jpeg = (
        b"\xff\xd8\xff\xe0\0\x10JFIF"
        + b"\0" * 10
        + b"\xff\xc0\0\x11\x08\0\x14\0\x1e"
        + b"\0" * 12
        + b"\xff\xd9"
    )
    gif = b"GIF89a" + struct.pack("<HH", 30, 20) + b"\0" * 20 + b";"
    webp = b"RIFF" + struct.pack("<I", 32) + b"WEBPVP8X" + b"\0" * 8 + b"\x1d\0\0\x13\0\0" + b"\0" * 10
    for content in (jpeg, gif, webp):
        (session.workspace / "i").write_bytes(content)
        outcome = session.call("read", file_path="i")
        assert "30x20" in outcome.content, outcome.content


def test_a_home_relative_and_an_absolute_path_are_understood(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(session.workspace))
    (session.workspace / "f").write_text("x\n")
    assert not session.call("read", file_path="~/f").is_error
    assert not session.call("read", file_path=str(session.workspace / "f")).is_error
    assert (
        not session.call("read", file_path="./sub/.././f").is_error
        or not (session.workspace / "sub").exists()
    )


def test_write_creates_parents_and_keeps_the_mode_of_what_it_replaces(session: Session) -> None:
    outcome = session.call("write", file_path="a/b/c.txt", content="one\ntwo\n")
    path = session.workspace / "a/b/c.txt"
    assert path.read_text() == "one\ntwo\n"
    assert outcome.metadata == {"path": str(path), "additions": 2, "deletions": 0}
    path.chmod(0o751)
    outcome = session.call("write", file_path="a/b/c.txt", content="one\n2\nthree")
    assert path.stat().st_mode & 0o777 == 0o751
    assert outcome.metadata == {"path": str(path), "additions": 2, "deletions": 1}


def test_write_refuses_a_file_that_changed_since_it_was_read(session: Session) -> None:
    path = session.workspace / "f"
    path.write_text("mine\n")
    session.call("read", file_path="f")
    path.write_text("theirs\n")
    outcome = session.call("write", file_path="f", content="new\n")
    assert outcome.is_error
    assert path.read_text() == "theirs\n"
    session.call("read", file_path="f")
    assert not session.call("write", file_path="f", content="new\n").is_error


def test_write_to_the_name_of_a_directory_makes_nothing(session: Session) -> None:
    outcome = session.call("write", file_path="newdir/", content="x")
    assert outcome.is_error
    assert "newdir/ names a directory" in outcome.content
    assert not (session.workspace / "newdir").exists()


def test_write_through_a_symlink_changes_its_target(session: Session) -> None:
    (session.workspace / "real").write_text("old")
    (session.workspace / "link").symlink_to("real")
    session.call("write", file_path="link", content="new")
    assert (session.workspace / "real").read_text() == "new"
    assert (session.workspace / "link").is_symlink()
    (session.workspace / "dangling").symlink_to("made")
    session.call("write", file_path="dangling", content="x")
    assert (session.workspace / "made").read_text() == "x"


@pytest.mark.parametrize("name", ["dir", "f/below", "fifo", "x" * 300, "/proc/nothing/here"])
def test_a_file_that_cannot_be_written_is_a_result_not_an_exception(session: Session, name: str) -> None:
    (session.workspace / "dir").mkdir()
    (session.workspace / "f").touch()
    os.mkfifo(session.workspace / "fifo")
    outcome = session.call("write", file_path=name, content="x")
    assert outcome.is_error
    assert sorted(os.listdir(session.workspace)) == ["dir", "f", "fifo"]


def test_lone_surrogates_and_odd_file_names_never_reach_the_outside(session: Session) -> None:
    session.call("write", file_path="f", content="a\ud800b")
    assert (session.workspace / "f").read_text() == "a\ufffdb"
    assert session.call("read", file_path="\ud800").is_error
    Path(os.fsdecode(os.fsencode(session.workspace) + b"/\xff.txt")).write_text("x")
    for tool, arguments in (("list", {}), ("glob", {"pattern": "*.txt"}), ("grep", {"pattern": "x"})):
        content = session.call(tool, **arguments).content
        content.encode("utf-8")
        assert "\ufffd.txt" in content


def test_list_shows_directories_first_and_where_links_lead(session: Session) -> None:
    (session.workspace / "z").mkdir()
    (session.workspace / ".hidden").touch()
    (session.workspace / "l").symlink_to("z")
    assert session.call("list").content == "z/\n.hidden\nl -> z"
    assert session.call("list", path="z").content == "(empty)"
    assert session.call("list", path=".hidden").is_error
    assert session.call("list", path="gone").is_error
    for number in range(1100):
        (session.workspace / "z" / f"{number:04}").touch()
    assert "[100 of 1100 entries left out" in session.call("list", path="z").content

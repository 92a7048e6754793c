"""Canonical history on disk: whatever a crash leaves, nothing acknowledged is lost and nothing is welded."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcode_exec.errors import HistoryCorruptError, LeaseLostError, StoreFailedError
from mcode_exec.records.history import HistoryRecord
from mcode_exec.sessions.lines import parse
from mcode_exec.sessions.verifying import check, repair
from tests.unit.sessions.history_records import (
    CONVERSATION,
    SESSION,
    answer,
    opened,
    paths_in,
    result,
    user,
    written,
)

#: fsync costs nothing here
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None


def ids(records: list[HistoryRecord]) -> list[str]:
    return [one.id for one in records]


def test_a_record_is_one_line_behind_the_header_and_private(tmp_path: Path) -> None:
    data = written(tmp_path)
    lines = data.split(b"\n")
    assert data.endswith(b"\n")
    assert json.loads(lines[0])["generation"] == 1
    assert [json.loads(line)["id"] for line in lines[1:-1]] == ["msg-1", "msg-2", "msg-3", "msg-4"]
    directory = Path(paths_in(tmp_path).directory)
    assert {one.name for one in directory.iterdir()} == {"manifest.json", "messages.jsonl"}
    assert {one.stat().st_mode & 0o777 for one in directory.iterdir()} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert str(tmp_path) not in (directory / "manifest.json").read_text()


def test_a_last_record_torn_at_any_offset_is_set_aside_and_the_next_append_starts_a_line(
    tmp_path: Path,
) -> None:
    whole = written(tmp_path)
    messages = Path(paths_in(tmp_path).messages)
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    accent = whole.rindex("é".encode())
    offsets = {*range(start, len(whole), 7), start, start + 1, accent, accent + 1, accent + 2, len(whole) - 1}
    for cut in sorted(offsets):
        messages.write_bytes(whole[:cut])
        history = opened(tmp_path)
        # the last byte is only the newline: the record itself is whole
        is_whole = cut == len(whole) - 1
        assert ids(history.records) == ["msg-1", "msg-2", "msg-3"] + ["msg-4"] * is_whole
        history.append((user(5, "é"),), 1000)
        history.close()
        again = opened(tmp_path)
        assert ids(again.records)[-1] == "msg-5"
        assert not again.notices
        again.close()
        kept = Path(paths_in(tmp_path).reports) / "torn-tail-5000.bin"
        if start < cut < len(whole) - 1:
            assert kept.read_bytes() == whole[start:cut]
            kept.unlink()


def test_a_file_cut_anywhere_gives_a_prefix_of_its_records_or_says_that_it_is_corrupt(tmp_path: Path) -> None:
    whole = written(tmp_path)
    header = whole.index(b"\n") + 1
    expected = ids(list(CONVERSATION))
    for cut in range(len(whole) + 1):
        if cut < header - 1:  # whole, it only lacks its newline
            with pytest.raises(HistoryCorruptError, match="line 1"):
                parse(whole[:cut], "f")
            continue
        found = [line.record.id for line in parse(whole[:cut], "f").lines]
        assert found == expected[: len(found)]
        assert len(found) >= whole[header:cut].count(b"\n")


@settings(deadline=None, max_examples=8)
@given(st.lists(st.booleans(), min_size=3, max_size=3))
def test_records_welded_onto_one_line_are_split_again(welds: list[bool]) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        root = Path(directory)
        header, *lines = written(root).split(b"\n")[:-1]
        body = lines[0]
        for line, is_welded in zip(lines[1:], welds, strict=True):
            body += (b"" if is_welded else b"\n") + line
        Path(paths_in(root).messages).write_bytes(header + b"\n" + body + b"\n")
        history = opened(root)
        assert ids(history.records) == ids(list(CONVERSATION))
        history.append((user(5),), 1000)
        history.close()
        assert Path(paths_in(root).messages).read_bytes().count(b"\n") == 6


WRONG = [
    b"42",
    b"[]",
    b"null",
    b'"text"',
    b"{}",
    b"",
    b'{"role":"user",',
    b'{"id":"a","turn_id":"t","at_ms":1,"message":{"role":"alien","content":[]}}',
    b'{"id":"a","turn_id":"t","at_ms":1,"message":{"role":"user","content":[{"type":"alien"}]}}',
    b"\xff\xfe\x00",
    b'{"id":"a","turn_id":"t","at_ms":1,"message":{"role":"user","content":"caf\xc3"}}',
]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("line", [2, 3, 5])
def test_a_line_that_is_no_record_is_named_and_the_file_untouched_until_it_is_repaired(
    tmp_path: Path, wrong: bytes, line: int
) -> None:
    lines = written(tmp_path).split(b"\n")[:-1]
    original = lines[line - 1]
    lines[line - 1] = wrong
    data = b"\n".join(lines) + b"\n"
    messages = Path(paths_in(tmp_path).messages)
    messages.write_bytes(data)
    with pytest.raises(HistoryCorruptError) as caught:
        opened(tmp_path)
    assert f"{messages} line {line} " in caught.value.message
    assert (caught.value.exit_code, caught.value.code) == (4, "HISTORY_CORRUPT")
    assert messages.read_bytes() == data
    assert [one["line"] for one in check(paths_in(tmp_path), SESSION)] == [line]
    assert messages.read_bytes() == data

    (found,) = repair(paths_in(tmp_path), SESSION, 7000)
    assert (found["line"], found["repaired"]) == (line, True)
    assert Path(found["keptIn"]).read_bytes() == wrong + b"\n"
    history = opened(tmp_path)
    history.close()
    assert len(history.records) == 3
    assert original not in messages.read_bytes()
    assert repair(paths_in(tmp_path), SESSION, 7000) == []


def test_a_lost_header_is_corrupt_and_repair_makes_it_anew_without_losing_a_record(tmp_path: Path) -> None:
    data = written(tmp_path)
    messages = Path(paths_in(tmp_path).messages)
    messages.write_bytes(data[data.index(b"\n") + 1 :])
    with pytest.raises(HistoryCorruptError, match="line 1 "):
        opened(tmp_path)
    repair(paths_in(tmp_path), SESSION, 7000)
    history = opened(tmp_path)
    history.close()
    assert ids(history.records) == ids(list(CONVERSATION))


def test_the_history_of_another_session_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path)
    other = "mvs_" + "1" * 32
    Path(paths_in(tmp_path).messages).write_bytes(data.replace(SESSION.encode(), other.encode()))
    with pytest.raises(HistoryCorruptError, match=other):
        opened(tmp_path)


def test_a_history_that_vanished_is_corrupt_but_one_that_never_was_is_new(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    with pytest.raises(HistoryCorruptError, match="does not exist"):
        opened(tmp_path, known_bytes=10)
    opened(tmp_path).close()


def test_an_empty_file_of_a_session_without_records_is_begun_anew(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    Path(paths.directory).mkdir(parents=True)
    Path(paths.messages).touch()
    assert written(tmp_path, user(1)).count(b"\n") == 2


def test_rows_that_are_missing_are_told_by_the_known_size(tmp_path: Path) -> None:
    data = written(tmp_path)
    known = data.index(b"msg-3")
    history = opened(tmp_path, known_bytes=known)
    history.close()
    assert [line.record.id for line in history.beyond] == ["msg-3", "msg-4"]
    whole = opened(tmp_path, known_bytes=len(data))
    whole.close()
    assert whole.beyond == []


def test_a_takeover_gives_the_file_a_new_inode_and_the_zombie_writes_nothing(tmp_path: Path) -> None:
    written(tmp_path)
    zombie = opened(tmp_path)
    taker = opened(tmp_path, takeover=True)
    taker.append((user(5),), 1000)
    before = Path(taker.paths.messages).read_bytes()
    with pytest.raises(LeaseLostError):
        zombie.append((user(6),), 1000)
    assert Path(taker.paths.messages).read_bytes() == before
    taker.append((user(7),), 1000)
    assert ids(taker.records)[-2:] == ["msg-5", "msg-7"]
    zombie.close()
    taker.close()


def test_a_zombie_that_was_stopped_before_its_first_record_does_not_replace_the_takers_history(
    tmp_path: Path,
) -> None:
    (tmp_path / "sessions").mkdir()
    zombie = opened(tmp_path)
    taker = opened(tmp_path)
    taker.append((user(5),), 1000)
    before = Path(taker.paths.messages).read_bytes()
    with pytest.raises(LeaseLostError):
        zombie.append((user(6),), 1000)
    assert Path(taker.paths.messages).read_bytes() == before
    taker.append((user(7),), 1000)
    zombie.close()
    taker.close()
    assert sorted(one.name for one in Path(taker.paths.directory).iterdir()) == [
        "manifest.json",
        "messages.jsonl",
    ]


def test_a_file_of_unexpected_size_is_not_written_to(tmp_path: Path) -> None:
    written(tmp_path)
    history = opened(tmp_path)
    with open(history.paths.messages, "ab") as other:
        other.write(b"x")
    before = Path(history.paths.messages).read_bytes()
    with pytest.raises(StoreFailedError, match="bytes where") as caught:
        history.append((user(5),), 1000)
    assert caught.value.details["source"] == "canonical-history"
    assert Path(history.paths.messages).read_bytes() == before
    history.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A disk of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if made.returncode:
        pytest.skip(f"no tmpfs here: {made.stderr.decode()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_leaves_the_file_as_it_was_and_later_appends_fit(small_disk: Path) -> None:
    data = written(small_disk)
    history = opened(small_disk)
    with pytest.raises(StoreFailedError, match="free some space") as caught:
        history.append((user(5, "x" * 100_000),), 1000)
    assert caught.value.details["source"] == "canonical-history"
    assert Path(history.paths.messages).read_bytes() == data
    history.append((user(6, "small"),), 1000)
    history.close()
    again = opened(small_disk)
    again.close()
    assert ids(again.records) == [*ids(list(CONVERSATION)), "msg-6"]


def test_a_first_record_that_does_not_fit_leaves_no_history(small_disk: Path) -> None:
    (small_disk / "sessions").mkdir()
    history = opened(small_disk)
    with pytest.raises(StoreFailedError):
        history.append((user(5, "x" * 100_000),), 1000)
    history.close()
    assert [one.name for one in Path(history.paths.directory).iterdir()] == ["manifest.json"]


def test_a_short_write_is_cut_back(tmp_path: Path) -> None:
    data = written(tmp_path)
    history = opened(tmp_path)
    # beyond this size the kernel writes less than asked, then nothing with EFBIG
    import signal

    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(data) + 20, hard))
    try:
        with pytest.raises(StoreFailedError):
            history.append((user(5, "x" * 1000),), 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old_handler)
    assert Path(history.paths.messages).read_bytes() == data
    history.append((user(6),), 1000)
    history.close()
    assert Path(history.paths.messages).read_bytes().count(b"\n") == data.count(b"\n") + 1


def test_an_append_whose_fsync_failed_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    history = opened(tmp_path)
    tries = []

    def broken(descriptor: int) -> None:
        tries.append(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        with pytest.raises(StoreFailedError) as caught:
            history.append((user(5),), 1000)
    assert len(tries) == 1
    assert caught.value.details["source"] == "canonical-history"
    # and the size no longer being what we know, nothing is written behind it
    with pytest.raises(StoreFailedError, match="bytes where"):
        history.append((user(6),), 1000)
    history.close()


MANIFESTS = [
    b"",
    b"{",
    b"[]",
    b'{"format":1,"sessionId":"mvs_other","generation":1}',
    b'{"format":1,"sessionId":"' + SESSION.encode() + b'","generation":7}',
]


@pytest.mark.parametrize("manifest", [None, *MANIFESTS])
def test_messages_decide_where_the_manifest_disagrees_and_that_is_said(
    tmp_path: Path, manifest: bytes | None
) -> None:
    written(tmp_path)
    path = Path(paths_in(tmp_path).manifest)
    path.unlink() if manifest is None else path.write_bytes(manifest)
    history = opened(tmp_path)
    history.close()
    assert [code for code, _ in history.notices] == ["history.manifest"]
    assert ids(history.records) == ids(list(CONVERSATION))
    again = opened(tmp_path)
    again.close()
    assert again.notices == []


def test_a_manifest_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    Path(paths_in(tmp_path).manifest).write_bytes(b'{"format":2}')
    with pytest.raises(StoreFailedError, match="newer mcode"):
        opened(tmp_path)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_what_was_appended_is_read_back(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    records = []
    for number, text in enumerate(texts):
        records += [
            user(10 * number, text),
            answer(10 * number + 1, text, f"c{number}"),
            result(10 * number + 2, f"c{number}", text),
        ]
    with tempfile.TemporaryDirectory(dir=FAST) as root:
        written(Path(root), *records)
        history = opened(Path(root))
        history.close()
    assert history.records == records

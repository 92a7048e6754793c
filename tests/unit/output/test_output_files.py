"""Files that flags name: atomic where they can be, in place where they cannot, never a hang."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mcode_exec.errors import BusyError, OutputWriteFailedError
from mcode_exec.output import files
from mcode_exec.output.files import OutputFile, descriptor_of
from mcode_exec.output.output_files import FileNames
from mcode_exec.output.sinks import BaseSink, SinkOptions, error_info, open_sink
from mcode_exec.output.writer import Writer
from mcode_exec.records.event import Notice
from mcode_exec.records.result import Result

SESSION = "mvs_" + "0" * 32


def patience(_channel: object) -> None:
    return None


def with_writer(scene: Callable[[Writer], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        out = os.open(os.devnull, os.O_WRONLY)
        err = os.open(os.devnull, os.O_WRONLY)
        writer = Writer(stdout_fd=out, stderr_fd=err)
        try:
            return await scene(writer)
        finally:
            writer.stop()
            os.close(out)
            os.close(err)

    return asyncio.run(run())


def with_sink(scene: Callable[[BaseSink], Awaitable[Any]], **options: Any) -> Any:
    async def run(writer: Writer) -> Any:
        sink = open_sink(SinkOptions(run_id="run_1", files=FileNames(**options)), writer, {})
        try:
            return await scene(sink)
        finally:
            await sink.close()

    return with_writer(run)


def put(path: Path | str, data: bytes) -> None:
    async def scene(writer: Writer) -> None:
        file = OutputFile("--result", str(path), writer)
        await file.prepare()
        await file.put(data, patience)
        file.close()

    with_writer(scene)


def refused(path: Path | str) -> str:
    async def scene(writer: Writer) -> str:
        with pytest.raises(OutputWriteFailedError) as caught:
            await OutputFile("--result", str(path), writer).prepare()
        return caught.value.message

    message: str = with_writer(scene)
    return message


def result(**fields: Any) -> Result:
    return Result(**{"run_id": "run_1", "status": "succeeded", "exit_code": 0, "output": "done", **fields})


def test_a_regular_file_is_replaced_as_a_whole_and_keeps_its_mode_or_has_the_callers_umask(
    tmp_path: Path,
) -> None:
    before = os.umask(0o027)
    try:
        put(tmp_path / "r.json", b"new")
        assert stat.S_IMODE((tmp_path / "r.json").stat().st_mode) == 0o640
        (tmp_path / "r.json").unlink()
        target = tmp_path / "r.json"
        target.write_bytes(b"old")
        target.chmod(0o604)
        held = target.open("rb")
        put(target, b"new")
    finally:
        os.umask(before)

    assert target.read_bytes() == b"new"
    with held:
        assert held.read() == b"old"
    assert stat.S_IMODE(target.stat().st_mode) == 0o604
    assert list(tmp_path.iterdir()) == [target]


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    put(tmp_path / "link", b"x")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"


def test_what_cannot_be_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    assert "Is a directory" in refused(tmp_path)
    assert "No such file or directory" in refused(tmp_path / "none" / "r")
    assert "Bad file descriptor" in refused("/dev/fd/987")
    (tmp_path / "file").write_bytes(b"")
    assert "Not a directory" in refused(tmp_path / "file" / "r")
    with open(tmp_path / "file", "rb") as reading:
        assert "reading only" in refused(f"/dev/fd/{reading.fileno()}")


def test_a_fifo_without_a_reader_is_an_error_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FIFO_READER_S", 0.2)
    os.mkfifo(tmp_path / "f")

    assert "no reader" in refused(tmp_path / "f")


def test_a_fifo_whose_reader_comes_late_gets_everything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "f").read_bytes()))

    async def scene(writer: Writer) -> None:
        file = OutputFile("--result", str(tmp_path / "f"), writer)
        asyncio.get_running_loop().call_later(0.1, reader.start)
        await file.put(b"z" * 300_000, patience)
        assert file.channel is not None
        assert await file.channel.drain(patience)
        os.close(file.channel.fd)

    with_writer(scene)
    reader.join()
    assert len(got[0]) == 300_000


def test_a_descriptor_is_written_in_place_and_outlives_the_callers_copy(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        log.write(b"before\n")
        log.flush()
        put(f"/dev/fd/{log.fileno()}", b"after\n")

    assert (tmp_path / "log").read_bytes() == b"before\nafter\n"


def test_names_of_standard_descriptors_are_understood() -> None:
    names = (
        "-",
        "/dev/stdout",
        "/dev/fd/1",
        "/proc/self/fd/1",
        "/dev/stderr",
        "/dev/fd/12",
        "a",
        "/dev/fd/x",
    )
    assert [descriptor_of(name) for name in names] == [1, 1, 1, 1, 2, 12, None, None]


def test_what_an_earlier_run_left_is_gone_once_the_turn_is_admitted(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("events", "result", "answer", "id")}
    for path in paths.values():
        path.write_text("stale")

    async def scene(sink: BaseSink) -> None:
        await sink.event(Notice(code="early", message="before the files were checked"))
        assert {path.read_text() for path in paths.values()} == {"stale"}
        await sink.preflight()
        assert [name for name, path in paths.items() if path.exists()] == ["events", "answer", "id"]
        await sink.session_known(SESSION)
        await sink.admitted()
        assert [name for name, path in paths.items() if path.exists()] == ["events", "id"]
        assert paths["id"].read_text() == SESSION + "\n"
        lines = [json.loads(line) for line in paths["events"].read_text().splitlines()]
        assert [line["type"] for line in lines] == ["exec.started", "notice"]
        await sink.event(Notice(code="late", message="flushed at once"))
        assert len(paths["events"].read_text().splitlines()) == 3
        await sink.result(result(session_id=SESSION))

    with_sink(
        scene, events=str(paths["events"]), result=str(paths["result"]),
        answer=str(paths["answer"]), session_id=str(paths["id"]),
    )  # fmt: skip

    lines = [json.loads(line) for line in paths["events"].read_text().splitlines()]
    assert [line["sequence"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["result"] == json.loads(paths["result"].read_text())
    assert paths["answer"].read_text() == "done\n"


def test_the_answer_file_is_written_only_for_an_answer(tmp_path: Path) -> None:
    for fields, content in (
        ({"status": "interaction_required", "exit_code": 5}, "done\n"),
        ({"status": "failed", "exit_code": 4, "output": None, "partial_output": "par"}, None),
    ):
        (tmp_path / "a").unlink(missing_ok=True)

        async def scene(sink: BaseSink, fields: dict[str, Any] = fields) -> None:
            await sink.admitted()
            await sink.result(result(**fields))

        with_sink(scene, answer=str(tmp_path / "a"))
        assert ((tmp_path / "a").read_text() if (tmp_path / "a").exists() else None) == content


def test_a_file_that_cannot_be_written_turns_success_into_74_everywhere(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()

    async def scene(sink: BaseSink) -> Result:
        await sink.admitted()
        (tmp_path / "d").rmdir()  # between the check and the write
        return await sink.result(result())

    final = with_sink(
        scene, answer=str(tmp_path / "d" / "a"), result=str(tmp_path / "r"),
        events=str(tmp_path / "e"),
    )  # fmt: skip

    assert (final.exit_code, final.status, final.output, final.partial_output) == (74, "failed", None, "done")
    assert final.error.code == "OUTPUT_WRITE_FAILED"
    assert json.loads((tmp_path / "r").read_text())["exitCode"] == 74
    assert json.loads((tmp_path / "e").read_text().splitlines()[-1])["result"]["exitCode"] == 74


def test_an_ending_that_says_more_keeps_its_code(tmp_path: Path) -> None:
    async def scene(sink: BaseSink) -> Result:
        return await sink.result(result(status="failed", exit_code=69, output=None))

    assert with_sink(scene, result=str(tmp_path / "no" / "r")).exit_code == 69


def test_a_refused_run_leaves_the_events_of_a_running_one_alone_and_no_others(tmp_path: Path) -> None:
    refusal = result(status="failed", exit_code=75, output=None, error=error_info(BusyError()))
    (tmp_path / "e").write_text("another run's\n")

    async def scene(sink: BaseSink) -> None:
        await sink.preflight()
        await sink.result(refusal)

    with (tmp_path / "e").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with_sink(scene, events=str(tmp_path / "e"), result=str(tmp_path / "r"))
        assert (tmp_path / "e").read_text() == "another run's\n"
        assert json.loads((tmp_path / "r").read_text())["error"]["code"] == "session_busy"
    with_sink(scene, events=str(tmp_path / "e"))
    assert len((tmp_path / "e").read_text().splitlines()) == 2


def test_an_admitted_run_takes_the_events_from_another(tmp_path: Path) -> None:
    async def scene(sink: BaseSink) -> None:
        await sink.preflight()
        await sink.admitted()
        await sink.result(result())

    (tmp_path / "e").write_text("another run's\n")
    with (tmp_path / "e").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with_sink(scene, events=str(tmp_path / "e"))
    assert len((tmp_path / "e").read_text().splitlines()) == 2


def test_a_target_that_the_run_reads_is_kept_until_it_is_replaced(tmp_path: Path) -> None:
    for name in ("events", "result", "answer", "session_id"):
        (tmp_path / name).write_text("read me")

        async def scene(sink: BaseSink, name: str = name) -> None:
            await sink.preflight()
            assert (tmp_path / name).read_text() == "read me"
            await sink.session_known(SESSION)
            await sink.admitted()
            await sink.result(result())
            assert (tmp_path / name).read_text() != "read me"

        with_sink(scene, **{name: str(tmp_path / name)}, read=(str(tmp_path / "x" / ".." / name),))


def test_the_stores_own_files_are_no_targets(tmp_path: Path) -> None:
    (tmp_path / "mcode.db").write_text("rows")
    (tmp_path / "sessions").mkdir()

    async def scene(sink: BaseSink) -> None:
        with pytest.raises(OutputWriteFailedError, match="mcode's own"):
            await sink.preflight()
        await sink.result(result())

    for target in ("mcode.db", "mcode.db-wal", "sessions/x", "run/x"):
        with_sink(scene, answer=str(tmp_path / target), data=str(tmp_path))
    assert (tmp_path / "mcode.db").read_text() == "rows"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mcode.db", "sessions"]


def test_a_full_disk_behind_the_events_is_said_once_and_the_run_ends_with_74() -> None:
    async def scene(sink: BaseSink) -> Result:
        await sink.admitted()
        for number in range(5):
            await sink.event(Notice(code="n", message=str(number)))
            await asyncio.sleep(0.02)
        return await sink.result(result())

    assert with_sink(scene, events="/dev/full").exit_code == 74


def test_the_last_line_that_cannot_be_written_is_in_the_result_everywhere(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()

    async def scene(sink: BaseSink) -> Result:
        await sink.admitted()
        os.close(read_end)  # the reader of the events goes just before the end
        return await sink.result(result())

    final = with_sink(scene, events=f"/dev/fd/{write_end}", result=str(tmp_path / "r"))
    os.close(write_end)

    assert final.exit_code == 74
    assert json.loads((tmp_path / "r").read_text())["exitCode"] == 74

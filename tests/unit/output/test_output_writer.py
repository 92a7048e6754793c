"""The writer thread: whole lines in order, whatever the descriptor is and however slowly it is read."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mcode_exec.output.writer import ROOM_BYTES, Channel, Writer, write_fully


def for_ever(_channel: Channel) -> None:
    return None


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    try:
        yield read_end, write_end
    finally:
        for fd in (read_end, write_end):
            try:
                os.close(fd)
            except OSError:
                pass


def read_all(fd: int, pause_s: float = 0.0) -> bytes:
    out = b""
    while piece := os.read(fd, 65536):
        out += piece
        time.sleep(pause_s)
    return out


def test_a_slow_stdout_does_not_hold_up_stderr() -> None:
    async def scene() -> bytes:
        with pipe() as (out_read, out), pipe() as (err_read, err):
            writer = Writer(stdout_fd=out, stderr_fd=err)
            writer.stdout.post(b"x" * 1_000_000)
            writer.say("hello\n")
            assert await writer.stderr.drain(for_ever)
            got = os.read(err_read, 100)
            assert writer.stdout.pending_bytes > 0
            os.close(out_read)
            await writer.stdout.drain(for_ever)
            writer.stop()
            return got

    assert asyncio.run(scene()) == b"hello\n"


def test_the_caller_waits_for_room_and_everything_arrives_in_order() -> None:
    async def scene() -> tuple[bytes, int]:
        with pipe() as (out_read, out), pipe() as (_, err):
            writer = Writer(stdout_fd=out, stderr_fd=err)
            got: list[bytes] = []
            reader = threading.Thread(target=lambda: got.append(read_all(out_read)))
            reader.start()
            most = 0
            for number in range(3000):
                await writer.stdout.write(b"%06d %s\n" % (number, b"y" * 200), for_ever)
                most = max(most, writer.stdout.pending_bytes)
            assert await writer.stdout.drain(for_ever)
            writer.stop()
            os.close(out)
            await asyncio.to_thread(reader.join)
            return got[0], most

    data, most = asyncio.run(scene())
    assert [int(line[:6]) for line in data.splitlines()] == list(range(3000))
    assert most < ROOM_BYTES + 300


def test_a_closed_reader_is_noticed_while_nothing_is_written() -> None:
    async def scene() -> Channel:
        with pipe() as (out_read, out), pipe() as (_, err):
            noticed = asyncio.Event()
            loop = asyncio.get_running_loop()
            writer = Writer(stdout_fd=out, stderr_fd=err, on_stdout_gone=lambda: _post(loop, noticed))
            os.close(out_read)
            await asyncio.wait_for(noticed.wait(), 5)
            assert not await writer.stdout.drain(for_ever) or writer.stdout.error
            writer.stdout.post(b"into nothing")
            assert writer.stdout.pending_bytes == 0
            writer.stop()
            return writer.stdout

    def _post(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        loop.call_soon_threadsafe(event.set)

    channel = asyncio.run(scene())
    assert channel.is_closed


def test_waiting_for_room_ends_when_the_reader_goes() -> None:
    async def scene() -> bool:
        with pipe() as (out_read, out), pipe() as (_, err):
            writer = Writer(stdout_fd=out, stderr_fd=err)
            writer.stdout.post(b"x" * 500_000)
            waiting = asyncio.create_task(writer.stdout.write(b"y", for_ever))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            os.close(out_read)
            await asyncio.wait_for(waiting, 5)
            writer.stop()
            return writer.stdout.is_closed

    assert asyncio.run(scene())


def test_patience_ends_a_wait_and_is_asked_again_on_demand() -> None:
    async def scene() -> bool:
        with pipe() as (_, out), pipe() as (_, err):
            writer = Writer(stdout_fd=out, stderr_fd=err)
            limits: list[float] = []
            writer.stdout.post(b"x" * 500_000)
            draining = asyncio.create_task(writer.stdout.drain(lambda _: limits[0] if limits else None))
            await asyncio.sleep(0.05)
            limits.append(time.monotonic())
            assert not draining.done()
            writer.reconsider()
            done = await asyncio.wait_for(draining, 5)
            writer.stop()
            return done

    assert asyncio.run(scene()) is False


def test_a_full_device_is_an_error_but_no_closed_reader() -> None:
    async def scene() -> Channel:
        with pipe() as (_, err):
            full = os.open("/dev/full", os.O_WRONLY)
            writer = Writer(stdout_fd=full, stderr_fd=err)
            writer.stdout.post(b"x")
            assert not await writer.stdout.drain(for_ever)
            writer.stop()
            os.close(full)
            return writer.stdout

    channel = asyncio.run(scene())
    assert channel.error is not None
    assert channel.error.errno == errno.ENOSPC
    assert not channel.is_closed


def test_a_stderr_that_nobody_reads_is_bounded() -> None:
    async def scene() -> int:
        with pipe() as (_, out), pipe() as (_, err):
            writer = Writer(stdout_fd=out, stderr_fd=err)
            for _ in range(3000):
                writer.say("mcode: " + "z" * 1000 + "\n")
            pending = writer.stderr.pending_bytes
            writer.stop()
            return pending

    assert asyncio.run(scene()) < 1_100_000


def test_write_fully_completes_on_a_non_blocking_descriptor() -> None:
    with pipe() as (read_end, write_end):
        os.set_blocking(write_end, False)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(read_all(read_end, 0.001)))
        reader.start()
        write_fully(write_end, b"q" * 1_000_000)
        os.close(write_end)
        reader.join()

    assert len(got[0]) == 1_000_000

"""Directories that come and go while others work on them."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcode_exec.errors import StoreFailedError
from mcode_exec.sessions.files import make_dirs
from mcode_exec.sessions.removing import remove_files

DAY = "2026/01/02"


def beside(work: Callable[[], None], rest_s: float = 0.0005) -> Callable[[], None]:
    """Repeat `work` on a thread until the returned function is called."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            work()
            time.sleep(rest_s)  # a thread that never rests keeps the other from running at all

    thread = threading.Thread(target=repeat)
    thread.start()

    def stop() -> None:
        is_over.set()
        thread.join()

    return stop


def test_what_another_process_removes_meanwhile_leaves_nothing_behind(tmp_path: Path) -> None:
    for number in range(10):
        directory = tmp_path / DAY / f"s{number}"
        for name in range(200):
            (directory / f"d{name}").mkdir(parents=True)
            (directory / f"d{name}" / "file").touch()

        def remove_too(directory: Path = directory) -> None:
            shutil.rmtree(directory, ignore_errors=True)

        stop = beside(remove_too)
        try:
            remove_files(str(tmp_path), f"{DAY}/s{number}")
            assert not directory.exists()
        finally:
            stop()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_made_although_others_remove_empty_days(tmp_path: Path) -> None:
    def remove_empty() -> None:
        for depth in (3, 2, 1):
            try:
                os.rmdir(tmp_path.joinpath(*DAY.split("/")[:depth]))
            except OSError:
                continue

    stop = beside(remove_empty, rest_s=0.01)  # a few levels are made in less, most of the time
    try:
        for number in range(40):
            directory = tmp_path / DAY / f"s{number}"
            make_dirs(str(directory), str(tmp_path))
            assert directory.is_dir()
            remove_files(str(tmp_path), f"{DAY}/s{number}")
    finally:
        stop()


@pytest.mark.parametrize("name", ["", "/etc", "../outside", "2026/../../outside"])
def test_what_is_no_place_of_a_session_is_not_removed(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "sessions" / "2026").mkdir(parents=True)
    with pytest.raises(StoreFailedError):
        remove_files(str(tmp_path / "sessions"), name)
    assert outside.is_dir()
    assert (tmp_path / "sessions" / "2026").is_dir()


def test_a_link_above_it_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "away" / "01" / "02" / "s").mkdir(parents=True)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "2026").symlink_to(tmp_path / "away")
    with pytest.raises(StoreFailedError, match="is no directory"):
        remove_files(str(tmp_path / "sessions"), f"{DAY}/s")
    assert (tmp_path / "away" / "01" / "02" / "s").is_dir()

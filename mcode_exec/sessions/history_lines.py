"""A history file read from its beginning, a batch of records at a time, while it may be appended to.

One state of the file: it is only appended to or replaced as a whole, and the
descriptor stays with what was there when it was opened.  Nothing is repaired
here; a last line without its end is being written, or was torn, and is left.

Functions block: callers run them on the store thread.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from mcode_exec.errors import HistoryCorruptError, StoreFailedError
from mcode_exec.records.history import GenerationHeader, HistoryRecord
from mcode_exec.sessions.lines import read_header, read_record, split_welded


class HistoryLines:
    """One reading of a file; close it."""

    def __init__(self, path: str) -> None:
        """Open what is at `path`, if there is anything.  Raises: StoreFailedError; HistoryCorruptError."""
        self._path = path
        self._number = 0
        #: None: nothing was ever written
        self.header: GenerationHeader | None = None
        self._file: BinaryIO | None = None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreFailedError(f"{path} cannot be read: {error.strerror}") from error
        self._file = open(descriptor, "rb")  # noqa: SIM115 - closed by close()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            self.close()
            raise StoreFailedError(f"{path} cannot be read: it is no regular file")
        raw = self._line()
        if raw:
            try:
                self.header = read_header(raw)
            except ValueError as error:
                self.close()
                raise self._corrupt(error) from error

    def next(self, limit: int) -> list[HistoryRecord]:
        """At least `limit` records, or all that are left.  Raises: HistoryCorruptError, naming file and line."""
        found: list[HistoryRecord] = []
        while len(found) < limit and (raw := self._line()):
            try:
                found.append(read_record(raw))
            except ValueError as error:
                welded = split_welded(raw)
                if welded is None:
                    raise self._corrupt(error) from error
                found += welded
        return found

    def _line(self) -> bytes:
        """The next whole line without its end; empty: there is none."""
        raw = b"" if self._file is None else self._file.readline()
        self._number += 1
        return raw[:-1] if raw.endswith(b"\n") else b""

    def _corrupt(self, why: object) -> HistoryCorruptError:
        return HistoryCorruptError(
            f"{self._path} line {self._number} is no history record ({why}); nothing was changed. "
            "`mcode sessions verify --repair SESSION` sets the line aside",
            path=self._path,
            line=self._number,
        )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

"""Files that a job run writes piece by piece: `--results FILE`, `--junit FILE`.

The store is the truth, these are its copies: a run that is taken up again
writes them anew, so that a line which was torn by a kill is none any more.  One
process writes one.  A regular file gets its name when it is fit to be read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mcode_exec.errors import OutputWriteFailedError
from mcode_exec.output.files import check_target, descriptor_of
from mcode_exec.output.writer import write_fully

if TYPE_CHECKING:
    from typing import Self


class ReportFile:
    """A file while it is written."""

    def __init__(self, flag: str, path: str) -> None:
        self._flag = flag
        self._path = path
        self._descriptor = -1
        self._temporary: str | None = None
        self._is_failed = False

    @classmethod
    def begin(cls, flag: str, path: str, data: str) -> Self:
        """Check the target, and begin a new file beside it.  Raises: OutputWriteFailedError."""
        check_target(flag, path, data=data)
        file = cls(flag, path)
        try:
            file._open()
        except OSError as error:
            raise file._failed(error) from error
        return file

    def _open(self) -> None:
        number = descriptor_of(self._path)
        if number is not None:
            self._descriptor = os.dup(number)
        elif os.path.lexists(self._path) and not os.path.isfile(self._path):
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
        else:
            self._temporary = f"{os.path.realpath(self._path)}.{os.getpid()}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._temporary, flags, 0o666)

    def append(self, data: bytes) -> None:
        """Add a piece.  Raises: OutputWriteFailedError, the first time it fails."""
        if self._is_failed:
            return
        try:
            write_fully(self._descriptor, data)
        except OSError as error:
            self._is_failed = True
            raise self._failed(error) from error

    def publish(self) -> None:
        """What stands in it may be read: it takes the place of an earlier one.  Raises: OutputWriteFailedError."""
        if self._temporary is None or self._is_failed:
            return
        try:
            os.replace(self._temporary, os.path.realpath(self._path))
        except OSError as error:
            self._is_failed = True
            raise self._failed(error) from error
        self._temporary = None

    def close(self) -> None:
        """Make it lasting; what has no name yet goes.  Raises: OutputWriteFailedError."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if self._temporary is not None:
                os.unlink(self._temporary)
            elif not self._is_failed:
                os.fsync(descriptor)
        except OSError as error:
            if not _cannot_sync(error):
                raise self._failed(error) from error
        finally:
            os.close(descriptor)

    def _failed(self, error: OSError) -> OutputWriteFailedError:
        return OutputWriteFailedError(
            f"{self._flag} {self._path} cannot be written: {error.strerror or error}."
        )


def _cannot_sync(error: OSError) -> bool:
    """A pipe or a terminal has nothing to make lasting."""
    import errno

    return error.errno in (errno.EINVAL, errno.ENOTSUP, errno.EROFS)

"""Files that flags name: `--events`, `--result`, `-o`, `--session-id-file`.

Invariant: a regular file is replaced as a whole (temporary file, fsync, rename),
so whoever reads it sees the old content, none, or the new one.  Everything else
(`-`, `/dev/fd/N`, FIFOs, devices) is written in place.  Descriptors are
duplicated early, because an undumpable process cannot open `/proc/self/fd`.
What is written, and when, is the sink's business.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING, Literal

from mcode_exec import paths
from mcode_exec.errors import OutputWriteFailedError
from mcode_exec.output.writer import write_fully

if TYPE_CHECKING:
    from mcode_exec.output.writer import Channel, Patience, Writer

#: how long a FIFO may be without a reader before it is an error
FIFO_READER_S = 5.0
_FIFO_RETRY_S = 0.05
_STANDARD = {"-": 1, "/dev/stdout": 1, "/dev/stderr": 2}
_FD_DIRS = ("/dev/fd/", "/proc/self/fd/")
#: a rename that cannot work where writing can: a bind-mounted file, a sticky directory
_RENAME_REFUSED = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)


def descriptor_of(path: str) -> int | None:
    """The descriptor that `path` names, or None for a path in the file system."""
    if path in _STANDARD:
        return _STANDARD[path]
    for prefix in _FD_DIRS:
        number = path.removeprefix(prefix)
        if number != path and number.isascii() and number.isdigit():
            return int(number)
    return None


_PROBE = bytes(4096)

#: whether lines go into the file: yes, yes but another run was writing it, or no, because it is
Lines = Literal["begun", "taken", "left"]


class OutputFile:
    """One flag's target: found and checked by `prepare`, then written whole (`put`) or line by line."""

    def __init__(self, flag: str, path: str, writer: Writer, *, data: str | None = None) -> None:
        self.flag = flag
        self.path = path
        #: the data directory, whose own files are nobody's target
        self._data = data
        self._writer = writer
        self._is_prepared = False
        #: why it cannot be written: found out once, because finding out may take its time
        self._refusal: OutputWriteFailedError | None = None
        #: replaced by rename; else written in place
        self._is_atomic = False
        #: of the regular file that stands there; what is written in its place keeps it
        self._mode: int | None = None
        #: in place: a regular file of ours, or what the writer thread owns
        self._fd: int | None = None
        self.channel: Channel | None = None

    async def prepare(self) -> None:
        """Find out how the target is written, and that it can be.  Raises: OutputWriteFailedError."""
        if self._is_prepared:
            return
        if self._refusal is not None:
            raise self._refusal
        try:
            await self._prepare()
        except OSError as error:
            self._refusal = self._failed(error)
            raise self._refusal from error
        self._is_prepared = True

    async def _prepare(self) -> None:
        number = descriptor_of(self.path)
        if number is not None:
            self._take_descriptor(number)
            return
        _check_not_own(self.path, self._data)
        try:
            mode = os.stat(self.path).st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if stat.S_ISREG(mode):
            if os.path.exists(self.path):
                self._mode = stat.S_IMODE(mode)
            self._take_regular()
        else:
            self.channel = self._writer.open_channel(await self._open_special(stat.S_ISFIFO(mode)))

    def _take_descriptor(self, number: int) -> None:
        if number in (1, 2):
            self.channel = self._writer.stdout if number == 1 else self._writer.stderr
            return
        _check_descriptor(number)
        duplicate = os.dup(number)
        if stat.S_ISREG(os.fstat(duplicate).st_mode):
            self._fd = duplicate
        else:
            self.channel = self._writer.open_channel(duplicate)

    def _take_regular(self) -> None:
        if os.path.exists(self.path) and not os.access(self.path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        try:
            temporary, fd = _create_beside(os.path.realpath(self.path))
        except OSError as error:
            if error.errno not in _RENAME_REFUSED or not os.path.exists(self.path):
                raise
            return  # no new names in that directory, but the file itself can be written
        try:
            os.write(fd, _PROBE)  # a full disk makes files, and takes nothing in them
        finally:
            os.close(fd)
            os.unlink(temporary)
        self._is_atomic = True

    async def _open_special(self, is_fifo: bool) -> int:
        give_up_s = time.monotonic() + FIFO_READER_S
        while True:
            try:
                return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            except OSError as error:
                if error.errno != errno.ENXIO or not is_fifo:
                    raise
                if time.monotonic() >= give_up_s:
                    raise OSError(
                        errno.ENXIO, f"the FIFO had no reader for {FIFO_READER_S:.0f} seconds"
                    ) from error
            import asyncio

            await asyncio.sleep(_FIFO_RETRY_S)

    def remove_stale(self) -> None:
        """Take away what an earlier run left in a regular file."""
        if self.channel is not None or self._fd is not None:
            return
        try:
            if self._is_atomic:
                os.unlink(os.path.realpath(self.path))
            elif os.path.exists(self.path):
                os.truncate(self.path, 0)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._failed(error) from error

    async def put(self, data: bytes, patience: Patience) -> None:
        """Write `data` as the target's whole content.  Raises: OutputWriteFailedError."""
        await self.prepare()
        if self.channel is not None:
            await self.channel.write(data, patience)
            return
        try:
            if self._fd is not None:
                write_fully(self._fd, data)
            elif self._is_atomic:
                self._replace(data)
            else:
                _overwrite(self.path, data)
        except OSError as error:
            raise self._failed(error) from error

    def _replace(self, data: bytes) -> None:
        target = os.path.realpath(self.path)
        temporary, fd = _create_beside(target)
        try:
            try:
                self._keep_mode(fd)
                write_fully(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, target)
        except OSError as error:
            os.unlink(temporary)
            if error.errno not in _RENAME_REFUSED:
                raise
            _overwrite(target, data)

    def _keep_mode(self, fd: int) -> None:
        if self._mode is not None:
            os.fchmod(fd, self._mode)

    def start_lines(self, *, takes_over: bool) -> Lines:
        """Begin the file anew, so that `append` adds to it, unless another run is writing it.

        Who `takes_over` gets a file of its own in that one's place.  The lock is held until `close`.
        """
        if self.channel is not None or self._fd is not None:
            return "begun"
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            if _is_free(fd):
                self._fd = fd
                os.truncate(fd, 0)
                return "begun"
            os.close(fd)
            if takes_over:
                self._fd = self._put_in_place()
                return "taken"
        except OSError as error:
            raise self._failed(error) from error
        return "left"

    def _put_in_place(self) -> int:
        """An empty file of ours under the name; who has the old one open goes on in that, unseen."""
        target = os.path.realpath(self.path)
        temporary, fd = _create_beside(target)
        try:
            self._keep_mode(fd)
            _is_free(fd)
            os.rename(temporary, target)
        except BaseException:
            os.close(fd)
            os.unlink(temporary)
            raise
        return fd

    def append(self, data: bytes) -> None:
        """Add whole lines at once; the caller has waited for the channel's room."""
        if self.channel is not None:
            self.channel.post(data)
            return
        assert self._fd is not None, "start_lines comes first"
        try:
            write_fully(self._fd, data)
        except OSError as error:
            raise self._failed(error) from error

    def check_channel(self) -> None:
        """Raises: OutputWriteFailedError if the reader went away or the device is full."""
        if self.channel is not None and self.channel.error is not None:
            raise self._failed(self.channel.error)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _failed(self, error: OSError) -> OutputWriteFailedError:
        reason = error.strerror or str(error)
        return OutputWriteFailedError(f"{self.flag}: cannot write {self.path!r}: {reason}.")


def check_target(flag: str, path: str, *, data: str | None = None) -> None:
    """Raise OutputWriteFailedError if `prepare` would; nothing is made, opened for anybody to see, or changed."""
    try:
        number = descriptor_of(path)
        if number is not None:
            _check_descriptor(number)
        else:
            _check_not_own(path, data)
            _check_path(path)
    except OSError as error:
        raise OutputWriteFailedError(f"{flag}: cannot write {path!r}: {error.strerror or error}.") from error


def _check_path(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        _check_directory(os.path.dirname(os.path.realpath(path)))
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _check_directory(directory: str) -> None:
    """A file without a name shows whether one could be made; where there are none, the rights must do."""
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error


def _check_not_own(path: str, data: str | None) -> None:
    if data is not None and paths.is_kept(path, data):
        raise PermissionError(errno.EACCES, "it is mcode's own, in the data directory")


def _is_free(fd: int) -> bool:
    """Whether no other run writes the file; from here on this one does.  Without such locks nobody is noticed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _check_descriptor(number: int) -> None:
    if fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "the descriptor is open for reading only")


def _create_beside(target: str) -> tuple[str, int]:
    """A new file in the directory of `target`, with the caller's umask."""
    directory, name = os.path.split(target)
    temporary = os.path.join(directory, f".{name[:100]}.{os.urandom(6).hex()}.tmp")
    return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _overwrite(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        write_fully(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)

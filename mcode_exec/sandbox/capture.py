"""What a command wrote: its head and tail in memory, the whole in a file when it is large.

Invariant: memory is bounded whatever the command writes; the file is made only
when head and tail cannot hold everything, and is 0600.  Bytes only: decoding
and the cap that the model sees belong to the tools.
"""

from __future__ import annotations

import os

from mcode_exec.paths import make_private_dir, private_open

HEAD_BYTES = 64 * 1024
TAIL_BYTES = 64 * 1024
#: the most that one command may leave on disk
SPILL_BYTES = 256 * 1024 * 1024


class OutputCapture:
    """Takes bytes in order of arrival."""

    def __init__(self, spill_path: str | None, *, max_spilled_bytes: int = SPILL_BYTES) -> None:
        self.head = bytearray()
        self.total_bytes = 0
        #: None until something was spilled
        self.spill_path: str | None = None
        self.spilled_bytes = 0
        #: the file stopped short: its bound, or a full disk
        self._is_full = False
        self._tail = bytearray()
        self._wanted_path = spill_path
        self._max_spilled_bytes = max_spilled_bytes
        self._fd = -1

    @property
    def tail(self) -> bytes:
        """The last bytes that are not in the head."""
        return bytes(self._tail[-TAIL_BYTES:])

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        if self._fd >= 0:
            self._spill(data)
        room = HEAD_BYTES - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if not data:
            return
        if self.spill_path is None and len(self._tail) + len(data) > TAIL_BYTES:
            self._open_spill()
            self._spill(bytes(self.head))
            self._spill(bytes(self._tail))
            self._spill(data)
        self._tail += data
        if len(self._tail) > 4 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open_spill(self) -> None:
        if self._wanted_path is None or self._is_full:
            return
        try:
            make_private_dir(os.path.dirname(self._wanted_path))
            self._fd = private_open(self._wanted_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
        except OSError:
            self._is_full = True
            return
        self.spill_path = self._wanted_path

    def _spill(self, data: bytes) -> None:
        if self._fd < 0 or self._is_full:
            return
        room = self._max_spilled_bytes - self.spilled_bytes
        if len(data) > room:
            self._is_full = True
            data = data[:room]
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._fd, view)
                self.spilled_bytes += written
                view = view[written:]
        except OSError:
            # a full disk: what is half there is of less use than its room
            self._is_full = True
            self._remove()

    def _remove(self) -> None:
        path, self.spill_path = self.spill_path, None
        self.close()
        if path is not None:
            try:
                os.unlink(path)
            except OSError:
                pass

"""Documents that commands write: the pieces of one, to where a flag says."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing


async def write_document(flag: str, path: str, pieces: AsyncGenerator[bytes], data_dir: str | None) -> None:
    """Write `pieces` to `path`, `-` for stdout; a file is there whole, or not at all.

    What cannot be made leaves what stood there.  Raises: OutputWriteFailedError; BrokenPipeError.
    """
    from mcode_exec.output.document_file import document_file
    from mcode_exec.paths import find_data_dir

    async with aclosing(pieces):
        first = await anext(pieces, b"")  # a session that is not there makes no file
        with document_file(flag, path, data=find_data_dir(data_dir, os.environ)) as write:
            write(first)
            async for piece in pieces:
                write(piece)

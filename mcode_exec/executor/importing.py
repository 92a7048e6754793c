"""`mcode sessions import`: sessions of other programs are read, and what of them is new is taken in.

One import at a time works on a store.  Each session is for itself: one that
cannot be read is accounted for and changes nothing for the next.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence

from mcode_exec import paths
from mcode_exec.errors import BusyError, InvocationError, StoreFailedError
from mcode_exec.executor.restoring import Restored, restore_file
from mcode_exec.executor.taking_in import TakingIn, Told
from mcode_exec.executor.temporary import HeldDirectory
from mcode_exec.importers.discovery import native_stores, places
from mcode_exec.importers.mcode_export import is_mcode_export
from mcode_exec.importers.recognising import sources_in
from mcode_exec.importers.source import Source, Unusable, UnusableSourceError
from mcode_exec.records.imported import ForeignSession, ImportedSession, Place
from mcode_exec.records.invocation import Invocation
from mcode_exec.redaction import Redactor, secret_values


class _Scratch:
    """A private directory for copies of databases, made when one is needed."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._directory = HeldDirectory(paths.temp_base(env))

    def __call__(self) -> str:
        if not self._directory.is_made:
            self._directory.make()
        return self._directory.path

    def remove(self) -> None:
        self._directory.remove()


async def import_sessions(
    data_dir: str | None,
    env: Mapping[str, str],
    named: Sequence[str],
    *,
    again: bool,
    as_new: bool = False,
    told: Told,
) -> None:
    """Import every session at the paths `named`; `told`: what became of each.

    `again`: sessions that were deleted here come back.  `as_new`: as copies, which only mcode's own exports can be.
    Raises: InvocationError for a path that holds none; BusyError while another import runs; StoreFailedError.
    """
    from mcode_exec.executor.runtime import Runtime

    wanted = [paths.user_path(path, env, name="the path") for path in named]
    for path in wanted:
        if not os.path.lexists(path):
            raise InvocationError(f"{path} does not exist; name a file or directory that holds sessions")
    runtime = await Runtime.open(Invocation(run_id="", data_dir=data_dir), dict(env))
    scratch = _Scratch(env)
    try:
        with _Turnstile(runtime.data):
            redactor = Redactor(secret_values(env))
            taking_in = TakingIn(runtime, redactor, told, again=again)
            try:
                for path in wanted:
                    if await asyncio.to_thread(_is_export, path):
                        restored = await restore_file(runtime, path, redactor, as_new=as_new)
                        await taking_in.settle()
                        told(_of_export(restored))
                        continue
                    if as_new:
                        raise InvocationError(
                            f"--new-id makes copies of mcode's own exports, and {path} is none"
                        )
                    await _import_source_of(sources_in(path, scratch, native_stores(env)), taking_in, told)
            finally:
                await taking_in.settle()
    finally:
        await asyncio.to_thread(scratch.remove)
        await runtime.close()


def _is_export(path: str) -> bool:
    """Whether mcode has written a file; one that cannot be read is nobody's, which is said with its reason."""
    try:
        return os.path.isfile(path) and is_mcode_export(path)
    except OSError:
        return False


def _of_export(restored: Restored) -> ImportedSession:
    return ImportedSession(
        origin="mcode",
        source_id=restored.source_id,
        source=restored.source,
        outcome=restored.outcome,
        session_id=restored.session_id,
        title=restored.title,
        workspace=restored.workspace,
        messages=restored.messages,
    )


async def _import_source_of(found: Iterator[Source], taking_in: TakingIn, told: Told) -> None:
    try:
        while (source := await asyncio.to_thread(next, found, None)) is not None:
            try:
                await _import_source(source, taking_in, told)
            finally:
                source.close()
    except UnusableSourceError as error:
        raise InvocationError(str(error)) from error


async def _import_source(source: Source, taking_in: TakingIn, told: Told) -> None:
    sessions: Iterator[ForeignSession | Unusable] = source.sessions()
    while (session := await asyncio.to_thread(_next_of, sessions, source)) is not None:
        if isinstance(session, ForeignSession):
            await taking_in.take(source, session)
            continue
        await taking_in.settle()
        told(
            ImportedSession(
                origin=session.origin,
                source_id=session.source_id,
                source=os.fsencode(session.source).decode("utf-8", "replace"),
                outcome="failed",
                detail=session.why,
            )
        )


def _next_of(
    sessions: Iterator[ForeignSession | Unusable], source: Source
) -> ForeignSession | Unusable | None:
    """The next session; a source that breaks off is one more that failed."""
    try:
        return next(sessions, None)
    except UnusableSourceError as error:
        return Unusable(
            origin="unknown", source_id=os.path.basename(source.path), source=source.path, why=str(error)
        )


class _Turnstile:
    """Lets one import at a time through; the kernel opens it however that one ends."""

    def __init__(self, data: str) -> None:
        self._path = os.path.join(data, "import.lock")
        self._descriptor = -1

    def __enter__(self) -> None:
        try:
            self._descriptor = paths.private_open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise BusyError(
                "another `mcode sessions import` works on this data directory; try again later"
            ) from None
        except OSError as error:
            raise StoreFailedError(f"{self._path} cannot be used: {error.strerror}") from error

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


async def discover(env: Mapping[str, str]) -> list[Place]:
    """What lies at the usual places of other programs: nothing is imported, and no store is opened."""
    scratch = _Scratch(env)
    try:
        return await asyncio.to_thread(lambda: list(places(env, scratch)))
    finally:
        scratch.remove()

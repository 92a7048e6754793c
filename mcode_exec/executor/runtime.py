"""The runtime: what one process opens once, and `run`, which turns an invocation into a result.

`run` never raises for an ending of the run.  It raises an McodeError only
before a turn was admitted, when the error is the whole story; the caller makes
the result of it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from mcode_exec import paths
from mcode_exec.abort import AbortScope
from mcode_exec.clock import Clock, SystemClock
from mcode_exec.errors import DiskFullError, StoreFailedError
from mcode_exec.executor import temporary
from mcode_exec.executor.recovering import Again, Report, recover_batch
from mcode_exec.executor.settings import Settings, resolve
from mcode_exec.executor.temporary import HeldDirectory
from mcode_exec.executor.workspaces import RECORDED, recorded_workspace, workspace_of, workspace_recorded
from mcode_exec.output.sink import Sink
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.result import Result
from mcode_exec.store import reserve
from mcode_exec.store.database import Store
from mcode_exec.store.filesystem import check_directory
from mcode_exec.store.turn_rows import Lock
from mcode_exec.turns.lease import is_held
from mcode_exec.turns.owner import Owner, is_alive

if TYPE_CHECKING:
    from decimal import Decimal

    from mcode_exec.agent.budget import Budget
    from mcode_exec.config import Config, ProviderConfig
    from mcode_exec.executor.inherited import Inherited
    from mcode_exec.executor.sharing import EndedTurn
    from mcode_exec.providers.catalogue import Catalogue
    from mcode_exec.providers.client import ModelClient
    from mcode_exec.providers.http import HttpClient
    from mcode_exec.providers.limiter import Limiter
    from mcode_exec.providers.local import LocalServer
    from mcode_exec.providers.transport import Transport
    from mcode_exec.records.model import ModelRef

#: how long the end of a run waits for what dead ones left to be gone; the next run goes on with it
_REMOVING_S = 1.0
_BEING_MADE_S = 5.0


class Runtime:
    """Configuration, store, model client and liveness of one process.  Make it with `Runtime.open`."""

    def __init__(
        self, *, env: Mapping[str, str], data: str, private: HeldDirectory | None, clock: Clock
    ) -> None:
        self.env = env
        self.data = data
        self.clock = clock
        self.sessions_dir = paths.sessions_dir(data)
        #: where the data is, if it goes with the run
        self._private = private
        self._store: Store | None = None
        self._owner: Owner | None = None
        self._transport: HttpClient | None = None
        self._client: ModelClient | None = None
        self._catalogue: Catalogue | None = None
        #: by file and model; two turns that begin at once start one server
        self._local: dict[tuple[str | None, str], asyncio.Task[LocalServer]] = {}
        self._removing: asyncio.Task[None] | None = None
        #: what the session of a run that keeps nothing begins with
        self.inherited: Inherited | None = None
        #: what opening has ended of dead processes
        self.recovered = Report()
        self.again = Again(self)
        #: what many turns of this process share: the gates of providers, and a sum that they may spend
        self.limiter: Limiter | None = None
        self.budget: Budget | None = None
        #: turns of this process whose results are out, or will be at once, and whose pages are not written yet
        self.ended: list[EndedTurn] = []

    @classmethod
    async def open(cls, invocation: Invocation, env: Mapping[str, str] | None = None) -> Runtime:
        """Open the data directory, recover what dead processes left.

        Raises: ConfigError, StoreFailedError, StoreBusyError.
        """
        env = dict(os.environ) if env is None else env
        clock = SystemClock()
        private = HeldDirectory(paths.temp_base(env)) if invocation.ephemeral else None
        data = paths.data_dir(invocation.data_dir, env) if private is None else private.path
        runtime = cls(env=env, data=data, private=private, clock=clock)
        try:
            if private is not None and invocation.fork is not None:
                from mcode_exec.executor.inherited import read_elsewhere

                # before there is a store of our own: a process has one open at a time
                runtime.inherited = await read_elsewhere(invocation, env)
            await runtime._open()
        except BaseException:
            await runtime.close()
            raise
        return runtime

    @classmethod
    async def look(cls, data_dir: str | None, env: Mapping[str, str], *, reads_only: bool) -> Runtime:
        """Likewise for who only looks: where no run has made a store there is an empty one, and none is made.

        `reads_only`: a full disk is no hindrance; what dead processes left stays then.
        """
        data = paths.data_dir(data_dir, env)
        found: str | None = None
        if os.path.lexists(paths.database_file(data)):
            try:
                return await cls.open(Invocation(run_id="", data_dir=data_dir), env)
            except DiskFullError:
                if not reads_only:
                    raise
                found = paths.database_file(data)
        check_data_directory(data)
        runtime = cls(env=env, data=data, private=None, clock=SystemClock())
        runtime._store = await Store.open_read_only(found, runtime.clock)
        return runtime

    async def _open(self) -> None:
        run_dir = paths.run_dir(self.data)
        try:
            if self._private is not None:
                self._private.make()
            for directory in (self.data, run_dir, self.sessions_dir):
                if not os.path.isdir(directory):
                    paths.make_private_dir(directory)
        except OSError as error:
            raise unusable_data(self.data, error.strerror or str(error)) from error
        check_directory(self.data)
        _check_not_emptied(paths.database_file(self.data), self.sessions_dir)
        self._owner = Owner.hold(run_dir)
        self._store = await Store.open(paths.database_file(self.data), self.clock)
        self.recovered, _ = await recover_batch(self)
        self.again.start()
        self._remove_left()

    def _remove_left(self) -> None:
        """What dead runs left in the temporary directory goes, beside the run."""
        base = paths.temp_base(self.env)
        names = temporary.find_left(base)
        if names:
            self._removing = asyncio.ensure_future(temporary.remove_dead(base, names))

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    @property
    def owner(self) -> Owner:
        assert self._owner is not None
        return self._owner

    def is_alive(self, owner: str) -> bool:
        """Whether the process of an owner token lives."""
        return is_alive(paths.run_dir(self.data), owner)

    def is_held(self, lock: Lock) -> bool:
        """Whether somebody alive holds a session's lock."""
        return is_held(lock, self.owner, self.clock)

    def share(self, *, max_cost_usd: Decimal | None, spent_usd: Decimal, source: str) -> None:
        """From here on the turns of this process share the gates of providers, and what they may spend.

        `source`: where the sum stands, for the sentence that names it.
        """
        from mcode_exec.agent.budget import Budget
        from mcode_exec.providers.limiter import Limiter

        self.limiter = Limiter()
        if max_cost_usd is not None:
            self.budget = Budget(max_cost_usd, spent_usd, source)

    def beside(self) -> Runtime:
        """The same runtime for turns that have a sum of their own to spend; `close_beside` ends its connections."""
        import copy

        other = copy.copy(self)
        other._transport = other._client = other.limiter = other.budget = None
        return other

    async def close_beside(self) -> None:
        """Close what `beside` does not share: everything else is the first one's to close."""
        if self._transport is not None:
            await self._transport.close()
            self._transport = self._client = None

    def transport(self, settings: Settings) -> HttpClient:
        """The connections to providers, made at the first call for them."""
        if self._transport is None:
            from mcode_exec.providers.http import HttpClient

            self._transport = HttpClient(connect_s=settings.config.timeouts.connect_s, environ=self.env)
        return self._transport

    def client(self, settings: Settings) -> ModelClient:
        """The model client, made at the first call for it."""
        if self._client is None:
            self._client = self.client_over(self.transport(settings), settings)
        return self._client

    def client_over(
        self,
        transport: Transport,
        settings: Settings,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> ModelClient:
        """A model client of its own; `clock` and `sleep`: in whose time it retries."""
        from mcode_exec.providers.client import ModelClient, RetryPolicy, Timeouts

        retry, timeouts = settings.config.retry, settings.config.timeouts
        return ModelClient(
            transport=transport,
            timeouts=Timeouts(
                connect_s=timeouts.connect_s,
                first_byte_s=timeouts.first_byte_s,
                idle_s=timeouts.idle_s,
            ),
            retry=RetryPolicy(
                max_retries=retry.max_retries,
                base_delay_s=retry.base_delay_s,
                max_delay_s=retry.max_delay_s,
                budget_s=retry.budget_s,
            ),
            clock=clock or self.clock,
            sleep=sleep,
            limiter=self.limiter,
        )

    def catalogue(self, config: Config) -> Catalogue:
        """What is known of models; every model of a run is looked up in one state of it."""
        if self._catalogue is None:
            from mcode_exec.executor.models import catalogue_of

            self._catalogue = catalogue_of(config, self.data)
        return self._catalogue

    async def local_server(self, ref: ModelRef, provider: ProviderConfig | None) -> LocalServer:
        """The embedded server of a local model, started at the first call for it."""
        path = provider.path if provider is not None else None
        key = (path, ref.model_id)
        starting = self._local.get(key)
        if starting is None or (starting.done() and (starting.cancelled() or starting.exception())):
            from mcode_exec.providers.local import serve

            starting = self._local[key] = asyncio.ensure_future(serve(path, model_id=ref.model_id))
        return await asyncio.shield(starting)

    async def run(self, invocation: Invocation, sink: Sink, abort: AbortScope) -> Result:
        """Run one invocation to its one result, which the caller writes.

        Raises: McodeError when no turn was admitted; Aborted when it was stopped before that.
        """
        from mcode_exec.executor.run import run_invocation

        return await run_invocation(self, invocation, sink, abort)

    async def settings(self, invocation: Invocation) -> tuple[Settings, str]:
        """The resolved settings and the workspace.  Raises: ConfigError, InvocationError, SessionError."""
        workspace = workspace_of(invocation, self.env)
        if workspace is None:
            assert invocation.cwd == RECORDED
            if self.inherited is not None:
                workspace = workspace_recorded(invocation, self.inherited.source.session)
            else:
                workspace = await recorded_workspace(self.store, invocation)
        return resolve(invocation, self.env, workspace), workspace

    async def close(self) -> None:
        """Close everything; safe to call twice."""
        await self.again.stop()
        if self._transport is not None:
            await self._transport.close()
            self._transport = self._client = None
        for serving in self._local.values():
            if serving.done() and not serving.cancelled() and not serving.exception():
                await serving.result().close()
            else:
                serving.cancel()
        self._local.clear()
        if self._store is not None:
            await self._store.close()
            if self._private is None and not self._store.is_read_only:
                reserve.keep(self._store.path)
            self._store = None
        if self._owner is not None:
            self._owner.release()
            self._owner = None
        if self._private is not None:
            await asyncio.to_thread(self._private.remove)
        if self._removing is not None:
            await asyncio.wait((self._removing,), timeout=_REMOVING_S)
            self._removing = None


def unusable_data(data: str, reason: str) -> StoreFailedError:
    return StoreFailedError(
        f"the data directory {data} cannot be used: {reason}; name another with --data-dir or MCODE_HOME"
    )


def check_data_directory(data: str) -> None:
    """Raise StoreFailedError unless the store is there, or could be made; nothing is made."""
    if os.path.isdir(data):
        check_directory(data)
        return
    nearest = data
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest):
        raise unusable_data(data, os.strerror(errno.ENOTDIR))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise unusable_data(data, os.strerror(errno.EACCES))


def _check_not_emptied(database: str, sessions_dir: str) -> None:
    """A database without a byte beside histories is one that was lost, not a new one.

    Raises: StoreFailedError.  One that is seconds old is being made, by another process.
    """
    try:
        status = os.stat(database)
    except OSError:
        return
    if status.st_size or time.time() - status.st_mtime < _BEING_MADE_S:
        return
    with os.scandir(sessions_dir) as histories:
        if next(histories, None) is not None:
            raise StoreFailedError(
                f"{database} is empty, although {sessions_dir} holds histories; put a backup in its place, "
                "or move it away to begin anew without them"
            )

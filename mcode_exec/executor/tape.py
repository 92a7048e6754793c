"""A turn that is recorded, or that plays a recording back: what stands between it and models and tools.

Made only for such a turn; imported by no other.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec import paths
from mcode_exec.agent.ports import AgentTask, Callee
from mcode_exec.config import ProviderConfig
from mcode_exec.errors import InvocationError, ModelUnknownError, OutputWriteFailedError
from mcode_exec.executor.models import Reach, ResolvedModel
from mcode_exec.providers.url import Url
from mcode_exec.providers.wire import Endpoint
from mcode_exec.recordings import layout
from mcode_exec.recordings.layout import Manifest, Place, RecordedModel, Recording
from mcode_exec.recordings.recorder import FLAG, Recorder, check_target
from mcode_exec.recordings.replay import Replay, ReplayClock
from mcode_exec.records.history import ToolCallBlock
from mcode_exec.records.model import ModelInfo, ModelRef
from mcode_exec.records.tool import ToolOutcome
from mcode_exec.sessions.layout import history_paths
from mcode_exec.version import VERSION

if TYPE_CHECKING:
    from mcode_exec.executor.preparation import Prepared
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.executor.settings import Settings
    from mcode_exec.providers.client import ModelClient
    from mcode_exec.providers.transport import Transport
    from mcode_exec.records.invocation import Invocation


def target_of(directory: str, env: Mapping[str, str], data: str | None) -> str:
    """Where `--record` writes, absolute; `data`: the data directory, where nothing else is kept.

    Raises: InvocationError, ConfigError, OutputWriteFailedError.
    """
    if directory == "-":
        raise InvocationError(f"{FLAG} wants a directory, and - is none; ./- would be one")
    path = paths.user_path(directory, env, name=FLAG)
    if data is not None and paths.is_kept(path, data):
        raise OutputWriteFailedError(
            f"{FLAG}: {path} is mcode's own, in the data directory; name another one"
        )
    check_target(path)
    return path


def check_not_played(target: str, recordings: Iterable[Recording | None]) -> None:
    """A recording cannot be made in the place of the one that it plays back.  Raises: InvocationError."""
    for recording in recordings:
        if recording is not None and os.path.realpath(recording.directory) == os.path.realpath(target):
            raise InvocationError(f"{FLAG}: {target} is what is played back; name another directory")


def reach_recorded(ref: ModelRef, provider: ProviderConfig) -> Reach:
    """A model of a recording, with what its requests depend on.  Raises: ConfigError, ModelUnknownError."""
    assert provider.path is not None, "the configuration was checked"
    recording = layout.load(provider.path)
    models = _named(recording.manifest.models)
    named = {f"{one.provider_id}/{one.model_id}": one for one in recording.manifest.models}
    model = models.get(ref.model_id) or named.get(ref.model_id)
    if model is None:
        known = ", ".join(f"{ref.provider_id}/{name}" for name in models) or "none"
        raise ModelUnknownError(
            f"the recording {provider.path} has no model {ref.model_id!r}; it has: {known}"
        )
    Url(model.base_url, f"{os.path.join(provider.path, layout.MANIFEST)}: baseUrl of {model.model_id}")
    return Reach(
        info=_info(model, structs.replace(ref, model_id=model.model_id)),
        endpoint=Endpoint(
            provider_id=model.provider_id,
            api=model.api,
            base_url=model.base_url,
            api_key=None,
            auth="none",
            key_source="the recorded run",
        ),
        recording=recording,
        is_small=model.is_small,
    )


def recorded_models(provider: ProviderConfig) -> list[ModelInfo]:
    """The models of a recording.  Raises: ConfigError."""
    assert provider.path is not None, "the configuration was checked"
    models = _named(layout.load(provider.path).manifest.models)
    return [_info(one, ModelRef(provider_id=provider.name, model_id=name)) for name, one in models.items()]


def _named(models: Sequence[RecordedModel]) -> dict[str, RecordedModel]:
    """The models by the names they are called by: with their provider's where two have the same."""
    ids = [one.model_id for one in models]
    return {
        one.model_id if ids.count(one.model_id) == 1 else f"{one.provider_id}/{one.model_id}": one
        for one in models
    }


def _info(model: RecordedModel, ref: ModelRef) -> ModelInfo:
    return ModelInfo(
        ref=ref,
        context_tokens=model.context_tokens,
        output_tokens=model.output_tokens,
        price=None,
        source="recording",
        takes_tools=model.takes_tools,
        takes_images=model.takes_images,
        reasons=model.reasons,
    )


class Tape:
    """One turn's recorder and replays."""

    def __init__(self, runtime: Runtime, invocation: Invocation, prepared: Prepared, *, turn_id: str) -> None:
        """Begin the recording.  Raises: OutputWriteFailedError."""
        self._runtime = runtime
        self._settings: Settings = prepared.settings
        session = prepared.choice.session
        self._here = _places(
            runtime,
            workspace=prepared.choice.directory,
            session=history_paths(runtime.sessions_dir, session.history_relative_dir).directory,
        )
        models = (prepared.model, *(model for model, _ in prepared.fallbacks))
        self._clock = ReplayClock(runtime.clock)
        self._prepared = prepared
        self._replays: dict[str, Replay] = {}
        self._clients: dict[str, ModelClient] = {}
        for model in models:
            if model.recording is not None:
                self._replays.setdefault(model.info.ref.provider_id, self._replay(model, model.recording))
        self._recorder: Recorder | None = None
        if invocation.record is not None:
            self._recorder = Recorder(
                target_of(invocation.record, runtime.env, runtime.data),
                Manifest(
                    mcode_version=VERSION,
                    created_at_ms=runtime.clock.now_ms(),
                    session_id=prepared.choice.session.id,
                    turn_id=turn_id,
                    places=self._here,
                    models=tuple(_recorded(model) for model in models),
                ),
                prepared.redactor,
            )

    def _replay(self, model: ResolvedModel, recording: Recording) -> Replay:
        return Replay(
            recording,
            here=self._here,
            clock=self._clock,
            redactor=self._prepared.redactor,
            is_strict=self._provider(model.info.ref).strict,
        )

    def _provider(self, ref: ModelRef) -> ProviderConfig:
        return self._settings.config.providers[ref.provider_id]

    def task(self, task: AgentTask) -> AgentTask:
        """The turn's task, where a recording goes on after a key was refused as the recorded run did."""
        return structs.replace(
            task,
            callee=self._callee(task.callee),
            fallbacks=tuple(self._callee(callee) for callee in task.fallbacks),
        )

    def _callee(self, callee: Callee) -> Callee:
        replay = self._replays.get(callee.model.ref.provider_id)
        return callee if replay is None else structs.replace(callee, read_key=replay.key_after_refusal)

    def client(self, callee: Callee) -> ModelClient:
        """What calls this model, the same for the whole turn."""
        provider_id = callee.model.ref.provider_id
        if provider_id not in self._clients:
            self._clients[provider_id] = self._client(self._replays.get(provider_id))
        return self._clients[provider_id]

    def _client(self, replay: Replay | None) -> ModelClient:
        transport: Transport = replay or self._runtime.transport(self._settings)
        if self._recorder is not None:
            transport = self._recorder.around(transport)
        if replay is None:
            return self._runtime.client_over(transport, self._settings)
        return self._runtime.client_over(
            transport, self._settings, clock=self._clock, sleep=self._clock.sleep
        )

    def runs_tools(self, callee: Callee) -> bool:
        """Whether calls really run; else they give back what was recorded."""
        ref = callee.model.ref
        return ref.provider_id not in self._replays or self._provider(ref).tools != "recorded"

    async def run_tool(
        self, callee: Callee, call: ToolCallBlock, run: Callable[[], Awaitable[ToolOutcome]]
    ) -> ToolOutcome:
        """What `run` gives for the call, or what it gave back in the recorded run."""
        replay = self._replays.get(callee.model.ref.provider_id)
        if replay is not None and self._provider(callee.model.ref).tools == "recorded":
            outcome = replay.outcome(call.id, call.name, call.arguments)
        else:
            if replay is not None:
                replay.check_whole(call.name, call.arguments)
                replay.recognise(call.id, call.name, call.arguments)
            outcome = await run()
        if self._recorder is not None:
            self._recorder.keep_call(call.id, call.name, call.arguments, outcome)
        return outcome

    def notices(self) -> tuple[tuple[str, str], ...]:
        """What to say of a turn that has answered: (code, message)."""
        unused = {name: replay.left for name, replay in self._replays.items() if replay.left}
        return tuple(
            ("replay.unused", f"{name}: the turn has ended, {left} of the recorded requests left unmade")
            for name, left in unused.items()
        )

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()

    def check(self) -> None:
        """Raise OutputWriteFailedError if the recording is not whole."""
        if self._recorder is not None:
            self._recorder.check()


def _places(runtime: Runtime, *, workspace: str, session: str) -> tuple[Place, ...]:
    named = {
        "workspace": workspace,
        "session": session,
        "data": runtime.data,
        "home": paths.home(runtime.env),
        "temp": paths.temp_base(runtime.env),
    }
    places = [Place(name=name, path=path) for name, path in named.items() if path]
    return tuple(sorted(places, key=lambda place: -len(place.path)))


def _recorded(model: ResolvedModel) -> RecordedModel:
    info, endpoint = model.info, model.endpoint
    return RecordedModel(
        provider_id=endpoint.provider_id,
        model_id=info.ref.model_id,
        api=endpoint.api,
        base_url=endpoint.base_url,
        context_tokens=info.context_tokens,
        output_tokens=info.output_tokens,
        takes_tools=info.takes_tools,
        takes_images=info.takes_images,
        reasons=info.reasons,
        is_small=model.is_small,
    )

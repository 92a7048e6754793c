"""From a model's name to an endpoint that can be called: provider, limits, price, key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from mcode_exec import paths
from mcode_exec.config import Config, ProviderConfig
from mcode_exec.errors import ConfigError, InvocationError, KeyMissingError, ModelUnknownError
from mcode_exec.providers.catalogue import Catalogue
from mcode_exec.providers.client import Endpoint
from mcode_exec.providers.endpoints import endpoint_of, key_variables
from mcode_exec.providers.known_providers import PROVIDERS
from mcode_exec.records.model import ModelInfo, ModelRef, WireFormat
from mcode_exec.records.usage import Price
from mcode_exec.redaction import Redactor

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.executor.settings import Settings
    from mcode_exec.recordings.layout import Recording

#: the one model of the `local` provider that needs no path
BUILT_IN_MODEL = "smollm2"
#: what llama.cpp is asked in
_LOCAL_API: WireFormat = "openai-completions"
#: a model on this machine costs nothing
FREE = Price(input=Decimal(0), output=Decimal(0))


class ResolvedModel(Struct, frozen=True, kw_only=True):
    """A model that can be called."""

    info: ModelInfo
    endpoint: Endpoint
    #: what answers instead of the endpoint
    recording: Recording | None = None
    #: gets a short system prompt and no tools
    is_small: bool = False
    #: reads the key anew where it comes from a file or a command; blocks.  Raises: KeyMissingError.
    read_key: Callable[[], str | None] | None = None
    secret_env_names: tuple[str, ...] = ()
    secret_values: tuple[str, ...] = ()
    #: (code, message)
    notices: tuple[tuple[str, str], ...] = ()


#: a model to suggest for each provider whose key is present, when none is set
_SUGGESTIONS = {
    "anthropic": "anthropic/claude-sonnet-4-5",
    "openai": "openai/gpt-5",
    "minimax": "minimax/MiniMax-M2",
    "openrouter": "openrouter/anthropic/claude-sonnet-4.5",
    "deepseek": "deepseek/deepseek-chat",
    "gemini": "gemini/gemini-2.5-pro",
}


def parse_model(text: str) -> ModelRef:
    """`provider/model[#variant]`; the model's own name may have slashes.  Raises: ModelUnknownError."""
    name, _, variant = text.partition("#")
    provider_id, slash, model_id = name.partition("/")
    if not (provider_id and slash and model_id) or any(char.isspace() for char in text):
        raise ModelUnknownError(
            f"{text!r} names no model: write it as provider/model, such as local/{BUILT_IN_MODEL}"
        )
    return ModelRef(provider_id=provider_id, model_id=model_id, variant=variant or None)


class Reach(Struct, frozen=True, kw_only=True):
    """A model that nothing known beforehand keeps from being called."""

    info: ModelInfo
    #: None: the model is served by this process, which has not begun to
    endpoint: Endpoint | None
    #: what answers instead of the endpoint
    recording: Recording | None = None
    #: gets a short system prompt
    is_small: bool = False

    @property
    def api(self) -> WireFormat:
        return _LOCAL_API if self.endpoint is None else self.endpoint.api


def check_distinct(models: Sequence[Reach | ResolvedModel]) -> None:
    """No model goes on for itself; two of a recording may have one name.  Raises: InvocationError."""
    seen = set()
    for model in models:
        ref, endpoint = model.info.ref, model.endpoint
        key = (ref, ref.provider_id if endpoint is None else endpoint.provider_id)
        if key in seen:
            raise InvocationError(f"--fallback-model: {ref} is asked already when it would go on")
        seen.add(key)


def catalogue_of(config: Config, data: str | None) -> Catalogue:
    """What is known of models in a run with this configuration and data directory."""
    fetched = None if data is None else paths.catalogue_file(data)
    return Catalogue(fetched=fetched, override=config.catalogue.file)


def reach(
    text: str | None,
    config: Config,
    env: Mapping[str, str],
    catalogue: Catalogue,
    *,
    needs_key: bool = True,
) -> Reach:
    """The model that `text` names, and where it is called; everything that can be wrong before a call is found here.

    Blocks while a key command runs.  Not `needs_key`: another process calls it, with the key that it has.
    Raises: ConfigError (none set, a local model that is not installed, an override file that cannot be used),
        ModelUnknownError, KeyMissingError.
    """
    if text is None:
        raise ConfigError(_no_model(env))
    ref = parse_model(text)
    provider = config.providers.get(ref.provider_id)
    if is_local(ref, provider):
        from mcode_exec.providers import local

        if _path_of(provider) is None and ref.model_id != BUILT_IN_MODEL:
            raise ModelUnknownError(
                f"{ref.provider_id} has no model {ref.model_id!r}: built in is {ref.provider_id}/{BUILT_IN_MODEL}; "
                f'a GGUF file of your own is named with path = "…" under [providers.{ref.provider_id}]'
            )
        local.check_installed(_path_of(provider))
        return Reach(info=local_info(ref, provider, catalogue), endpoint=None)
    if provider is not None and provider.api == "replay":
        from mcode_exec.executor.tape import reach_recorded

        return reach_recorded(ref, provider)
    endpoint = endpoint_of(ref.provider_id, provider, env, with_key=needs_key)
    if needs_key and endpoint.api_key is None and endpoint.auth != "none":
        raise KeyMissingError(
            f"provider {ref.provider_id!r} has no key: {endpoint.key_env or 'no variable'} is not set; "
            f"set it, or name a source under [providers.{ref.provider_id}]"
        )
    return Reach(info=catalogue.info(ref, provider), endpoint=endpoint)


async def resolve_model(
    runtime: Runtime, settings: Settings, *, text: str | None, redactor: Redactor
) -> ResolvedModel:
    """The model that `text` names, ready to be called; starts the embedded server for a local one.

    Raises: ConfigError (none set), ModelUnknownError, KeyMissingError.
    """
    config = settings.config
    catalogue = runtime.catalogue(config)
    if _waits_for_key(text, config):
        # A key command may take seconds: the loop, and with it every abort, must stay awake.
        found = await asyncio.to_thread(reach, text, config, runtime.env, catalogue)
    else:
        found = reach(text, config, runtime.env, catalogue)
    ref, endpoint = found.info.ref, found.endpoint
    provider = config.providers.get(ref.provider_id)
    secret_names = tuple(name for entry in PROVIDERS.values() for name in entry.key_envs)
    if endpoint is None:
        server = await runtime.local_server(ref, provider)
        redactor.add(server.api_key)
        return ResolvedModel(
            info=found.info,
            endpoint=Endpoint(
                provider_id=ref.provider_id,
                api=_LOCAL_API,
                base_url=server.base_url,
                api_key=server.api_key,
                auth="bearer",
            ),
            is_small=_path_of(provider) is None,
            secret_env_names=secret_names,
            secret_values=(server.api_key,),
            notices=(("model.local", server.description),),
        )
    if endpoint.api_key is not None:
        redactor.add(endpoint.api_key)
    return ResolvedModel(
        info=found.info,
        endpoint=endpoint,
        recording=found.recording,
        is_small=found.is_small,
        read_key=partial(_read_key, provider, runtime.env)
        if provider is not None and provider.key_may_change
        else None,
        secret_env_names=(*secret_names, *key_variables(ref.provider_id, provider)),
        secret_values=(endpoint.api_key,) if endpoint.api_key is not None else (),
    )


def _waits_for_key(text: str | None, config: Config) -> bool:
    provider = config.providers.get((text or "").partition("/")[0])
    return provider is not None and provider.key_may_change


def _read_key(provider: ProviderConfig, env: Mapping[str, str]) -> str | None:
    from mcode_exec.config.keys import resolve_key

    return resolve_key(provider, env)


def local_info(ref: ModelRef, provider: ProviderConfig | None, catalogue: Catalogue) -> ModelInfo:
    """What a local model holds once it is served: its server's limits, no price, tools only of a file of the user's."""
    from mcode_exec.providers import local

    path = _path_of(provider)
    return structs.replace(
        catalogue.info(ref, provider),
        context_tokens=local.CONTEXT_TOKENS,
        output_tokens=local.output_limit(path),
        takes_tools=path is not None,
        takes_images=False,
        price=FREE,
        source="built-in" if path is None else "config",
    )


def _path_of(provider: ProviderConfig | None) -> str | None:
    """The file of a local model; None: the built-in one."""
    return None if provider is None else provider.path


def is_local(ref: ModelRef, provider: ProviderConfig | None) -> bool:
    if provider is not None and provider.api is not None:
        return provider.api == "local"
    return ref.provider_id == "local"


def _no_model(env: Mapping[str, str]) -> str:
    for provider_id, suggestion in _SUGGESTIONS.items():
        if any(env.get(name, "").strip() for name in PROVIDERS[provider_id].key_envs):
            return (
                f'no model is set; add `model = "{suggestion}"` to the config file, '
                f"set MCODE_MODEL, or give --model {suggestion}"
            )
    return (
        "no model is set and no provider key is in the environment; export a key such as ANTHROPIC_API_KEY "
        'and add `model = "anthropic/claude-sonnet-4-5"` to the config file or give it with --model, '
        f"or try --model local/{BUILT_IN_MODEL}"
    )

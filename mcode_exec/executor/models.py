"""From a model's name to an endpoint that can be called: provider, limits, price, key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from mcode_exec.config import ProviderConfig
from mcode_exec.errors import ConfigError, KeyMissingError, ModelUnknownError
from mcode_exec.providers.catalogue import PROVIDERS, endpoint_of, key_variables, model_info
from mcode_exec.providers.client import Endpoint
from mcode_exec.records.model import ModelInfo, ModelRef
from mcode_exec.records.usage import Price
from mcode_exec.redaction import Redactor

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime
    from mcode_exec.executor.settings import Settings

#: the one model of the `local` provider that needs no path
BUILT_IN_MODEL = "smollm2"
#: a model on this machine costs nothing
FREE = Price(input=Decimal(0), output=Decimal(0))


class ResolvedModel(Struct, frozen=True, kw_only=True):
    """A model that can be called."""

    info: ModelInfo
    endpoint: Endpoint
    #: gets a short system prompt and no tools
    is_small: bool = False
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


async def resolve_model(
    runtime: Runtime, settings: Settings, *, text: str | None, redactor: Redactor
) -> ResolvedModel:
    """The model that `text` names, ready to be called; starts the embedded server for a local one.

    Raises: ConfigError (none set), ModelUnknownError, KeyMissingError.
    """
    config = settings.config
    if text is None:
        raise ConfigError(_no_model(runtime.env))
    ref = parse_model(text)
    provider = config.providers.get(ref.provider_id)
    secret_names = tuple(name for entry in PROVIDERS.values() for name in entry.key_envs)
    if is_local(ref, provider):
        is_built_in = provider is None or provider.path is None
        if is_built_in and ref.model_id != BUILT_IN_MODEL:
            raise ModelUnknownError(
                f"{ref.provider_id} has no model {ref.model_id!r}: built in is {ref.provider_id}/{BUILT_IN_MODEL}; "
                f'a GGUF file of your own is named with path = "…" under [providers.{ref.provider_id}]'
            )
        server = await runtime.local_server(ref, provider)
        redactor.add(server.api_key)
        info = structs.replace(
            model_info(ref, provider),
            context_tokens=server.context_tokens,
            output_tokens=server.output_tokens,
            takes_tools=not is_built_in,
            takes_images=False,
            price=FREE,
        )
        return ResolvedModel(
            info=info,
            endpoint=Endpoint(
                provider_id=ref.provider_id,
                api="openai-completions",
                base_url=server.base_url,
                api_key=server.api_key,
                auth="bearer",
            ),
            is_small=is_built_in,
            secret_env_names=secret_names,
            secret_values=(server.api_key,),
            notices=(("model.local", server.description),),
        )
    if provider is not None and (provider.api_key_command or provider.api_key_file):
        # A key command may take seconds: the loop, and with it every abort, must stay awake.
        endpoint = await asyncio.to_thread(endpoint_of, ref.provider_id, provider, runtime.env)
    else:
        endpoint = endpoint_of(ref.provider_id, provider, runtime.env)
    if endpoint.api_key is None and endpoint.auth != "none":
        raise KeyMissingError(
            f"provider {ref.provider_id!r} has no key: {endpoint.key_env or 'no variable'} is not set; "
            f"set it, or name a source under [providers.{ref.provider_id}]"
        )
    if endpoint.api_key is not None:
        redactor.add(endpoint.api_key)
    return ResolvedModel(
        info=model_info(ref, provider),
        endpoint=endpoint,
        secret_env_names=(*secret_names, *key_variables(ref.provider_id, provider)),
        secret_values=(endpoint.api_key,) if endpoint.api_key is not None else (),
    )


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

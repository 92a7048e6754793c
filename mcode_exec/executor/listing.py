"""The models that can be named, for `mcode models`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from mcode_exec import config as configuration
from mcode_exec.config import Config
from mcode_exec.errors import ModelUnknownError
from mcode_exec.executor.models import BUILT_IN_MODEL
from mcode_exec.executor.workspaces import find_workspace
from mcode_exec.providers import catalogue


class ModelRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """Prices are USD per million tokens as decimal text, null when unknown."""

    model: str
    name: str
    context: int
    output: int
    input: str | None
    output_price: str | None
    cache_read: str | None
    cache_write: str | None
    tools: bool
    images: bool
    reasoning: bool
    key: str
    source: str


async def list_models(
    env: Mapping[str, str],
    *,
    cwd: str | None,
    config_file: str | None,
    provider: str | None,
    all_providers: bool,
) -> list[ModelRow]:
    """Models of one provider, of those whose key is here, or of all.  Raises: ConfigError, ModelUnknownError."""
    config = configuration.load(
        flag_file=config_file, env=env, workspace=find_workspace(cwd, env), trust_flag=False
    )
    known = sorted({*catalogue.PROVIDERS, *config.providers, "local"})
    if provider is not None and provider not in known:
        raise ModelUnknownError(f"there is no provider {provider!r}; there are {', '.join(known)}")
    rows: list[ModelRow] = []
    for provider_id in known if provider is None else [provider]:
        state = _key(provider_id, config, env)
        if provider is None and not all_providers and state == "missing":
            continue
        rows += _rows(provider_id, config, state)
    return rows


def _key(provider_id: str, config: Config, env: Mapping[str, str]) -> str:
    provider = config.providers.get(provider_id)
    entry = catalogue.PROVIDERS.get(provider_id)
    if provider_id == "local" or (provider is not None and provider.api == "local"):
        return "none needed"
    if provider is not None and (provider.api_key_file or provider.api_key_command):
        return "configured"
    if any(env.get(name, "").strip() for name in catalogue.key_variables(provider_id, provider)):
        return "set"
    needs_key = entry.needs_key if entry is not None else provider is not None and provider.has_key_source
    return "missing" if needs_key else "none needed"


def _rows(provider_id: str, config: Config, state: str) -> list[ModelRow]:
    provider = config.providers.get(provider_id)
    if provider_id == "local" and (provider is None or provider.path is None):
        from mcode_exec.providers.local import CONTEXT_TOKENS

        return [
            ModelRow(
                model=f"local/{BUILT_IN_MODEL}",
                name="SmolLM2 135M, on this machine, no tools",
                context=CONTEXT_TOKENS,
                output=1024,
                input="0",
                output_price="0",
                cache_read=None,
                cache_write=None,
                tools=False,
                images=False,
                reasoning=False,
                key=state,
                source="built-in",
            )
        ]
    rows = []
    for listed in catalogue.known_models(provider_id, provider):
        info, price = listed.info, listed.info.price
        rows.append(
            ModelRow(
                model=str(info.ref),
                name=listed.name,
                context=info.context_tokens,
                output=info.output_tokens,
                input=None if price is None else format(price.input, "f"),
                output_price=None if price is None else format(price.output, "f"),
                cache_read=None
                if price is None or price.cache_read is None
                else format(price.cache_read, "f"),
                cache_write=None
                if price is None or price.cache_write is None
                else format(price.cache_write, "f"),
                tools=info.takes_tools,
                images=info.takes_images,
                reasoning=info.reasons,
                key=state,
                source=info.source,
            )
        )
    return rows

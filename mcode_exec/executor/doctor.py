"""What would stop a run here: data directory, store, configuration, providers, programs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from msgspec import Struct

from mcode_exec import config as configuration
from mcode_exec import paths
from mcode_exec.config import Config, ProviderConfig
from mcode_exec.errors import ConfigError, KeyMissingError, McodeError
from mcode_exec.executor import settings as resolving
from mcode_exec.executor.catalogue_state import state_of
from mcode_exec.executor.effort import check_variant
from mcode_exec.executor.models import Reach, catalogue_of, reach
from mcode_exec.executor.runtime import Runtime
from mcode_exec.executor.settings import Settings
from mcode_exec.executor.turn_plan import MODEL_FLAG
from mcode_exec.executor.workspaces import usable_workspace
from mcode_exec.plurals import counted
from mcode_exec.providers.catalogue import Catalogue
from mcode_exec.providers.endpoints import key_variables
from mcode_exec.providers.known_providers import PROVIDERS
from mcode_exec.records.invocation import Invocation
from mcode_exec.store import session_rows
from mcode_exec.store.filesystem import file_system_of
from mcode_exec.store.trouble import damaged


class Check(Struct, frozen=True, kw_only=True):
    """`ok` None: neither good nor bad, only worth knowing."""

    name: str
    ok: bool | None
    detail: str


async def doctor(
    data_dir: str | None,
    env: Mapping[str, str],
    *,
    cwd: str | None,
    config_file: str | None,
    trust_workspace: bool,
    model: str | None = None,
) -> list[Check]:
    """Every check, in the order in which a run would meet them."""
    workspace = config = None
    try:
        workspace = usable_workspace(cwd, env)
        checks = [_workspace(workspace)]
    except McodeError as error:
        checks = [Check(name="workspace", ok=False, detail=error.message)]
    checks += await _store(data_dir, env)
    try:
        config = configuration.load(
            flag_file=config_file, env=env, workspace=workspace, trust_flag=trust_workspace
        )
    except McodeError as error:
        checks.append(Check(name="config", ok=False, detail=error.message))
    catalogue = catalogue_of(config or Config(), paths.find_data_dir(data_dir, env))
    if config is not None:
        checks += _config(config)
        checks.append(await asyncio.to_thread(_model, model, config, env, catalogue))
        checks += _permission(config)
        checks += await asyncio.to_thread(_agents, config, env, catalogue)
        checks += _providers(config, env)
    checks += _catalogue(catalogue)
    checks += [
        _program("bash", env, needed=False, without="commands run in sh"),
        _program("git", env, needed=False, without="a workspace's branch and project are unknown"),
        _program("rg", env, needed=False, without="searching uses a slower walker"),
    ]
    return checks


def _workspace(workspace: str) -> Check:
    if os.access(workspace, os.R_OK):
        return Check(name="workspace", ok=True, detail=workspace)
    return Check(
        name="workspace", ok=None, detail=f"{workspace} cannot be listed, only entered (no permission)"
    )


async def _store(data_dir: str | None, env: Mapping[str, str]) -> list[Check]:
    try:
        data = paths.data_dir(data_dir, env)
    except McodeError as error:
        return [Check(name="data directory", ok=False, detail=error.message)]
    try:
        runtime = await Runtime.look(data_dir, dict(env), reads_only=False)
    except McodeError as error:
        return [
            Check(name="data directory", ok=None, detail=data),
            Check(name="store", ok=False, detail=error.message),
        ]
    try:
        count = await runtime.store.read(session_rows.count_sessions)
        found = await runtime.store.read(session_rows.check_integrity)
    except McodeError as error:
        return [Check(name="store", ok=False, detail=error.message)]
    finally:
        await runtime.close()
    file = paths.database_file(data)
    kind = file_system_of(os.path.realpath(data)) or "unknown file system"
    return [
        Check(name="data directory", ok=True, detail=f"{data} ({kind})"),
        Check(
            name="store",
            ok=found == "ok",
            detail=counted(count, "session") if found == "ok" else damaged(file, found),
        ),
    ]


def _config(config: Config) -> list[Check]:
    files = ", ".join(config.files) or "no file; built-in values"
    trust = "trusted" if config.is_workspace_trusted else "not trusted: its file can only narrow"
    checks = [
        Check(name="config", ok=True, detail=files),
        Check(name="workspace trust", ok=None, detail=trust),
    ]
    for key, source in sorted(config.sources.items()):
        checks.append(Check(name=f"config {key}", ok=None, detail=f"from {source}"))
    return checks


def _model(flag: str | None, config: Config, env: Mapping[str, str], catalogue: Catalogue) -> Check:
    """The model of a run with this `--model`, or without one, found as a run finds it."""
    named = config.model if flag is None else flag
    source = configuration.source_of(config, "model") if flag is None else MODEL_FLAG
    label = "" if named is None else f"{named} ({source}): "
    try:
        found = reach(named, config, env, catalogue)
        resolving.check_price(_settings(config).limits, found.info)
        check_variant(found.info.ref, found.api, source)
    except McodeError as error:
        return Check(name="model", ok=False, detail=f"{label}{error.message}")
    return Check(name="model", ok=True, detail=f"{named} ({source}); {_described(found)}")


def _described(found: Reach) -> str:
    info, endpoint = found.info, found.endpoint
    price = f"{info.price.input}/{info.price.output} USD per million" if info.price else "price unknown"
    if found.recording is not None:
        where = f"plays {found.recording.directory} back"
    elif endpoint is None:
        where = "on this machine"
    else:
        where = f"{endpoint.api} at {_without_secrets(endpoint.base_url)}"
    return (
        f"context {info.context_tokens}, output {info.output_tokens} tokens ({info.source}), {price}; {where}"
    )


def _settings(config: Config, agent: str | None = None) -> Settings:
    """What a run without flags comes to.  Raises: ConfigError."""
    return resolving.settings_of(Invocation(run_id="", agent=agent), config)


def _permission(config: Config) -> list[Check]:
    """Only what is wrong with the rules that every run has."""
    try:
        settings = _settings(config)
        resolving.rule_set(settings, None, Invocation(run_id=""), None, is_new=True)
    except McodeError as error:
        return [Check(name="permission", ok=False, detail=error.message)]
    return []


def _agents(config: Config, env: Mapping[str, str], catalogue: Catalogue) -> list[Check]:
    return [_agent(name, config, env, catalogue) for name in sorted(config.agents)]


def _agent(name: str, config: Config, env: Mapping[str, str], catalogue: Catalogue) -> Check:
    """An agent that could not be used is a fault; one whose key is elsewhere only matters where it is used."""
    label = f"agent {name}"
    try:
        settings = _settings(config, name)
        agent = config.agents[name]
        resolving.rule_set(settings, agent, Invocation(run_id=""), None, is_new=True)
        configuration.agent_prompt(agent)
        if agent.model is not None:
            found = reach(agent.model, config, env, catalogue)
            check_variant(found.info.ref, found.api, label)
    except KeyMissingError as error:
        return Check(name=label, ok=None, detail=error.message)
    except McodeError as error:
        return Check(name=label, ok=False, detail=error.message)
    return Check(
        name=label, ok=True, detail=f"{agent.model or 'the default model'}, {_counted(settings.tools)}"
    )


def _counted(tools: tuple[str, ...]) -> str:
    return f"tools: {', '.join(tools)}" if tools else "no tools"


def _without_secrets(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return scheme + separator + authority.rpartition("@")[2] + slash + path.partition("?")[0]


_WITHOUT_KEY = {"local": "runs on this machine", "replay": "plays a recording back"}


def _recorded(provider: ProviderConfig) -> str:
    from mcode_exec.executor.tape import recorded_models

    try:
        models = ", ".join(info.ref.model_id for info in recorded_models(provider))
    except ConfigError as error:
        return f"cannot be used: {error.message}"
    return f"{_WITHOUT_KEY['replay']} of {models}"


def _providers(config: Config, env: Mapping[str, str]) -> list[Check]:
    checks = []
    for provider_id in sorted({*PROVIDERS, *config.providers}):
        provider = config.providers.get(provider_id)
        if provider is not None and provider.api in _WITHOUT_KEY:
            detail = _recorded(provider) if provider.api == "replay" else _WITHOUT_KEY[provider.api]
            checks.append(Check(name=f"provider {provider_id}", ok=None, detail=detail))
            continue
        checks.append(
            Check(name=f"provider {provider_id}", ok=None, detail=_key_state(provider_id, config, env))
        )
    return checks


def _key_state(provider_id: str, config: Config, env: Mapping[str, str]) -> str:
    provider = config.providers.get(provider_id)
    if provider is not None and provider.api_key_file:
        return f"key from the file {provider.api_key_file}"
    if provider is not None and provider.api_key_command:
        return f"key from the command {provider.api_key_command[0]}"
    entry = PROVIDERS.get(provider_id)
    names = key_variables(provider_id, provider)
    present = [name for name in names if env.get(name, "").strip()]
    if present:
        return f"key set ({present[0]})"
    if entry is not None and not entry.needs_key:
        return "needs no key"
    return f"no key ({' or '.join(names)})"


def _catalogue(catalogue: Catalogue) -> list[Check]:
    state = state_of(catalogue.data)
    trouble = f"; fetched data are not used: {state.trouble}" if state.trouble else ""
    checks = [Check(name="model catalogue", ok=None, detail=state.sentence + trouble)]
    if catalogue.override_file is not None:
        try:
            count = sum(map(len, catalogue.override.values()))
        except McodeError as error:
            checks.append(Check(name="catalogue file", ok=False, detail=error.message))
        else:
            detail = f"{counted(count, 'model')} in {catalogue.override_file}"
            checks.append(Check(name="catalogue file", ok=True, detail=detail))
    return checks


def _program(name: str, env: Mapping[str, str], *, needed: bool, without: str) -> Check:
    import shutil

    found = shutil.which(name, path=env.get("PATH"))
    if found:
        return Check(name=name, ok=True, detail=found)
    return Check(name=name, ok=False if needed else None, detail=f"not found; {without}")

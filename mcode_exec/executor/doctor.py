"""What would stop a run here: data directory, store, configuration, providers, programs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from mcode_exec import config as configuration
from mcode_exec import paths
from mcode_exec.config import Config
from mcode_exec.errors import McodeError
from mcode_exec.executor.models import is_local, parse_model
from mcode_exec.executor.runtime import Runtime
from mcode_exec.executor.workspaces import usable_workspace
from mcode_exec.providers import catalogue
from mcode_exec.providers.catalogue_data import data_date
from mcode_exec.records.invocation import Invocation
from mcode_exec.records.model import ModelRef
from mcode_exec.store import session_rows
from mcode_exec.store.filesystem import file_system_of


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
    if config is not None:
        checks += _config(config)
        checks += _model(config, env)
        checks += _providers(config, env)
    checks.append(_catalogue())
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
        runtime = await Runtime.open(Invocation(run_id="", data_dir=data_dir), dict(env))
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
    kind = file_system_of(os.path.realpath(data)) or "unknown file system"
    return [
        Check(name="data directory", ok=True, detail=f"{data} ({kind})"),
        Check(name="store", ok=found == "ok", detail=f"{count} sessions" if found == "ok" else found),
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


def _model(config: Config, env: Mapping[str, str]) -> list[Check]:
    if config.model is None:
        return [Check(name="model", ok=None, detail="none set: every run needs --model provider/model")]
    source = configuration.source_of(config, "model")
    try:
        ref = parse_model(config.model)
        detail = _reachable(ref, config, env)
    except McodeError as error:
        return [Check(name="model", ok=False, detail=f"{config.model} ({source}): {error.message}")]
    info = catalogue.model_info(ref, config.providers.get(ref.provider_id))
    price = f"{info.price.input}/{info.price.output} USD per million" if info.price else "price unknown"
    limits = f"context {info.context_tokens}, output {info.output_tokens} tokens ({info.source}), {price}"
    return [Check(name="model", ok=True, detail=f"{config.model} ({source}); {limits}; {detail}")]


def _reachable(ref: ModelRef, config: Config, env: Mapping[str, str]) -> str:
    """Where the model is called; raises what would stop the call before it is made."""
    from mcode_exec.errors import KeyMissingError

    provider = config.providers.get(ref.provider_id)
    if is_local(ref, provider):
        return "on this machine"
    endpoint = catalogue.endpoint_of(ref.provider_id, provider, env)
    if endpoint.api_key is None and endpoint.auth != "none":
        raise KeyMissingError(f"its key is missing: {endpoint.key_env or 'no source'} is not set")
    return f"{endpoint.api} at {_without_secrets(endpoint.base_url)}"


def _without_secrets(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return scheme + separator + authority.rpartition("@")[2] + slash + path.partition("?")[0]


def _providers(config: Config, env: Mapping[str, str]) -> list[Check]:
    checks = []
    for provider_id in sorted({*catalogue.PROVIDERS, *config.providers}):
        provider = config.providers.get(provider_id)
        if provider is not None and provider.api == "local":
            checks.append(Check(name=f"provider {provider_id}", ok=None, detail="runs on this machine"))
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
    entry = catalogue.PROVIDERS.get(provider_id)
    names = catalogue.key_variables(provider_id, provider)
    present = [name for name in names if env.get(name, "").strip()]
    if present:
        return f"key set ({present[0]})"
    if entry is not None and not entry.needs_key:
        return "needs no key"
    return f"no key ({' or '.join(names)})"


def _catalogue() -> Check:
    date = data_date()
    detail = f"limits and prices as of {date}" if date else "no data; every model has the stated defaults"
    return Check(name="model catalogue", ok=None, detail=detail)


def _program(name: str, env: Mapping[str, str], *, needed: bool, without: str) -> Check:
    import shutil

    found = shutil.which(name, path=env.get("PATH"))
    if found:
        return Check(name=name, ok=True, detail=found)
    return Check(name=name, ok=False if needed else None, detail=f"not found; {without}")

"""`--dry-run`: what would run, with the source of each value; no model call, no session, no store."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from mcode_exec import config as configuration
from mcode_exec import paths
from mcode_exec.errors import McodeError
from mcode_exec.executor.models import is_local, parse_model
from mcode_exec.executor.prompt import read_prompt
from mcode_exec.executor.settings import resolve, rule_set
from mcode_exec.executor.workspaces import workspace_of
from mcode_exec.permissions.judge import Judge
from mcode_exec.permissions.places import Scope
from mcode_exec.providers import catalogue
from mcode_exec.records.invocation import Invocation


async def describe(invocation: Invocation) -> dict[str, Any]:
    """The resolved invocation as plain values.  Raises what the run itself would raise before a model call."""
    env = dict(os.environ)
    workspace = workspace_of(invocation, env) or "@recorded"
    settings = resolve(invocation, env, workspace if workspace != "@recorded" else os.getcwd())
    prompt = await read_prompt(invocation)
    preset, rules = rule_set(settings, settings.agent, invocation, None, is_new=True)
    data = None if invocation.ephemeral else paths.data_dir(invocation.data_dir, env)
    scope = Scope(workspace=workspace, home=paths.home(env), temp_dir=None, data_dir=data)
    config = settings.config
    text, source = _model(invocation, settings, config)
    return {
        "invocation": {
            "workspace": workspace,
            "session": _session(invocation),
            "prompt": prompt.text[:500],
            "promptBytes": sum(len(msgspec.json.encode(block)) for block in prompt.content),
            "attachments": [block.filename for block in prompt.content if hasattr(block, "filename")],
            "dataDir": data,
            "agent": settings.agent.name if settings.agent is not None else None,
            "onAsk": invocation.on_ask,
            "outputFormat": invocation.output_format,
            "timeoutSeconds": settings.timeout_s,
        },
        "model": _describe_model(text, source, config, env),
        "limits": {
            "maxSteps": settings.limits.max_steps,
            "maxCostUsd": None if settings.limits.max_cost_usd is None else str(settings.limits.max_cost_usd),
            "maxTokens": settings.limits.max_tokens,
            "sources": settings.limits.sources,
        },
        "config": {
            "files": list(config.files),
            "isWorkspaceTrusted": config.is_workspace_trusted,
            "sources": config.sources,
        },
        "tools": list(settings.tools),
        "permission": {"preset": preset, "rules": Judge(rules, scope).describe()},
    }


def _session(invocation: Invocation) -> str:
    if invocation.session is not None:
        return invocation.session
    if invocation.continue_latest:
        return "the newest of the workspace"
    if invocation.session_key is not None:
        return f"the one bound to the key {invocation.session_key}"
    return "a private one, removed afterwards" if invocation.ephemeral else "a new one"


def _model(invocation: Invocation, settings: Any, config: configuration.Config) -> tuple[str | None, str]:
    if invocation.model is not None:
        return invocation.model, "--model"
    if settings.agent is not None and settings.agent.model is not None:
        return settings.agent.model, f"agent {settings.agent.name}"
    return config.model, configuration.source_of(config, "model")


def _describe_model(
    text: str | None, source: str, config: configuration.Config, env: dict[str, str]
) -> dict[str, Any]:
    if text is None:
        return {"name": None, "problem": "no model is set"}
    try:
        ref = parse_model(text)
        provider = config.providers.get(ref.provider_id)
        info = catalogue.model_info(ref, provider)
        described: dict[str, Any] = {
            "name": str(ref),
            "source": source,
            "contextTokens": info.context_tokens,
            "outputTokens": info.output_tokens,
            "limitsFrom": info.source,
            "priceUsdPerMillion": None
            if info.price is None
            else {"input": str(info.price.input), "output": str(info.price.output)},
        }
        if not is_local(ref, provider):
            endpoint = catalogue.endpoint_of(ref.provider_id, provider, env, with_key=False)
            described["api"] = endpoint.api
            described["keyFrom"] = endpoint.key_env
    except McodeError as error:
        return {"name": text, "source": source, "problem": error.message}
    return described

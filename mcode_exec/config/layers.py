"""From the files' tables to one `Config`: built-in < user < workspace < environment.

Tables of the schema merge key by key; permission tables never merge, they are
laid over each other in order; instruction files add up.  Every value that was
set keeps the name of the file that set it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcode_exec.config import records, trust
from mcode_exec.config.document import Document
from mcode_exec.config.records import Config
from mcode_exec.config.schema import checked, dotted
from mcode_exec.errors import ConfigError
from mcode_exec.paths import user_path

#: TOML key → field of the record, where they differ
_FIELDS = {
    "retry": {"base_delay": "base_delay_s", "max_delay": "max_delay_s", "budget": "budget_s"},
    "limits": {"max_cost": "max_cost_usd", "timeout": "timeout_s"},
    "models": {"context": "context_tokens", "output": "output_tokens"},
    "providers": {"api_key": "api_key_env"},
}
_KEY_SOURCES = ("api_key", "api_key_file", "api_key_command")
_REPLAY_KEYS = ("tools", "strict")
_PATH_KEYS = ("api_key_file", "path", "prompt_file")

Table = dict[str, Any]


class _Merged:
    """What the layers read so far add up to."""

    def __init__(self) -> None:
        self.table: Table = {}
        self.sources: dict[str, str] = {}
        self.instructions: list[records.InstructionFile] = []
        self.permission: list[records.RuleTable] = []


def config_of(
    user: Document | None,
    workspace_document: Document | None,
    *,
    workspace: str,
    env: Mapping[str, str],
    is_trusted: bool,
) -> Config:
    """The `Config` of the files that exist.  Raises: ConfigError at the first fault of any of them."""
    merged = _Merged()
    if user is not None:
        table = checked(user)
        is_trusted = is_trusted or trust.is_trusted(workspace, table, user.path, env)
        _lay_over(merged, user, table, workspace, env)
    deny = None
    if workspace_document is not None:
        deny = _workspace(merged, workspace_document, workspace, env, is_trusted)
    half_costs = _half_costs(merged, [d for d in (workspace_document, user) if d is not None])
    return Config(
        model=merged.table.get("model"),
        instructions=tuple(merged.instructions),
        providers={
            name: _provider(name, table, half_costs)
            for name, table in merged.table.get("providers", {}).items()
        },
        catalogue=records.CatalogueConfig(**merged.table.get("catalogue", {})),
        share=records.ShareConfig(**merged.table.get("share", {})),
        retry=records.RetryConfig(**_renamed("retry", merged.table)),
        timeouts=records.TimeoutConfig(**{f"{k}_s": v for k, v in merged.table.get("timeouts", {}).items()}),
        permission=tuple(merged.permission),
        workspace_deny=deny,
        agents={name: _agent(name, table) for name, table in merged.table.get("agents", {}).items()},
        limits=records.LimitConfig(**_renamed("limits", merged.table)),
        env_pass=merged.table.get("env", {}).get("pass", ()),
        is_workspace_trusted=is_trusted,
        files=tuple(document.path for document in (user, workspace_document) if document is not None),
        sources=merged.sources,
    )


def _workspace(
    merged: _Merged, document: Document, workspace: str, env: Mapping[str, str], is_trusted: bool
) -> records.RuleTable | None:
    """Lay the workspace's file over; its deny rules are returned if it is not trusted."""
    if is_trusted:
        trust.refuse_users_own(document)
        trust.refuse_replay(document, merged.table.get("providers", {}))
        _lay_over(merged, document, checked(document), workspace, env)
        return None
    trust.refuse_what_widens(document)
    table = checked(document)
    trust.refuse_instructions_outside(document, table.get("instructions", ()), workspace)
    limits = records.LimitConfig(**_renamed("limits", merged.table))
    names = {key: _FIELDS["limits"].get(key, key) for key in table.get("limits", {})}
    effective = {key: getattr(limits, field) for key, field in names.items()}
    trust.refuse_raised_limits(document, table.get("limits", {}), effective)
    rules = table.pop("permission", None)
    _lay_over(merged, document, table, workspace, env)
    return None if rules is None else records.RuleTable(source=document.path, table=rules)


def _lay_over(
    merged: _Merged, document: Document, table: Table, workspace: str, env: Mapping[str, str]
) -> None:
    _judge(document, table)
    _resolve_paths(document, table, env)
    for text in table.pop("instructions", ()):
        # a bare name means a file of the project; `~` and absolute paths are the user's own
        is_project = not text.startswith(("~", "/"))
        path = user_path(text, env, name="instructions", base=workspace)
        merged.instructions.append(
            records.InstructionFile(path=path, is_project=is_project, source=document.path)
        )
        merged.sources["instructions"] = document.path
    if "permission" in table:
        merged.permission.append(records.RuleTable(source=document.path, table=table.pop("permission")))
        merged.sources["permission"] = document.path
    table.pop("trusted_workspaces", None)
    for name, agent in table.get("agents", {}).items():
        if "permission" in agent:
            agent["permission"] = records.RuleTable(source=f"agent {name}", table=agent["permission"])
    _merge(merged.table, table, (), document.path, merged.sources)


def _merge(into: Table, table: Table, at: tuple[str, ...], source: str, sources: dict[str, str]) -> None:
    for group in (_KEY_SOURCES, ("prompt", "prompt_file")):
        if any(key in table for key in group):  # one takes the place of the other
            for key in group:
                into.pop(key, None)
                sources.pop(dotted((*at, key)), None)
    for key, value in table.items():
        here = (*at, key)
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value, here, source, sources)
        else:
            into[key] = value
            sources[dotted(here)] = source


def _judge(document: Document, table: Table) -> None:
    """What no single value can tell: keys of one table that do not go together."""
    for name, provider in table.get("providers", {}).items():
        given = [key for key in _KEY_SOURCES if key in provider]
        if len(given) > 1:
            raise document.fault(
                ("providers", name, given[1]),
                f"provider {name!r} has {given[0]} and {given[1]}: keep one of them.",
            )
        _judge_replay(document, name, provider)
        for model_id, model in provider.get("models", {}).items():
            if "context" in model and model.get("output", 0) > model["context"]:
                raise document.fault(
                    ("providers", name, "models", model_id, "output"),
                    f"model {model_id!r}: output ({model['output']}) is larger than context ({model['context']}).",
                )
    for name, agent in table.get("agents", {}).items():
        if "prompt" in agent and "prompt_file" in agent:
            raise document.fault(
                ("agents", name, "prompt_file"),
                f"agent {name!r} has prompt and prompt_file: keep one of them.",
            )
    timeouts = table.get("timeouts", {})
    if "command_max" in timeouts and timeouts.get("command", 0) > timeouts["command_max"]:
        raise document.fault(
            ("timeouts", "command"), '"timeouts.command" is longer than "timeouts.command_max".'
        )


def _half_costs(merged: _Merged, documents: list[Document]) -> dict[tuple[str, str], str]:
    """Where costs stand that have no input or no output when all files are laid over each other.

    The catalogue may know the other half, but nobody that of a long prompt's.
    Raises: ConfigError.
    """
    found = {}
    for name, provider in merged.table.get("providers", {}).items():
        for model_id, model in provider.get("models", {}).items():
            at = ("providers", name, "models", model_id, "cost")
            for key, cost in (
                (at, model.get("cost")),
                ((*at, "over_200k"), model.get("cost", {}).get("over_200k")),
            ):
                missing = [] if cost is None else [half for half in ("input", "output") if half not in cost]
                if not missing:
                    continue
                place, whole = _place_of(key, cost, merged, documents), dotted((*key, missing[0]))
                if key != at:
                    raise ConfigError(f'{place}: "{whole}" is missing: a price has input and output.')
                found[name, model_id] = f'{place}: "{whole}"'
    return found


def _place_of(key: tuple[str, ...], table: Table, merged: _Merged, documents: list[Document]) -> str:
    """`file:line` of a table, in the file that says the last of it."""
    said_by = {merged.sources.get(dotted((*key, name))) for name in table}
    document = next((one for one in documents if one.path in said_by), documents[-1])
    return document.place(key)


def _judge_replay(document: Document, name: str, provider: Table) -> None:
    """A recording has no address and takes no key; nothing else is played back."""
    if provider.get("api") == "replay":
        if "path" not in provider:
            raise document.fault(
                ("providers", name, "api"),
                f"provider {name!r} replays nothing: set path to the directory of a recording.",
            )
        other = [key for key in provider if key not in ("api", "path", *_REPLAY_KEYS)]
        if other:
            raise document.fault(
                ("providers", name, other[0]),
                f"provider {name!r} replays a recording: it takes path, tools and strict only.",
            )
        return
    for key in _REPLAY_KEYS:
        if key in provider:
            raise document.fault(
                ("providers", name, key), f'"{key}" belongs to a provider whose api is "replay".'
            )


def _resolve_paths(document: Document, table: Table, env: Mapping[str, str]) -> None:
    """Paths of files are from the directory of the file that names them."""
    base = os.path.dirname(os.path.abspath(document.path))
    if "file" in table.get("catalogue", {}):
        named = table["catalogue"]["file"]
        table["catalogue"]["file"] = user_path(named, env, name=f"{document.path}: catalogue.file", base=base)
    if "auto_dir" in table.get("share", {}):
        named = table["share"]["auto_dir"]
        table["share"]["auto_dir"] = user_path(named, env, name=f"{document.path}: share.auto_dir", base=base)
    for group in ("providers", "agents"):
        for entry in table.get(group, {}).values():
            for key in _PATH_KEYS:
                if key in entry:
                    entry[key] = user_path(entry[key], env, name=f"{document.path}: {key}", base=base)
            command = entry.get("api_key_command")
            if command and ("/" in command[0] or command[0].startswith("~")):
                program = user_path(command[0], env, name=f"{document.path}: api_key_command", base=base)
                entry["api_key_command"] = (program, *command[1:])


def _renamed(group: str, table: Table) -> dict[str, Any]:
    names = _FIELDS[group]
    return {names.get(key, key): value for key, value in table.get(group, {}).items()}


def _provider(name: str, table: Table, half_costs: Mapping[tuple[str, str], str]) -> records.ProviderConfig:
    fields = {_FIELDS["providers"].get(key, key): value for key, value in table.items() if key != "models"}
    models = {
        model_id: _model(model, half_costs.get((name, model_id)))
        for model_id, model in table.get("models", {}).items()
    }
    return records.ProviderConfig(name=name, models=models, **fields)


def _model(table: Table, half_cost: str | None) -> records.ModelConfig:
    fields = {_FIELDS["models"].get(key, key): value for key, value in table.items() if key != "cost"}
    cost = _cost_of(table["cost"]) if "cost" in table else None
    return records.ModelConfig(cost=cost, half_cost=half_cost, **fields)


def _agent(name: str, table: Table) -> records.AgentConfig:
    return records.AgentConfig(name=name, **table)


def _cost_of(table: dict[str, Any]) -> records.CostConfig:
    prices = dict(table)
    long = prices.pop("over_200k", None)
    return records.CostConfig(**prices, over_200k=None if long is None else records.CostConfig(**long))

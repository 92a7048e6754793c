"""What an invocation comes to: configuration, model, tools, permissions and limits, resolved before any session.

Everything that can be wrong with flags and configuration is found here, before
the store is opened and before any model call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from mcode_exec import config as configuration
from mcode_exec.agent.ports import Limits
from mcode_exec.config import AgentConfig, Config
from mcode_exec.errors import ConfigError, InvocationError, PriceUnknownError
from mcode_exec.executor.reading import read_source
from mcode_exec.permissions.rules import RuleSet, layer, parse_flag_rule, rules_from_table
from mcode_exec.records.invocation import FlagRule, Invocation
from mcode_exec.records.model import ModelInfo
from mcode_exec.records.permission import Preset, Rule
from mcode_exec.records.session import Session
from mcode_exec.tools import registry

DEFAULT_PRESET: Preset = "smart"
MAX_SYSTEM_PROMPT_BYTES = 1 << 20


class Settings(Struct, frozen=True, kw_only=True):
    """Resolved, session apart."""

    config: Config
    agent: AgentConfig | None
    tools: tuple[str, ...]
    limits: Limits
    flag_rules: tuple[Rule, ...]
    #: wall-clock limit of the run, seconds, and where it came from
    timeout_s: float | None
    timeout_source: str


def resolve(invocation: Invocation, env: Mapping[str, str], workspace: str) -> Settings:
    """Everything that flags and configuration say.  Raises: ConfigError, InvocationError."""
    config = configuration.load(
        flag_file=invocation.config_file, env=env, workspace=workspace, trust_flag=invocation.trust_workspace
    )
    return settings_of(invocation, config)


def settings_of(invocation: Invocation, config: Config) -> Settings:
    """Everything that the flags say over `config`.  Raises: ConfigError, InvocationError."""
    agent = _agent(config, invocation.agent)
    timeout_s, timeout_source = invocation.timeout_s, "--timeout"
    if timeout_s is None:
        timeout_s, timeout_source = config.limits.timeout_s, configuration.source_of(config, "limits.timeout")
    return Settings(
        config=config,
        agent=agent,
        tools=_tools(invocation, agent),
        limits=_limits(invocation, config),
        flag_rules=tuple(_flag_rule(rule) for rule in invocation.rules),
        timeout_s=timeout_s,
        timeout_source=timeout_source,
    )


def with_agent(settings: Settings, agent: AgentConfig | None, invocation: Invocation) -> Settings:
    """The settings of a turn whose agent is its session's, not a flag's.  Raises: ConfigError."""
    if agent is settings.agent:
        return settings
    return structs.replace(settings, agent=agent, tools=_tools(invocation, agent))


def _flag_rule(rule: FlagRule) -> Rule:
    return parse_flag_rule(rule.text, rule.verdict, "--allow" if rule.verdict == "allow" else "--deny")


def _agent(config: Config, name: str | None) -> AgentConfig | None:
    if name is None:
        return None
    agent = config.agents.get(name)
    if agent is None:
        known = ", ".join(sorted(config.agents)) or "none"
        raise ConfigError(f"there is no agent {name!r}; the config has: {known} (add [agents.{name}])")
    return agent


def _tools(invocation: Invocation, agent: AgentConfig | None) -> tuple[str, ...]:
    known = registry.tool_names()
    wanted = known if agent is None or agent.tools is None else agent.tools
    if invocation.tools is not None:
        wanted = invocation.tools
    for name in wanted:
        if name not in known:
            where = (
                "--tools"
                if invocation.tools is not None
                else f"tools of agent {agent.name}"
                if agent
                else "tools"
            )
            error = InvocationError if invocation.tools is not None else ConfigError
            raise error(f"{where}: there is no tool {name!r}; the tools are: {', '.join(known)}")
    return tuple(name for name in known if name in wanted)


def _limits(invocation: Invocation, config: Config) -> Limits:
    flags = {
        "steps": invocation.max_steps,
        "cost": invocation.max_cost_usd,
        "tokens": invocation.max_tokens,
    }
    sources = {
        name: configuration.source_of(config, f"limits.max_{name}") if value is None else f"--max-{name}"
        for name, value in flags.items()
    }
    own = config.limits
    return Limits(
        max_steps=own.max_steps if invocation.max_steps is None else invocation.max_steps,
        max_cost_usd=own.max_cost_usd if invocation.max_cost_usd is None else invocation.max_cost_usd,
        max_tokens=own.max_tokens if invocation.max_tokens is None else invocation.max_tokens,
        sources=sources,
    )


def check_price(limits: Limits, model: ModelInfo) -> None:
    """A cost limit needs a price: an unknown one is never treated as free."""
    if limits.max_cost_usd is not None and model.price is None:
        raise PriceUnknownError(
            f"a cost limit of {limits.max_cost_usd} USD ({limits.sources.get('cost')}) cannot be kept: "
            f"the price of {model.ref} is unknown"
            + (
                " (a replay costs nothing)"
                if model.source == "recording"
                else "; set `cost` for it in the config"
            )
        )


def check_rules(invocation: Invocation) -> None:
    """Raise InvocationError for permission flags that cannot be meant."""
    for rule in invocation.rules:
        _flag_rule(rule)
    _check_off(invocation.permission, invocation)


def _check_off(preset: Preset | None, invocation: Invocation) -> None:
    if preset == "off" and any(rule.verdict == "deny" for rule in invocation.rules):
        raise InvocationError(
            "--deny has no effect with --permission off, which checks nothing; use --permission full with it"
        )


def permission_of(invocation: Invocation) -> dict[str, object]:
    """What a session that this invocation creates keeps of its permission flags."""
    kept: dict[str, object] = {}
    if invocation.permission is not None:
        kept["preset"] = invocation.permission
    if invocation.rules:
        kept["rules"] = [[rule.verdict, rule.text] for rule in invocation.rules]
    return kept


def rule_set(
    settings: Settings,
    agent: AgentConfig | None,
    invocation: Invocation,
    session: Session | None,
    *,
    is_new: bool,
) -> tuple[Preset, RuleSet]:
    """The rules of this turn: preset < config < agent < session < flags < workspace deny rules.

    Raises: InvocationError, ConfigError.
    """
    kept = session.permission if session is not None and not is_new else {}
    preset: Preset = invocation.permission or _preset(kept) or DEFAULT_PRESET
    _check_off(preset, invocation)
    rules = _laid(settings, preset, agent, kept, settings.flag_rules)
    return preset, rules


def parent_rules(
    settings: Settings, session: Session | None
) -> tuple[tuple[RuleSet, ...], tuple[tuple[str, str], ...]]:
    """The rules of the sessions above this one, the nearest first, as they were when it was made; and notices.

    Flags of a turn are not among them: they widen nothing that a parent forbids.
    """
    found: list[RuleSet] = []
    notices: list[tuple[str, str]] = []
    for kept in () if session is None else session.permission.get("inherited", ()):
        name = kept.get("agent")
        agent = settings.config.agents.get(name) if name is not None else None
        if name is not None and agent is None:
            lost = f"the config has no agent {name!r} any more, whose rules a session above this one had"
            notices.append(("agent.missing", lost))
        found.append(_laid(settings, _preset(kept) or DEFAULT_PRESET, agent, kept, ()))
    return tuple(found), tuple(notices)


def _laid(
    settings: Settings,
    preset: Preset,
    agent: AgentConfig | None,
    kept: Mapping[str, Any],
    flags: tuple[Rule, ...],
) -> RuleSet:
    """The layers over each other; `kept`: what a session keeps of the flags that it was made with."""
    config = settings.config
    session_rules = tuple(
        parse_flag_rule(str(text), "allow" if verdict == "allow" else "deny", "session")
        for verdict, text in kept.get("rules", ())
    )
    return layer(
        preset,
        config=tuple(
            rule for table in config.permission for rule in rules_from_table(table.table, table.source)
        ),
        agent=rules_from_table(agent.permission.table, agent.permission.source)
        if agent is not None and agent.permission is not None
        else (),
        session=session_rules,
        flags=flags,
        workspace_deny=rules_from_table(config.workspace_deny.table, config.workspace_deny.source)
        if config.workspace_deny is not None
        else (),
    )


def _preset(kept: Mapping[str, object]) -> Preset | None:
    value = kept.get("preset")
    return value if value in ("smart", "full", "off", "read-only") else None


async def read_system_prompt(path: str) -> str:
    """The text of `--system-prompt-file`.  Raises: InvocationError."""
    what = f"--system-prompt-file {path}"
    data = await read_source(path, MAX_SYSTEM_PROMPT_BYTES, what=what)
    if len(data) > MAX_SYSTEM_PROMPT_BYTES:
        raise InvocationError(f"{what} is larger than {MAX_SYSTEM_PROMPT_BYTES} bytes (1 MiB)")
    try:
        return data.decode("utf-8-sig").replace("\0", "\ufffd")
    except UnicodeDecodeError as error:
        raise InvocationError(f"{what} is not UTF-8 (byte offset {error.start})") from error

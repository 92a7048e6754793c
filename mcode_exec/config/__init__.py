"""Configuration: files and environment, laid over each other, with the source of each value.

Invariants: nothing is ever written; `.env` files are never read; an untrusted
workspace can only narrow; where no file exists nothing of TOML is imported.
Flags are laid over the result by the executor.  Every fault is a ConfigError
(exit 3) that names file, line and key.

`records` what a configuration is · `document` one file · `lines` where a key
stands · `schema`, `values` what may be set · `trust` what a workspace may set ·
`layers` all together · `keys` provider keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcode_exec.config.keys import key_names, key_source, resolve_key
from mcode_exec.config.records import (
    BUILT_IN,
    AgentConfig,
    CatalogueConfig,
    Config,
    CostConfig,
    InstructionFile,
    LimitConfig,
    ModelConfig,
    ProviderConfig,
    RetryConfig,
    RuleTable,
    TimeoutConfig,
)
from mcode_exec.errors import ConfigError
from mcode_exec.paths import config_file, open_regular

__all__ = [
    "BUILT_IN",
    "AgentConfig",
    "CatalogueConfig",
    "Config",
    "CostConfig",
    "InstructionFile",
    "LimitConfig",
    "ModelConfig",
    "ProviderConfig",
    "RetryConfig",
    "RuleTable",
    "TimeoutConfig",
    "agent_prompt",
    "key_names",
    "key_source",
    "load",
    "resolve_key",
    "source_of",
    "text_variable",
]

_MAX_PROMPT_BYTES = 256 * 1024


def load(*, flag_file: str | None, env: Mapping[str, str], workspace: str | None, trust_flag: bool) -> Config:
    """Read what there is and lay it over the built-in values.

    `workspace` is the canonical workspace directory, if there is one; `flag_file` what `--config` says.
    Raises: ConfigError.
    """
    if env.get("MCODE_DATABASE_URL"):
        # a run that silently kept its sessions elsewhere would be worse than none
        raise ConfigError("MCODE_DATABASE_URL is not available in this version of mcode; unset it.")
    user_file = config_file(flag_file, env)
    is_named = bool(flag_file or env.get("MCODE_CONFIG"))
    has_user_file = user_file is not None and (is_named or os.path.lexists(user_file))
    has_workspace_file = workspace is not None and _may_exist(
        os.path.join(workspace, ".mcode", "config.toml")
    )
    config = Config(is_workspace_trusted=trust_flag)
    if has_user_file or has_workspace_file or env.get("MCODE_TRUST_WORKSPACE"):
        config = _load_files(
            user_file, is_named=is_named, env=env, workspace=workspace, trust_flag=trust_flag
        )
    return _with_environment(config, env)


def _load_files(
    user_file: str | None,
    *,
    is_named: bool,
    env: Mapping[str, str],
    workspace: str | None,
    trust_flag: bool,
) -> Config:
    from mcode_exec.config.document import WORKSPACE_FILE, find_user_document, find_workspace_document
    from mcode_exec.config.layers import config_of
    from mcode_exec.config.trust import trusted_by_environment

    is_trusted = trusted_by_environment(env) or trust_flag
    user = find_user_document(user_file, is_named=is_named) if user_file else None
    if workspace is None:  # nothing runs there: what is relative to it only needs to be absolute
        return config_of(user, None, workspace=os.sep, env=env, is_trusted=is_trusted)
    workspace_document = None
    workspace_file = os.path.join(workspace, WORKSPACE_FILE)
    # the user who names the workspace's own file as theirs has said whose word it is
    if user is None or os.path.realpath(user.path) != os.path.realpath(workspace_file):
        workspace_document = find_workspace_document(workspace)
    return config_of(user, workspace_document, workspace=workspace, env=env, is_trusted=is_trusted)


def _may_exist(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # the reader says what is wrong
    return True


def _with_environment(config: Config, env: Mapping[str, str]) -> Config:
    model = text_variable(env, "MCODE_MODEL")
    if not model:
        return config
    from msgspec.structs import replace

    from mcode_exec.config import values

    try:
        checked = values.model(model)
    except values.WrongValueError as wrong:
        raise ConfigError(f"MCODE_MODEL {wrong}") from None
    return replace(config, model=checked, sources={**config.sources, "model": "MCODE_MODEL"})


def text_variable(env: Mapping[str, str], name: str) -> str:
    """The value of a variable whose text goes further than this process; empty where it is unset.

    Raises: ConfigError for bytes that are no text.
    """
    value = env.get(name, "")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{name} is not valid UTF-8 (at byte {len(os.fsencode(value[: error.start]))})."
        ) from None
    return value


def source_of(config: Config, key: str) -> str:
    """Where the value of a dotted key comes from: a file, a variable, or `built-in`."""
    return config.sources.get(key, BUILT_IN)


def agent_prompt(agent: AgentConfig) -> str | None:
    """The agent's own prompt, read from its file if it names one.

    Raises: ConfigError where the file cannot be used.
    """
    if agent.prompt_file is None:
        return agent.prompt
    what = f"prompt_file of agent {agent.name!r}, {agent.prompt_file},"
    try:
        with open(open_regular(agent.prompt_file), "rb") as file:
            data = file.read(_MAX_PROMPT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}.") from error
    if len(data) > _MAX_PROMPT_BYTES:
        raise ConfigError(f"{what} is larger than 256 KiB.")
    try:
        return data.decode("utf-8-sig").replace("\0", "\ufffd")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} is not UTF-8 (at byte {error.start}).") from error

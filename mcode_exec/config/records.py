"""The configuration as frozen records: what is set, in one place, with its source.

Providers hold overrides only; what is well known about a provider stands in
the provider catalogue, and None here means "as the catalogue says".  Keys are
never in here, only where they come from.  A permission table is kept raw and
in file order, because only the permissions room reads rules.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct

from mcode_exec.config.credentials import secrets_in

Api = Literal["anthropic-messages", "openai-completions", "openai-responses", "local", "replay"]
Auth = Literal["bearer", "x-api-key", "api-key"]

BUILT_IN = "built-in"


class CostConfig(Struct, frozen=True, kw_only=True):
    """USD per million tokens, as far as the configuration says."""

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    #: prices of a call whose prompt has more than 200,000 tokens
    over_200k: CostConfig | None = None


class ModelConfig(Struct, frozen=True, kw_only=True):
    """What the configuration says about one model of a provider."""

    context_tokens: int | None = None
    output_tokens: int | None = None
    cost: CostConfig | None = None
    #: where a cost stands that has no input or no output: `file:line "key"`; somebody else may say the other half
    half_cost: str | None = None
    #: whether it takes images and PDF files
    images: bool | None = None


class ProviderConfig(Struct, frozen=True, kw_only=True):
    """Overrides of a well-known provider, or the whole of one that only the user knows."""

    name: str
    api: Api | None = None
    base_url: str | None = None
    #: where the key comes from; at most one of the three is set
    api_key_env: str | None = None
    api_key_file: str | None = None
    api_key_command: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    auth: Auth | None = None
    #: the GGUF file of a `local` provider, the directory that a `replay` provider plays back; absolute
    path: str | None = None
    #: of a `replay` provider: whether tools are run, or give back what was recorded
    tools: Literal["recorded", "live"] = "recorded"
    #: of a `replay` provider: whether a request must be the recorded one byte for byte
    strict: bool = False
    models: dict[str, ModelConfig] = {}

    @property
    def has_key_source(self) -> bool:
        return bool(self.api_key_env or self.api_key_file or self.api_key_command)

    @property
    def key_may_change(self) -> bool:
        """Whether the key's source may give another key later, and takes its time to give one."""
        return bool(self.api_key_file or self.api_key_command)


class RetryConfig(Struct, frozen=True, kw_only=True):
    """docs/contract.md §6; `max_retries` counts what follows the first request."""

    max_retries: int = 5
    base_delay_s: float = 1.0
    max_delay_s: float = 30.0
    #: from the first failure on
    budget_s: float = 120.0


class TimeoutConfig(Struct, frozen=True, kw_only=True):
    connect_s: float = 10.0
    first_byte_s: float = 120.0
    #: longest silence inside a stream
    idle_s: float = 90.0
    #: a command without its own limit, and the longest limit one may ask for
    command_s: float = 120.0
    command_max_s: float = 1800.0


class LimitConfig(Struct, frozen=True, kw_only=True):
    """None: no limit."""

    max_steps: int | None = 200
    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None
    timeout_s: float | None = None


class RuleTable(Struct, frozen=True, kw_only=True):
    """A `[permission]` table: permission → verdict, or permission → {pattern: verdict}, in file order."""

    source: str
    table: dict[str, Any]


class AgentConfig(Struct, frozen=True, kw_only=True):
    """`[agents.NAME]`; at most one of `prompt` and `prompt_file` is set."""

    name: str
    model: str | None = None
    prompt: str | None = None
    #: absolute
    prompt_file: str | None = None
    permission: RuleTable | None = None
    #: None: all tools
    tools: tuple[str, ...] | None = None


class CatalogueConfig(Struct, frozen=True, kw_only=True):
    """`[catalogue]`: what is known of models, beside what comes with mcode; the user's file only."""

    #: a file in the shape of models.dev that wins over the catalogue's data; absolute
    file: str | None = None
    #: what `mcode models --refresh` fetches
    url: str | None = None


class ShareConfig(Struct, frozen=True, kw_only=True):
    """`[share]`: pages of sessions for other readers; the user's file only."""

    #: directory in which every conversation has its page; absolute
    auto_dir: str | None = None


class InstructionFile(Struct, frozen=True, kw_only=True):
    """A further instruction file that the configuration names; absolute path."""

    path: str
    #: named relative to the workspace, or by its file: must really lie inside the project
    is_project: bool
    source: str


class Config(Struct, frozen=True, kw_only=True):
    """Everything that files and environment set; flags are laid over it by the executor."""

    model: str | None = None
    instructions: tuple[InstructionFile, ...] = ()
    providers: dict[str, ProviderConfig] = {}
    catalogue: CatalogueConfig = CatalogueConfig()
    share: ShareConfig = ShareConfig()
    retry: RetryConfig = RetryConfig()
    timeouts: TimeoutConfig = TimeoutConfig()
    #: the user's table, then a trusted workspace's; later wins
    permission: tuple[RuleTable, ...] = ()
    #: deny rules of an untrusted workspace: laid over everything, flags included
    workspace_deny: RuleTable | None = None
    agents: dict[str, AgentConfig] = {}
    limits: LimitConfig = LimitConfig()
    #: variables that commands get although their names look secret
    env_pass: tuple[str, ...] = ()
    is_workspace_trusted: bool = False
    #: the files that were read, in the order they were laid over each other
    files: tuple[str, ...] = ()
    #: dotted key → `built-in`, a file, or the variable that set it
    sources: dict[str, str] = {}

    @property
    def secret_env_names(self) -> frozenset[str]:
        """Variables that hold a provider key, whatever their names look like."""
        return frozenset(p.api_key_env for p in self.providers.values() if p.api_key_env)

    @property
    def secret_literals(self) -> tuple[str, ...]:
        """Keys that stand in headers and query parameters as they are: to be masked like any other."""
        return tuple(
            secret
            for provider in self.providers.values()
            for table in (provider.headers, provider.query)
            for name, value in table.items()
            for secret in secrets_in(name, value)
        )

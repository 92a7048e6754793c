"""The providers that are built in: how each is spoken to, where it is, and which variables hold its key.

Owns the table and nothing else; what is read from it stands in `endpoints` and `catalogue`.
"""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.providers.wire import Auth
from mcode_exec.records.model import WireFormat


class ProviderEntry(Struct, frozen=True, kw_only=True):
    """A well-known provider."""

    id: str
    api: WireFormat
    #: wire format -> address
    base_urls: dict[str, str]
    #: variables that may hold the key, in the order they are tried
    key_envs: tuple[str, ...] = ()
    base_url_env: str
    auth: Auth = "bearer"
    #: its name in the catalogue's data; None: the data does not know it
    catalogue_id: str | None = None
    #: format spoken at an address other than its own, where that differs
    api_elsewhere: WireFormat | None = None

    @property
    def needs_key(self) -> bool:
        return bool(self.key_envs)


_ENTRIES = (
    ProviderEntry(
        id="anthropic",
        api="anthropic-messages",
        base_urls={"anthropic-messages": "https://api.anthropic.com"},
        key_envs=("ANTHROPIC_API_KEY",),
        base_url_env="ANTHROPIC_BASE_URL",
        auth="x-api-key",
        catalogue_id="anthropic",
    ),
    ProviderEntry(
        id="openai",
        api="openai-responses",
        base_urls={
            "openai-responses": "https://api.openai.com/v1",
            "openai-completions": "https://api.openai.com/v1",
        },
        key_envs=("OPENAI_API_KEY",),
        base_url_env="OPENAI_BASE_URL",
        catalogue_id="openai",
        # servers that stand in for OpenAI speak chat completions
        api_elsewhere="openai-completions",
    ),
    ProviderEntry(
        id="minimax",
        api="openai-completions",
        base_urls={
            "openai-completions": "https://api.minimax.io/v1",
            "anthropic-messages": "https://api.minimax.io/anthropic",
        },
        key_envs=("MINIMAX_API_KEY",),
        base_url_env="MINIMAX_BASE_URL",
        catalogue_id="minimax",
    ),
    ProviderEntry(
        id="openrouter",
        api="openai-completions",
        base_urls={"openai-completions": "https://openrouter.ai/api/v1"},
        key_envs=("OPENROUTER_API_KEY",),
        base_url_env="OPENROUTER_BASE_URL",
        catalogue_id="openrouter",
    ),
    ProviderEntry(
        id="deepseek",
        api="openai-completions",
        base_urls={
            "openai-completions": "https://api.deepseek.com",
            "anthropic-messages": "https://api.deepseek.com/anthropic",
        },
        key_envs=("DEEPSEEK_API_KEY",),
        base_url_env="DEEPSEEK_BASE_URL",
        catalogue_id="deepseek",
    ),
    ProviderEntry(
        id="gemini",
        api="openai-completions",
        base_urls={"openai-completions": "https://generativelanguage.googleapis.com/v1beta/openai"},
        key_envs=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url_env="GEMINI_BASE_URL",
        catalogue_id="google",
    ),
    ProviderEntry(
        id="ollama",
        api="openai-completions",
        base_urls={"openai-completions": "http://127.0.0.1:11434/v1"},
        base_url_env="OLLAMA_BASE_URL",
    ),
    ProviderEntry(
        id="llama.cpp",
        api="openai-completions",
        base_urls={
            "openai-completions": "http://127.0.0.1:8080/v1",
            "openai-responses": "http://127.0.0.1:8080/v1",
            "anthropic-messages": "http://127.0.0.1:8080/v1",
        },
        base_url_env="LLAMA_CPP_BASE_URL",
    ),
)

#: the built-in providers, by id
PROVIDERS: dict[str, ProviderEntry] = {entry.id: entry for entry in _ENTRIES}

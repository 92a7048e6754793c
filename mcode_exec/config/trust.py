"""What of a workspace's file may be read although a pull request can change it.

Only what narrows: deny rules, limits that lower, and instruction files inside
the workspace.  Anything else ends the run before any of the file is applied.
Trust is the user's word alone: a flag, a variable, or `trusted_workspaces` in
the user's own file; a workspace cannot vouch for itself or for others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mcode_exec.config.document import Document
from mcode_exec.config.schema import dotted
from mcode_exec.errors import ConfigError, McodeError
from mcode_exec.paths import is_inside, user_path

_HOW_TO_TRUST = (
    "nothing of this file was applied. If you trust this directory: --trust-workspace, "
    "MCODE_TRUST_WORKSPACE=1, or trusted_workspaces in your own config file"
)


def is_trusted(workspace: str, user_table: dict[str, Any], user_file: str, env: Mapping[str, str]) -> bool:
    """Whether the user's own file names exactly this directory."""
    real = os.path.realpath(workspace)
    return any(
        os.path.realpath(user_path(text, env, name="trusted_workspaces", base=os.path.dirname(user_file)))
        == real
        for text in user_table.get("trusted_workspaces", ())
    )


def trusted_by_environment(env: Mapping[str, str]) -> bool:
    value = env.get("MCODE_TRUST_WORKSPACE", "")
    if value not in ("", "0", "1"):
        raise ConfigError(
            f"MCODE_TRUST_WORKSPACE is {value!r}; it is 1 to trust the workspace's config file, else 0."
        )
    return value == "1"


def refuse_what_widens(document: Document) -> None:
    """Refuse every key that an untrusted workspace may not set; limits are compared once their values are known.

    Raises: ConfigError that names the first such key.
    """
    for key, value in document.table.items():
        if key == "permission" and isinstance(value, dict):
            _refuse_all_but_deny(document, value, ("permission",))
        elif key not in ("permission", "limits", "instructions"):
            raise _refusal(
                document, _first_leaf(key, value), "is not read from a workspace that is not trusted"
            )


def refuse_raised_limits(document: Document, limits: dict[str, Any], effective: Mapping[str, Any]) -> None:
    """`effective`: the limits without this file; None is no limit, so anything lowers it."""
    for key, value in limits.items():
        current = effective[key]
        if current is not None and value > current:
            raise _refusal(document, ("limits", key), "raises a limit, and the workspace is not trusted")


def refuse_instructions_outside(document: Document, instructions: tuple[str, ...], workspace: str) -> None:
    for text in instructions:
        if text.startswith("~") or not is_inside(os.path.join(workspace, text), workspace):
            raise _refusal(
                document, ("instructions",), f"names {text!r} outside the workspace, which is not trusted"
            )


def refuse_users_own(document: Document) -> None:
    """Even a trusted workspace does not decide which others are, what models cost, nor who reads along."""
    for key in ("trusted_workspaces", "catalogue", "share"):
        if key in document.table:
            raise document.fault((key,), f'"{key}" belongs into your own config file only.')


def refuse_replay(document: Document, of_user: Mapping[str, Any]) -> None:
    """Whose words an answer is, only the user's own file decides; `of_user`: the providers it names."""
    for name, provider in document.table.get("providers", {}).items():
        if not isinstance(provider, dict):
            continue
        if "replay" in (provider.get("api"), of_user.get(name, {}).get("api")):
            raise document.fault(
                ("providers", name),
                f"provider {name!r} replays a recording: name it in your own config file only.",
            )


def _refuse_all_but_deny(document: Document, table: dict[str, Any], at: tuple[str, ...]) -> None:
    for key, value in table.items():
        if isinstance(value, dict):
            _refuse_all_but_deny(document, value, (*at, key))
        elif value in ("allow", "ask"):
            raise _refusal(
                document, (*at, key), f'= "{value}": only deny rules are read from an untrusted workspace'
            )


def _first_leaf(key: str, value: object) -> tuple[str, ...]:
    at: tuple[str, ...] = (key,)
    while isinstance(value, dict) and value:
        inner = next(iter(value))
        at = (*at, inner)
        value = value[inner]
    return at


def _refusal(document: Document, key: tuple[str, ...], what: str) -> McodeError:
    return document.fault(key, f'"{dotted(key)}" {what}; {_HOW_TO_TRUST}.')

"""The environment that commands of the model get.

Invariant: no secret passes unless a person named its variable, and nothing in
it lets a program wait for a human: no pager, no editor, no prompt, no colour.
The runner adds the tag by which strays are found; see processes.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mcode_exec.redaction import MIN_SECRET_CHARS, is_secret_name

_SECRET_PREFIXES = ("MCODE_", "AWS_", "ACTIONS_")
_SECRET_NAMES = frozenset({"GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "SSH_AUTH_SOCK"})

#: a file that bash would source, options it would take over, and what overrides NO_COLOR
_DROPPED = frozenset(
    {
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "FORCE_COLOR",
        "CLICOLOR_FORCE",
        "COLORTERM",
        "LINES",
        "COLUMNS",
    }
)

_FIXED = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    # an editor that fails ends `git commit` at once, with git's own words
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "never",
    "SUDO_ASKPASS": "/bin/false",
    "GCM_INTERACTIVE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
}

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _is_kept_back(name: str) -> bool:
    """Whether a variable of this name is kept from commands by the contract's list, whatever its case."""
    upper = name.upper()
    return upper in _SECRET_NAMES or upper.startswith(_SECRET_PREFIXES) or is_secret_name(name)


def command_environment(
    base: Mapping[str, str],
    *,
    passed: Collection[str],
    secret_names: Collection[str],
    secret_values: Collection[str],
    temp_dir: str,
) -> dict[str, str]:
    """`base` without secrets, made safe for programs that nobody watches.

    `secret_names` are the key variables of the configured providers,
    `secret_values` what must not pass under any name; `passed` names win over
    both.  Bytes that are no UTF-8 stay as `os.environ` holds them.
    """
    named = {name.upper() for name in secret_names}
    values = [value for value in secret_values if len(value) >= MIN_SECRET_CHARS]
    env: dict[str, str] = {}
    for name, value in base.items():
        if name not in passed and (
            name in _DROPPED
            or name.upper() in named
            or _is_kept_back(name)
            or any(secret in value for secret in values)
        ):
            continue
        env[name] = value
    for name, value in _FIXED.items():
        if name not in passed or name not in base:
            env[name] = value
    env["TMPDIR"] = temp_dir
    env.setdefault("PATH", _DEFAULT_PATH)
    _ensure_utf8(env)
    return env


def _ensure_utf8(env: dict[str, str]) -> None:
    chosen = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    if "utf-8" in chosen.lower() or "utf8" in chosen.lower():
        return
    env["LC_ALL"] = "C.UTF-8"

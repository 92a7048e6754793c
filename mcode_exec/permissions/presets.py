"""What each preset says where no rule of the user matches.

`smart` looks at commands with the risk list and `read-only` with the known
read-only set; both tables here hold for everything that is no command.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcode_exec.permissions.credentials import is_credential_file, is_env_file
from mcode_exec.permissions.places import Name, Places
from mcode_exec.records.permission import Preset, Rule, Verdict

#: preset → permission → verdict; a permission that is not named: `*`
_TABLES: dict[Preset, dict[str, Verdict]] = {
    "smart": {
        "read": "allow",
        "glob": "allow",
        "grep": "allow",
        "list": "allow",
        "edit": "allow",
        "bash": "allow",
        "external_directory": "ask",
        "doom_loop": "ask",
        "*": "ask",
    },
    "read-only": {
        "read": "allow",
        "glob": "allow",
        "grep": "allow",
        "list": "allow",
        "bash": "deny",
        "external_directory": "ask",
        "doom_loop": "ask",
        "*": "deny",
    },
    "full": {"doom_loop": "ask", "*": "allow"},
    "off": {"doom_loop": "ask", "*": "allow"},
}


def preset_rule(preset: Preset, permission: str) -> Rule:
    """The preset's word on a permission as a whole."""
    table = _TABLES[preset]
    verdict = table.get(permission, table["*"])
    return Rule(permission=permission, pattern="*", verdict=verdict, source=f"preset {preset}")


def preset_path_rule(preset: Preset, permission: str, name: Name, places: Places) -> Rule:
    """The preset's word on one name of a path."""
    rule = preset_rule(preset, permission)
    if preset in ("full", "off") or rule.verdict != "allow":
        return rule
    pattern = None
    if permission in ("read", "grep"):
        if is_env_file(name.path):
            pattern = ".env*"
        elif is_credential_file(name.path, places.homes()):
            pattern = "credentials"
    elif permission == "edit":
        parts = name.path.split("/")
        pattern = ".git/*" if ".git" in parts else ".mcode/*" if ".mcode" in parts else None
    if pattern is None:
        return rule
    return Rule(permission=permission, pattern=pattern, verdict="ask", source=rule.source)


def describe_preset(preset: Preset) -> list[tuple[str, str, str]]:
    """Rows of permission, pattern and verdict, for people."""
    rows = [(permission, "*", str(verdict)) for permission, verdict in _TABLES[preset].items()]
    if preset == "smart":
        rows += [
            ("bash", "(risk list)", "ask"),
            ("read", ".env*", "ask"),
            ("edit", ".git/*", "ask"),
            ("edit", ".mcode/*", "ask"),
        ]
    if preset == "read-only":
        rows += [("bash", "(known read-only commands)", "allow"), ("read", ".env*", "ask")]
    if preset != "off":
        rows.append(("*", "(floor: disks, home, fork bombs, mcode's own files)", "deny"))
    return rows


_STRICTNESS: tuple[Preset, ...] = ("off", "full", "smart", "read-only")


def strictest_preset(presets: Iterable[Preset]) -> Preset:
    """The one of `presets` that allows the least; there is at least one."""
    return max(presets, key=_STRICTNESS.index)

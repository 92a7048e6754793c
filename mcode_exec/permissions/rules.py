"""Rules as people write them, and the order in which layers of them lie over each other.

Owns: the grammar of `--allow`/`--deny`, of `[permission]` tables, and RuleSet.
Invariant: a later rule wins over an earlier one, and deny rules of the
workspace come last of all, so an untrusted file can only take away.
Leaves to others: what a preset says (presets.py), what a subject is (judge.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from msgspec import Struct

from mcode_exec.errors import ConfigError, InvocationError
from mcode_exec.permissions.matching import matches
from mcode_exec.records.permission import Preset, Rule, Verdict

PERMISSIONS = (
    "read",
    "edit",
    "glob",
    "grep",
    "list",
    "bash",
    "external_directory",
    "doom_loop",
)

#: permissions whose subject is a path
PATH_PERMISSIONS = frozenset({"read", "edit", "glob", "grep", "list", "external_directory"})

#: names people try, and what they mean
_MEANT = {"write": "edit", "patch": "edit", "shell": "bash", "ls": "list"}

_VERDICTS = ("allow", "ask", "deny")
_STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


def strictness(verdict: Verdict) -> int:
    """Order of verdicts: allow < ask < deny."""
    return _STRICTNESS[verdict]


class RuleSet(Struct, frozen=True, kw_only=True):
    """A preset and the rules laid over it, the strongest last."""

    preset: Preset = "smart"
    rules: tuple[Rule, ...] = ()
    #: deny rules of the workspace's own file, above all others
    workspace_deny: tuple[Rule, ...] = ()

    @property
    def strongest_first(self) -> tuple[Rule, ...]:
        return (*self.rules, *self.workspace_deny)[::-1]

    @property
    def may_hide(self) -> bool:
        """Whether some tool may be denied as a whole: only then is it worth asking a judge which."""
        return self.preset == "read-only" or any(rule.verdict == "deny" for rule in self.strongest_first)


def layer(
    preset: Preset,
    *,
    config: Iterable[Rule] = (),
    agent: Iterable[Rule] = (),
    session: Iterable[Rule] = (),
    flags: Iterable[Rule] = (),
    workspace_deny: Iterable[Rule] = (),
) -> RuleSet:
    """Lay the sources over each other; of the workspace only deny rules are taken."""
    return RuleSet(
        preset=preset,
        rules=(*config, *agent, *session, *flags),
        workspace_deny=tuple(rule for rule in workspace_deny if rule.verdict == "deny"),
    )


def applies_to(rule: Rule, permission: str) -> bool:
    """Whether the rule's permission, which may be a pattern, covers this one; letter case is ignored."""
    return rule.permission == permission or matches(rule.permission.lower(), permission.lower())


def parse_flag_rule(text: str, verdict: Verdict, source: str) -> Rule:
    """Read `bash:git *`, `edit:*.env` or a bare `bash` as given to --allow and --deny.

    Raises: InvocationError with one sentence.
    """
    permission, colon, pattern = text.partition(":")
    permission = permission.strip()
    if "\0" in text:
        raise InvocationError(f"{source} {_shown(text)}: a rule cannot contain a NUL character.")
    if not permission:
        raise InvocationError(
            f"{source} {_shown(text)}: a rule is PERMISSION or PERMISSION:PATTERN, as in 'bash:git *'."
        )
    if colon and not pattern.strip():
        raise InvocationError(
            f"{source} {_shown(text)}: the pattern after the colon is empty; use {_shown(permission)} for everything."
        )
    problem = _permission_problem(permission)
    if problem:
        raise InvocationError(f"{source} {_shown(text)}: {problem}")
    return Rule(
        permission=_canonical(permission), pattern=pattern if colon else "*", verdict=verdict, source=source
    )


def rules_from_table(table: Mapping[str, object], source: str) -> tuple[Rule, ...]:
    """Read a `[permission]` table: permission → verdict, or permission → pattern → verdict, in file order.

    Raises: ConfigError naming the key.
    """
    found: list[Rule] = []
    for permission, value in table.items():
        key = f"permission.{permission}"
        problem = _permission_problem(permission)
        if problem:
            raise ConfigError(f"{source}: {key}: {problem}", key=key)
        patterns = value if isinstance(value, Mapping) else {"*": value}
        for pattern, verdict in patterns.items():
            where = f'{key}."{pattern}"' if isinstance(value, Mapping) else key
            if not isinstance(pattern, str) or not pattern or "\0" in pattern:
                raise ConfigError(
                    f"{source}: {where}: a pattern must be a text that is not empty.", key=where
                )
            if verdict not in _VERDICTS:
                raise ConfigError(
                    f'{source}: {where}: must be "allow", "ask" or "deny", not {verdict!r}.', key=where
                )
            found.append(
                Rule(
                    permission=_canonical(permission),
                    pattern=pattern,
                    verdict=cast("Verdict", verdict),
                    source=source,
                )
            )
    return tuple(found)


def _canonical(permission: str) -> str:
    lower = permission.lower()
    return lower if lower in PERMISSIONS else permission


def _permission_problem(permission: str) -> str | None:
    """Why this is no permission; patterns are taken as they are."""
    lower = permission.lower()
    if lower in PERMISSIONS or "*" in lower or "?" in lower:
        return None
    if not lower:
        return "a permission must have a name."
    nearest = _MEANT.get(lower)
    if nearest is None:
        from difflib import get_close_matches

        nearest = next(iter(get_close_matches(lower, PERMISSIONS, n=1)), None)
    meant = f"; did you mean '{nearest}'?" if nearest else f"; known are {', '.join(PERMISSIONS)}."
    return f"{_shown(permission)} is no permission{meant}"


def _shown(text: str) -> str:
    printable = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return f"'{printable if len(printable) <= 80 else printable[:77] + '...'}'"

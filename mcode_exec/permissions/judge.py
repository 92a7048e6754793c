"""The judge: allow, ask or deny for what a tool call needs.

Order of decision for each subject: the floor, then the user's rules from the
last to the first, then the preset.  Of several decisions the strictest holds.
It reads links of paths at the moment it is asked, keeps nothing of a subject,
and never raises for one.  What bash is made of: shell.py; commands: commands.py.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from mcode_exec.permissions import explain
from mcode_exec.permissions.paths import PathJudge
from mcode_exec.permissions.places import Places, Scope
from mcode_exec.permissions.presets import describe_preset, preset_rule
from mcode_exec.permissions.rulebook import RuleBook, is_universal
from mcode_exec.permissions.rules import PATH_PERMISSIONS, RuleSet, strictness
from mcode_exec.records.permission import Decision, Need

if TYPE_CHECKING:
    from mcode_exec.permissions.commands import CommandJudge

_ALLOWED = Decision(verdict="allow", origin="default")


def strictest(decisions: Iterable[Decision]) -> Decision:
    """The first of the strictest decisions; allow if there is none.

    Of equals one over something unknown goes first: only a rule for every command lifts it, and that
    is what must be said.
    """

    def key(decision: Decision) -> tuple[int, bool]:
        return strictness(decision.verdict), decision.origin == "unparsed"

    return max(decisions, key=key, default=_ALLOWED)


class Judge:
    """Judges the tool calls of one run under its rules."""

    def __init__(self, rules: RuleSet, scope: Scope) -> None:
        self._rules = rules
        self._scope = scope
        self._book = RuleBook(rules, scope)
        self._places = Places(scope)
        self._paths = PathJudge(rules, self._book, self._places)

    @cached_property
    def _commands(self) -> CommandJudge:
        """Loaded at the first command: a run without one does not pay for it."""
        from mcode_exec.permissions.commands import CommandJudge

        return CommandJudge(self._rules, self._book, self._places, self._paths)

    def judge(self, needs: Sequence[Need]) -> Decision:
        """The strictest decision over all that a call needs."""
        return strictest([self._one(need) for need in needs])

    def hides(self, tool_permission: str) -> bool:
        """Whether everything under this permission is denied, so that its tools need not be offered."""
        if self._rules.preset == "off":
            return False
        for rule in self._book.applying(tool_permission):
            if rule.verdict != "deny":
                return False
            if is_universal(rule):
                return True
        if tool_permission == "bash":
            return False
        return preset_rule(self._rules.preset, tool_permission).verdict == "deny"

    def describe(self) -> list[dict[str, str]]:
        """Every rule in force, the weakest first, for people and --dry-run."""
        preset = self._rules.preset
        rows = [
            {"permission": permission, "pattern": pattern, "verdict": verdict, "source": f"preset {preset}"}
            for permission, pattern, verdict in describe_preset(preset)
        ]
        for rule in reversed(self._rules.strongest_first):
            rows.append(
                {
                    "permission": rule.permission,
                    "pattern": rule.pattern,
                    "verdict": rule.verdict,
                    "source": rule.source,
                }
            )
        return rows

    def _one(self, need: Need) -> Decision:
        permission = need.permission
        if self._rules.preset == "off" and permission != "doom_loop":
            rule = preset_rule("off", permission)
            return explain.by_rule(permission, need.subject, rule, hint="")
        if permission == "bash":
            return strictest(self._commands.decisions(need.subject))
        if permission in PATH_PERMISSIONS:
            path = posixpath.join(self._scope.workspace, need.subject)
            return strictest(self._paths.decisions(permission, path))
        rule = self._book.find(permission, need.subject) or preset_rule(self._rules.preset, permission)
        return explain.by_rule(
            permission,
            need.subject,
            rule,
            hint=explain.how_to_allow(permission, "*" if permission == "doom_loop" else need.subject),
            is_final=rule in self._rules.workspace_deny,
        )

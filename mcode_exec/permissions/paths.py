"""Judges paths: both names of a file, and whether it lies outside of the workspace."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from mcode_exec.permissions import explain
from mcode_exec.permissions.places import Name, Places, is_disk, is_no_file
from mcode_exec.permissions.presets import preset_path_rule, preset_rule
from mcode_exec.permissions.rulebook import RuleBook, is_universal
from mcode_exec.permissions.rules import RuleSet
from mcode_exec.records.permission import Decision, Rule

_LOOKING = frozenset({"read", "grep", "glob", "list"})


class PathJudge:
    def __init__(self, rules: RuleSet, book: RuleBook, places: Places) -> None:
        self._rules = rules
        self._book = book
        self._places = places

    def decisions(self, permission: str, path: str) -> Iterator[Decision]:
        """All decisions over one absolute path: each of its names, and external_directory where it lies outside."""
        names = None if "\0" in path else self._places.names(path)
        if names is None:
            why = "a path cannot contain a NUL character" if "\0" in path else "this path cannot be resolved"
            yield explain.by_floor(permission, path, why)
            return
        actual = names[-1].path
        if permission == "edit":
            for name in names:
                if self._places.is_mcodes_own(name.path) or is_disk(name.path):
                    yield explain.by_floor(
                        permission, path, "it is mcode's own data or configuration, or a disk"
                    )
        if permission == "external_directory":
            names = tuple(name for name in names if self._places.is_external(name.path)) or names
        is_tool_output = permission in _LOOKING and self._places.is_tool_output(actual)
        for name in names:
            yield self._by_name(permission, name)
        if permission == "external_directory" or is_tool_output or is_no_file(actual):
            return
        if self._places.is_external(actual):
            for name in names:
                if self._places.is_external(name.path):
                    yield self._by_name("external_directory", name)

    def forbidden_by_rule(self, permission: str, path: str, *, particular: bool) -> Decision | None:
        """A decision of the user's own rules that forbids this path, by either of its names."""
        for name in (self._places.names(path) or ()) if "\0" not in path else ():
            rule = self._book.find_for_name(permission, name)
            if rule is not None and rule.verdict != "allow" and not (particular and is_universal(rule)):
                return self._decided(permission, name, rule)
        return None

    def unknown(self, permission: str, shown: str) -> Decision:
        """A decision over a path that nobody knows before the script runs."""
        rule = self._book.find_for_anything(permission) or preset_rule(self._rules.preset, permission)
        if rule.verdict == "allow":
            return explain.by_rule(permission, shown, rule, hint="")
        decision = explain.by_rule(permission, shown, rule, hint=explain.how_to_allow(permission, "*"))
        if rule.verdict == "deny" and not is_universal(rule):
            rule = Rule(permission=rule.permission, pattern=rule.pattern, verdict="ask", source=rule.source)
            return explain.by_rule(permission, shown, rule, hint=explain.how_to_allow(permission, "*"))
        return decision

    def _by_name(self, permission: str, name: Name) -> Decision:
        rule = self._book.find_for_name(permission, name)
        if rule is None:
            rule = preset_path_rule(self._rules.preset, permission, name, self._places)
        return self._decided(permission, name, rule)

    def _decided(self, permission: str, name: Name, rule: Rule) -> Decision:
        if rule.verdict == "allow":
            return explain.by_rule(permission, name.path, rule, hint="")
        wanted = name.relative or name.path
        if permission == "external_directory":
            wanted = posixpath.join(posixpath.dirname(name.path), "*")
        return explain.by_rule(
            permission,
            name.path,
            rule,
            hint=explain.how_to_allow(permission, wanted),
            is_final=rule in self._rules.workspace_deny,
        )

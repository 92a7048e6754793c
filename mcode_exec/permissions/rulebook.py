"""Finds the rule that decides over a subject: the last one that matches.

Owns how patterns and subjects are compared.  Paths are compared in full,
relative to the workspace and, for rules that forbid, by their base name and
with links in the rule's own path followed, so that a rule cannot be passed by
taking the other name.  Presets are not looked at here.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from mcode_exec.permissions.matching import GLOB, UNKNOWN, could_match, matches
from mcode_exec.permissions.places import Name, Scope, is_inside, normal, real
from mcode_exec.permissions.rules import RuleSet, applies_to
from mcode_exec.permissions.script import Simple
from mcode_exec.records.permission import Rule

_MOST_LINKS_SOUGHT = 2_000  # directory entries looked at to find a hard link's other name
_WILD = frozenset("*?")
_HOMES = ("~", "$HOME", "${HOME}")


class Finding(Struct, frozen=True):
    """The rule that decides over a command, and whether it surely matches."""

    rule: Rule
    #: the rule forbids, and matches only for some values of what is not known yet
    is_possible: bool = False


class RuleBook:
    """The user's rules of one run, strongest first."""

    def __init__(self, rules: RuleSet, scope: Scope) -> None:
        self._strongest_first = rules.strongest_first
        self._home = scope.home
        self._workspace = scope.workspace
        self._applying: dict[str, tuple[Rule, ...]] = {}
        self._expanded: dict[str, str] = {}

    def applying(self, permission: str) -> tuple[Rule, ...]:
        """Rules over a permission, strongest first."""
        found = self._applying.get(permission)
        if found is None:
            found = tuple(rule for rule in self._strongest_first if applies_to(rule, permission))
            self._applying[permission] = found
        return found

    def forbids_anything(self, permission: str) -> bool:
        return any(rule.verdict != "allow" for rule in self.applying(permission))

    def find(self, permission: str, subject: str) -> Rule | None:
        """The rule over a subject that is neither path nor command."""
        for rule in self.applying(permission):
            if matches(rule.pattern, subject):
                return rule
        return None

    def find_for_anything(self, permission: str) -> Rule | None:
        """The rule over a subject that nobody knows: the strongest one that forbids, or one that allows all."""
        for rule in self.applying(permission):
            if rule.verdict != "allow" or is_universal(rule):
                return rule
        return None

    # -- commands -----------------------------------------------------------------------------------------------

    def find_for_command(self, command: Simple, *, only_universal_allows: bool) -> Finding | None:
        """The rule over a simple command.

        An allow rule must match whatever the unknown parts will be; one that
        forbids counts already if it could match.
        """
        text, pattern = command.text, command.pattern
        is_known = text == pattern
        patterns = [pattern]
        if command.words and not command.words[0].is_literal and "/" in command.words[0].pattern:
            # `/bin/r* x` may be what a rule for `rm x` means
            patterns.append(pattern[command.words[0].pattern.rindex("/") + 1 :])
        surely = pattern.replace(UNKNOWN, UNKNOWN * 3).replace(GLOB, GLOB * 3)
        possible: Rule | None = None
        for rule in self.applying("bash"):
            wanted = self.expanded(rule.pattern)
            if rule.verdict == "allow":
                if is_universal(rule) or (not only_universal_allows and matches(wanted, surely)):
                    return Finding(rule) if possible is None else Finding(possible, is_possible=True)
            elif matches(wanted, text) or matches(wanted, surely):
                return Finding(rule)
            elif not is_known and possible is None and any(could_match(wanted, p) for p in patterns):
                possible = rule
        return None if possible is None else Finding(possible, is_possible=True)

    def find_for_form(self, command: Simple) -> Rule | None:
        """The rule over another form of a command: only what was written about it in particular counts."""
        text = command.text
        for rule in self.applying("bash"):
            if matches(self.expanded(rule.pattern), text):
                return None if is_universal(rule) else rule
        return None

    def may_forbid(self, name: str) -> bool:
        """Whether a rule forbids commands that begin with this name in particular.

        A pattern that begins with a wildcard says nothing about where a command begins, and matches the whole.
        """
        return name in self._forbidden_names or name.startswith(self._forbidden_starts)

    @cached_property
    def _forbidden_firsts(self) -> tuple[str, ...]:
        """The first words of the patterns of particular rules that forbid commands."""
        rules = (rule for rule in self.applying("bash") if rule.verdict != "allow" and not is_universal(rule))
        return tuple(dict.fromkeys(self.expanded(rule.pattern).partition(" ")[0] for rule in rules))

    @cached_property
    def _forbidden_names(self) -> frozenset[str]:
        return frozenset(first for first in self._forbidden_firsts if not _WILD & set(first))

    @cached_property
    def _forbidden_starts(self) -> tuple[str, ...]:
        starts = (
            first.partition("*")[0].partition("?")[0]
            for first in self._forbidden_firsts
            if _WILD & set(first)
        )
        return tuple(start for start in starts if start)

    def find_for_guess(self, guess: Simple, command: Simple) -> Rule | None:
        """The rule that forbids what a command may run; one that allows the command itself lifts the weaker ones."""
        for rule in self.applying("bash"):
            wanted = self.expanded(rule.pattern)
            if rule.verdict == "allow":
                if matches(wanted, guess.text) or matches(wanted, command.text):
                    return None
            elif matches(wanted, guess.text):
                return None if is_universal(rule) else rule
        return None

    def find_for_pipeline(self, script: str) -> Rule | None:
        """A rule that forbids and spells out a pipe or list, such as `curl * | sh`, over the whole script."""
        text = " ".join(script.split())
        for rule in self.applying("bash"):
            spells_it_out = rule.verdict != "allow" and any(c in rule.pattern for c in "|;&<>`(")
            if spells_it_out and matches(self.expanded(rule.pattern), text):
                return rule
        return None

    # -- paths --------------------------------------------------------------------------------------------------

    def find_for_name(self, permission: str, name: Name) -> Rule | None:
        """The rule over one name of a path."""
        for rule in self.applying(permission):
            if self._matches_name(rule, name):
                return rule
        return None

    def find_possible(self, permission: str, path_pattern: str) -> Rule | None:
        """A particular rule that forbids and could match a path with unknown parts, links before them followed."""
        paths = [path_pattern]
        known = path_pattern.partition(GLOB)[0].partition(UNKNOWN)[0].rpartition("/")[0] or "/"
        resolved = real(known)
        if resolved is not None:
            paths.append(posixpath.join(resolved, path_pattern[len(known) :].lstrip("/")))
        root = self._workspace.rstrip("/") + "/"
        texts = [*paths, *(path[len(root) :] for path in paths if path.startswith(root))]
        base = posixpath.basename(path_pattern)
        for rule in self.applying(permission):
            if is_universal(rule):
                return None
            if rule.verdict == "allow":
                continue
            wanted = self.expanded(rule.pattern)
            patterns = self._forbidding_patterns(wanted)
            if any(_could_lie_at(p, t, wanted) for p in patterns for t in texts) or (
                "/" not in wanted and could_match(wanted, base)
            ):
                return rule
        return None

    def _matches_name(self, rule: Rule, name: Name) -> bool:
        if is_universal(rule):
            return True
        wanted = self.expanded(rule.pattern)
        texts = [name.path] if name.relative is None else [name.path, name.relative]
        if rule.verdict == "allow":
            return any(matches(wanted, text) for text in texts)
        if "/" not in wanted:
            texts.append(posixpath.basename(name.path))
            if name.relative is not None and not _WILD & set(wanted):
                texts += name.relative.split("/")  # what is in a directory of that name, wherever it stands
        patterns = list(self._forbidding_patterns(wanted))
        alike = _folded if name.folds_case else _composed
        known = {alike(text) for text in texts}
        return any(matches(alike(p), text) for p in patterns for text in known) or self._is_hard_link(
            patterns, name
        )

    def _forbidding_patterns(self, wanted: str) -> Iterator[str]:
        """The pattern, the directory it speaks of or all that is in the one it names, and these with links followed."""
        base = wanted.rstrip("*")
        is_whole_directory = base.endswith("/") and len(base) > 1
        yield wanted
        if is_whole_directory:
            yield base[:-1]
        start = wanted.partition("*")[0].partition("?")[0]
        named = normal(posixpath.join(self._workspace, start))
        # a rule over a directory that holds the workspace is about that directory alone
        names_all_below = start == wanted and not is_inside(self._workspace, real(named) or named)
        if names_all_below:
            yield wanted.rstrip("/") + "/*"
        directory = start if start == wanted else start[: start.rfind("/") + 1]
        if "/" not in directory:
            return
        absolute = posixpath.join(self._workspace, directory)
        resolved = real(absolute)
        if resolved is None or resolved == absolute.rstrip("/"):
            return
        rest = wanted[len(directory) :]
        yield resolved + ("/" + rest if rest else "")
        if is_whole_directory and not rest.strip("*"):
            yield resolved
        if names_all_below:
            yield resolved + "/*"

    def _is_hard_link(self, patterns: list[str], name: Name) -> bool:
        """Whether a file with several links has one that the rule names or has in its directory."""
        try:
            info = os.stat(name.path)
        except (OSError, ValueError):
            return False
        if info.st_nlink < 2 or os.path.isdir(name.path):
            return False
        for pattern in patterns:
            start = pattern.partition("*")[0].partition("?")[0]
            if start == pattern and _is_same(posixpath.join(self._workspace, pattern), info):
                return True
            directory = posixpath.join(self._workspace, start[: start.rfind("/") + 1])
            if (start != pattern or "/" not in pattern) and self._holds_link(directory, pattern, info):
                return True
        return False

    def _holds_link(self, directory: str, pattern: str, info: os.stat_result) -> bool:
        seen = 0
        for at, _, files in os.walk(directory):
            for file in files:
                seen += 1
                if seen > _MOST_LINKS_SOUGHT:
                    return False
                path = posixpath.join(at, file)
                texts = (path, posixpath.relpath(path, self._workspace), *(() if "/" in pattern else (file,)))
                if any(matches(pattern, text) for text in texts) and _is_same(path, info):
                    return True
        return False

    def expanded(self, pattern: str) -> str:
        """`~` and `$HOME` replaced at the start of the pattern and of each word in it."""
        found = self._expanded.get(pattern)
        if found is None:
            found = pattern
            if self._home and ("~" in pattern or "HOME" in pattern):
                found = " ".join(self._expanded_word(word) for word in pattern.split(" "))
            found = found[2:] if found.startswith("./") and " " not in found else found
            self._expanded[pattern] = found
        return found

    def _expanded_word(self, word: str) -> str:
        for home in _HOMES:
            if word == home or word.startswith(home + "/"):
                return str(self._home) + word[len(home) :]
        return word


def is_universal(rule: Rule) -> bool:
    return not rule.pattern.strip("*")


def _could_lie_at(pattern: str, text: str, wanted: str) -> bool:
    """Whether the text could match; what lies below a directory that the rule names lies deeper than the directory."""
    is_below = pattern.endswith("/*") and not wanted.endswith("*")
    return not (is_below and text.count("/") < pattern.count("/")) and could_match(pattern, text)


def _is_same(path: str, info: os.stat_result) -> bool:
    try:
        other = os.stat(path)
    except OSError:
        return False
    return (other.st_dev, other.st_ino) == (info.st_dev, info.st_ino)


def _composed(text: str) -> str:
    """The text as it looks: a name may be written with composed characters or with marks of their own."""
    if text.isascii():
        return text
    import unicodedata

    return unicodedata.normalize("NFC", text)


def _folded(text: str) -> str:
    return _composed(text).casefold()

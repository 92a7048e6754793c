"""Judges a bash script: each simple command in all its forms, each redirection, and what stays unknown."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator

from msgspec import structs

from mcode_exec.permissions import explain
from mcode_exec.permissions.effects import effects, paths_read
from mcode_exec.permissions.floor import command_floor, may_concern, redirect_floor, script_floor
from mcode_exec.permissions.guesses import guesses
from mcode_exec.permissions.links import MadeLinks
from mcode_exec.permissions.options import without_leading_options
from mcode_exec.permissions.paths import PathJudge
from mcode_exec.permissions.places import Places, is_no_file, normal
from mcode_exec.permissions.presets import preset_rule
from mcode_exec.permissions.readonly import is_read_only
from mcode_exec.permissions.risk import reads_credential, risk
from mcode_exec.permissions.rulebook import RuleBook
from mcode_exec.permissions.rules import RuleSet
from mcode_exec.permissions.script import Form, Redirect, Simple, Word
from mcode_exec.permissions.shell import parse_script
from mcode_exec.records.permission import Decision, Rule


class CommandJudge:
    def __init__(self, rules: RuleSet, book: RuleBook, places: Places, paths: PathJudge) -> None:
        self._rules = rules
        self._book = book
        self._places = places
        self._paths = paths
        self._preset = preset_rule(rules.preset, "bash")

    def decisions(self, script: str) -> Iterator[Decision]:
        """All decisions over a script; at least one."""
        scope = self._places.scope
        parsed = parse_script(script, home=scope.home, directory=scope.workspace, temp_dir=scope.temp_dir)
        why = script_floor(script, parsed)
        if why:
            yield explain.by_floor("bash", script, why)
        whole = self._book.find_for_pipeline(script)
        if whole is not None:
            yield self._decided(script, whole, explain.how_to_allow("bash", "*"))
        links = MadeLinks()
        judge = self
        for forms in parsed.commands:
            yield from judge._command(forms)
            for form in forms:
                if form.role == "main":
                    links.note(form.command, judge._places)
            if links.targets and judge is self:
                linked = self._places.with_links(links.targets)
                judge = CommandJudge(self._rules, self._book, linked, self._paths)
        for redirect in parsed.redirects:  # of which nobody knows before which command they stand
            yield from judge._redirect(redirect)
        for why in parsed.unparsed:
            yield self._unparsed(script, why)
        if not parsed.commands and not parsed.unparsed:
            yield self._nothing_run(script)

    def _nothing_run(self, script: str) -> Decision:
        """A script of assignments, comments or nothing at all."""
        rule = self._book.find("bash", script.strip())
        if rule is None:
            rule = Rule(permission="bash", pattern="*", verdict="allow", source=self._preset.source)
        return self._decided(script, rule, explain.how_to_allow("bash", "*"))

    # -- simple commands ----------------------------------------------------------------------------------------

    def _command(self, forms: tuple[Form, ...]) -> Iterator[Decision]:
        allowed_above = False
        for form in forms:
            command = form.command
            if form.role != "outer" or command.name == "env":
                yield from self._guessed(command)
            if form.role != "main":
                rule = self._book.find_for_form(command)
                if rule is not None and rule.verdict == "allow":
                    allowed_above = allowed_above or form.role == "outer"
                elif rule is not None:
                    yield self._decided(command.text, rule, self._hint(command))
                continue
            why = command_floor(command, self._places)
            if why:
                yield explain.by_floor("bash", command.text, why)
            for words in without_leading_options(command.words):
                rule = self._book.find_for_guess(structs.replace(command, words=words), command)
                if rule is not None:
                    yield self._decided(command.text, rule, self._hint(command))
            decision, is_allowed_by_user = self._main(command, is_lifted=allowed_above)
            allowed_above = allowed_above or is_allowed_by_user
            yield decision
            yield from self._by_files(command)

    def _guessed(self, command: Simple) -> Iterator[Decision]:
        """What forbids the commands that a program we do not know may run."""
        for guess in guesses(command, self._is_wanted, self._commands_in):
            why = command_floor(guess, self._places)
            if why:
                yield explain.by_floor("bash", command.text, why)
            rule = self._book.find_for_guess(guess, command)
            if rule is not None:
                yield self._decided(guess.text, rule, self._hint(command), run_by=command.name)

    def _is_wanted(self, name: str) -> bool:
        return may_concern(name) or self._book.may_forbid(name)

    def _commands_in(self, script: str) -> Iterator[Simple]:
        scope = self._places.scope
        parsed = parse_script(script, home=scope.home, directory=scope.workspace, temp_dir=scope.temp_dir)
        return (form.command for forms in parsed.commands for form in forms)

    def _main(self, command: Simple, *, is_lifted: bool) -> tuple[Decision, bool]:
        """The decision, and whether a rule of the user allows the command."""
        is_dynamic = bool(command.words) and not command.words[0].is_literal
        finding = self._book.find_for_command(
            command, only_universal_allows=is_dynamic or bool(command.tampered)
        )
        if finding is None:
            return self._by_preset(command, is_dynamic=is_dynamic, is_lifted=is_lifted), False
        if not finding.is_possible:
            return self._decided(
                command.text, finding.rule, self._hint(command)
            ), finding.rule.verdict == "allow"
        why = f"the rule '{finding.rule}' may be meant, which cannot be told before it runs"
        return explain.unparsed(command.text, why, finding.rule, "ask"), False

    def _by_preset(self, command: Simple, *, is_dynamic: bool, is_lifted: bool) -> Decision:
        preset = self._rules.preset
        allowed = Rule(permission="bash", pattern="*", verdict="allow", source=self._preset.source)
        if preset == "read-only":
            if is_dynamic or not is_read_only(command):
                why = Rule(
                    permission="bash",
                    pattern="*",
                    verdict="deny",
                    source="preset read-only: no known read-only command",
                )
                return self._decided(command.text, why, self._hint(command))
            if any(reads_credential(word, command.directories, self._places) for word in paths_read(command)):
                return explain.by_risk(
                    command.text, "it reads credentials", self._preset, self._hint(command)
                )
        elif preset == "smart":
            if is_dynamic:
                return explain.unparsed(
                    command.text, "the program it starts is not known before it runs", self._preset, "ask"
                )
            why_risky = None if is_lifted else risk(command, self._places)
            if why_risky:
                return explain.by_risk(command.text, why_risky, self._preset, self._hint(command))
        return self._decided(command.text, allowed, "")

    def _by_files(self, command: Simple) -> Iterator[Decision]:
        """The user's rules over files hold for the files in a command's words, as far as those are known."""
        if self._book.forbids_anything("edit"):
            changed = effects(command)
            for word in (*changed.writes, *changed.deletes):
                yield from self._forbidden("edit", word, command.directories, particular=False)
        if self._book.forbids_anything("read"):
            for word in paths_read(command):
                yield from self._forbidden("read", word, command.directories, particular=True)

    def _forbidden(
        self, permission: str, word: Word, directories: tuple[str, ...], *, particular: bool
    ) -> Iterator[Decision]:
        if not word.text or "\0" in word.text or len(word.text) > 4_096:
            return
        for directory in ("",) if word.text.startswith("/") else directories:
            path = posixpath.join(directory, word.text)
            if not word.is_literal:
                if not word.is_unknown:
                    rule = self._book.find_possible(permission, posixpath.join(directory, word.pattern))
                    if rule is not None:
                        why = f"the rule '{rule}' may be meant, which cannot be told before it runs"
                        yield explain.unparsed(word.text, why, rule, "ask")
                    for found in self._places.expansions(posixpath.join(directory, word.pattern)):
                        decision = self._paths.forbidden_by_rule(permission, found, particular=particular)
                        if decision is not None:
                            yield decision
                continue
            for way in self._places.linked(path):
                if is_no_file(normal(way)):
                    continue
                if permission == "read" and not ("/" in word.text or "." in word.text or _exists(way)):
                    continue
                decision = self._paths.forbidden_by_rule(permission, way, particular=particular)
                if decision is not None:
                    yield decision

    # -- redirections and the rest ------------------------------------------------------------------------------

    def _redirect(self, redirect: Redirect) -> Iterator[Decision]:
        target = redirect.target
        why = redirect_floor(redirect, self._places)
        if why:
            yield explain.by_floor("bash", f"> {target.text}", why)
        if not redirect.writes:
            yield from self._forbidden("read", target, redirect.directories, particular=True)
            if self._rules.preset in ("smart", "read-only") and reads_credential(
                target, redirect.directories, self._places
            ):
                hint = explain.how_to_allow("read", target.text)
                if not self._is_allowed_to_read(target, redirect.directories):
                    yield explain.by_risk(f"< {target.text}", "it reads credentials", self._preset, hint)
            return
        paths = self._places.candidates(target, redirect.directories)
        if not target.is_literal or paths is None:
            yield self._paths.unknown("edit", target.text)
        for path in paths or ():
            if not is_no_file(normal(path)):
                yield from self._paths.decisions("edit", path)

    def _is_allowed_to_read(self, target: Word, directories: tuple[str, ...]) -> bool:
        """Whether the user's rules allow reading the file by all of its names."""
        for path in self._places.candidates(target, directories) or ():
            for name in self._places.names(path) or ():
                rule = self._book.find_for_name("read", name)
                if rule is None or rule.verdict != "allow":
                    return False
        return True

    def _unparsed(self, script: str, why: str) -> Decision:
        rule = self._book.find_for_anything("bash")
        if rule is not None:
            if rule.verdict == "allow":
                return self._decided(script, rule, "")
            return explain.unparsed(script, why, rule, "ask")
        if self._preset.verdict == "allow" and self._rules.preset != "smart":
            return self._decided(script, self._preset, "")
        return explain.unparsed(
            script, why, self._preset, "deny" if self._preset.verdict == "deny" else "ask"
        )

    def _decided(self, subject: str, rule: Rule, hint: str, run_by: str = "") -> Decision:
        is_final = rule in self._rules.workspace_deny
        return explain.by_rule("bash", subject, rule, hint=hint, is_final=is_final, run_by=run_by)

    def _hint(self, command: Simple) -> str:
        return explain.how_to_allow("bash", explain.command_pattern(command))


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:
        return False

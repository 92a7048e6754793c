"""The sentence that goes with a verdict: what was judged, why, and how the user can allow it."""

from __future__ import annotations

from mcode_exec.permissions.script import Simple
from mcode_exec.permissions.vocabulary import names
from mcode_exec.records.permission import Decision, Rule, Verdict

_LONGEST = 200  # characters of a command or path in a sentence

#: tools whose second word says what they do
WITH_SUBCOMMANDS = names(
    "git npm pnpm yarn bun cargo docker podman kubectl helm gh glab go uv pip pip3 poetry aws gcloud "
    "az terraform systemctl apt apt-get brew dotnet mvn gem bundle make npx"
)


def shown(text: str) -> str:
    """The text on one line, without control characters, and not too long."""
    line = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def how_to_allow(permission: str, pattern: str) -> str:
    """The flag that allows it, or a wider one where the pattern cannot be quoted."""
    if (
        not pattern
        or pattern == "*"
        or not pattern.isprintable()
        or "'" in pattern
        or len(pattern) > _LONGEST
    ):
        return f"--allow {permission}"
    return f"--allow '{permission}:{pattern}'"


def command_pattern(command: Simple) -> str:
    """A pattern for the command and its like: `git push *`, `make *`."""
    words = command.words[:2]
    if not words or not words[0].is_literal or not words[0].text:
        return ""
    first = words[0].text
    takes_second = (
        command.name in WITH_SUBCOMMANDS
        and command.name != "make"
        and len(words) > 1
        and words[1].is_literal
        and words[1].text.replace("-", "").replace(":", "").isalnum()
        and not words[1].text.startswith("-")
    )
    return f"{first} {words[1].text} *" if takes_second else f"{first} *"


def by_rule(
    permission: str, subject: str, rule: Rule, *, hint: str, is_final: bool = False, run_by: str = ""
) -> Decision:
    """The user's rule, or a preset's, decided; `run_by`: the program that may run the subject, as far as we know."""
    verdict = rule.verdict
    may_run = f", which `{shown(run_by)}` may run," if run_by else ""
    where = f" ({rule.source})" if rule.source else ""
    if verdict == "allow":
        return Decision(verdict="allow", permission=permission, pattern=subject, rule=rule)
    said = (
        f"{permission}: `{shown(subject)}`{may_run} is denied"
        if verdict == "deny"
        else f"{permission}: `{shown(subject)}`{may_run} must be asked for"
    )
    reason = f"{said} by the rule '{shown(str(rule))}'{where}"
    if is_final:
        reason += ", which no flag lifts."
    else:
        reason += f"; the user can allow it with {hint}."
    return Decision(verdict=verdict, permission=permission, pattern=subject, rule=rule, reason=reason)


def by_risk(subject: str, why: str, preset: Rule, hint: str) -> Decision:
    """Asked although `preset` allows commands: the rule that is named is the preset's list of risks."""
    rule = Rule(permission="bash", pattern="*", verdict="ask", source=f"{preset.source}: {why}")
    reason = (
        f"bash: `{shown(subject)}` must be asked for, because {why} ({preset.source}); "
        f"the user can allow it with {hint}."
    )
    return Decision(
        verdict="ask", permission="bash", pattern=subject, rule=rule, reason=reason, origin="risk"
    )


def by_floor(permission: str, subject: str, why: str) -> Decision:
    reason = f"{permission}: `{shown(subject)}` is denied, because {why}; no rule allows that."
    return Decision(verdict="deny", permission=permission, pattern=subject, reason=reason, origin="floor")


def unparsed(subject: str, why: str, rule: Rule | None, verdict: Verdict) -> Decision:
    """A script, or a part of it, that nobody can tell the meaning of before it runs."""
    said = "is denied" if verdict == "deny" else "must be asked for"
    reason = (
        f"bash: `{shown(subject)}` {said}, because {why}. Write it as plain commands, "
        "or the user can allow every command with --allow bash."
    )
    return Decision(
        verdict=verdict, permission="bash", pattern=subject, rule=rule, reason=reason, origin="unparsed"
    )

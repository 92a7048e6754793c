"""From the text of a bash script to all the simple commands it runs.

Trivially plain scripts (words of harmless characters and blanks) never load
tree-sitter; a property test holds both ways to the same answer.  Scripts inside
scripts (`bash -c`, `eval`, backquotes) are parsed in turn.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from mcode_exec.permissions.matching import GLOB, UNKNOWN
from mcode_exec.permissions.script import Form, Parsed, Redirect, Simple, literal
from mcode_exec.permissions.vocabulary import names
from mcode_exec.permissions.wrappers import expand

_PLAIN = re.compile(r"[A-Za-z0-9_./:,+@%=-]+(?: +[A-Za-z0-9_./:,+@%=-]+)*")
#: first words that are grammar, or that the grammar knows as something other than a command
_RESERVED = names(
    "if then else elif fi case esac for select while until do done in function time coproc declare "
    "typeset export readonly local unset unsetenv"
)

_LONGEST = 256 * 1024  # characters; a script beyond it is not looked into
_DEEPEST = 8  # scripts inside scripts
_MOST_COMMANDS = 5_000


def parse_script(script: str, *, home: str | None, directory: str, temp_dir: str | None = None) -> Parsed:
    """List every simple command of the script, those of nested scripts included.  Never raises."""
    found = _Found(home, temp_dir)
    found.add(script, (directory,), (), 0)
    return Parsed(
        commands=tuple(found.commands),
        redirects=tuple(found.redirects),
        unparsed=tuple(dict.fromkeys(found.unparsed)),
    )


def plain_words(script: str) -> tuple[str, ...] | None:
    """The words of a trivially plain script, or None if it needs the grammar."""
    script = script.strip(" \n")
    if len(script) > 4_096 or not _PLAIN.fullmatch(script):
        return None
    words = tuple(script.split())
    first = words[0]
    if "=" in first or first in _RESERVED:
        return None
    return words


def simple_commands(
    script: str, *, home: str | None, directories: tuple[str, ...], temp_dir: str | None = None
) -> tuple[list[Simple], list[Redirect], list[str], list[str]]:
    """Commands, redirections, scripts in backquotes and reasons, by way of the grammar."""
    from mcode_exec.permissions.bash_tree import Walker

    if re.search(r"\bHOME\b[+]?=|\bread\b[^\n]*\bHOME\b", script):
        home = None
    walker = Walker(script, home, directories, temp_dir)
    walker.walk()
    commands = walker.commands
    if walker.tampered:
        everywhere = tuple(sorted(walker.tampered))
        commands = [replace(command, tampered=(*command.tampered, *everywhere)) for command in commands]
    return commands, walker.redirects, walker.nested, walker.unparsed


class _Found:
    """What was found so far in a script and in the scripts inside it."""

    def __init__(self, home: str | None, temp_dir: str | None) -> None:
        self.commands: list[tuple[Form, ...]] = []
        self.redirects: list[Redirect] = []
        self.unparsed: list[str] = []
        self._home = home
        self._temp_dir = temp_dir

    def add(self, script: str, directories: tuple[str, ...], tampered: tuple[str, ...], depth: int) -> None:
        problem = _unreadable(script, depth)
        if problem or len(self.commands) > _MOST_COMMANDS:
            self.unparsed.append(problem or "it has too many commands")
            return
        words = plain_words(script)
        if words is not None:
            simple = Simple(
                words=tuple(literal(word) for word in words), directories=directories, tampered=tampered
            )
            self._expand(simple, depth)
            return
        commands, redirects, nested, unparsed = simple_commands(
            script, home=self._home, directories=directories, temp_dir=self._temp_dir
        )
        self.redirects.extend(redirects)
        self.unparsed.extend(unparsed)
        for inner in nested:
            self.add(inner, directories, tampered, depth + 1)
        for command in commands:
            self._expand(replace(command, tampered=(*command.tampered, *tampered)), depth)

    def _expand(self, command: Simple, depth: int) -> None:
        expansion = expand(command)
        self.commands.append(tuple(expansion.forms))
        self.unparsed.extend(expansion.unparsed)
        for script, origin in expansion.scripts:
            if script.is_unknown:
                self.unparsed.append(f"what {origin.name} runs is not known before it runs")
            else:
                self.add(script.text, origin.directories, origin.tampered, depth + 1)


def _unreadable(script: str, depth: int) -> str | None:
    if depth > _DEEPEST:
        return "scripts are nested too deeply in it"
    if len(script) > _LONGEST:
        return "it is too long to be looked into"
    if "\0" in script:
        return "it contains a NUL character"
    if UNKNOWN in script or GLOB in script:
        return "it contains characters that have no meaning"
    try:
        script.encode()
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return None

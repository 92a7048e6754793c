"""Programs that are more than a wrapper and still run what stands in their words.

Shells and eval run scripts, find and git run commands, `uv run` and `npx` run a
project's own programs.  Scripts are noted in the expansion and parsed by shell.py.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from mcode_exec.permissions.matching import GLOB
from mcode_exec.permissions.options import past_options, values
from mcode_exec.permissions.script import ANYTHING, Expansion, Simple, Word, literal, with_unknown

#: options whose value is a program that is started
_PROGRAM_OPTIONS: dict[str, tuple[str, ...]] = {
    "tar": ("--to-command", "--use-compress-program", "-I", "--rsh-command", "--checkpoint-action=exec"),
    "sort": ("--compress-program",),
    "rg": ("--pre", "--hostname-bin"),
    "rsync": ("-e", "--rsh"),
    "man": ("-P", "--pager"),
    "complete": ("-C",),
}

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "mksh", "rbash"})

#: runners of a project's own programs: only rules that forbid look at what they run
_RUNNERS: dict[tuple[str, ...], frozenset[str]] = {
    ("uv", "run"): frozenset({"--with", "--python", "-p", "--project", "--extra", "--group"}),
    ("uvx",): frozenset({"--from", "--with", "--python"}),
    ("poetry", "run"): frozenset(),
    ("pipenv", "run"): frozenset(),
    ("pdm", "run"): frozenset(),
    ("hatch", "run"): frozenset(),
    ("bundle", "exec"): frozenset(),
    ("npx",): frozenset({"-p", "--package", "-c"}),
    ("bunx",): frozenset(),
    ("pnpm", "exec"): frozenset(),
    ("pnpm", "dlx"): frozenset(),
    ("yarn", "exec"): frozenset(),
    ("npm", "exec"): frozenset({"--package"}),
    ("direnv", "exec"): frozenset(),
    ("docker", "exec"): frozenset({"-e", "-u", "-w", "--user", "--env", "--workdir"}),
    ("podman", "exec"): frozenset({"-e", "-u", "-w"}),
    ("kubectl", "exec"): frozenset({"-n", "-c"}),
    ("ssh",): frozenset({"-p", "-i", "-l", "-o", "-F", "-J", "-L", "-R", "-D"}),
}
#: of those, how many operands stand before the program
_RUNNER_OPERANDS = {
    ("direnv", "exec"): 1,
    ("docker", "exec"): 1,
    ("podman", "exec"): 1,
    ("kubectl", "exec"): 1,
    ("ssh",): 1,
}


def also_run(command: Simple, found: Expansion) -> list[Simple]:
    """Commands in the words of programs that are more than a wrapper; their scripts go to `found.scripts`."""
    name, words = command.name, command.words
    if name in SHELLS:
        _shell_script(command, found)
    elif name == "eval":
        _literal_script(command, words[1:], found)
    elif name == "watch":
        at = past_options(words, 1, frozenset({"-n", "--interval"}))
        _literal_script(command, words[at:], found)
    elif name == "trap" and len(words) > 2:
        _literal_script(command, words[1:2] if words[1].text not in ("-", "--") else words[2:3], found)
    elif name == "alias":
        for word in words[1:]:
            _, equals, _ = word.text.partition("=")
            if equals:
                _literal_script(command, (word.tail(word.text.index("=") + 1),), found)
    elif name in ("source", "."):
        _sourced(command, found)
    elif name in ("su", "script", "flock"):
        return _after_option_c(command, found)
    elif name == "find":
        return _from_find(command)
    elif name in ("fd", "fdfind"):
        for at, word in enumerate(words):
            if word.text in ("-x", "-X", "--exec", "--exec-batch") and words[at + 1 :]:
                return [replace(command, words=(*words[at + 1 :], ANYTHING))]
    elif name == "git":
        _from_git(command, found)
    for script in values(words, *_PROGRAM_OPTIONS.get(name, ())):
        _literal_script(command, (script,), found)
    return []


def _sourced(command: Simple, found: Expansion) -> None:
    """A file's script is not looked into; one that has no file at all is not known."""
    is_stream = command.substitutes and any(w.is_unknown for w in command.words[1:2])
    if is_stream or any(w.text.startswith(("/dev/", "/proc/")) for w in command.words[1:2]):
        found.unparsed.append(f"what {command.name} runs is not known before it runs")


def _after_option_c(command: Simple, found: Expansion) -> list[Simple]:
    """`su -c`, `script -qc` and `flock -c` take a script; flock without it a command."""
    words = command.words
    has_script = False
    for at, word in enumerate(words[:-1]):
        if re.fullmatch(r"-[a-zA-Z]*c|--command", word.text):
            has_script = True
            _literal_script(command, (words[at + 1],), found)
    if command.name != "flock" or has_script:
        return []
    rest = words[past_options(words, 1, frozenset({"-w", "-E", "--timeout", "--wait"})) + 1 :]
    return [replace(command, words=rest)] if rest else []


def _shell_script(command: Simple, found: Expansion) -> None:
    """A shell's script: after -c, as its standard input, or in a file (which is not looked into)."""
    words = command.words
    at, takes_string = 1, False
    while at < len(words):
        text = words[at].text
        if words[at].is_unknown:
            found.unparsed.append(f"the options of {command.name} are not known")
            return
        if text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            at += 2
            continue
        if not text.startswith(("-", "+")) or text in ("-", "--"):
            at += text in ("-", "--")
            break
        if text.startswith("-") and not text.startswith("--"):
            takes_string = takes_string or "c" in text
            at += text[-1] in "oO" and not takes_string
        if text in ("--command",):
            takes_string = True
        if text.startswith("-") and "s" in text and not text.startswith("--") and not takes_string:
            at = len(words)
            break
        at += 1
    if takes_string:
        if at < len(words):
            _literal_script(command, (words[at],), found)
        return
    if at >= len(words) or words[at].text in ("/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"):
        if isinstance(command.stdin, Word):
            _literal_script(command, (command.stdin,), found)
        elif command.stdin == "stream" or command.piped_from:
            found.unparsed.append(f"what {command.name} runs comes from its standard input")


def only_hands_over(command: Simple) -> bool:
    """`bash -c '…'` and eval do nothing but run a script that is judged itself."""
    if command.name == "eval":
        return True
    if command.name not in SHELLS:
        return False
    options = [w.text for w in command.words[1:] if w.text.startswith("-")]
    return all(set(text[1:]) <= set("celuxos") for text in options)


def _literal_script(command: Simple, words: tuple[Word, ...], found: Expansion) -> None:
    script = Word(" ".join(w.text for w in words), " ".join(w.pattern for w in words))
    if script.text:
        found.scripts.append((script, command))


def _from_find(command: Simple) -> list[Simple]:
    words = command.words
    roots: list[Word] = []
    for word in words[1:]:
        if word.text.startswith(("-", "(", "!")):
            break
        roots.append(word)
    found: list[Simple] = []
    at = 1
    while at < len(words):
        if words[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(words) and words[end].text not in (";", "+"):
                end += 1
            inside = words[at + 1 : end]
            if inside:
                found.extend(_with_found_paths(command, inside, roots or [literal(".")]))
            at = end
        at += 1
    return found


def _with_found_paths(command: Simple, inside: tuple[Word, ...], roots: list[Word]) -> list[Simple]:
    """`{}` stands for what lies below the places where find starts: as a glob below each of them."""
    if inside[0].text == "{}":
        return [replace(command, words=(ANYTHING, *inside[1:]))]
    made: list[Simple] = []
    for root in roots[:8]:
        below = Word(root.text.rstrip("/") + "/{}", root.pattern.rstrip("/") + "/" + GLOB)
        words = tuple(below if w.text == "{}" else with_unknown(w, "{}") for w in inside)
        made.append(replace(command, words=words))
    return made


def _from_git(command: Simple, found: Expansion) -> None:
    words = command.words
    for at, word in enumerate(words[:-1]):
        after = words[at + 1]
        if word.text == "-c" and after.text.startswith("alias.") and "=!" in after.text:
            _literal_script(command, (after.tail(after.text.index("=!") + 2),), found)
        if word.text in ("-x", "--exec") and any(w.text == "rebase" for w in words[1:at]):
            _literal_script(command, (after,), found)
    texts = [w.text for w in words]
    for first, second in (("bisect", "run"), ("submodule", "foreach")):
        if first in texts and second in texts[texts.index(first) :]:
            at = texts.index(second, texts.index(first)) + 1
            _literal_script(command, tuple(w for w in words[at:] if w.text != "--recursive"), found)


def run_by_runner(command: Simple) -> Simple | None:
    words = command.words
    for length in (2, 1):
        key = tuple(w.text for w in words[:length])
        key = (command.name, *key[1:])
        valued = _RUNNERS.get(key)
        if valued is None or len(key) != length:
            continue
        at = past_options(words, length, valued)
        at += _RUNNER_OPERANDS.get(key, 0)
        if at < len(words) and words[at].text == "--":
            at += 1
        rest = words[at:]
        return replace(command, words=rest, prefix=()) if rest else None
    return None

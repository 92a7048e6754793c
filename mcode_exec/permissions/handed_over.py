"""Programs that are more than a wrapper and still run what stands in their words.

Shells and eval run scripts, find and git run commands.  Scripts are noted in the
expansion and parsed by shell.py.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec.structs import replace

from mcode_exec.permissions.effects import selects_surely
from mcode_exec.permissions.option_scripts import git_scripts, git_subcommand, scripts_in_options
from mcode_exec.permissions.options import given_anywhere, options, readings
from mcode_exec.permissions.script import ANYTHING, Expansion, Simple, Word, below, literal, with_unknown

#: programs that run the script on their standard input where their options give none
_READING_SCRIPTS = frozenset({"su", "runuser", "script", "at", "batch", "newgrp"})

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "mksh", "rbash"})

_WATCH = options(
    "bcdegprtwxC beep color no-color differences errexit chgexit exec precise no-rerun no-title no-wrap follow",
    "nqs interval equexit shotsdir",
)
_RUNUSER = options("fmpPl login preserve-environment pty fast", "gGTwus group supp-group user shell")
_C = ("-c", "--command")
_FLOCK_SCRIPT = options("", "c command")
_FLOCK = options(
    "sxeonuFv shared exclusive unlock nonblock nb close no-fork verbose fcntl",
    "wE timeout wait conflict-exit-code",
)


def also_run(command: Simple, found: Expansion) -> list[Simple]:
    """Commands in the words of programs that are more than a wrapper; their scripts go to `found.scripts`."""
    name, words = command.name, command.words
    if name in SHELLS:
        _shell_script(command, found)
    elif name == "eval":
        _literal_script(command, words[1:], found)
    elif name == "watch":
        for reading in readings(words, _WATCH):
            _literal_script(command, words[reading.at :], found)
    elif name == "trap" and len(words) > 2:
        _literal_script(command, words[1:2] if words[1].text not in ("-", "--") else words[2:3], found)
    elif name == "alias":
        for word in words[1:]:
            _, equals, _ = word.text.partition("=")
            if equals:
                _literal_script(command, (word.tail(word.text.index("=") + 1),), found)
    elif name in ("source", "."):
        _sourced(command, found)
    elif name == "flock":
        return _behind_lock(command, found)
    elif name == "sg":
        _literal_script(command, tuple(w for w in words[2:] if w.text != "-c"), found)
    elif name == "jobs":
        return [replace(command, words=words[at + 1 :]) for at in _after(words, "-x")]
    elif name == "find":
        return _from_find(command)
    elif name in ("fd", "fdfind"):
        return _from_fd(command)
    elif name == "git":
        _from_git(command, found)
    scripts = scripts_in_options(command)
    for script in scripts:
        _literal_script(command, (script,), found)
    if name in _READING_SCRIPTS and not scripts:
        standard_input(command, found)
    return _behind_user(command) if name == "runuser" else []


def _sourced(command: Simple, found: Expansion) -> None:
    """A file's script is not looked into; one that has no file at all is not known."""
    is_stream = command.substitutes and any(w.is_unknown for w in command.words[1:2])
    if is_stream or any(w.text.startswith(("/dev/", "/proc/")) for w in command.words[1:2]):
        found.unparsed.append(f"what {command.name} runs is not known before it runs")


def _behind_lock(command: Simple, found: Expansion) -> list[Simple]:
    """`flock FILE` takes a command, or a script after -c."""
    inner: list[Simple] = []
    for reading in readings(command.words, _FLOCK):
        rest = command.words[reading.at + 1 :]
        script = next((g.value for g in given_anywhere(rest, _FLOCK_SCRIPT, 0) if g.name in _C), None)
        if script is not None and rest[0].text.startswith("-"):
            _literal_script(command, (script,), found)
        elif rest:
            inner.append(replace(command, words=rest))
    return inner


def _behind_user(command: Simple) -> list[Simple]:
    """`runuser -u USER COMMAND`; without -u it is like su."""
    return [
        replace(command, words=command.words[reading.at :])
        for reading in readings(command.words, _RUNUSER)
        if command.words[reading.at :] and any(g.name in ("-u", "--user") for g in reading.given)
    ]


def _from_fd(command: Simple) -> list[Simple]:
    """`fd -x CMD`, `-xCMD`, `--exec=CMD` and the like take all that follows."""
    words = command.words
    for at, word in enumerate(words[1:], 1):
        for option in ("-x", "-X", "--exec", "--exec-batch"):
            if word.text == option and words[at + 1 :]:
                return [replace(command, words=(*words[at + 1 :], ANYTHING))]
            glued = option + ("=" if option.startswith("--") else "")
            if word.text.startswith(glued) and len(word.text) > len(glued):
                return [replace(command, words=(word.tail(len(glued)), *words[at + 1 :], ANYTHING))]
    return []


def _after(words: tuple[Word, ...], option: str) -> list[int]:
    """Where the option stands with something behind it."""
    return [at for at, word in enumerate(words[:-1]) if word.text == option]


def _shell_script(command: Simple, found: Expansion) -> None:
    """A shell's script: after -c, as its standard input, or in a file (which is not looked into)."""
    words = command.words
    if any(w.text.startswith(("BASH_ENV=", "ENV=")) and not w.is_literal for w in command.prefix):
        found.unparsed.append(f"what {command.name} runs first is not known before it runs")
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
        if text == "--command":
            takes_string = True
        elif text.startswith("--command="):
            _literal_script(command, (words[at].tail(len("--command=")),), found)
            return
        if text.startswith("-") and "s" in text and not text.startswith("--") and not takes_string:
            at = len(words)
            break
        at += 1
    if takes_string:
        if at < len(words):
            _literal_script(command, (words[at],), found)
        return
    if at >= len(words) or words[at].text in ("/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"):
        standard_input(command, found)


def standard_input(command: Simple, found: Expansion) -> None:
    """A program that runs the script on its standard input."""
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
        found = below(root, selected=selects_surely(command.words))
        words = tuple(found if w.text == "{}" else with_unknown(w, "{}") for w in inside)
        made.append(replace(command, words=words))
    return made


def _from_git(command: Simple, found: Expansion) -> None:
    words = command.words
    for word, after in pairwise(words):
        if word.text == "-c" and after.text.startswith("alias.") and "=!" in after.text:
            _literal_script(command, (after.tail(after.text.index("=!") + 2),), found)
    for script in git_scripts(words):
        _literal_script(command, (script,), found)
    texts = [w.text for w in words[git_subcommand(words) :]]
    for first, second in (("bisect", "run"), ("submodule", "foreach")):
        if texts[:1] == [first] and second in texts:
            at = len(words) - len(texts) + texts.index(second) + 1
            _literal_script(command, tuple(w for w in words[at:] if w.text != "--recursive"), found)

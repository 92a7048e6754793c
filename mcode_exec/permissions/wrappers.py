"""Looks through programs whose business is to run another one.

`sudo rm x`, `xargs rm`, `find -exec rm {} ;` and `bash -c 'rm x'` are judged as
`rm` too.  `expand` gives the forms of one simple command and the scripts it
hands to a shell; what cannot be told is a reason in `unparsed`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mcode_exec.permissions.matching import GLOB, UNKNOWN
from mcode_exec.permissions.script import ANYTHING, Form, Role, Simple, Word, literal
from mcode_exec.permissions.tampering import tampers

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "mksh", "rbash"})
#: where a program with a path is the one that its bare name means
_STANDARD_DIRECTORIES = frozenset(
    {"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"}
)

_DEEPEST = 12  # wrappers around wrappers


class Wrapper(Struct, frozen=True):
    """How a wrapper's own words are told from the command it runs."""

    #: options that take the next word as their value
    valued: frozenset[str] = frozenset()
    #: words of its own that come before the command
    operands: int = 0
    #: the wrapper itself must be allowed as well
    is_judged: bool = False


def _wrapper(valued: str = "", operands: int = 0, *, is_judged: bool = False) -> Wrapper:
    return Wrapper(frozenset(valued.split()), operands, is_judged)


WRAPPERS: dict[str, Wrapper] = {
    "env": _wrapper("-u --unset -C --chdir"),
    "sudo": _wrapper(
        "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --chroot", is_judged=True
    ),
    "doas": _wrapper("-u -C", is_judged=True),
    "pkexec": _wrapper("--user", is_judged=True),
    "run0": _wrapper("--user -u --property", is_judged=True),
    "command": _wrapper(),
    "builtin": _wrapper(),
    "exec": _wrapper("-a"),
    "nohup": _wrapper(),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c -n --class --classdata"),
    "chrt": _wrapper("-T -P -D", 1),
    "taskset": _wrapper("", 1),
    "time": _wrapper("-f -o --format --output"),
    "timeout": _wrapper("-s -k --signal --kill-after", 1),
    "stdbuf": _wrapper("-i -o -e --input --output --error"),
    "setsid": _wrapper(),
    "unbuffer": _wrapper(),
    "chronic": _wrapper(),
    "caffeinate": _wrapper("-t -w"),
    "xargs": _wrapper(
        "-I -n -P -L -d -E -s -a --max-args --max-procs --delimiter --arg-file --max-lines --replace"
    ),
    "parallel": _wrapper("-j --jobs -a --arg-file --joblog --results -N -n --colsep --delay --timeout"),
    "strace": _wrapper("-o -e -p -s -E -u -P", is_judged=True),
    "ltrace": _wrapper("-o -e -p -s -u", is_judged=True),
    "chroot": _wrapper("--userspec --groups", 1, is_judged=True),
    "unshare": _wrapper("-S -G -R -w --root --wd", is_judged=True),
    "nsenter": _wrapper("-t -S -G --target", is_judged=True),
    "setpriv": _wrapper("--reuid --regid --groups", is_judged=True),
    "runuser": _wrapper("-u -g -G", is_judged=True),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    "coproc": _wrapper(),
}

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


class Expansion(Struct):
    """What one simple command runs."""

    forms: list[Form]
    #: scripts handed to a shell, with the command they come from
    scripts: list[tuple[Word, Simple]]
    unparsed: list[str]


def expand(command: Simple) -> Expansion:
    """Find every form of the command, and the scripts in its words."""
    found = Expansion([], [], [])
    if command.prefix:
        whole = replace(command, words=(*command.prefix, *command.words))
        found.forms.append(Form(role="outer", command=whole))
    if command.words:
        _add(command, found, 0, forbidding_only=False)
    elif not found.forms:
        found.forms.append(Form(role="outer", command=command))
    return found


def _add(command: Simple, found: Expansion, depth: int, *, forbidding_only: bool) -> None:
    if depth > _DEEPEST:
        found.unparsed.append("too many commands are wrapped in each other")
        return
    main: Role = "shadow" if forbidding_only else "main"
    name = command.name
    if not name:
        found.forms.append(Form(role=main, command=command))
        return
    command = _by_bare_name(command, found)
    wrapper = WRAPPERS.get(name)
    inner = _unwrapped(command, wrapper, found) if wrapper else None
    if inner is not None and wrapper is not None:
        is_judged = wrapper.is_judged and not forbidding_only
        found.forms.append(Form(role="main" if is_judged else "outer", command=command))
        _add(inner, found, depth + 1, forbidding_only=forbidding_only)
        return
    scripts = len(found.scripts)
    further = _also_run(command, found)
    hands_over = len(found.scripts) > scripts and _only_hands_over(command)
    found.forms.append(Form(role="outer" if hands_over else main, command=command))
    for more in further:
        _add(more, found, depth + 1, forbidding_only=forbidding_only)
    runner = _run_by_runner(command)
    if runner is not None:
        _add(runner, found, depth + 1, forbidding_only=True)


def _by_bare_name(command: Simple, found: Expansion) -> Simple:
    """`/bin/rm` is `rm`; `./rm` may be anything, but a rule against `rm` holds for it as well."""
    path = command.words[0].text
    directory, slash, name = path.rpartition("/")
    if not slash or not name:
        return command
    bare = replace(command, words=(literal(name), *command.words[1:]))
    if directory in _STANDARD_DIRECTORIES:
        found.forms.append(Form(role="outer", command=command))
        return bare
    found.forms.append(Form(role="shadow", command=bare))
    return command


def _unwrapped(command: Simple, wrapper: Wrapper, found: Expansion) -> Simple | None:
    """The command behind the wrapper's own options and operands, or None if it runs none."""
    name, words = command.name, command.words
    if name == "command" and any(w.text[:1] == "-" and set(w.text[1:]) & {"v", "V"} for w in words[1:2]):
        return None
    tampered = list(command.tampered)
    split = _env_split(command) if name == "env" else None
    if split is not None:
        found.scripts.append((split, command))
        return None
    at = _past_options(words, 1, wrapper.valued)
    if name in ("env", "sudo", "doas"):
        while at < len(words) and _is_assignment(words[at]):
            variable = words[at].text.partition("=")[0]
            if tampers(variable, words[at].tail(len(variable) + 1)):
                tampered.append(variable)
            at = _past_options(words, at + 1, wrapper.valued)
    at += wrapper.operands
    rest = words[at:]
    if name == "xargs":
        rest = _from_xargs(words[1:at], rest)
    elif name == "parallel":
        rest = (
            (*_before_colons(rest), ANYTHING) if rest and not rest[0].text.startswith(":::") else (ANYTHING,)
        )
    if not rest:
        return None
    directories = command.directories
    if name in ("env", "sudo") and any(
        w.text[:2] in ("-C", "-D") or w.text.startswith("--chdir") for w in words[1:at]
    ):
        directories = ()
    return replace(command, words=tuple(rest), prefix=(), tampered=tuple(tampered), directories=directories)


def _past_options(words: tuple[Word, ...], at: int, valued: frozenset[str]) -> int:
    while at < len(words):
        text = words[at].text
        if text == "--":
            return at + 1
        if not text.startswith("-") or (text == "-" and at > 1):
            return at
        at += 2 if text in valued else 1
    return min(at, len(words))


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.text.partition("=")
    return bool(equals) and name.replace("_", "a").isalnum()


def _env_split(command: Simple) -> Word | None:
    """`env -S 'rm x'` splits its value into a command."""
    for at, word in enumerate(command.words[1:], 1):
        if word.text in ("-S", "--split-string") and at + 1 < len(command.words):
            return command.words[at + 1]
        if word.text.startswith("--split-string="):
            return word.tail(len("--split-string="))
        if word.text.startswith("-S") or word.text in ("-vS", "-iS"):
            return word.tail(2) if word.text.startswith("-S") else ANYTHING
        if not word.text.startswith("-") and not _is_assignment(word):
            return None
    return None


def _from_xargs(options: tuple[Word, ...], rest: tuple[Word, ...]) -> tuple[Word, ...]:
    if not rest:
        return (literal("echo"), ANYTHING)
    replaced = None
    for at, word in enumerate(options):
        if word.text in ("-I", "--replace") and at + 1 < len(options):
            replaced = options[at + 1].text
        elif word.text.startswith("-I") or word.text.startswith("-i"):
            replaced = word.text[2:] or "{}"
    if replaced:
        return tuple(_with_unknown(word, replaced) for word in rest)
    return (*rest, ANYTHING)


def _with_unknown(word: Word, placeholder: str) -> Word:
    if placeholder not in word.pattern:
        return word
    return Word(word.text, word.pattern.replace(placeholder, UNKNOWN))


def _before_colons(words: tuple[Word, ...]) -> tuple[Word, ...]:
    for at, word in enumerate(words):
        if word.text.startswith(":::"):
            return words[:at]
    return words


def _also_run(command: Simple, found: Expansion) -> list[Simple]:
    """Commands in the words of programs that are more than a wrapper; their scripts go to `found.scripts`."""
    name, words = command.name, command.words
    if name in SHELLS:
        _shell_script(command, found)
    elif name == "eval":
        _literal_script(command, words[1:], found)
    elif name == "watch":
        at = _past_options(words, 1, frozenset({"-n", "--interval"}))
        _literal_script(command, words[at:], found)
    elif name == "trap" and len(words) > 2:
        _literal_script(command, words[1:2] if words[1].text not in ("-", "--") else words[2:3], found)
    elif name == "alias":
        for word in words[1:]:
            _, equals, _ = word.text.partition("=")
            if equals:
                _literal_script(command, (word.tail(word.text.index("=") + 1),), found)
    elif name in ("su", "script", "flock"):
        for at, word in enumerate(words[:-1]):
            if word.text in ("-c", "--command"):
                _literal_script(command, (words[at + 1],), found)
        if name == "flock" and not any(w.text in ("-c", "--command") for w in words):
            at = _past_options(words, 1, frozenset({"-w", "-E", "--timeout", "--wait"})) + 1
            return [replace(command, words=words[at:])] if words[at:] else []
    elif name == "find":
        return _from_find(command)
    elif name in ("fd", "fdfind"):
        for at, word in enumerate(words):
            if word.text in ("-x", "-X", "--exec", "--exec-batch") and words[at + 1 :]:
                return [replace(command, words=(*words[at + 1 :], ANYTHING))]
    elif name == "git":
        _from_git(command, found)
    return []


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


def _only_hands_over(command: Simple) -> bool:
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
        words = tuple(below if w.text == "{}" else _with_unknown(w, "{}") for w in inside)
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


def _run_by_runner(command: Simple) -> Simple | None:
    words = command.words
    for length in (2, 1):
        key = tuple(w.text for w in words[:length])
        key = (command.name, *key[1:])
        valued = _RUNNERS.get(key)
        if valued is None or len(key) != length:
            continue
        at = _past_options(words, length, valued)
        at += _RUNNER_OPERANDS.get(key, 0)
        if at < len(words) and words[at].text == "--":
            at += 1
        rest = words[at:]
        return replace(command, words=rest, prefix=()) if rest else None
    return None

"""Looks through programs whose business is to run another one.

`sudo rm x`, `xargs rm`, `find -exec rm {} ;` and `bash -c 'rm x'` are judged as
`rm` too.  `expand` gives the forms of one simple command and the scripts it
hands to a shell; what cannot be told is a reason in `unparsed`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from mcode_exec.permissions.handed_over import also_run, only_hands_over, run_by_runner
from mcode_exec.permissions.options import past_options
from mcode_exec.permissions.script import (
    ANYTHING,
    Expansion,
    Form,
    Role,
    Simple,
    Word,
    literal,
    with_unknown,
)
from mcode_exec.permissions.tampering import tampers

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
    "!": _wrapper(),
}


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
    further = also_run(command, found)
    hands_over = len(found.scripts) > scripts and only_hands_over(command)
    found.forms.append(Form(role="outer" if hands_over else main, command=command))
    for more in further:
        _add(more, found, depth + 1, forbidding_only=forbidding_only)
    runner = run_by_runner(command)
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
    at = past_options(words, 1, wrapper.valued)
    if name in ("env", "sudo", "doas"):
        while at < len(words) and _is_assignment(words[at]):
            variable = words[at].text.partition("=")[0]
            if tampers(variable, words[at].tail(len(variable) + 1)):
                tampered.append(variable)
            at = past_options(words, at + 1, wrapper.valued)
    at += wrapper.operands
    rest = words[at:]
    if name == "xargs":
        rest = _from_xargs(words[1:at], rest, command.stdin_lists)
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


def _from_xargs(
    options: tuple[Word, ...], rest: tuple[Word, ...], lists: tuple[Word, ...]
) -> tuple[Word, ...]:
    if not rest:
        return (literal("echo"), ANYTHING)
    replaced = None
    for at, word in enumerate(options):
        if word.text in ("-I", "--replace") and at + 1 < len(options):
            replaced = options[at + 1].text
        elif word.text.startswith("-I") or word.text.startswith("-i"):
            replaced = word.text[2:] or "{}"
    if replaced:
        return tuple(with_unknown(word, replaced) for word in rest)
    return (*rest, *(lists or (ANYTHING,)))


def _before_colons(words: tuple[Word, ...]) -> tuple[Word, ...]:
    for at, word in enumerate(words):
        if word.text.startswith(":::"):
            return words[:at]
    return words

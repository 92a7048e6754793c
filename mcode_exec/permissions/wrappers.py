"""Looks through programs whose business is to run another one.

`sudo rm x`, `xargs rm`, `find -exec rm {} ;` and `bash -c 'rm x'` are judged as
`rm` too.  `expand` gives the forms of one simple command and the scripts it
hands to a shell; what cannot be told is a reason in `unparsed`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from mcode_exec.permissions.handed_over import also_run, only_hands_over, standard_input
from mcode_exec.permissions.known_wrappers import WRAPPERS, Wrapper
from mcode_exec.permissions.options import Given, readings
from mcode_exec.permissions.runners import run_by_runner
from mcode_exec.permissions.script import ANYTHING, Expansion, Form, Role, Simple, Word, literal, with_unknown
from mcode_exec.permissions.tampering import tampers

#: where a program with a path is the one that its bare name means
STANDARD_DIRECTORIES = frozenset(
    {"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"}
)

_DEEPEST = 12  # wrappers around wrappers


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
    scripts = len(found.scripts)
    inner, is_all = _unwrapped(command, wrapper, found) if wrapper else ([], True)
    if inner and wrapper is not None:
        is_judged = (wrapper.is_judged or not is_all) and not forbidding_only
        found.forms.append(Form(role="main" if is_judged else "outer", command=command))
        for one in inner:
            _add(one, found, depth + 1, forbidding_only=forbidding_only)
        return
    further = also_run(command, found)
    hands_over = len(found.scripts) > scripts and only_hands_over(command)
    found.forms.append(Form(role="outer" if hands_over else main, command=command))
    for more in further:
        _add(more, found, depth + 1, forbidding_only=forbidding_only)
    runners = run_by_runner(command)
    if name == "ssh" and not runners:
        standard_input(command, found)
    for runner in runners:
        _add(runner, found, depth + 1, forbidding_only=True)


def _by_bare_name(command: Simple, found: Expansion) -> Simple:
    """`/bin/rm` is `rm`; `./rm` may be anything, but a rule against `rm` holds for it as well."""
    path = command.words[0].text
    directory, slash, name = path.rpartition("/")
    if not slash or not name:
        return command
    bare = replace(command, words=(literal(name), *command.words[1:]))
    if directory in STANDARD_DIRECTORIES:
        found.forms.append(Form(role="outer", command=command))
        return bare
    found.forms.append(Form(role="shadow", command=bare))
    return command


def _unwrapped(command: Simple, wrapper: Wrapper, found: Expansion) -> tuple[list[Simple], bool]:
    """The commands behind the wrapper's own words, one for each way to read them, and whether they are all it does."""
    name, words = command.name, command.words
    if name == "command" and any(w.text[:1] == "-" and set(w.text[1:]) & {"v", "V"} for w in words[1:2]):
        return [], True
    inner: list[Simple] = []
    is_all = True
    for reading in readings(words, wrapper.known):
        split = [g.value for g in reading.given if g.name in ("-S", "--split-string")]
        if name == "env" and split and split[0] is not None:
            inner.extend(_split(command, split[0], words[reading.at :], found))
            continue
        at, tampered = _past_assignments(command, wrapper, reading.at)
        starts = [at + wrapper.operands]
        if any(not word.is_literal for word in words[at : at + wrapper.operands]):
            starts.append(at + wrapper.operands + 1)  # the first word may turn out to be an option
            is_all = False
        for start in starts:
            rest = _appended(command, reading.given, words[start:])
            if rest:
                moves = name in ("env", "sudo") and _moves(reading.given)
                directories = () if moves else command.directories
                inner.append(
                    replace(command, words=rest, prefix=(), tampered=tampered, directories=directories)
                )
        is_all = is_all and wrapper.writing.isdisjoint(g.name for g in reading.given)
        asks_for_a_shell = any(g.name in ("-s", "-i", "--shell", "--login") for g in reading.given)
        if not words[at + wrapper.operands :] and (
            wrapper.is_shell or (wrapper.is_judged and asks_for_a_shell)
        ):
            standard_input(command, found)
    return inner, is_all


def _past_assignments(command: Simple, wrapper: Wrapper, at: int) -> tuple[int, tuple[str, ...]]:
    """Behind the `A=1` that env and its like take before the command, and what they tamper with."""
    tampered = list(command.tampered)
    words = command.words
    if command.name in ("env", "sudo", "doas"):
        while at < len(words) and _is_assignment(words[at]):
            variable = words[at].text.partition("=")[0]
            if tampers(variable, words[at].tail(len(variable) + 1)):
                tampered.append(variable)
            at = readings(words, wrapper.known, at + 1)[0].at
    return at, tuple(tampered)


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.text.partition("=")
    return bool(equals) and name.replace("_", "a").isalnum()


def _moves(given: Iterable[Given]) -> bool:
    return any(g.name in ("-C", "-D") or "--chdir".startswith(g.name) for g in given)


def _split(command: Simple, value: Word, rest: tuple[Word, ...], found: Expansion) -> list[Simple]:
    """`env -S 'A=1 rm' x` is `env A=1 rm x`."""
    import shlex

    try:
        pieces = shlex.split(value.text, comments=True)
    except ValueError:
        pieces = []
    if not value.is_literal or not pieces or "$" in value.text:
        found.unparsed.append("what env runs is not known before it runs")
        return []
    return [replace(command, words=(literal("env"), *map(literal, pieces), *rest), prefix=())]


def _appended(command: Simple, given: tuple[Given, ...], rest: tuple[Word, ...]) -> tuple[Word, ...]:
    """The command with what xargs and parallel will add to it."""
    if command.name == "parallel":
        before = _before_colons(rest)
        return (*before, ANYTHING) if before else (ANYTHING,)
    if command.name != "xargs":
        return rest
    if not rest:
        return (literal("echo"), ANYTHING)
    for option in given:
        if option.name in ("-I", "-i", "-J", "--replace"):
            placeholder = option.value.text if option.value is not None else "{}"
            return tuple(with_unknown(word, placeholder or "{}") for word in rest)
    return (*rest, *(command.stdin_lists or (ANYTHING,)))


def _before_colons(words: tuple[Word, ...]) -> tuple[Word, ...]:
    for at, word in enumerate(words):
        if word.text.startswith(":::"):
            return words[:at]
    return words

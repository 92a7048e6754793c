"""The known set of commands that only read.

A program is in it only with the words for which it neither writes a file nor
starts another program: `sort -o`, `rg --pre`, `git -c core.pager=…` and their
like are out.  A word that nobody knows before the script runs may be an option,
so it is refused where an option could do harm.  What is not listed is not in.
Redirections and the commands that wrappers run are judged on their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mcode_exec.permissions.effects import effects
from mcode_exec.permissions.matching import GLOB, UNKNOWN
from mcode_exec.permissions.options import has_option, hides_an_option, may_be_option, operands
from mcode_exec.permissions.readonly_git import only_looks
from mcode_exec.permissions.script import Simple, Word
from mcode_exec.permissions.tampering import tampers
from mcode_exec.permissions.vocabulary import names

Words = tuple[Word, ...]

#: programs without any option that writes or starts something
_HARMLESS = names(
    "ls cat head tail wc stat du df pwd echo true false : basename dirname realpath readlink id "
    "whoami groups uname nproc arch uptime free lscpu lsblk ps pgrep which type whereis cut tr paste "
    "join comm nl tac rev fold expand unexpand fmt seq expr numfmt factor sleep cmp diff md5sum "
    "sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum od locale getent logname tty "
    "printenv cal jq grep egrep fgrep zcat bzcat xzcat zgrep look tsort cd dirs exit return break "
    "continue shift column test [ [[ env set umask ulimit pushd popd"
)

#: programs with options (short letters, long names) that make them write or start others
_WITHOUT_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sort": ("oT", ("--output", "--compress-program", "--temporary-directory")),
    "rg": ("z", ("--pre", "--hostname-bin", "--search-zip")),
    "fd": ("xX", ("--exec", "--exec-batch")),
    "fdfind": ("xX", ("--exec", "--exec-batch")),
    "tree": ("oR", ("--output",)),
    "file": ("CzZ", ("--compile", "--uncompress", "--uncompress-noreport")),
    "printf": ("v", ()),
    "jobs": ("x", ()),
    "wait": ("p", ()),
    "diff3": ("", ("--diff-program",)),
    **dict.fromkeys(("objdump", "nm", "size", "strings", "readelf"), ("", ("--plugin",))),
    "hexdump": ("", ()),
}

#: programs that read further options from the files of words such as `@f`
_READING_OPTIONS = names("objdump nm size strings readelf")

_VERSION_ONLY = names(
    "python python3 node npm pnpm yarn go cargo rustc rustup gcc g++ cc clang java javac ruby php "
    "perl make cmake pip pip3 uv docker git-lfs bash zsh rg tsc deno bun dotnet mvn gradle psql "
    "sqlite3"
)

#: for most others `version` is the name of a script, a file or a target
_VERSION_WORDS = frozenset({("go", "version"), ("docker", "version"), ("npm", "version")})

_SED_ADDRESS = r"(?:\d+|\$|/[^/\n]*/)"
_SED_PART = r"(?:(?!\1)[^\n\\]|\\.)*"  # up to the delimiter, where no backslash stands before it
_SED_COMMAND = (
    rf"\s*(?:{_SED_ADDRESS}(?:,[+~]?{_SED_ADDRESS})?\s*!?\s*)?"
    rf"(?:[pdqlP=]|s([/|#,]){_SED_PART}\1{_SED_PART}\1[gpiI0-9]*)\s*"
)
_SED_OPTIONS = names("-n -E -r -s -z -u -e --quiet --silent --regexp-extended --null-data --expression")


def is_read_only(command: Simple) -> bool:
    """Whether this one simple command is in the known read-only set."""
    if command.tampered or not command.words:
        return not command.tampered
    words = command.words
    if not words[0].is_literal or "/" in words[0].text:
        return False
    name = command.name
    if effects(command).writes:
        return False
    if name in _HARMLESS:
        return _is_plain_test(words) if name in ("test", "[", "[[") else True
    refused = _WITHOUT_OPTIONS.get(name)
    if refused is not None:
        if name in _READING_OPTIONS and any(w.pattern[:1] in ("@", GLOB, UNKNOWN) for w in words[1:]):
            return False
        return not has_option(words, refused[0], *refused[1]) and not hides_an_option(words)
    check = _CHECKS.get(name)
    if check is not None and check(words):
        return True
    return (
        name in _VERSION_ONLY
        and len(words) == 2
        and (words[1].text in ("--version", "-V", "--help") or (name, words[1].text) in _VERSION_WORDS)
    )


def _is_plain_test(words: Words) -> bool:
    """Arithmetic in a test can run a substitution that stands in a subscript."""
    inside = " ".join(w.text for w in words[1:])
    return "[" not in inside.removeprefix("[") and not re.search(r"(^|\s)-v\s", inside)


def _few_operands(most: int) -> Callable[[Words], bool]:
    return lambda words: len(operands(words)) <= most and not any(w.is_unknown for w in words)


def _date(words: Words) -> bool:
    if has_option(words, "s", "--set") or hides_an_option(words):
        return False
    return all(w.text.startswith("+") for w in operands(words, "-d --date -r --reference -f --file"))


def _hostname(words: Words) -> bool:
    return len(words) == 1 or (len(words) == 2 and words[1].text in ("-f", "-s", "-i", "-I", "-d", "--fqdn"))


def _find(words: Words) -> bool:
    refused = ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls")
    return not any(w.text in refused or may_be_option(w) for w in words[1:] if w.text != "*")


def _awk(words: Words) -> bool:
    """A program without system(), pipes, redirections or getline; options other than -F and -v are refused."""
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        if not words[at].text.startswith(("-F", "-v")) or words[at].text.startswith("-vf"):
            return False
        at += 2 if len(words[at].text) == 2 else 1
    if at >= len(words) or words[at].is_unknown or any(w.is_unknown for w in words[:at]):
        return False
    return not re.search(r"system|getline|[|>@]", words[at].text)


def _sed(words: Words) -> bool:
    """Printing, deleting and substituting without flags that write or execute."""
    scripts: list[Word] = []
    at, has_expression = 1, False
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        if text in ("-e", "--expression"):
            has_expression = True
            scripts.extend(words[at + 1 : at + 2])
            at += 1
        elif text.partition("=")[0] not in _SED_OPTIONS and not re.fullmatch(r"-[nErszu]+", text):
            return False
        elif text.startswith("--expression="):
            has_expression = True
            scripts.append(words[at].tail(len("--expression=")))
        at += 1
    if not has_expression:
        scripts.extend(words[at : at + 1])
        at += 1
    if any(w.text.startswith("-") or may_be_option(w) for w in words[at:]) or not scripts:
        return False
    return all(not s.is_unknown and _is_plain_sed(s.text) for s in scripts)


def _is_plain_sed(script: str) -> bool:
    if len(script) > 500:
        return False
    return all(re.fullmatch(_SED_COMMAND, part) for part in script.split(";") if part.strip())


def _tar(words: Words) -> bool:
    if len(words) < 3 or not re.fullmatch(r"-?[tvfzjJ]*t[tvfzjJ]*", words[1].text):
        return False
    return all(not w.text.startswith("-") and ":" not in w.text and not may_be_option(w) for w in words[2:])


def _unzip(words: Words) -> bool:
    return len(words) >= 3 and words[1].text in ("-l", "-v", "-lv", "-Z", "-t") and not hides_an_option(words)


def _man(words: Words) -> bool:
    return len(words) > 1 and all(
        re.fullmatch(r"[A-Za-z0-9][\w.+-]*", w.text) and w.is_literal for w in words[1:]
    )


def _command(words: Words) -> bool:
    return len(words) > 1 and words[1].text in ("-v", "-V")


def _declares(words: Words) -> bool:
    """Declarations; a subscript may run a substitution, and -n makes another name for a variable."""
    assigned = [Word(w.text.partition("=")[0], w.pattern.partition("=")[0]) for w in words[1:]]
    return all(name.is_literal and "[" not in name.text for name in assigned) and not has_option(words, "nf")


def _reads(words: Words) -> bool:
    names = operands(words, "-d -n -N -p -t -u -i")  # the value of -a is a name as well
    return all(w.is_literal and w.text.isidentifier() and not tampers(w.text, Word("", "?")) for w in names)


_CHECKS: dict[str, Callable[[Words], bool]] = {
    "uniq": _few_operands(1),
    "xxd": lambda words: _few_operands(1)(words) and not has_option(words, "r", "-revert"),
    "date": _date,
    "hostname": _hostname,
    "find": _find,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "sed": _sed,
    "tar": _tar,
    "unzip": _unzip,
    "man": _man,
    "command": _command,
    "git": only_looks,
    "read": _reads,
    "export": _declares,
    "declare": _declares,
    "typeset": _declares,
    "local": _declares,
    "readonly": _declares,
    "unset": _declares,
}

#: every program that has a reading form
READING = _HARMLESS | _WITHOUT_OPTIONS.keys() | _CHECKS.keys()

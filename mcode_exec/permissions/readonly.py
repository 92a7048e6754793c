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

from mcode_exec.permissions.effects import GIT_VALUED
from mcode_exec.permissions.options import has_option, may_be_option, operands, subcommand
from mcode_exec.permissions.script import Simple, Word
from mcode_exec.permissions.tampering import tampers
from mcode_exec.permissions.vocabulary import names

Words = tuple[Word, ...]

#: programs without any option that writes or starts something
_HARMLESS = names(
    "ls cat head tail wc stat du df pwd echo true false : basename dirname realpath readlink id "
    "whoami groups uname nproc arch uptime free lscpu lsblk ps pgrep which type whereis cut tr paste "
    "join comm nl tac rev fold expand unexpand fmt seq expr numfmt factor sleep cmp diff diff3 md5sum "
    "sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum od strings nm size locale getent "
    "logname tty printenv cal jq grep egrep fgrep zcat bzcat xzcat zgrep look tsort cd dirs wait jobs "
    "exit return break continue shift column test [ [[ env set umask ulimit pushd popd"
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
    "objdump": ("", ("--dwarf-start", "--plugin")),
    "readelf": ("", ()),
    "hexdump": ("", ()),
}

_VERSION_ONLY = names(
    "python python3 node npm pnpm yarn go cargo rustc rustup gcc g++ cc clang java javac ruby php "
    "perl make cmake pip pip3 uv docker git-lfs bash zsh rg tsc deno bun dotnet mvn gradle psql "
    "sqlite3"
)

_SED_ADDRESS = r"(?:\d+|\$|/[^/\n]*/)"
_SED_PART = r"(?:(?!\1)[^\n\\]|\\.)*"  # up to the delimiter, where no backslash stands before it
_SED_COMMAND = (
    rf"\s*(?:{_SED_ADDRESS}(?:,[+~]?{_SED_ADDRESS})?\s*!?\s*)?"
    rf"(?:[pdqlP=]|s([/|#,]){_SED_PART}\1{_SED_PART}\1[gpiI0-9]*)\s*"
)
_SED_OPTIONS = names("-n -E -r -s -z -u -e --quiet --silent --regexp-extended --null-data --expression")

_GIT_GLOBAL = names("--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects --version -v")
_GIT_LOOKING = names(
    "status log show diff rev-parse ls-files ls-tree cat-file blame grep describe shortlog rev-list "
    "name-rev merge-base show-ref for-each-ref count-objects check-ignore check-attr whatchanged "
    "version diff-tree diff-index diff-files cherry range-diff annotate"
)
_GIT_REFUSED = (
    "--ext-diff",
    "--textconv",
    "--output",
    "--output-directory",
    "--open-files-in-pager",
    "--filters",
    "--exec",
)
#: subcommands with a listing form: the first words that make it one, and the options it may have
_GIT_LISTS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "branch": (
        frozenset({""}),
        names(
            "-a -r -v -vv -av -avv -rv --all --remotes --verbose --list -l --show-current --no-color "
            "--no-column"
        ),
    ),
    "tag": (frozenset({""}), names("-l --list -n --no-column")),
    "remote": (frozenset({"", "get-url", "-v"}), names("-v --verbose --all --push")),
    "stash": (frozenset({"list", "show"}), names("-p --stat --patch --name-only --oneline")),
    "worktree": (frozenset({"list"}), names("--porcelain -v -z")),
    "reflog": (frozenset({"", "show"}), names("--oneline --all -n")),
    "submodule": (frozenset({"", "status"}), names("--recursive --cached")),
    "notes": (frozenset({"list", "show"}), frozenset()),
    "config": (
        frozenset({"get", "list", "--get", "--get-all", "--get-regexp", "--list", "-l"}),
        names(
            "--get --get-all --get-regexp --list -l --show-origin --show-scope --global --local --system -z"
        ),
    ),
}
#: branch and tag take patterns or commits only behind these
_GIT_FILTERS = (
    "--contains",
    "--no-contains",
    "--merged",
    "--no-merged",
    "--points-at",
    "--sort=",
    "--format=",
    "--list",
    "-l",
)


def is_read_only(command: Simple) -> bool:
    """Whether this one simple command is in the known read-only set."""
    if command.tampered or not command.words:
        return not command.tampered
    words = command.words
    if not words[0].is_literal or "/" in words[0].text:
        return False
    name = command.name
    if name in _HARMLESS:
        return _is_plain_test(words) if name in ("test", "[", "[[") else True
    refused = _WITHOUT_OPTIONS.get(name)
    if refused is not None:
        return not has_option(words, refused[0], *refused[1]) and not _hides_an_option(words)
    check = _CHECKS.get(name)
    if check is not None and check(words):
        return True
    return (
        name in _VERSION_ONLY
        and len(words) == 2
        and words[1].text in ("--version", "-V", "version", "--help")
    )


def _hides_an_option(words: Words) -> bool:
    for word in words[1:]:
        if word.text == "--":
            return False
        if may_be_option(word):
            return True
    return False


def _is_plain_test(words: Words) -> bool:
    """Arithmetic in a test can run a substitution that stands in a subscript."""
    inside = " ".join(w.text for w in words[1:])
    return "[" not in inside.removeprefix("[") and not re.search(r"(^|\s)-v\s", inside)


def _few_operands(most: int) -> Callable[[Words], bool]:
    return lambda words: len(operands(words)) <= most and not any(w.is_unknown for w in words)


def _date(words: Words) -> bool:
    if has_option(words, "s", "--set") or _hides_an_option(words):
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
    return (
        len(words) >= 3 and words[1].text in ("-l", "-v", "-lv", "-Z", "-t") and not _hides_an_option(words)
    )


def _man(words: Words) -> bool:
    return len(words) > 1 and all(
        re.fullmatch(r"[A-Za-z0-9][\w.+-]*", w.text) and w.is_literal for w in words[1:]
    )


def _command(words: Words) -> bool:
    return len(words) > 1 and words[1].text in ("-v", "-V")


def _declares(words: Words) -> bool:
    """Declarations; a subscript may run a substitution, and -n makes another name for a variable."""
    return not any("[" in w.text.partition("=")[0] for w in words[1:]) and not has_option(words, "nf")


def _reads(words: Words) -> bool:
    names = operands(words, "-d -n -N -p -t -u -i -a")
    return all(w.is_literal and w.text.isidentifier() and not tampers(w.text, Word("", "?")) for w in names)


def _git(words: Words) -> bool:
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        if words[at].text == "-C":
            at += 2
        elif words[at].text in _GIT_GLOBAL:
            at += 1
        else:
            return False
    name, rest = subcommand(words, GIT_VALUED)
    if not name:
        return len(words) > 1 and words[1].text in ("--version", "-v")
    if has_option(rest, "O" if name == "grep" else "", *_GIT_REFUSED) or _hides_an_option(rest):
        return False
    if name in _GIT_LOOKING:
        return True
    lists = _GIT_LISTS.get(name)
    return lists is not None and _git_lists(name, rest, *lists)


def _git_lists(name: str, rest: Words, firsts: frozenset[str], options: frozenset[str]) -> bool:
    texts = [w.text for w in rest[1:]]
    is_filtered = any(text.startswith(_GIT_FILTERS) for text in texts) and name in ("branch", "tag")
    for text in texts:
        if (
            text.startswith("-")
            and text not in options
            and not (is_filtered and text.startswith(_GIT_FILTERS))
        ):
            return False
    if name == "config":
        return bool(texts) and any(text in firsts for text in texts)
    if is_filtered:
        return True
    given = [text for text in texts if not text.startswith("-")]
    if name in ("branch", "tag"):
        return not given
    return (given[0] if given else "") in firsts


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
    "git": _git,
    "read": _reads,
    "export": _declares,
    "declare": _declares,
    "typeset": _declares,
    "local": _declares,
    "readonly": _declares,
    "unset": _declares,
}

"""Which files a known program writes, deletes or reads, told from its words.

Programs that are not listed are taken to write nothing: the risk list is a
guard against accidents with well-known tools, not a boundary.
"""

from __future__ import annotations

import re

from msgspec import Struct

from mcode_exec.permissions.options import has_option, operands, subcommand, values
from mcode_exec.permissions.script import Simple, Word, literal
from mcode_exec.permissions.vocabulary import names

_DELETING = frozenset({"rm", "rmdir", "unlink", "shred", "srm", "trash", "trash-put", "gio"})
_CREATING = frozenset({"tee", "truncate", "touch", "mkdir", "mkfifo", "mknod", "fallocate"})
_MODES = frozenset({"chmod", "chown", "chgrp", "chattr", "setfacl"})
_COPYING = frozenset({"cp", "install", "ln", "mv", "rsync"})
#: programs whose operands are names of files that they change
WRITING = _DELETING | _CREATING | _MODES | _COPYING | {"dd"}

#: programs whose words name files without their content being read
_NOT_READING = names(
    "echo printf ls test [ [[ touch rm mkdir rmdir chmod chown chgrp stat basename dirname realpath "
    "readlink cd pwd find fd which type true false export unset declare tree du file truncate ln "
    "unlink pushd alias"
)
_GIT_READING = frozenset({"diff", "show", "blame", "grep", "log", "cat-file", "annotate", "hash-object"})
INTERPRETERS = names(
    "python python2 python3 pypy pypy3 node nodejs deno bun perl ruby php lua awk gawk mawk osascript Rscript"
)


class Effects(Struct, frozen=True, kw_only=True):
    writes: tuple[Word, ...] = ()
    deletes: tuple[Word, ...] = ()
    is_recursive: bool = False


def effects(command: Simple) -> Effects:
    """The files that the command changes."""
    name, words = command.name, command.words
    if name in _DELETING:
        recursive = has_option(words, "rR", "--recursive")
        targets = operands(words, "-n -s --iterations --size" if name == "shred" else "")
        return Effects(deletes=tuple(targets), is_recursive=recursive)
    if name == "find":
        return _find(words)
    if name == "git":
        return Effects(writes=tuple(_git(words)))
    return Effects(writes=tuple(_written(name, words)), is_recursive=has_option(words, "rR", "--recursive"))


def _written(name: str, words: tuple[Word, ...]) -> list[Word]:
    if name in _CREATING:
        return operands(words, "-s --size -m --mode -r --reference -d --date -t -l -o --offset --length")
    if name in _MODES:
        by_reference = any(w.text.startswith("--reference") for w in words)
        found = operands(words, "-m -x --from")
        minus_mode = name == "chmod" and any(re.fullmatch(r"-[rwxXst]+", w.text) for w in words[1:])
        return found if by_reference or minus_mode else found[1:]
    if name in _COPYING:
        return _copied(name, words)
    if name == "dd":
        return [w.tail(3) for w in words[1:] if w.text.startswith("of=")]
    if name in ("sed", "perl") and _edits_in_place(name, words):
        found = operands(words, "-e -f -E --expression --file" if name == "sed" else "-e -E -I -M")
        has_script = any(w.text.startswith(("-e", "--expression", "-f", "--file")) for w in words[1:])
        has_script = has_script or (name == "perl" and has_option(words, "eE"))
        return found if has_script else found[1:]
    if name == "sort":
        return values(words, "-o", "--output")
    if name == "curl":
        return values(words, "-o", "--output", "--output-dir", "-D", "--dump-header", "-c", "--cookie-jar")
    if name == "wget":
        return values(words, "-O", "--output-document", "-P", "--directory-prefix")
    if name in ("tar", "bsdtar"):
        return _tar(words)
    if name == "sqlite3" and not has_option(words, "", "-readonly"):
        return operands(words)[:1]
    if name == "unzip":
        return values(words, "-d")
    if name == "time":
        return values(words, "-o", "--output")
    if name == "parallel":
        return values(words, "--joblog", "--results", "--tmpdir")
    return []


def _edits_in_place(name: str, words: tuple[Word, ...]) -> bool:
    return (
        has_option(words, "i", "--in-place")
        if name == "sed"
        else any(re.match(r"-[a-hj-zA-Z0]*i", w.text) for w in words[1:])
    )


def _copied(name: str, words: tuple[Word, ...]) -> list[Word]:
    if has_option(words, "d", "--directory") and name == "install":
        return operands(words, "-m --mode -o -g --owner --group")
    target = values(words, "-t", "--target-directory") if name != "rsync" else []
    found = operands(
        words,
        "-t --target-directory -S --suffix -m --mode -o -g --owner --group -e --rsh --exclude --include",
    )
    if name == "mv":
        return target + found
    if target:
        return target
    if name == "rsync":
        found = [w for w in found if not is_remote(w)] if found and is_remote(found[-1]) else found
        return found[-1:] if len(found) > 1 else []
    if len(found) == 1:
        return [literal(".")] if name == "ln" else []
    return found[-1:]


def is_remote(word: Word) -> bool:
    """`host:path`, `user@host:` or a URL, as scp and rsync read their operands."""
    head, colon, _ = word.text.partition(":")
    return bool(colon) and "/" not in head and bool(head)


def _tar(words: tuple[Word, ...]) -> list[Word]:
    modes = words[1].text if len(words) > 1 else ""
    extracts = ("x" in modes.lstrip("-") and not modes.startswith("--")) or has_option(
        words, "", "--extract", "--get"
    )
    creates = (not modes.startswith("--") and bool(set("cru") & set(modes.lstrip("-")))) or has_option(
        words, "", "--create"
    )
    if extracts:
        return values(words, "-C", "--directory") or [literal(".")]
    if creates:
        named = values(words, "--file", "-f")
        clustered = words[2:3] if re.fullmatch(r"-?[a-zA-Z]*f", modes) else ()
        return [w for w in (*named, *clustered) if w.text != "-" and not is_remote(w)]
    return []


#: tests of find that leave most files alone
FIND_SELECTING = names(
    "-name -iname -path -ipath -wholename -regex -iregex -empty -newer -mtime -mmin -atime -ctime -size -inum "
    "-samefile -lname -perm"
)


def _find(words: tuple[Word, ...]) -> Effects:
    roots: list[Word] = []
    for word in words[1:]:
        if word.text.startswith(("-", "(", "!")):
            break
        roots.append(word)
    written = [
        words[at + 1]
        for at, w in enumerate(words[:-1])
        if w.text in ("-fprint", "-fprint0", "-fprintf", "-fls")
    ]
    deletes = any(word.text == "-delete" for word in words)
    selects = any(word.text in FIND_SELECTING for word in words)
    return Effects(
        writes=tuple(written),
        deletes=tuple(roots or [literal(".")]) if deletes else (),
        is_recursive=deletes and not selects,
    )


GIT_VALUED = "-C -c --git-dir --work-tree --namespace --exec-path --config-env --super-prefix"
#: git subcommands that leave the repository as it is
_GIT_LOOKING = names(
    "status log show diff rev-parse ls-files ls-tree cat-file blame grep describe shortlog rev-list "
    "name-rev merge-base show-ref for-each-ref count-objects check-ignore check-attr whatchanged var "
    "version help diff-tree diff-index diff-files cherry range-diff annotate ls-remote fetch"
)


def _git(words: tuple[Word, ...]) -> list[Word]:
    name, rest = subcommand(words, GIT_VALUED)
    found: list[Word] = []
    if name and name not in _GIT_LOOKING:
        found.extend(
            words[at + 1] for at, w in enumerate(words[:-1]) if w.text in ("-C", "--git-dir", "--work-tree")
        )
        found.extend(
            w.tail(len(o)) for w in words for o in ("--git-dir=", "--work-tree=") if w.text.startswith(o)
        )
    inner = operands(rest, "-b -o -u -c --branch --origin --depth --reference --template --filter -j --jobs")
    if name == "clone":
        found.extend(inner[1:2])
    elif name == "init":
        found.extend(inner[:1])
    elif name == "worktree" and inner and inner[0].text == "add":
        found.extend(inner[1:2])
    found.extend(values(rest, "--output", "--output-directory"))
    return found


def paths_read(command: Simple) -> list[Word]:
    """Words that may name a file whose content the command reads."""
    name, words = command.name, command.words
    if name in _NOT_READING:
        return []
    if name == "git":
        sub, rest = subcommand(words, GIT_VALUED)
        if sub not in _GIT_READING:
            return []
        words = rest
    elif name in ("cp", "mv", "install", "rsync", "scp") and len(words) > 2:
        words = words[:-1]
    found: list[Word] = []
    for word in words[1:]:
        found.append(word)
        for separator in ("=", "@", ":"):
            at = word.text.find(separator)
            if at >= 0 and word.pattern[: at + 1] == word.text[: at + 1] and at + 1 < len(word.text):
                found.append(word.tail(at + 1))
        if word.text.startswith("-") and not word.text.startswith("--") and len(word.text) > 2:
            found.append(word.tail(2))
        if name in INTERPRETERS and len(word.text) < 10_000:
            found.extend(
                literal(piece)
                for piece in re.split(r"[\s'\"()<>;,=]+", word.text)
                if "." in piece or "/" in piece
            )
    return found

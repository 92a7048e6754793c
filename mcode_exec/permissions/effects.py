"""Which files a known program writes, deletes or reads, told from its words.

Programs that are not listed, here or in outputs.py, are taken to write nothing: it is a
guard against accidents with well-known tools, not a boundary.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from mcode_exec.permissions.archives import COMPRESSORS, compressor_writes, seven_zip_writes, tar_writes
from mcode_exec.permissions.options import has_option, operands, subcommand, taken_apart, values
from mcode_exec.permissions.outputs import joined, option_values, outputs, without_version, written_by_table
from mcode_exec.permissions.script import Simple, Word, literal
from mcode_exec.permissions.script_outputs import EDITORS, awk_writes, editor_writes, sed_writes
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
    if name == "perl" and any(re.match(r"-[a-hj-zA-Z0]*i", w.text) for w in words[1:]):
        found = operands(words, "-e -E -I -M")
        return found if has_option(words, "eE") else found[1:]
    if name == "sqlite3" and not has_option(words, "", "-readonly"):
        return operands(words)[:1]
    reader = _READERS.get(name)
    if reader is not None:
        return reader(words)
    if name in COMPRESSORS:
        return compressor_writes(name, words)
    if without_version(name) in ("python", "pypy"):
        return _python(words)
    return written_by_table(name, words)


def _converted(words: tuple[Word, ...]) -> list[Word]:
    """`ffmpeg -i IN … OUT`, `convert IN … png:OUT`."""
    if len(words) < 3 or words[-2].text == "-i" or words[-1].text.startswith("-"):
        return []
    scheme = re.match(r"[A-Za-z][A-Za-z0-9]*:(?!//)", words[-1].pattern)
    return [words[-1].tail(scheme.end()) if scheme else words[-1]]


def _python(words: tuple[Word, ...]) -> list[Word]:
    """What modules write that are run from the command line."""
    for at, word in enumerate(words[1:-1], 1):
        if word.text == "-m":
            module, rest = words[at + 1].text, words[at + 1 :]
            if module in ("zipfile", "tarfile"):
                inner = operands(rest)
                return inner[:1] if has_option(rest, "c", "--create") else inner[1:2]
            return written_by_table(module, rest) if module in ("venv", "virtualenv", "pip") else []
        if not word.text.startswith("-"):
            break
    return []


def _uv(words: tuple[Word, ...]) -> list[Word]:
    sub, rest = subcommand(words)
    return written_by_table(sub, rest) if sub in ("venv", "pip") else []


_READERS: dict[str, Callable[[tuple[Word, ...]], list[Word]]] = {
    "sed": sed_writes,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk_writes),
    **dict.fromkeys(EDITORS, editor_writes),
    **dict.fromkeys(("tar", "bsdtar", "gtar"), tar_writes),
    **dict.fromkeys(("7z", "7za", "7zr", "7zz"), seven_zip_writes),
    **dict.fromkeys(("ffmpeg", "convert", "magick"), _converted),
    "uv": _uv,
}


_COPY_VALUED = names(
    "-t --target-directory -S --suffix -m --mode -o -g --owner --group --exclude --include --strip-program"
)
_RSYNC_WRITING = names("--log-file --backup-dir --partial-dir -T --temp-dir --write-batch")
_RSYNC_VALUED = _RSYNC_WRITING | names("-e --rsh -f --filter --exclude --include --files-from -B -M")


def _copied(name: str, words: tuple[Word, ...]) -> list[Word]:
    if name == "rsync":
        return _synchronized(words)
    # `cp -g`, `mv -m` and the like are no options of these; only install has owners and modes
    valued = _COPY_VALUED if name == "install" else _COPY_VALUED - names("-m -o -g")
    given, found = taken_apart(words, valued)
    target = option_values(given, "-t", "--target-directory")
    if name == "install" and has_option(words, "d", "--directory"):
        return found
    if name == "mv":
        return target + found
    if target:
        return target
    if len(found) == 1:
        return [literal(".")] if name == "ln" else []
    return found[-1:]


def _synchronized(words: tuple[Word, ...]) -> list[Word]:
    given, found = taken_apart(words, _RSYNC_VALUED)
    written = option_values(given, *_RSYNC_WRITING)
    return written if len(found) < 2 or is_remote(found[-1]) else [*written, found[-1]]


def is_remote(word: Word) -> bool:
    """`host:path`, `user@host:` or a URL, as scp and rsync read their operands."""
    head, colon, _ = word.text.partition(":")
    return bool(colon) and "/" not in head and bool(head)


#: tests of find that leave most files alone
FIND_SELECTING = names(
    "-name -iname -path -ipath -wholename -regex -iregex -empty -newer -mtime -mmin -atime -ctime -size -inum "
    "-samefile -lname -perm"
)


def selects_surely(words: tuple[Word, ...]) -> bool:
    """Whether a find leaves out the place where it starts and most below it, in every one of its alternatives."""
    texts = [word.text for word in words]
    if any(text in ("!", "-not", ",") for text in texts):
        return False
    tests = sum(
        text in FIND_SELECTING and (at + 1 == len(texts) or bool(texts[at + 1].strip("*?./")))
        for at, text in enumerate(texts)
    )
    return tests > sum(text in ("-o", "-or") for text in texts)


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
    row = _GIT_OUTPUTS.get(name)
    written = row.of(rest) if row is not None else values(rest, "--output")
    if name in ("bundle", "submodule", "worktree"):
        first = next((w.text for w in rest[1:] if not w.text.startswith("-")), "")
        written = written if first in ("create", "add", "move", "remove") else []
    if name == "checkout":
        after = [at for at, word in enumerate(rest) if word.text == "--"]
        makes_branch = any(w.text in ("-b", "-B", "--orphan", "-t", "--track", "--detach") for w in rest)
        # without `--` a word is a branch or a file; as a file it would be overwritten
        written = [] if makes_branch else [w for w in rest[1:] if not w.text.startswith("-")]
        written = list(rest[after[0] + 1 :]) if after else written
    for at, word in enumerate(words[: len(words) - len(rest)]):
        if word.text == "-C":
            written = [joined(words[at + 1], w) for w in written]
    return found + written


_GIT_OUTPUTS = {
    "archive": outputs("-o --output", "--format --prefix --remote"),
    "bundle": outputs("", "", slice(1, 2)),
    "checkout-index": outputs("--prefix"),
    "clone": outputs(
        "--separate-git-dir",
        "-b -o -u -c -j --branch --origin --depth --reference --template --filter --jobs --config --upload-pack",
        slice(1, 2),
        here=True,
    ),
    "format-patch": outputs("-o --output-directory --output", "-v"),
    "init": outputs("--separate-git-dir", "-b --initial-branch --template --object-format", slice(0, 1)),
    "mv": outputs("", "", slice(None)),
    "restore": outputs("", "-s --source", slice(None)),
    "rm": outputs("", "", slice(None), unless="n --dry-run --cached"),
    "submodule": outputs("", "-b --branch --name --reference --depth", slice(2, 3)),
    "worktree": outputs("", "-b -B --reason", slice(1, 3)),
}


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

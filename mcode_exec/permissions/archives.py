"""What programs write that pack and unpack files."""

from __future__ import annotations

import re

from msgspec import Struct

from mcode_exec.permissions.options import Given, has_option, taken_apart
from mcode_exec.permissions.outputs import Words, option_values
from mcode_exec.permissions.script import Word, literal
from mcode_exec.permissions.vocabulary import names

_TAR_LETTERS = "fbCTXHKLNVFgI"  # those that take a value
_TAR_VALUED = frozenset(f"-{letter}" for letter in _TAR_LETTERS) | names(
    "--file --directory --files-from --exclude --exclude-from --transform --listed-incremental --index-file "
    "--use-compress-program --strip-components --owner --group --mode --format"
)


def tar_writes(words: Words) -> list[Word]:
    """An archive, or what one is unpacked to."""
    modes, given = _tar_options(words)
    extracts = "x" in modes or has_option(words, "", "--extract", "--get")
    creates = bool(set("cruA") & set(modes)) or has_option(
        words, "", "--create", "--append", "--update", "--concatenate"
    )
    found = option_values(given, "-g", "--listed-incremental", "--index-file")
    if extracts and not has_option(words, "O", "--to-stdout"):
        tops = [w.tail(16) for w in words[1:] if w.text.startswith("--one-top-level=")]
        return [*found, *tops, *(option_values(given, "-C", "--directory") or [literal(".")])]
    if creates:
        named = option_values(given, "-f", "--file")
        return [*found, *(w for w in named if w.text != "-" and not _is_on_a_host(w))]
    return found


def _tar_options(words: Words) -> tuple[str, list[Given]]:
    """The letters, and the options with their values; `tar czf x` has the letters first and then the values."""
    first = words[1].text if len(words) > 1 else ""
    given: list[Given] = []
    letters = ""
    at = 1
    if re.fullmatch(r"[a-zA-Z]+", first):
        letters, at = first, 2
        for letter in first:
            if letter in _TAR_LETTERS and at < len(words):
                given.append(Given(f"-{letter}", words[at]))
                at += 1
    rest = (words[0], *words[at:])
    given.extend(taken_apart(rest, _TAR_VALUED)[0])
    clusters = (re.match(rf"-([^{_TAR_LETTERS}-]*)", word.text) for word in rest[1:])
    return letters + "".join(cluster[1] for cluster in clusters if cluster), given


def _is_on_a_host(word: Word) -> bool:
    head, colon, _ = word.text.partition(":")
    return bool(colon) and "/" not in head and bool(head)


def seven_zip_writes(words: Words) -> list[Word]:
    """`7z a OUT`, `7z x IN -oDIR`."""
    operands = [word for word in words[1:] if not word.text.startswith("-")]
    command = operands[0].text if operands else ""
    if command in ("x", "e"):
        return [w.tail(2) for w in words[1:] if w.text.startswith("-o") and len(w.text) > 2] or [literal(".")]
    return operands[1:2] if command in ("a", "u", "d", "rn") else []


class _Compressor(Struct, frozen=True):
    suffix: str
    unpacks: bool = False
    keeps: bool = False


_COMPRESSORS: dict[str, _Compressor] = {
    **{name: _Compressor(".gz") for name in ("gzip", "pigz")},
    **{name: _Compressor(".gz", unpacks=True) for name in ("gunzip", "unpigz")},
    **{name: _Compressor(".bz2") for name in ("bzip2", "pbzip2")},
    "bunzip2": _Compressor(".bz2", unpacks=True),
    "xz": _Compressor(".xz"),
    "unxz": _Compressor(".xz", unpacks=True),
    "lzma": _Compressor(".lzma"),
    "unlzma": _Compressor(".lzma", unpacks=True),
    "lzip": _Compressor(".lz"),
    "compress": _Compressor(".Z"),
    "uncompress": _Compressor(".Z", unpacks=True),
    "zstd": _Compressor(".zst", keeps=True),
    "unzstd": _Compressor(".zst", unpacks=True, keeps=True),
    "lz4": _Compressor(".lz4", keeps=True),
    "brotli": _Compressor(".br", keeps=True),
}
COMPRESSORS = frozenset(_COMPRESSORS)
_COMPRESSOR_VALUED = names("-S --suffix -T -b -o --output --output-dir-flat --output-dir-mirror -D -M")


def compressor_writes(name: str, words: Words) -> list[Word]:
    """The file beside each operand, and the operand itself, which goes unless it is kept."""
    program = _COMPRESSORS[name]
    given, operands = taken_apart(words, _COMPRESSOR_VALUED)
    found = option_values(given, "-o", "--output", "--output-dir-flat", "--output-dir-mirror")
    if found or has_option(words, "ctl", "--stdout", "--to-stdout", "--test", "--list"):
        return found
    suffix = next(iter(option_values(given, "-S", "--suffix")), literal(program.suffix)).text
    unpacks = program.unpacks or has_option(words, "d", "--decompress", "--uncompress")
    keeps = has_option(words, "", "--rm") is False if program.keeps else has_option(words, "k", "--keep")
    for word in operands:
        if word.text == "-":
            continue
        if not unpacks:
            found.append(Word(word.text + suffix, word.pattern + suffix))
        elif word.pattern.endswith(suffix):
            found.append(Word(word.text.removesuffix(suffix), word.pattern.removesuffix(suffix)))
        else:
            found.append(word)
        if not keeps:
            found.append(word)
    return found

"""Files that a program of sed, awk or an editor writes by itself: `sed 'w f'`, `awk '{print > "f"}'`."""

from __future__ import annotations

import re
from itertools import islice

from mcode_exec.permissions.matching import UNKNOWN
from mcode_exec.permissions.options import has_option, taken_apart
from mcode_exec.permissions.outputs import Words, option_values
from mcode_exec.permissions.script import Word
from mcode_exec.permissions.vocabulary import names

_LONGEST = 20_000  # characters of a program
_MOST_REDIRECTIONS = 200

_SED_VALUED = names("-e --expression -f --file -l --line-length -s")
_SED_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*/[IM]*|\\(?P<d>.)(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)[IM]*)"
_SED_START = re.compile(
    rf"[\s;{{}}]*(?:{_SED_ADDRESS}\s*(?:,\s*(?:[+~]?\d+|\$|/(?:[^/\\\n]|\\.)*/[IM]*)\s*)?)?[\s!{{]*"
)
_SED_PARTS = re.compile(
    r"(?P<d>[^\n\\])(?:(?!(?P=d))[^\\]|\\.)*(?P=d)(?:(?!(?P=d))[^\\]|\\.)*(?P=d)", re.DOTALL
)
_SED_FLAGS = re.compile(r"[gpiIeMm0-9]*(w?)")
_SED_LINE, _SED_REST = re.compile(r"[^\n]*"), re.compile(r"[^;\n}]*")

_AWK_VALUED = names("-F -v -f -i -e -l -E --field-separator --assign --file --include --source --load")
_AWK_STRING = r'"((?:[^"\\\n]|\\.)*)"'
_AWK_REDIRECTION = re.compile(rf">>?[\s(]*(?:{_AWK_STRING}|([A-Za-z_]\w*))\s*(.?)", re.DOTALL)

_EDITOR_WRITE = re.compile(
    r"[\s:%\d,.$']*(?:w|wr|write|wq|x|xit|exi|exit|up|update|sav|saveas|wn|wa|wall|wqa|wqall|xa|xall)!?"
    r"(?:\s+(?:>>\s*)?(\S.*))?\s*"
)
EDITORS = names("vim vi ex nvim view gvim")


def sed_writes(words: Words) -> list[Word]:
    """The files of `w`, and those that are edited in place."""
    given, operands = taken_apart(_without_in_place(words), _SED_VALUED - {"-s"})
    scripts = option_values(given, "-e", "--expression")
    if not scripts and not option_values(given, "-f", "--file"):
        scripts, operands = operands[:1], operands[1:]
    found = _sed_files("\n".join(script.pattern for script in scripts)[:_LONGEST])
    return found + operands if has_option(words, "i", "--in-place") else found


def _without_in_place(words: Words) -> Words:
    """`-i.bak` has a suffix, which is no cluster of options."""
    return tuple(w for w in words if not re.match(r"-[nErsuz]*i|--in-place", w.text))


def _sed_files(script: str) -> list[Word]:
    found: list[Word] = []
    at = 0
    while at < len(script):
        start = _SED_START.match(script, at)
        at = start.end() if start else at
        command = script[at : at + 1]
        at += 1
        if command in ("s", "y"):
            parts = _SED_PARTS.match(script, at)
            if parts is None:
                break
            flags = _SED_FLAGS.match(script, parts.end())
            at = flags.end() if flags else parts.end()
            command = "w" if flags and flags[1] else ""
        to_line_end = bool(command) and command in "wWaicrR#:"
        rest = (_SED_LINE if to_line_end else _SED_REST).match(script, at)
        if rest is None:
            break
        if command in ("w", "W"):
            found.append(_named(rest[0].strip()))
        at = rest.end()
    return [word for word in found if word.text]


def awk_writes(words: Words) -> list[Word]:
    """The files that `print` is redirected to, and those that are edited in place."""
    given, operands = taken_apart(words, _AWK_VALUED)
    programs = option_values(given, "-e", "--source")
    if not programs and not option_values(given, "-f", "--file", "-E"):
        programs, operands = operands[:1], operands[1:]
    variables = [value.pattern for value in option_values(given, "-v", "--assign")]
    found = [file for program in programs for file in _awk_files(program.pattern[:_LONGEST], variables)]
    is_in_place = any(value.text == "inplace" for value in option_values(given, "-i", "--include"))
    return found + operands if is_in_place else found


def _awk_files(program: str, variables: list[str]) -> list[Word]:
    found: list[Word] = []
    for match in islice(_AWK_REDIRECTION.finditer(program), _MOST_REDIRECTIONS):
        text, variable, following = match.groups()
        values = [text] if text is not None else re.findall(rf"\b{variable}\s*=\s*{_AWK_STRING}", program)
        if text is None:
            values += [v.partition("=")[2] for v in variables if v.partition("=")[0] == variable]
        is_whole = following in ("", ";", "}", ")", "\n", "|")
        found.extend(_named(value if is_whole else value + UNKNOWN) for value in values)
    return [word for word in found if word.text]


def editor_writes(words: Words) -> list[Word]:
    """What `vim -c 'w file'` writes, and the files it was started with where it names none."""
    given, operands = taken_apart(words, names("-c --cmd -S -u -U -i -T -w -W -t"), clusters=False)
    commands = option_values(given, "-c", "--cmd")
    commands += [word.tail(1) for word in operands if word.text.startswith("+")]
    files = [word for word in operands if not word.text.startswith("+")]
    found = option_values(given, "-w", "-W")
    for command in commands:
        for part in command.pattern.split("|"):
            match = _EDITOR_WRITE.fullmatch(part)
            if match:
                found.extend([_named(match[1].strip())] if match[1] else files)
    return found


def _named(text: str) -> Word:
    return Word(text.replace(UNKNOWN, "…"), text)

"""Reading the options of a command whose program we know a little.

`readings` is how programs that run others are read: letters in clusters, values
glued or in the next word, long names abbreviated as GNU allows.  An option that
is not known may or may not take the next word, so both ways are given back, and
what is judged must be right in each.  The rest answers questions about single
options of programs that run nothing.
"""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.permissions.matching import GLOB, UNKNOWN
from mcode_exec.permissions.script import ANYTHING, Word

_MOST_GIVEN = 200  # options that are remembered of one command
_LONGEST_CLUSTER = 24  # letters


def operands(words: tuple[Word, ...], valued: str = "") -> list[Word]:
    """Words that are no options and no values of the `valued` ones; after `--` all are operands."""
    takes_value = frozenset(valued.split())
    found: list[Word] = []
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "--":
            found.extend(words[at + 1 :])
            break
        if text.startswith("-") and text != "-":
            at += 2 if text in takes_value else 1
            continue
        found.append(words[at])
        at += 1
    return found


def without_leading_options(words: tuple[Word, ...]) -> list[tuple[Word, ...]]:
    """The command as if it had no options before its first operand: `git -C . push` is a `git push`.

    Any of them may take the next word, so there may be several; none where there are no such options.
    """
    begins, found = {1}, []
    for at in range(1, len(words)):
        if at not in begins:
            continue
        text = words[at].text
        if not text.startswith("-") or text == "-":
            if at > 1:
                found.append((words[0], *words[at:]))
            continue
        begins.add(at + 1)
        if "=" not in text and text != "--" and not words[min(at + 1, len(words) - 1)].text.startswith("-"):
            begins.add(at + 2)
    return found


def has_option(words: tuple[Word, ...], short: str = "", *names: str) -> bool:
    """Whether a one-letter option stands in any cluster, or a long one in full or shortened as GNU allows."""
    for word in words[1:]:
        text = word.text
        if text == "--":
            return False
        if text.startswith("--"):
            given = text.partition("=")[0]
            if len(given) > 2 and any(name.startswith(given) for name in names):
                return True
        elif text.startswith("-") and short and set(text[1:]) & set(short):
            return True
    return False


def values(words: tuple[Word, ...], *names: str) -> list[Word]:
    """Values of options, as the next word, behind `=`, or glued to a one-letter option."""
    found: list[Word] = []
    for at, word in enumerate(words[1:], 1):
        for name in names:
            if word.text == name:
                found.extend(words[at + 1 : at + 2])
            elif name.startswith("--") and word.text.startswith(name + "="):
                found.append(word.tail(len(name) + 1))
            elif not name.startswith("--") and word.text.startswith(name) and len(word.text) > len(name):
                found.append(word.tail(len(name)))
    return found


def taken_apart(
    words: tuple[Word, ...], valued: frozenset[str], *, clusters: bool = True
) -> tuple[list[Given], list[Word]]:
    """The `valued` options with their values, and the operands, wherever they stand.

    `clusters`: `-ab` is `-a -b`; otherwise it is one option, to which only a path can be glued.
    """
    given: list[Given] = []
    found: list[Word] = []
    at = 1
    while at < len(words):
        word = words[at]
        at += 1
        if word.text == "--":
            found.extend(words[at:])
            break
        if not word.text.startswith("-") or word.text == "-":
            found.append(word)
            continue
        name, value = _valued_option(word, valued, clusters=clusters)
        if name and value is None:
            value = words[at] if at < len(words) else None
            at += 1
        if name:
            given.append(Given(name, value))
    return given, found


def _valued_option(word: Word, valued: frozenset[str], *, clusters: bool) -> tuple[str, Word | None]:
    """The option of a word that takes a value, and the value if it is in the same word."""
    text = word.text
    name, equals, _ = text.partition("=")
    if text.startswith("--") or not clusters:
        meant = name
        if name not in valued:
            meant = next(
                (v for v in sorted(valued) if name[3:] and text[1] == "-" and v.startswith(name)), ""
            )
        if meant:
            return meant, _tail(word, len(name) + 1) if equals else None
        glued = text[:2] if text[2:3] in ("/", ".", "~") and text[:2] in valued else ""
        return glued, _tail(word, 2) if glued else None
    for at, letter in enumerate(text[1:], 1):
        if f"-{letter}" in valued:
            return f"-{letter}", _tail(word, at + 1) if text[at + 1 :] else None
    return "", None


def may_be_option(word: Word) -> bool:
    """Whether nobody knows that the word is no option: it starts with an unknown part or a glob."""
    return word.pattern[:1] in (UNKNOWN, GLOB)


def hides_an_option(words: tuple[Word, ...]) -> bool:
    """Whether a word that nobody knows yet may be an option."""
    for word in words[1:]:
        if word.text == "--":
            return False
        if may_be_option(word):
            return True
    return False


def subcommand(words: tuple[Word, ...], valued: str = "") -> tuple[str, tuple[Word, ...]]:
    """The first operand and the words from it on, as `push` and `push origin` of `git -C x push origin`."""
    takes_value = frozenset(valued.split())
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in takes_value else 1
    if at >= len(words):
        return "", ()
    return words[at].text, words[at:]


class Options(Struct, frozen=True):
    """The options of a program whose own words must be told from those of what it runs."""

    #: `-x` and `--name` that take no value
    flags: frozenset[str]
    #: `-x` and `--name` that take one, glued, behind `=` or as the next word
    valued: frozenset[str]
    #: `-x` and `--name` whose value, if there is one, is glued to it or stands behind `=`
    glued: frozenset[str] = frozenset()
    #: a lone `-` is an option as well
    lone_dash: bool = False
    #: options behind whose value the words start anew, as `env -S` does
    ending: frozenset[str] = frozenset()


def options(
    flags: str = "", valued: str = "", glued: str = "", ending: str = "", *, lone_dash: bool = False
) -> Options:
    """Options from words: letters of the short ones first, then long names without their dashes."""
    return Options(_named(flags), _named(valued), _named(glued), lone_dash, _named(ending))


def _named(spec: str) -> frozenset[str]:
    letters, _, long_names = spec.partition(" ")
    return frozenset(f"-{c}" for c in letters if c != "-") | {f"--{name}" for name in long_names.split()}


class Given(Struct, frozen=True):
    """One option as it was given, its name in full where that is certain."""

    name: str
    value: Word | None = None


class Reading(Struct, frozen=True):
    """One way to tell a program's options from the words behind them."""

    given: tuple[Given, ...]
    #: the index of the first word that is neither an option nor the value of one
    at: int


def readings(words: tuple[Word, ...], known: Options, at: int = 1) -> list[Reading]:
    """The ways to read the options from `at` on; more than one where an option is not known to take a value."""
    found: list[Reading] = []
    seen: set[int] = set()
    todo = [Reading((), at)]
    while todo:
        reading = todo.pop()
        if reading.at in seen:
            continue
        seen.add(reading.at)
        ways = _ways(words, reading.at, known)
        if not ways:
            found.append(reading)
        elif words[reading.at].text == "--":
            found.append(Reading(reading.given, reading.at + 1))
        else:
            given = reading.given if len(reading.given) < _MOST_GIVEN else ()
            for way in reversed(ways):
                ends = any(g.name in known.ending for g in way.given)
                (found if ends else todo).append(Reading((*given, *way.given), way.at))
    return found


def given_anywhere(words: tuple[Word, ...], known: Options, at: int = 1) -> list[Given]:
    """Every option up to `--`, between and behind the operands too, in each way to read it."""
    found: list[Given] = []
    while at < len(words) and words[at].text != "--":
        ways = _ways(words, at, known)
        for way in ways:
            found.extend(way.given)
        at = min((way.at for way in ways), default=at + 1)
    return found


def _ways(words: tuple[Word, ...], at: int, known: Options) -> list[Reading]:
    """The ways to read one word as options, none if it is no option."""
    text = words[at].text if at < len(words) else ""
    if not text.startswith("-") or (text == "-" and not known.lone_dash):
        return []
    if text in ("-", "--"):
        return [Reading((), at + 1)]
    return _long(words, at, known) if text.startswith("--") else _cluster(words, at, known)


def _long(words: tuple[Word, ...], at: int, known: Options) -> list[Reading]:
    """`--name`, `--name=value` and what GNU takes for an abbreviation of it."""
    name, equals, _ = words[at].text.partition("=")
    meant = _meant(name, known)
    if equals:
        value = _tail(words[at], len(name) + 1)
        return [Reading(tuple(Given(full, value) for full in meant or (name,)), at + 1)]
    ways: list[Reading] = []
    if not meant or any(full not in known.valued for full in meant):
        ways.append(Reading((Given(name),), at + 1))
    if not meant or any(full in known.valued for full in meant):
        following = words[at + 1] if at + 1 < len(words) else None
        taking = tuple(
            Given(full, following) for full in meant or (name,) if full in known.valued or not meant
        )
        ways.append(Reading(taking, min(at + 2, len(words))))
    return ways


def _meant(name: str, known: Options) -> list[str]:
    everything = known.valued | known.flags | known.glued
    return [name] if name in everything else sorted(full for full in everything if full.startswith(name))


def _cluster(words: tuple[Word, ...], at: int, known: Options) -> list[Reading]:
    """`-abc`: letters without a value up to one that takes what is left of the word, or the next one."""
    word = words[at]
    ways: list[Reading] = []
    given: list[Given] = []
    for i, letter in enumerate(word.text[1 : _LONGEST_CLUSTER + 1], 1):
        option = f"-{letter}"
        rest = word.text[i + 1 :]
        if option in known.glued:
            given.append(Given(option, _tail(word, i + 1) if rest else None))
            break
        if option in known.valued or not (option in known.flags or letter.isdigit()):
            value = _tail(word, i + 1) if rest else words[at + 1] if at + 1 < len(words) else None
            taking = Reading((*given, Given(option, value)), at + 1 if rest else min(at + 2, len(words)))
            ways.append(taking)
            if option in known.valued:
                return ways
        given.append(Given(option))
    return [Reading(tuple(given), at + 1), *ways]


def _tail(word: Word, start: int) -> Word:
    return word.tail(start) if word.pattern[:start] == word.text[:start] else ANYTHING

"""What is never allowed, whatever the rules: the floor under every preset but `off`.

Erasing disks or the home directory, fork bombs, and writes to mcode's own data
and configuration.  `floor_reason` and its like name the reason, or None.
"""

from __future__ import annotations

import posixpath
import re

from mcode_exec.permissions.effects import WRITING, effects
from mcode_exec.permissions.matching import GLOB
from mcode_exec.permissions.options import has_option, operands
from mcode_exec.permissions.places import Places, is_disk, normal, real
from mcode_exec.permissions.script import Parsed, Redirect, Simple, Word

_DISK_ERASERS = frozenset(
    {
        "wipefs",
        "blkdiscard",
        "sgdisk",
        "sfdisk",
        "fdisk",
        "gdisk",
        "parted",
        "mke2fs",
        "mkswap",
        "badblocks",
        "hdparm",
        "shred",
    }
)
_CONCERNED = frozenset({"find", "cryptsetup", "nvme", "zpool"})
_ERASES_DISKS = "it erases disks"
_ERASES_HOME = "it erases the system or the home directory"
_OWN_FILES = "it writes to mcode's own data or configuration"

_FUNCTION = re.compile(
    r"(?:function\s+([^\s(){}]{1,40})\s*(?:\(\s*\))?|([^\s(){};&|]{1,40})\s*\(\s*\))\s*[{(]"
)


_LOOP = re.compile(r"(?:^|[\s;&|{(])(?:while|until|for)\s")


def is_fork_bomb(script: str) -> bool:
    """A function that starts itself over and over: several times, or in a loop, and some of it in the background.

    Only calls without arguments count: with them, a recursion may well come to an end.
    """
    if "{" not in script and "(" not in script:
        return False
    for match in _FUNCTION.finditer(script):
        name = re.escape(match[1] or match[2])
        body = ";" + script[match.end() : match.end() + 400].partition("}")[0]
        own_calls = re.findall(
            rf"(?:[;&|{{(\n]|\b(?:do|then|else|time|exec|setsid|nohup)\s)\s*{name}(?=[ \t]*([;&|)\n]|$))",
            body,
        )
        splits = any(mark in ("&", "|") for mark in own_calls)
        if splits and (len(own_calls) > 1 or _LOOP.search(body)):
            return True
    return False


def command_floor(command: Simple, places: Places) -> str | None:
    """Why this simple command is never allowed."""
    name, words = command.name, command.words
    if name.startswith("mkfs") and len(words) > 1:
        return _ERASES_DISKS
    if (
        name in _DISK_ERASERS
        and _names_a_disk(command, places)
        and not has_option(words, "l", "--list", "--no-act")
    ):
        return _ERASES_DISKS
    if (name, *(w.text for w in words[1:2])) in (
        ("cryptsetup", "luksFormat"),
        ("cryptsetup", "erase"),
        ("nvme", "format"),
        ("nvme", "sanitize"),
        ("zpool", "destroy"),
    ):
        return _ERASES_DISKS
    changed = effects(command)
    for word in changed.writes:
        reason = write_floor(word, command.directories, places)
        if reason:
            return reason
    moved = operands(words, "-t --target-directory")[:-1] if name == "mv" else []
    for word in (*changed.deletes, *moved):
        reason = _deletion_floor(word, command, places, is_recursive=changed.is_recursive or name == "mv")
        if reason:
            return reason
    return None


def may_concern(name: str) -> bool:
    """Whether a program of this name can be below the floor by its operands."""
    return name in WRITING or name in _DISK_ERASERS or name.startswith("mkfs") or name in _CONCERNED


def _names_a_disk(command: Simple, places: Places) -> bool:
    for word in command.words[1:]:
        paths = places.candidates(word, command.directories) or ()
        if any(is_disk(normal(path)) or (normal(path) == "/dev" and not word.is_literal) for path in paths):
            return True
    return False


def write_floor(word: Word, directories: tuple[str, ...], places: Places) -> str | None:
    """Why nothing is ever written to this target."""
    for path in places.candidates(word, directories) or ():
        for name in dict.fromkeys((normal(path), real(path) or normal(path))):
            if is_disk(name):
                return _ERASES_DISKS
            if places.is_mcodes_own(name):
                return _OWN_FILES
    return None


def redirect_floor(redirect: Redirect, places: Places) -> str | None:
    return write_floor(redirect.target, redirect.directories, places) if redirect.writes else None


def _deletion_floor(word: Word, command: Simple, places: Places, *, is_recursive: bool) -> str | None:
    if word.is_unknown:
        return None
    pattern = word.pattern.rstrip("/") or "/"
    is_everything_in = (
        posixpath.basename(pattern).startswith(GLOB) or posixpath.basename(pattern) == "." + GLOB
    )
    if not word.is_literal and not is_everything_in:
        return None
    is_entry = word.is_literal and not word.text.endswith("/")
    for path in places.candidates(word, command.directories, is_entry=is_entry) or ():
        for name in dict.fromkeys((normal(path), real(path) or normal(path))):
            if places.is_mcodes_own(name, below=is_recursive):
                return _OWN_FILES if not (is_recursive and places.is_irreplaceable(name)) else _ERASES_HOME
            if is_recursive and places.is_irreplaceable(name):
                return _ERASES_HOME
            if is_disk(name) and command.name == "shred":
                return _ERASES_DISKS
    return None


def script_floor(script: str, parsed: Parsed) -> str | None:
    """Why the script as a whole is never allowed."""
    if is_fork_bomb(script):
        return "it is a fork bomb"
    if parsed.unparsed and re.search(r">\s*/dev/(?:sd|hd|vd|nvme|xvd|mmcblk|disk)", script):
        return _ERASES_DISKS
    return None

"""The risk list of the smart preset: commands that are asked although commands are allowed.

`risk` names the reason in a few words, or None.  It knows well-known tools by
their usual options; later rules of the user lift what it says.
"""

from __future__ import annotations

import posixpath
import re

from mcode_exec.permissions.credentials import is_credential_file, is_env_file, prints_credential
from mcode_exec.permissions.effects import GIT_VALUED, INTERPRETERS, effects, paths_read
from mcode_exec.permissions.handed_over import SHELLS
from mcode_exec.permissions.matching import GLOB
from mcode_exec.permissions.options import has_option, operands, subcommand, values
from mcode_exec.permissions.places import Places, is_no_file, normal, real
from mcode_exec.permissions.remote import publishes, uploads
from mcode_exec.permissions.script import Simple, Word, is_selection
from mcode_exec.permissions.vocabulary import names

_PRIVILEGE = names(
    "sudo doas su pkexec run0 runuser setpriv nsenter chroot unshare capsh gosu machinectl sudoedit "
    "visudo setcap"
)
_SYSTEM = names(
    "shutdown reboot halt poweroff init telinit systemctl service rc-service launchctl mount umount "
    "swapon swapoff mkswap modprobe insmod rmmod sysctl iptables ip6tables nft ufw firewall-cmd "
    "crontab at batch useradd userdel usermod groupadd groupdel adduser deluser passwd chpasswd chsh "
    "update-rc.d chkconfig loginctl hostnamectl timedatectl localectl dmsetup losetup fdisk sfdisk "
    "parted pkill killall killall5 apt apt-get aptitude dpkg dnf yum rpm zypper pacman apk snap "
    "flatpak brew port update-alternatives ldconfig"
)
#: forms of those that only look
_LOOKING: dict[str, frozenset[str]] = {
    "systemctl": names(
        "status is-active is-enabled is-failed list-units list-unit-files list-timers show cat"
    ),
    "loginctl": names("list-sessions list-users show-session"),
    "hostnamectl": frozenset({"status"}),
    "timedatectl": frozenset({"status", "list-timezones", "show"}),
    "apt": names("list search show policy depends rdepends"),
    "apt-get": frozenset({"download", "changelog", "source"}),
    "dnf": names("list search info repolist"),
    "yum": names("list search info repolist"),
    "apk": names("info search list"),
    "snap": names("list find info"),
    "flatpak": names("list search info"),
    "brew": names("list search info config doctor leaves deps outdated"),
    "update-alternatives": frozenset(),
}
_LOOKING_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "crontab": ("l", ()),
    "iptables": ("LSC", ("--list",)),
    "ip6tables": ("LSC", ("--list",)),
    "fdisk": ("l", ("--list",)),
    "dpkg": ("lLsSIcp", ("--list", "--status", "--search", "--listfiles", "--print-architecture")),
    "rpm": ("q", ("--query",)),
    "pacman": ("Q", ("--query",)),
    "losetup": ("la", ("--list", "--all")),
    "swapon": ("s", ("--show", "--summary")),
    "update-alternatives": ("", ("--list", "--display", "--query")),
    "passwd": ("S", ("--status",)),
}
_USER_INSTALLS = frozenset(
    {
        ("yarn", "global"),
        ("cargo", "install"),
        ("go", "install"),
        ("gem", "install"),
        ("pipx", "install"),
        ("uv", "tool", "install"),
        ("rustup", "default"),
        ("rustup", "update"),
    }
)
_DOWNLOADERS = frozenset(
    {"curl", "wget", "wget2", "aria2c", "http", "https", "httpie", "xh", "fetch", "lynx", "nc", "ncat"}
)

_MOST_GLOBS = 2  # components of a path with wildcards
_MOST_GLOBBED = 1_000

#: git settings that make git start a program
_GIT_RUNS = re.compile(
    r"(?i)^(core\.(hookspath|fsmonitor|pager|editor|sshcommand|askpass|gitproxy)|alias\..*|credential\..*|filter\..*"
    r"|diff\..*(command|textconv|external)|merge\..*driver|(diff|merge)tool\..*|gpg\..*program|include.*|url\..*|http\..*proxy)$"
)


def risk(command: Simple, places: Places) -> str | None:
    """Why this command is asked under the smart preset."""
    name = command.name
    if not name:
        return None
    if name in _PRIVILEGE:
        return "it asks for privilege"
    if name in _SYSTEM and not _only_looks(name, command.words):
        return "it controls the system"
    if name == "kill" and _kills_everything([w.text for w in command.words[1:]]):
        return "it controls the system"
    if _installs_for_all(name, [w.text for w in command.words[1:]]):
        return "it installs outside of the workspace"
    if name == "ssh":
        return "it acts on another host"
    if _runs_a_download(command):
        return "it runs a download"
    what = publishes(command) or uploads(command)
    if what:
        return what
    if prints_credential(command):
        return "it reads credentials"
    return _by_files(command, places) or (_git(command) if name == "git" else None)


def _installs_for_all(name: str, arguments: list[str]) -> bool:
    """Package managers told to install for the whole user or machine."""
    if name in ("npm", "pnpm", "bun"):
        changes = names("install i add uninstall remove rm link update up")
        return bool({"-g", "--global"} & set(arguments)) and bool(changes & set(arguments))
    if name in ("pip", "pip3"):
        return "install" in arguments and bool({"--user", "--break-system-packages"} & set(arguments))
    first = tuple(argument for argument in arguments if not argument.startswith("-"))
    return (name, *first[:1]) in _USER_INSTALLS or (name, *first[:2]) in _USER_INSTALLS


def _kills_everything(arguments: list[str]) -> bool:
    """Process 1, who started the shell, the own group (0) or everything (-1); a first `-1` is a signal."""
    return any(
        text in ("1", "0") or "$PPID" in text or "${PPID}" in text or (text == "-1" and at > 0)
        for at, text in enumerate(arguments)
    )


def _only_looks(name: str, words: tuple[Word, ...]) -> bool:
    if any(w.text in ("--version", "--help") for w in words[1:]):
        return True
    if name in ("mount", "hostnamectl", "timedatectl", "systemctl", "swapon") and len(words) == 1:
        return True
    if name == "service" and (words[-1].text == "status" or has_option(words, "", "--status-all")):
        return True
    if name == "sysctl":
        return not has_option(words, "wp", "--write", "--load", "--system") and not any(
            "=" in w.text for w in words
        )
    looking = _LOOKING.get(name)
    if looking is not None and subcommand(words)[0] in looking:
        return True
    options = _LOOKING_OPTIONS.get(name)
    if name == "pacman" and len(words) > 1:
        return words[1].text.startswith(("-Q", "--query", "-Ss", "-Si"))
    return options is not None and has_option(words, options[0], *options[1])


def _runs_a_download(command: Simple) -> bool:
    name, words = command.name, command.words
    executes_words = name in SHELLS or name in INTERPRETERS or name in ("eval", "source", ".")
    if executes_words and command.substitutes & _DOWNLOADERS:
        return True
    if not command.piped_from & _DOWNLOADERS:
        return False
    if name in SHELLS:
        return not has_option(words, "c") or any(w.text == "-s" for w in words)
    if name in INTERPRETERS:
        if name in ("awk", "gawk", "mawk"):
            return False
        return (not operands(words) and not has_option(words, "cepEmnr")) or words[-1].text in (
            "-",
            "/dev/stdin",
        )
    return name in ("source", ".") and any(w.text.startswith("/dev/") for w in words[1:])


def _by_files(command: Simple, places: Places) -> str | None:
    changed = effects(command)
    for word in changed.deletes:
        problem = _deletion(word, command, places, is_recursive=changed.is_recursive)
        if problem:
            return problem
    for word in changed.writes:
        problem = _write(word, command, places)
        if problem:
            return problem
    for word in paths_read(command):
        if reads_credential(word, command.directories, places):
            return "it reads credentials"
    return None


def _deletion(word: Word, command: Simple, places: Places, *, is_recursive: bool) -> str | None:
    is_entry = word.is_literal and not word.text.endswith("/")
    paths = places.candidates(word, command.directories, is_entry=is_entry)
    if word.is_unknown or paths is None:
        return "what it deletes is not known before it runs"
    for path in paths:
        target = _entry(path) if is_entry else real(path)
        if target is None or places.is_external(target):
            return "it deletes outside of the workspace"
        if (
            is_recursive
            and places.is_workspace(normal(path))
            and (word.is_literal or (word.pattern[-1:] == GLOB and not is_selection(word)))
        ):
            return "it deletes the whole workspace"
        if _is_guarded(target) or _is_guarded(normal(path)):
            return "it changes files of git or mcode"
    return None


def _entry(path: str) -> str:
    """Deleting a link deletes the link: only its directory is resolved."""
    parent, base = posixpath.split(path)
    if base in ("", ".", ".."):
        return real(path) or normal(path)
    resolved = real(parent)
    return posixpath.join(resolved, base) if resolved is not None and base else path


def _write(word: Word, command: Simple, places: Places) -> str | None:
    paths = places.candidates(word, command.directories)
    for path in paths or ():
        target = real(path)
        if is_no_file(normal(path)):
            continue
        if target is None or places.is_external(target):
            return "it writes outside of the workspace"
        if _is_guarded(target) or _is_guarded(normal(path)):
            return "it changes files of git or mcode"
    return None


def _is_guarded(path: str) -> bool:
    parts = path.split("/")
    return ".git" in parts or ".mcode" in parts


def reads_credential(word: Word, directories: tuple[str, ...], places: Places) -> bool:
    """Whether the word names a file with credentials, by either of its names."""
    if not word.text or len(word.text) > 4_096 or "\n" in word.text:
        return False
    if word.is_unknown:
        return word.pattern.startswith("/proc/") and word.pattern.endswith("/environ")
    if not word.is_literal and word.text[-1:] != "*" and not any(c in word.text for c in "*?["):
        return False
    if not word.is_literal and any(
        is_env_file(path) or is_credential_file(path, places.homes()) for path in _globbed(word, directories)
    ):
        return True
    start = word.text if word.is_literal else word.text.replace("*", "").replace("?", "")
    if start.startswith("~/"):
        start = (places.homes() or ("~",))[0] + start[1:]
    for directory in ("",) if start.startswith("/") else directories:
        paths = places.linked(directory + "/" + start if directory else start)
        for name in dict.fromkeys(n for path in paths for n in (normal(path), real(path) or normal(path))):
            if is_env_file(name) or is_credential_file(name, places.homes()):
                return True
    return False


def _globbed(word: Word, directories: tuple[str, ...]) -> list[str]:
    """The files that a glob means now; none where that would be a long search."""
    import glob
    import itertools

    if sum(any(c in part for c in "*?[") for part in word.text.split("/")) > _MOST_GLOBS:
        return []
    roots = ("",) if word.text.startswith("/") else directories
    found = (path for root in roots for path in glob.iglob(posixpath.join(glob.escape(root), word.text)))
    return list(itertools.islice(found, _MOST_GLOBBED))


def _git(command: Simple) -> str | None:
    name, rest = subcommand(command.words, GIT_VALUED)
    for setting in values(command.words, "-c"):
        if _GIT_RUNS.match(setting.text.partition("=")[0]) and not re.search(
            r"(?i)pager=(cat|less|)$", setting.text
        ):
            return "it makes git run another program"
    if name == "config" and not any(
        w.text in ("--get", "--get-all", "--list", "-l", "get", "list", "--get-regexp") for w in rest
    ):
        names = operands(rest, "-f --file --type")
        if has_option(rest, "", "--global", "--system") and len(names) > 1:
            return "it changes settings outside of the workspace"
        names = names[1:] if names and names[0].text in ("set", "unset") else names
        if len(names) > 1 and _GIT_RUNS.match(names[0].text):
            return "it makes git run another program"
    return None

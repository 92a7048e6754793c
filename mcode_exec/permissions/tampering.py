"""Variables that change what other words of a command mean.

A rule for `git *` was written with the user's own git in mind; where a script
sets one of these, only a rule for everything still counts.
"""

from __future__ import annotations

from mcode_exec.permissions.script import Word
from mcode_exec.permissions.vocabulary import names

_NAMES = names(
    "PATH IFS ENV BASH_ENV SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND CDPATH HOME PYTHONPATH PYTHONHOME "
    "PYTHONSTARTUP PYTHONINSPECT NODE_OPTIONS NODE_PATH PERL5OPT PERL5LIB PERLLIB RUBYOPT RUBYLIB "
    "JAVA_TOOL_OPTIONS LESSOPEN LESSCLOSE RIPGREP_CONFIG_PATH GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS "
    "SSH_ASKPASS GIT_PROXY_COMMAND GIT_EXEC_PATH GIT_DIR GIT_WORK_TREE GIT_TEMPLATE_DIR "
    "GIT_EXTERNAL_DIFF GIT_INDEX_FILE RSYNC_RSH TAR_OPTIONS GREP_OPTIONS MAKEFLAGS"
)
_PREFIXES = ("LD_", "DYLD_", "BASH_FUNC", "GIT_CONFIG")

#: programs that others start; harmless with one of these values
_PROGRAMS = names(
    "PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR BROWSER"
)
_HARMLESS_PROGRAMS = frozenset({"", "cat", "less", "more", "true", ":", "/bin/true", "/bin/cat"})


def tampers(name: str, value: Word) -> bool:
    """Whether setting this variable changes the meaning of commands."""
    name = name.partition("[")[0]
    if name in _PROGRAMS:
        return not (value.is_literal and value.text in _HARMLESS_PROGRAMS)
    return name in _NAMES or name.startswith(_PREFIXES)

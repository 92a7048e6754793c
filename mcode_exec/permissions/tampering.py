"""Variables that change what other words of a command mean.

A rule for `git *` was written with the user's own git in mind; where a script
sets one of these, only a rule for everything still counts.
"""

from __future__ import annotations

from mcode_exec.permissions.script import Word
from mcode_exec.permissions.vocabulary import names

#: what a shell, a loader, an interpreter or a single program reads its orders from
_NAMES = names(
    "PATH IFS ENV BASH_ENV SHELL SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND CDPATH HOME XDG_CONFIG_HOME "
    "XDG_CONFIG_DIRS PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT PYTHONBREAKPOINT "
    "PYTHONPLATLIBDIR PYTHONUSERBASE NODE_PATH NODE_REPL_EXTERNAL_MODULE PERL5OPT PERL5LIB PERL5DB PERLLIB "
    "RUBYOPT RUBYLIB GEM_HOME GEM_PATH CLASSPATH LUA_INIT LUA_PATH LUA_CPATH AWKPATH AWKLIBPATH GCONV_PATH "
    "LOCPATH OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES LESSOPEN LESSCLOSE LESS LESSKEY LESSKEYIN "
    "LESSKEY_SYSTEM LESSKEY_CONTENT LESSEDIT MANOPT MANROFFOPT MANLESS GREP GZIP RIPGREP_CONFIG_PATH "
    "FZF_DEFAULT_COMMAND WGETRC CURL_HOME NETRC INPUTRC RSYNC_RSH RSYNC_CONNECT_PROG CVS_RSH SVN_SSH "
    "MAKEFLAGS GNUMAKEFLAGS MAKEFILES CC CXX LD RUSTC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER GOROOT GOFLAGS "
    "UNZIP ZIPINFO"
)
_PREFIXES = ("LD_", "DYLD_", "BASH_FUNC", "npm_config_", "NPM_CONFIG_")
#: `TAR_OPTIONS`, `NODE_OPTIONS`, `_JAVA_OPTIONS`, `GRADLE_OPTS`, `GIT_ASKPASS`, …
_SUFFIXES = ("_OPTIONS", "_OPTS", "_ASKPASS", "_PRELOAD", "_CONFIG_FILE")

#: of git's own the ones that only say who commits, when, and how much is told
_HARMLESS_GIT = names(
    "GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE "
    "GIT_TERMINAL_PROMPT GIT_OPTIONAL_LOCKS GIT_MERGE_AUTOEDIT GIT_CEILING_DIRECTORIES GIT_LFS_SKIP_SMUDGE "
    "GIT_LITERAL_PATHSPECS GIT_GLOB_PATHSPECS GIT_NOGLOB_PATHSPECS GIT_ICASE_PATHSPECS GIT_NO_REPLACE_OBJECTS "
    "GIT_FLUSH GIT_PROGRESS_DELAY GIT_ADVICE GIT_DISCOVERY_ACROSS_FILESYSTEM GIT_NO_LAZY_FETCH"
)

#: programs that others start; harmless with one of these values
_PROGRAM_SUFFIXES = ("PAGER", "EDITOR", "VISUAL", "BROWSER")
_STARTED = names("GREP CC CXX LD SHELL RUSTC RUSTC_WRAPPER GIT_EXTERNAL_DIFF LESSOPEN LESSCLOSE ENV BASH_ENV")
_HARMLESS_PROGRAMS = frozenset({"", "cat", "less", "more", "true", ":", "/bin/true", "/bin/cat"})


def runs_its_value(name: str) -> bool:
    """Whether the variable holds a program or command line that others start."""
    return name.endswith((*_PROGRAM_SUFFIXES, "_COMMAND", "_ASKPASS", "_SSH", "_RSH")) or name in _STARTED


def tampers(name: str, value: Word) -> bool:
    """Whether setting this variable changes the meaning of commands."""
    name = name.partition("[")[0]
    if name.endswith(_PROGRAM_SUFFIXES):
        return not (value.is_literal and value.text in _HARMLESS_PROGRAMS)
    if name.startswith("GIT_"):
        # GIT_TRACE and its like write to the file or descriptor that they name.
        traces = name.startswith("GIT_TRACE") and value.is_literal and value.text in ("0", "1", "2", "true")
        return not traces and name not in _HARMLESS_GIT
    return name in _NAMES or name.startswith(_PREFIXES) or name.endswith(_SUFFIXES)

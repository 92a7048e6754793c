"""What a program that we do not know may run, told from its later words.

Nobody can list all programs that run others: `systemd-run rm x`, `hyperfine
'rm x'`, `tool --exec=rm x`.  So the decision is: a program that is neither a
wrapper we look through nor known to run nothing may run what any of its later
words begins, and a word of several words as a script.  Such guesses count only
for rules that forbid and for the floor, never for presets, which would ask for
half of all commands.  A guess can be wrong (`tool rm x`, where `rm` is its own
word), so a later rule that allows the program itself lifts it.

Programs whose words are names, texts or subcommands of their own (`echo rm x`,
`man rm`, `git commit -m "rm x"`, `docker rm x`) are listed here and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from mcode_exec.permissions.effects import INTERPRETERS, WRITING
from mcode_exec.permissions.explain import WITH_SUBCOMMANDS
from mcode_exec.permissions.handed_over import SHELLS
from mcode_exec.permissions.known_wrappers import WRAPPERS
from mcode_exec.permissions.option_scripts import git_subcommand
from mcode_exec.permissions.options import has_option
from mcode_exec.permissions.readonly import READING
from mcode_exec.permissions.script import Simple, Word
from mcode_exec.permissions.tampering import runs_its_value
from mcode_exec.permissions.vocabulary import names
from mcode_exec.permissions.wrappers import STANDARD_DIRECTORIES

_MOST_WORDS = 400  # of one command
_LONGEST_SCRIPT = 4_096  # characters of a word
_DEEPEST = 3  # scripts in words of scripts in words

#: programs that run nothing that their words name, or whose scripts are looked into elsewhere
_RUNNING_NOTHING = (
    READING
    | WRITING
    | WITH_SUBCOMMANDS
    | WRAPPERS.keys()
    | names(
        # builtins
        "alias unalias hash export declare typeset local readonly read mapfile readarray unset shopt complete "
        "compgen compopt bind kill trap source . eval getopts enable history fc let caller printf jobs logout "
        "disown fg bg suspend times "
        # looked into elsewhere
        "su runuser flock script sg watch fd fdfind npx bunx uvx pipenv pdm hatch direnv "
        # documents, editors, comparison
        "man info apropos whatis tldr help less more most pg bat vi vim nvim view nano emacs ed ex code subl "
        "open xdg-open vimdiff sdiff colordiff delta wdiff hexyl "
        # text and archives
        "sed awk gawk mawk ag ack ugrep fzf yq xq xmllint xsltproc csplit split zip zipinfo gzip gunzip bzip2 "
        "bunzip2 xz unxz zstd unzstd lz4 7z 7za ar cpio bsdtar pandoc base32 base64 openssl gpg "
        # compilers, checkers, tests
        "gcc g++ cc c++ clang clang++ ld as ranlib strip objcopy rustc javac kotlinc scalac swiftc tsc esbuild "
        "ldd ctags cmake ninja meson pytest ruff black isort mypy pyright flake8 pylint eslint prettier jest "
        "vitest mocha shellcheck shfmt golangci-lint gofmt rustfmt clang-format clang-tidy pre-commit "
        # packages and systems
        "aptitude apt-cache apt-mark dpkg dpkg-query dnf yum rpm zypper pacman apk snap flatpak port nix conda "
        "mamba pipx composer mix luarocks update-alternatives pkill killall pidof fuser lsof useradd userdel "
        "usermod passwd chsh journalctl loginctl mount umount "
        # hosts and their tools
        "curl wget wget2 aria2c http https xh dig host nslookup ping traceroute nc ncat netcat scp sftp "
        "gsutil s3cmd s5cmd mc rclone doctl heroku fly flyctl vercel netlify firebase hub nerdctl buildah skopeo "
        "docker-compose podman-compose vagrant lxc incus multipass ansible svn hg bzr jj fossil dvc git-lfs "
        "git-annex psql mysql mariadb sqlite3 redis-cli mongosh mail mutt sendmail logger notify-send wall say "
        "ssh-keygen ssh-add ssh-keyscan "
        # names of files and times
        "sync gio lsattr getfacl namei ncal tput stty reset clear "
        "ffmpeg convert magick identify dot"
    )
)
_GIT_SUBCOMMANDS = names(
    "add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap "
    "checkout checkout-index cherry cherry-pick clean clone commit commit-graph commit-tree config count-objects "
    "credential describe diff diff-files diff-index diff-tree difftool fast-export fast-import fetch fetch-pack "
    "filter-branch fmt-merge-msg for-each-ref format-patch fsck gc grep gui hash-object help init "
    "interpret-trailers log ls-files ls-remote ls-tree mailinfo maintenance merge merge-base merge-file "
    "merge-tree mergetool mktag mktree mv name-rev notes pack-objects pack-refs prune pull push range-diff "
    "read-tree rebase reflog remote repack replace request-pull rerere reset restore rev-list rev-parse revert "
    "rm send-email send-pack shortlog show show-branch show-ref sparse-checkout stash status stripspace submodule "
    "subtree svn switch symbolic-ref tag unpack-objects update-index update-ref var verify-commit verify-tag "
    "version whatchanged worktree write-tree lfs"
)

_ASSIGNING = names("export declare typeset env sudo doas make gmake")

Parse = Callable[[str], Iterator[Simple]]


def guesses(
    command: Simple, is_wanted: Callable[[str], bool], parse: Parse, depth: int = 0
) -> Iterator[Simple]:
    """The commands that `command` may run and whose program is wanted; `parse` lists those of a script."""
    words = command.words[:_MOST_WORDS]
    for value in _program_settings(command):
        yield from _in_script(value, is_wanted, parse, depth)
    for at in range(_first_that_may_run(command), len(words)):
        word = words[at]
        if word.text.startswith("-") and "=" in word.text:
            word = _behind(word, "=")
        text = word.text
        if any(c in text for c in " \t\n;&|"):
            yield from _in_script(word, is_wanted, parse, depth)
            continue
        directory, _, name = text.rpartition("/")
        if directory not in ("", *STANDARD_DIRECTORIES):
            name = text
        if name and is_wanted(name):
            yield replace(command, words=(Word(name, name), *words[at + 1 :]), prefix=())


def _first_that_may_run(command: Simple) -> int:
    """The index from which words may be commands; the number of words if none of them may."""
    words, name = command.words, command.name
    if name == "git":
        at = git_subcommand(words)
        return len(words) if at < len(words) and words[at].text in _GIT_SUBCOMMANDS else at + 1
    if not name or name in _RUNNING_NOTHING:
        return len(words)
    if name in INTERPRETERS:
        # `python -m tool rm` and `node -e …` have words that are no commands, a script file is a program
        return len(words) if any(w.text.startswith("-") for w in words[1:2]) else 2
    if name in SHELLS:
        return len(words) if has_option(words, "c", "--command") else 2
    return 1


def _program_settings(command: Simple) -> Iterator[Word]:
    """Values of variables and of git's settings that make a program run them."""
    words = command.words
    for word in (*command.prefix, *(words[1:] if command.name in _ASSIGNING else ())):
        variable, equals, _ = word.text.partition("=")
        if equals and runs_its_value(variable):
            yield _behind(word, "=")
    if command.name in ("ssh", "scp", "sftp"):
        for word in words[1:]:
            if "Command" in word.text.partition("=")[0]:
                yield _behind(word, "=") if "=" in word.text else _behind(word, "Command")
    if command.name == "git":
        for at, word in enumerate(words[1:], 1):
            if words[at - 1].text in ("-c", "--config") and "=" in word.text:
                yield _behind(word, "=")
            elif "config" in (w.text for w in words[1:at]) and " " in word.text:
                yield word.tail(1) if word.text.startswith("!") else word


def _in_script(word: Word, is_wanted: Callable[[str], bool], parse: Parse, depth: int) -> Iterator[Simple]:
    if depth >= _DEEPEST or len(word.text) > _LONGEST_SCRIPT:
        return
    for inner in parse(word.text):
        if is_wanted(inner.name):
            yield inner
        yield from guesses(inner, is_wanted, parse, depth + 1)


def _behind(word: Word, separator: str) -> Word:
    start = word.text.index(separator) + len(separator)
    known = word.pattern[:start] == word.text[:start]
    return word.tail(start) if known else Word(word.text[start:], word.pattern)

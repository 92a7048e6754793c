"""Programs that run a script or another program which an option names: `su -c`, `tar --to-command`, `git rebase -x`."""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.permissions.options import Options, given_anywhere, options, readings
from mcode_exec.permissions.script import Simple, Word
from mcode_exec.permissions.vocabulary import names


class Handing(Struct, frozen=True):
    """Which options of a program hand something over to be run."""

    known: Options
    scripts: frozenset[str]


def _handing(
    scripts: str, flags: str = "", valued: str = "", glued: str = "", *, lone_dash: bool = False
) -> Handing:
    known = options(flags, valued, glued, lone_dash=lone_dash)
    handed = names(scripts)
    return Handing(
        Options(known.flags, known.valued | (handed - known.glued), known.glued, known.lone_dash), handed
    )


_SU = _handing(
    "-c --command --session-command -s --shell",
    "fmpPl login preserve-environment pty no-pty fast",
    "gGTwu group supp-group whitelist-environment user",
    lone_dash=True,
)

_HANDING: dict[str, Handing] = {
    "su": _SU,
    "runuser": _SU,
    "script": _handing(
        "-c --command",
        "aefqV append return flush force quiet",
        "BEIOTmo echo log-in log-out log-io log-timing logging-format output-limit",
        "t",
    ),
    "npx": _handing("-c --call", "yq yes no quiet", "pw package workspace"),
    "tar": _handing(
        "-I -F --use-compress-program --to-command --rsh-command --rmt-command --info-script "
        "--new-volume-script --checkpoint-action",
        "",
        "fCbgHKLNTVX file directory exclude transform xform one-file-system",
    ),
    "sort": _handing("--compress-program", "bdfghimnRrVcCmsuz", "kotST key output"),
    "rg": _handing("--pre --hostname-bin", "", "tTgfermjABC"),
    "rsync": _handing("-e --rsh --rsync-path", "", "fBMT filter exclude include"),
    "man": _handing("-P --pager", "", "CLmMsSeErp"),
    "complete": _handing("-C", "prDEIabcdefgjksuv", "AGWPSXo"),
    "compgen": _handing("-C", "abcdefgjksuv", "AGWPSXoV"),
    "mapfile": _handing("-C", "t", "dnOsuc"),
    "readarray": _handing("-C", "t", "dnOsuc"),
    "hash": _handing("-p", "rdlt"),
    "diff3": _handing("--diff-program", "aAeExX3mTi", "L label"),
    "sdiff": _handing("--diff-program", "", "IWow"),
    "vagrant": _handing("-c --command"),
    "split": _handing("--filter", "", "abClnt"),
    "scp": _handing("-S", "", "cDFiJloPX"),
    "sftp": _handing("-S", "", "BbcDFiJloPRsX"),
}
_GIT_KNOWN = options(
    "pPhv paginate no-pager bare no-replace-objects literal-pathspecs no-optional-locks version help html-path",
    "Cc git-dir work-tree namespace config-env super-prefix attr-source",
)
#: git's subcommand → the same for its options
_GIT: dict[str, Handing] = {
    "rebase": _handing(
        "-x --exec",
        "inqvkfrmp interactive continue abort skip quiet verbose root autosquash autostash rebase-merges",
        "sXC onto strategy strategy-option whitespace empty",
        "S",
    ),
    "difftool": _handing("-x --extcmd", "dgy dir-diff gui prompt no-prompt", "t tool"),
    "filter-branch": _handing(
        "--setup --env-filter --tree-filter --index-filter --parent-filter --msg-filter --commit-filter "
        "--tag-name-filter",
        "f force prune-empty",
        "d subdirectory-filter original state-branch",
    ),
    "clone": _handing("-u --upload-pack", "lsqvn", "bojc branch origin jobs config depth reference template"),
    "fetch": _handing("--upload-pack"),
    "pull": _handing("--upload-pack"),
    "fetch-pack": _handing("--upload-pack --exec"),
    "ls-remote": _handing("--upload-pack --exec"),
    "push": _handing("--receive-pack --exec", "", "o push-option repo"),
    "send-pack": _handing("--receive-pack --exec"),
    "archive": _handing("--exec", "lv list verbose", "o output format prefix remote add-file"),
    "send-email": _handing("--to-cmd --cc-cmd --header-cmd --sendmail-cmd --smtp-server"),
    "grep": _handing("-O --open-files-in-pager", "", "efABCm", "O open-files-in-pager"),
    "daemon": _handing("--access-hook"),
    "instaweb": _handing("-b -d --browser --httpd"),
}


def scripts_in_options(command: Simple) -> list[Word]:
    """The scripts and programs that the command's options hand over."""
    handing = _HANDING.get(command.name)
    if handing is None:
        return []
    return _handed(command.words, handing, 1)


def git_subcommand(words: tuple[Word, ...]) -> int:
    """The index of git's subcommand, behind its own options; the number of words if there is none."""
    return readings(words, _GIT_KNOWN)[0].at


def git_scripts(words: tuple[Word, ...]) -> list[Word]:
    """The same for a git command, whose options count from its subcommand."""
    at = git_subcommand(words)
    handing = _GIT.get(words[at].text) if at < len(words) else None
    if handing is None:
        return []
    return _handed(words, handing, at + 1)


def _handed(words: tuple[Word, ...], handing: Handing, at: int) -> list[Word]:
    found: dict[Word, None] = {}
    for given in given_anywhere(words, handing.known, at):
        value = given.value
        if given.name not in handing.scripts or value is None or not value.text:
            continue
        if given.name != "--checkpoint-action":
            found[value] = None
        elif value.text.startswith("exec="):
            found[value.tail(len("exec="))] = None
    return list(found)

"""The git commands that only look: no change to the repository, no other program started."""

from __future__ import annotations

from mcode_exec.permissions.effects import GIT_VALUED
from mcode_exec.permissions.options import has_option, hides_an_option, subcommand
from mcode_exec.permissions.script import Word
from mcode_exec.permissions.vocabulary import names

Words = tuple[Word, ...]

_GIT_GLOBAL = names("--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects --version -v")
_GIT_LOOKING = names(
    "status log show diff rev-parse ls-files ls-tree cat-file blame grep describe shortlog rev-list "
    "name-rev merge-base show-ref for-each-ref count-objects check-ignore check-attr whatchanged "
    "version diff-tree diff-index diff-files cherry range-diff annotate"
)
_GIT_REFUSED = (
    "--ext-diff",
    "--textconv",
    "--output",
    "--output-directory",
    "--open-files-in-pager",
    "--filters",
    "--exec",
)
#: subcommands with a listing form: the first words that make it one, and the options it may have
_GIT_LISTS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "branch": (
        frozenset({""}),
        names(
            "-a -r -v -vv -av -avv -rv --all --remotes --verbose --list -l --show-current --no-color "
            "--no-column"
        ),
    ),
    "tag": (frozenset({""}), names("-l --list -n --no-column")),
    "remote": (frozenset({"", "get-url", "-v"}), names("-v --verbose --all --push")),
    "stash": (frozenset({"list", "show"}), names("-p --stat --patch --name-only --oneline")),
    "worktree": (frozenset({"list"}), names("--porcelain -v -z")),
    "reflog": (frozenset({"", "show"}), names("--oneline --all -n")),
    "submodule": (frozenset({"", "status"}), names("--recursive --cached")),
    "notes": (frozenset({"list", "show"}), frozenset()),
    "config": (
        frozenset({"get", "list"}),
        names(
            "--get --get-all --get-regexp --list -l --show-origin --show-scope --global --local --system -z"
        ),
    ),
}
#: branch and tag take patterns or commits only behind these; without them an operand is made
_GIT_FILTERS = frozenset(
    {"--contains", "--no-contains", "--merged", "--no-merged", "--points-at", "--list", "-l"}
)
#: how branch and tag show what they list; the value stands behind `=`
_GIT_SHOWING = frozenset({"--sort", "--format", "--color", "--abbrev", "--column"})
_GIT_GETTING = frozenset({"--get", "--get-all", "--get-regexp", "--list", "-l"})


def only_looks(words: Words) -> bool:
    """Whether a git command neither changes anything nor starts another program."""
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        if words[at].text == "-C":
            at += 2
        elif words[at].text in _GIT_GLOBAL:
            at += 1
        else:
            return False
    name, rest = subcommand(words, GIT_VALUED)
    if not name:
        return len(words) > 1 and words[1].text in ("--version", "-v")
    if has_option(rest, "O" if name == "grep" else "", *_GIT_REFUSED) or hides_an_option(rest):
        return False
    if name in _GIT_LOOKING:
        return True
    lists = _GIT_LISTS.get(name)
    return lists is not None and _git_lists(name, rest, *lists)


def _git_lists(name: str, rest: Words, firsts: frozenset[str], options: frozenset[str]) -> bool:
    texts = [w.text for w in rest[1:]]
    is_listing = name in ("branch", "tag")
    given = [text.partition("=")[0] for text in texts if text.startswith("-")]
    is_filtered = is_listing and not _GIT_FILTERS.isdisjoint(given)
    for option, text in zip(given, (text for text in texts if text.startswith("-")), strict=True):
        is_showing = is_listing and option in _GIT_SHOWING and text != option
        if text not in options and not is_showing and not (is_filtered and option in _GIT_FILTERS):
            return False
    if name == "config":
        # `git config a.b get` sets a value: only the first word is a subcommand.
        return texts[:1] in (["get"], ["list"]) or not _GIT_GETTING.isdisjoint(given)
    if is_listing:
        return is_filtered or len(given) == len(texts)
    return next((text for text in texts if not text.startswith("-")), "") in firsts

"""Scripts to simple commands: held to bash itself, to the fast way, and to never raising."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcode_exec.permissions.shell import parse_script, plain_words, simple_commands
from mcode_exec.records.permission import Need, Rule
from tests.unit.permissions.conftest import Ground, bash

_PLAIN_WORD = st.text(alphabet="abZ09_./:=,+@%-", min_size=1, max_size=6)


@given(st.lists(_PLAIN_WORD, min_size=1, max_size=6), st.sampled_from([" ", "  "]))
@settings(max_examples=500, deadline=None)
def test_plain_scripts_mean_the_same_with_and_without_the_grammar(words: list[str], blank: str) -> None:
    script = blank.join(words)
    plain = plain_words(script)
    if plain is None:
        assert "=" in words[0]
        return
    commands, redirects, nested, unparsed = simple_commands(script, home="/h", directories=("/w",))
    if unparsed:
        return  # the grammar trips over some plain words, such as a lone `==`; then it says so
    assert [[w.text for w in c.words] for c in commands] == [list(plain)]
    assert all(w.is_literal for c in commands for w in c.words)
    assert not redirects
    assert not nested


@pytest.mark.parametrize(
    "word", ["if", "then", "for", "while", "case", "function", "time", "coproc", "export", "declare", "local"]
)
def test_words_of_the_grammar_are_left_to_it(word: str) -> None:
    assert plain_words(word) is None
    assert plain_words(f"{word} x") is None


@pytest.mark.parametrize("script", ["echo hi", "git status -s", "  make   test ", "ls\n"])
def test_plain_scripts_do_not_load_the_grammar(script: str) -> None:
    code = (
        "import sys; from mcode_exec.permissions.shell import parse_script;"
        f"assert parse_script({script!r}, home='/h', directory='/w').commands;"
        "sys.exit('tree_sitter' in sys.modules)"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(root)})


def test_no_character_ends_the_process_that_parses_it() -> None:
    """The grammar's scanner reads beyond a table for `{` before a character far up in Unicode."""
    code = (
        "from mcode_exec.permissions.shell import parse_script\n"
        "for c in map(chr, range(0x10000, 0x110000, 0x1fff)):\n"
        "    for script in ('{%s', 'a {1..%s}', 'echo %s{a,%s}; rm x', 'cat <<%s\\n{%s\\n%s'):\n"
        "        parse_script(script.replace('%s', c), home='/h', directory='/w')\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(root)})


@pytest.mark.parametrize("word", ["\u00e9", "\u4e2d\u6587", "\U0001f600", "a\u00e9{b", "\u00a7\U0010ffff"])
def test_words_of_any_script_are_given_as_they_stand(word: str) -> None:
    commands, redirects, _, unparsed = simple_commands(
        f"echo {word} '{word}' \"{word} $X\" > {word}; {word} x\n\\{word} y", home="/h", directories=("/w",)
    )
    assert [[w.text for w in c.words] for c in commands] == [
        ["echo", word, word, f"{word} $X"],
        [word, "x"],
        [word, "y"],
    ]
    assert [redirect.target.text for redirect in redirects] == [word]
    assert not unparsed


@pytest.mark.parametrize(
    "script", ["cat <<\u00e9\n\u00e8\n: '\n\u00e9\nrm x\n'", "cat <<'\U0001f600'\nx\n\U0001f601\n"]
)
def test_a_here_document_whose_end_the_grammar_cannot_tell_is_not_understood(script: str) -> None:
    assert simple_commands(script, home="/h", directories=("/w",))[3]


@pytest.mark.parametrize("script", ["- a=b", "x; - a=b rm x", "- -a=b"])
def test_text_that_the_grammar_loses_is_not_understood(script: str) -> None:
    assert simple_commands(script, home="/h", directories=("/w",))[3]
    assert not simple_commands("cat - <<'E'\nx\nE\nls -", home="/h", directories=("/w",))[3]


# -- held to bash itself ----------------------------------------------------------------------------------------

#: every command that bash does not find is written down, its words separated by unit separators
_WITNESS = 'command_not_found_handle() { local IFS=$\'\\x1f\'; printf "%s\\x1e" "$*" >> "$WITNESS"; }\n'

_words: st.SearchStrategy[str] = st.sampled_from(
    [
        "aa",
        "bb",
        "'c c'",
        '"d d"',
        "e\\ e",
        "$'f\\x41'",
        '"$V"',
        "g'h'\"i\"",
        "-j",
        "--k=l",
        "#m",
        "n#o",
        "p=q",
        "''",
        '$"r"',
        "\\s",
        "{}",
    ]
)
_program = st.sampled_from(
    [
        "zz",
        "z'z'",
        '"zz"',
        "\\zz",
        "z\\z",
        "$'z\\x7a'",
        "z\\\nz",
        "yy",
        "command zz",
        "builtin command zz",
        "x=1 zz",
    ]
)
_redirect = st.sampled_from(
    ["", "", " > out", " 2>&1", " < /dev/null", " >> out 2> err", " <<< text", " > out more", " &> out"]
)


@st.composite
def _simple(draw: st.DrawFn) -> str:
    words = draw(st.lists(_words, max_size=3))
    return " ".join([draw(_program), *words]) + draw(_redirect)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    return st.one_of(
        two.map(lambda p: f"{p[0]}; {p[1]}"),
        two.map(lambda p: f"{p[0]}\n{p[1]}"),
        two.map(lambda p: f"{p[0]} && {p[1]}"),
        two.map(lambda p: f"{p[0]} || {p[1]}"),
        two.map(lambda p: f"{p[0]} | {p[1]}"),
        two.map(lambda p: f"{p[0]} |& {p[1]}"),
        two.map(lambda p: f"{p[0]} # note\n{p[1]}"),
        two.map(lambda p: f"if {p[0]}; then {p[1]}; else yy else; fi"),
        two.map(lambda p: f"cat <<E\n$({p[0]})\nE\n{p[1]}"),
        two.map(lambda p: f"cat <<'E'\n$(no)\nE\n{p[0]}"),
        two.map(lambda p: f"cat <<E && {p[0]}\ntext\nE\n{p[1]}"),
        inner.map(lambda s: f"( {s} )"),
        inner.map(lambda s: f"{{ {s}\n}}"),
        inner.map(lambda s: f"! {s}"),
        inner.map(lambda s: f"{{ {s}\n}} > out"),
        inner.map(lambda s: f"for i in 1; do {s}\ndone"),
        inner.map(lambda s: f"case x in x) {s}\n;; esac"),
        inner.map(lambda s: f"zz $({s}\n)"),
        inner.map(lambda s: f'zz "$({s}\n)"'),
        inner.map(lambda s: f"zz <( {s}\n)"),
        inner.map(lambda s: f"V=$({s}\n)"),
        inner.map(lambda s: f"ff() {{ {s}\n}}; ff"),
        inner.map(lambda s: f"eval {_quoted(s)}"),
        inner.map(lambda s: f"[[ -n x ]] && {{ {s}\n}}"),
        inner.map(lambda s: f"while true; do {s}\nbreak; done"),
        inner.map(lambda s: f"zz `{s}`" if "`" not in s and "\\" not in s else s),
    )


def _quoted(script: str) -> str:
    return "'" + script.replace("'", "'\\''") + "'"


_scripts = st.recursive(_simple(), _compound, max_leaves=4)


@given(_scripts)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@example("( cat <<E\n$(cat <<E\n$(zz)\nE\nzz)\nE\nzz )")
def test_every_command_that_bash_runs_was_listed(
    tmp_path_factory: pytest.TempPathFactory, script: str
) -> None:
    directory = tmp_path_factory.mktemp("bash")
    witness = directory / "witness"
    subprocess.run(
        ["/bin/bash", "-c", _WITNESS + script],
        cwd=directory,
        env={"PATH": str(directory / "none"), "WITNESS": str(witness)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    parsed = parse_script(script, home="/h", directory=str(directory))
    listed = [form.command.words for forms in parsed.commands for form in forms]
    ran = witness.read_text().split("\x1e")[:-1] if witness.exists() else []
    for line in ran:
        words = line.split("\x1f")
        if words == ["cat"]:
            continue
        assert parsed.unparsed or any(_agrees(words, list(candidate)) for candidate in listed), (
            words,
            listed,
        )


def _agrees(ran: list[str], listed: list[object]) -> bool:
    """Word by word; a word that was not known before stands for any number of words."""
    if not listed:
        return not ran
    word = listed[0]
    if not word.is_literal:  # type: ignore[attr-defined]
        return any(_agrees(ran[i:], listed[1:]) for i in range(len(ran) + 1))
    return bool(ran) and ran[0] == word.text and _agrees(ran[1:], listed[1:])  # type: ignore[attr-defined]


# -- never raising ----------------------------------------------------------------------------------------------

_pieces = st.sampled_from(
    [
        *"abrm$`'\"\\(){}[]|&;<>!#~*?=\n\t 01-/.%@+,:^",
        *("$(", "<<E\n", "\nE\n", "${", "$((", " | sh", "~/", ".git"),
        *(
            "rm -rf ",
            "bash -c ",
            "sudo ",
            "find . -exec ",
            "xargs ",
            "env ",
            "git ",
            "curl ",
            "cd ",
            "dd of=",
            "tar ",
        ),
        *("\u00e9", "\u3000", "\U0010ffff", "\x00", "\r", "\udc80", "\ue000"),
    ]
)


@given(st.one_of(st.lists(_pieces, max_size=25).map("".join), st.text()))
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_script_makes_the_judge_raise(ground: Ground, script: str) -> None:
    config = [
        Rule(permission="bash", pattern="git *", verdict="deny"),
        Rule(permission="read", pattern="*.pem", verdict="deny"),
        Rule(permission="edit", pattern="a/**", verdict="ask"),
    ]
    for preset in ("smart", "full", "read-only", "off"):
        for rules in ([], config):
            decision = bash(ground.judge(preset, config=rules), script)
            assert decision.verdict in ("allow", "ask", "deny")
            assert decision.verdict == "allow" or decision.reason


@given(st.text(), st.sampled_from(["read", "edit", "glob", "external_directory", "list", "doom_loop"]))
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_no_subject_makes_the_judge_raise(ground: Ground, subject: str, permission: str) -> None:
    judge = ground.judge(deny=["read:a/**", "edit:*.x", "read:.env"])
    assert judge.judge([Need(permission=permission, subject=subject)]).verdict in ("allow", "ask", "deny")


@pytest.mark.parametrize(
    "script",
    [
        "(" * 5_000 + "rm x" + ")" * 5_000,
        "$(" * 3_000,
        "{ " * 3_000 + "rm x" + "; }" * 3_000,
        "if true; then " * 1_000,
        "echo " + "$(echo " * 500 + "x" + ")" * 500,
        "a && " * 5_000 + "rm x",
        "a | " * 5_000 + "rm x",
        "a; " * 20_000 + "rm x",
        "echo " + "x " * 100_000,
        "x" * 300_000,
        "sudo " * 500 + "rm x",
        "env " * 11 + "rm x",
        "bash -c '" * 2 + "rm x",
        "eval " * 500 + "rm x",
        "echo '" + "a" * 200_000 + "'; rm x",
        "cat <<E\n" + "x\n" * 50_000 + "E\nrm x",
    ],
    ids=lambda s: f"{s[:12]}…{len(s)}",
)
def test_huge_and_deep_scripts_are_never_allowed_to_hide_something(script: str, ground: Ground) -> None:
    decision = bash(ground.judge("full", deny=["bash:rm *"]), script)
    assert decision.verdict in ("ask", "deny") or "rm" not in script

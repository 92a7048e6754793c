"""Variables of a script: what it assigns itself is known where it is used."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.permissions.conftest import Ground

Verdict = Callable[..., str]

HOME_OR_ROOT = [
    "X=/; rm -rf $X",
    'X="rm -rf /"; $X',
    "for d in /; do rm -rf $d; done",
    "for d in build /; do rm -rf $d; done",
    'rm -rf "${HOME:?}"',
    'rm -rf "${HOME%/}"',
    "rm -rf ~root",
    "rm -rf /{,}",
    "rm -rf $(echo /)",
    "if true; then D=/; fi; rm -rf $D",
    "if true; then D=a; else D=/; fi; rm -rf $D",
    'case $x in a) D=/;; *) D=b;; esac; rm -rf "$D"',
    '[ -x y ] && D=/; rm -rf "$D"',
    "D=build; while true; do rm -rf $D; D=/; done",
    "f() { D=/; }; f; rm -rf $D",
    'D=; rm -rf "$D/"',
    'rm -rf "${X:-/}"',
    "export D=/; rm -rf $D",
    "declare D=/; rm -rf ${D}",
    "D=$HOME; rm -rf $D/",
    'A=$HOME; B=$A; rm -rf "$B"',
    "D=/; (cd $D && rm -rf *)",
    "D=~; rm -rf $D",
    "D=; D+=/; rm -rf $D",
    'cd / && cd /tmp && rm -rf "$OLDPWD"',
    'D=/; bash -c "rm -rf $D"',
    'D=/; eval "rm -rf $D"',
    "D=/; echo x | xargs rm -rf $D",
    "C=~/.config; echo x >> $C/mcode/config.toml",
    "D=~/.local/share/mcode; rm -rf $D",
]


@pytest.mark.parametrize("script", HOME_OR_ROOT)
def test_the_floor_sees_what_a_variable_holds(script: str, verdict: Verdict) -> None:
    assert verdict(script, "full") == "deny"


@pytest.mark.parametrize(
    "script",
    [
        "D=build; rm -rf $D",
        "D=/; D=build; rm -rf $D",
        "(D=/); D=build; rm -rf $D",
        "D=build; echo x | D=/ cat; rm -rf $D",
        'for f in *.pyc; do rm -f "$f"; done',
        'for d in build dist; do rm -rf "$d"; done',
        'rm -f "$TMPDIR"/zz',
        'T=$(mktemp -d); echo x > "$T/a"; rm -rf "$T"',
        "D=sub; E=$D/x; rm -rf $E",
        "find . -name __pycache__ | xargs rm -rf",
        "find sub -name '*.o' -print0 | xargs -0 rm -f",
        "git ls-files -o | xargs rm -f",
        'cd sub; touch "$OLDPWD/ok" "$PWD/ok"',
        "if true; then D=a; else D=b; fi; touch $D",
        "rm -f a{1,2}.txt",
    ],
)
def test_work_inside_the_workspace_is_not_asked_for(script: str, verdict: Verdict) -> None:
    assert verdict(script, "smart") == "allow"


@pytest.mark.parametrize(
    "script",
    [
        "rm -rf $X",
        "read D; rm -rf $D",
        "D=build; read D; rm -rf $D",
        "D=build; source x; rm -rf $D",
        "D=build; while read D; do rm -rf $D; done",
        "printf -v D x; rm -rf $D",
        "D=build; unset D; rm -rf $D",
        "[ -x y ] && D=build; rm -rf $D",
        "if true; then D=build; fi; rm -rf $D",
        "D=build; f() { D=$1; }; f x; rm -rf $D",
        "(D=build); rm -rf $D",
        "echo build | D=build cat; rm -rf $D",
        "D=/tmp/elsewhere; cp /dev/null $D/o",
        "D=/tmp/elsewhere; true > $D/o",
        "D=/tmp/elsewhere; cd $D; touch o",
        ': > "$(pwd)/../o"',
        "cd / && cd ~ && touch $OLDPWD/o",
        "find / -name x | xargs rm -f",
        "find . | xargs rm -rf",
        "find . -printf '/etc/%f\\n' | xargs rm -f",
        "F=.env; cat $F",
        "cat $PWD/.env",
        "K=~/.ssh; cat $K/id_rsa",
        "cat /proc/$PPID/environ",
        "cat /proc/*/environ",
    ],
)
def test_what_may_be_elsewhere_or_secret_is_asked_for(script: str, verdict: Verdict) -> None:
    assert verdict(script, "smart") in ("ask", "deny")


@pytest.mark.parametrize("script", ["cat .e*", "head .en?", "cat sub/../.e[n]v"])
def test_a_glob_that_means_a_secret_file_is_asked_for(script: str, verdict: Verdict, ground: Ground) -> None:
    assert verdict(script, "smart") == "allow", "no such file"
    (ground.workspace / ".env").write_text("KEY=x\n")
    for preset in ("smart", "read-only"):
        assert verdict(script, preset) == "ask"


def test_a_narrow_rule_holds_for_what_a_variable_is(verdict: Verdict) -> None:
    assert verdict("B=prod; git push origin $B", "full", deny=["bash:git push * prod"]) == "deny"
    assert verdict("C=rm; $C x", "full", deny=["bash:rm *"]) == "deny"
    assert verdict("P=ls; $P", "read-only") == "allow"
    assert verdict("P=./x; $P", "read-only") == "deny"


def test_many_values_are_not_told_apart(verdict: Verdict) -> None:
    words = " ".join(f"d{number}" for number in range(500))
    assert verdict(f"for d in {words}; do rm -rf $d; done", "smart") in ("ask", "allow")
    nested = "".join(f"for v{n} in a b c; do " for n in range(12))
    command = "echo " + " ".join(f"$v{n}" for n in range(12))
    assert verdict(nested + command + "; done" * 12, "smart") == "allow"

"""Texts that bash evaluates after they were quoted: arithmetic, subscripts, `@P` (case B166)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Verdict = Callable[..., str]

#: every one runs `rm x`; `%s` stands for it, so that bash can be asked with something else
EVALUATED = [
    "let 'a[$(%s)]=1'",
    "let a=1 'b[$(%s)]++'",
    "builtin let 'a[$(%s)]=1'",
    "printf -v 'a[$(%s)]' 1",
    "printf -v'a[$(%s)]' 1",
    "command printf -v 'a[`%s`]' 1",
    "test -v 'a[$(%s)]'",
    "[ -v 'a[$(%s)]' ]",
    "[[ -v 'a[$(%s)]' ]]",
    "[[ 'a[$(%s)]' -eq 1 ]]",
    "[[ 1 -lt 'a[$(%s)]' ]]",
    "read 'a[$(%s)]' <<< 1",
    "a=(1); unset 'a[$(%s)]'",
    "declare 'a[$(%s)]=1'",
    "a='x[$(%s)]'; echo $((a))",
    "a='x[`%s`]'; echo $((a + 1))",
    "a='x[$(%s)]'; (( a > 1 ))",
    "a='x[$(%s)]'; (( a++ )) || true",
    "a='x[$(%s)]'; [[ $a -eq 1 ]]",
    "a='x[$(%s)]'; [[ 1 -ge $a ]]",
    "a='x[$(%s)]'; for ((i=a;i<1;i++)); do :; done",
    "a='x[$(%s)]'; b=1234; echo ${b:a}",
    "a='x[$(%s)]'; b=1234; echo ${b:0:a}",
    "a='x[$(%s)]'; b=(1 2); echo ${b[a]}",
    "a='x[$(%s)]'; b[a]=1",
    "a='x[$(%s)]'; echo ${!a}",
    "a='x[$(%s)]'; let b=a",
    'a="x[\\$(%s)]"; echo $((a))',
    "a=$'x[\\x24(%s)]'; echo $((a))",
    "a='x[$('; a+='%s)]'; echo $((a))",
    "a='x[$'; b=\"${a}(%s)]\"; echo $((b))",
    "for a in 'x[$(%s)]'; do echo $((a)); done",
    "set -- 'x[$(%s)]'; echo $(($1))",
    "read a <<< 'x[$(%s)]'; echo $((a))",
    "read a <<'E'\nx[$(%s)]\nE\necho $((a))",
    "f() { echo $(( $1 )); }; f 'x[$(%s)]'",
    "a='x[$(%s)]'; eval 'echo $((a))'",
    "a='$(%s)'; echo \"${a@P}\"",
    "a='`%s`'; echo ${a@P}",
]

#: quoted substitutions that never run
ASLEEP = [
    "echo '$(rm x)'",
    "a='$(rm x)'; echo \"$a\"",
    "a='x[$(rm x)]'; echo \"${a}\" ${a:-b} ${a%x} ${#a} ${a^^}",
    "[[ $a == '$(rm x)' ]]",
    "[[ -n '$(rm x)' ]]",
    "[ \"$a\" = '$(rm x)' ]",
    "printf '%s' 'a[$(rm x)]'",
    "export A='run $(rm x)'",
    "declare A='[$(rm x)]'",
    "grep '`rm x`' f",
    "cat > f <<'E'\nx[$(rm x)]\nE",
    "echo ${a@Q} '$(rm x)'",
    "i=1; echo $((i + 1))",
    "[[ $a -eq 1 ]]",
    "n=$(wc -l < f); echo $((n * 2))",
    "while read -r n; do echo $((n)); done < f",
    "unset 'a[1]'",
    "a='hello'; echo \"${a@P}\"",
]


@pytest.mark.parametrize("script", EVALUATED)
def test_a_quoted_substitution_that_is_evaluated_later_is_judged(script: str, verdict: Verdict) -> None:
    script = script.replace("%s", "rm x")
    assert verdict(script, "full", deny=["bash:rm *"]) in ("deny", "ask")
    assert verdict(script, "smart", allow=["bash:*"], deny=["bash:rm *"]) in ("deny", "ask")
    assert verdict(script.replace("rm x", "./x"), "read-only") == "deny"


@pytest.mark.parametrize("script", EVALUATED)
def test_bash_does_run_it(script: str, tmp_path: Path) -> None:
    subprocess.run(
        ["/bin/bash", "-c", script.replace("%s", "echo ran > ran")],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("script", ASLEEP)
def test_a_quoted_substitution_that_is_never_evaluated_is_a_text(script: str, verdict: Verdict) -> None:
    assert verdict(script, "smart", allow=["bash:*"], deny=["bash:rm *"]) == "allow"


@pytest.mark.parametrize("script", ASLEEP)
def test_bash_does_not_run_it(script: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n")
    subprocess.run(
        ["/bin/bash", "-c", script.replace("rm x", "echo ran > ran")],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert not (tmp_path / "ran").exists()


def test_what_is_expanded_again_without_being_known_is_asked(verdict: Verdict) -> None:
    for script in ('echo "${x@P}"', 'read x < f; echo "${x@P}"', 'x=$(cat f); echo "${x@P}"', "echo ${1@P}"):
        assert verdict(script, "smart") == "ask"
        assert verdict(script, "read-only") == "deny"


def test_a_text_whose_substitution_is_not_closed_is_asked(verdict: Verdict) -> None:
    for script in ("a='x[$(rm x]'; echo $((a))", "a='x[`rm x]'; echo $((a))"):
        assert verdict(script, "full", deny=["bash:rm *"]) == "ask"


def test_declarations_of_names_that_are_not_known_are_no_reading(verdict: Verdict) -> None:
    for script in ('declare "$X"', 'declare "$K=$V"', "export $X", "unset $X"):
        assert verdict(script, "read-only") == "deny"
    for script in ('export A="$X"', "declare -i n=1", "local a b=$(ls)", "unset A"):
        assert verdict(script, "read-only") == "allow"

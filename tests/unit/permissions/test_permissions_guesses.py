"""What programs that are not known may run, for rules that forbid and for the floor (case B167)."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from mcode_exec.records.permission import Rule
from tests.unit.permissions.conftest import Ground, bash

Verdict = Callable[..., str]

#: every one runs `rm x`, by programs that others will come after
RUNS_RM = [
    "systemd-run rm x",
    "systemd-run --user --scope -p A=1 rm x",
    "fakeroot rm x",
    "fakeroot -- rm x",
    "setarch -R rm x",
    "setarch x86_64 rm x",
    "linux32 rm x",
    "prlimit --nproc=1 rm x",
    "choom -n 0 -- rm x",
    "numactl --membind 0 rm x",
    "sg adm 'rm x'",
    "dbus-run-session -- rm x",
    "dbus-launch rm x",
    "xvfb-run -a rm x",
    "valgrind --leak-check=full rm x",
    "perf stat rm x",
    "perf record -o out -- rm x",
    "catchsegv rm x",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    "/lib/ld-musl-x86_64.so.1 --preload a /bin/rm x",
    "tini -- rm x",
    "dumb-init rm x",
    "firejail --noprofile rm x",
    "bwrap --ro-bind / / rm x",
    "proot -r / rm x",
    "hyperfine 'rm x'",
    "hyperfine --prepare 'ls' 'rm x'",
    "ls | entr rm x",
    "ls | entr -s 'rm x'",
    "sem -j 2 rm x",
    "sem 'rm x; ls'",
    "screen -dmS name rm x",
    "tmux new -d 'rm x'",
    "tmux new-session -d rm x",
    "tmux send-keys 'rm x' Enter",
    "gdb -batch -ex run --args rm x",
    "torsocks rm x",
    "proxychains4 -q rm x",
    "cgexec -g cpu:x rm x",
    "cpulimit -l 5 -- rm x",
    "ts rm x",
    "retry --times 3 rm x",
    "dotenv run rm x",
    "dotenv -f .env -- rm x",
    "doppler run --command='rm x'",
    "concurrently 'ls' 'rm x'",
    "nodemon --exec 'rm x'",
    "nodemon --exec=rm x",
    "tool sudo rm x",
    "tool bash -c 'rm x'",
    "tool 'cd sub && rm x'",
    "tool \"sh -c 'rm x'\"",
    "tool 'other \"rm x\"'",
    "tool -- rm",
    "tool /usr/bin/rm x",
    "./wrapper rm x",
    "./wrapper 'rm x'",
    "bash wrapper.sh rm x",
    "python3 wrapper.py rm x",
    "git unknown-alias rm x",
    "unknown | tool rm x",
    "ssh host 'cd a; rm x'",
    "uv run tool rm x",
    "timeout 5 tool rm x",
    # variables and settings whose value is run
    "PAGER='rm x' git log",
    "GIT_SSH_COMMAND='rm x' git fetch",
    "GIT_EDITOR='rm x' git commit",
    "env EDITOR='rm x' git commit",
    "export PAGER='rm x'; git log",
    "PROMPT_COMMAND='rm x' bash -i",
    "git -c core.pager='rm x' log",
    "git -c core.sshCommand='rm x' fetch",
    "git config alias.z '!rm x'",
    "git config core.editor 'rm x'",
]

#: programs whose words only look like a command
LOOKS_LIKE_RM = [
    "echo rm x",
    "printf '%s\\n' 'rm x'",
    "grep -rn rm x",
    "rg 'rm x' .",
    "man rm",
    "info rm",
    "which rm",
    "type rm",
    "whereis rm",
    "command -v rm",
    "hash rm",
    "apt show rm",
    "apt-cache show rm",
    "dpkg -S /bin/rm",
    "git commit -m 'rm x'",
    "git log --grep 'rm x'",
    "git rm --cached x",
    "git add rm x",
    "git checkout rm",
    "docker rm x",
    "docker run --rm x",
    "npm rm x",
    "pip install rm x",
    "svn rm x",
    "cargo rm x",
    "touch rm x",
    "cp /bin/rm x",
    "ls -l /bin/rm",
    "cat rm x",
    "mkdir rm x",
    "mv rm x",
    "find . -name rm",
    "find . -name 'rm x'",
    "tar xf rm x",
    "gcc -o rm rm.c",
    "cd rm",
    "export A='rm x'",
    "A='rm x'; echo $A",
    "test -x rm",
    "[ rm = x ]",
    "read rm x < f",
    "set -- rm x",
    "sed -n 's/rm x/y/p' f",
    "awk '/rm x/' f",
    "jq '.rm' x",
    "python3 -c 'rm x'",
    "python3 -m tool rm x",
    "node -e 'rm x'",
    "pytest -k 'rm x'",
    "bash -c 'echo \"$1\"' rm x",
    "curl -d 'rm x' http://localhost/",
    "gh pr list --search 'rm x'",
    "make rm x",
    "kill %rm",
    "ssh-keygen -C 'rm x' -f key",
    "tool --rm x",
    "tool rmdir x",
    "tool --out rm.txt",
    "tool src/rm x",
    "tool 'rmdir x'",
    "tool $X",
    "PAGER=cat git log",
    "git -c user.name='rm x' commit",
    "GIT_AUTHOR_NAME='rm x' git commit",
]


@pytest.mark.parametrize("script", RUNS_RM)
def test_a_deny_rule_holds_for_what_an_unknown_program_may_run(script: str, verdict: Verdict) -> None:
    assert verdict(script, allow=["bash:*"], deny=["bash:rm *"]) == "deny"
    assert verdict(script, "full", deny=["bash:r*"]) == "deny"


@pytest.mark.parametrize("script", [s for s in LOOKS_LIKE_RM if "user.name" not in s])
def test_words_of_known_programs_are_no_commands(script: str, verdict: Verdict) -> None:
    assert verdict(script, allow=["bash:*"], deny=["bash:rm *"]) == "allow"


def test_guesses_do_not_count_for_presets_and_allow_rules(verdict: Verdict) -> None:
    assert verdict("tool rm x") == "allow"
    assert verdict("tool git push") == "allow"
    assert verdict("tool 'git push'") == "allow"
    assert verdict("tool git status", "read-only", allow=["bash:git *"]) == "deny"


def test_an_ask_rule_counts_as_a_deny_rule_does(ground: Ground) -> None:
    rules = [
        Rule(permission="bash", pattern="*", verdict="allow", source="config"),
        Rule(permission="bash", pattern="rm *", verdict="ask", source="config"),
    ]
    judge = ground.judge(config=rules)
    assert bash(judge, "systemd-run rm x").verdict == "ask"
    assert bash(judge, "systemd-run ls x").verdict == "allow"


def test_a_guess_is_lifted_by_a_later_rule_over_the_program_itself_and_a_denial_names_it(
    ground: Ground,
) -> None:
    def decided(*rules: tuple[str, str]) -> tuple[str, str]:
        found = [Rule(permission="bash", pattern=p, verdict=v, source="config") for p, v in rules]  # type: ignore[arg-type]
        decision = bash(ground.judge(config=found), "tool rm x")
        return decision.verdict, decision.reason

    verdict, reason = decided(("rm *", "deny"))
    assert verdict == "deny"
    assert "`rm x`, which `tool` may run, is denied by the rule" in reason
    assert "--allow 'bash:tool *'" in reason
    assert decided(("rm *", "deny"), ("tool *", "allow"))[0] == "allow"
    assert decided(("rm *", "deny"), ("rm x", "allow"))[0] == "allow"
    assert decided(("tool *", "allow"), ("rm *", "deny"))[0] == "deny"
    assert decided(("rm *", "deny"), ("*", "allow"))[0] == "allow"


def test_the_floor_holds_for_what_an_unknown_program_may_run(ground: Ground) -> None:
    judge = ground.judge("full", allow=["bash"])
    for script in (
        "systemd-run rm -rf /",
        "hyperfine 'rm -rf ~'",
        "tool 'cd / && rm -rf *'",
        "tool dd if=/dev/zero of=/dev/sda",
        "tool mkfs.ext4 /dev/sda1",
    ):
        decision = bash(judge, script)
        assert (decision.verdict, decision.origin) == ("deny", "floor"), script
    for script in (
        "echo 'rm -rf /'",
        "git commit -m 'rm -rf /'",
        "pytest -k 'rm -rf /'",
        "tool rm -rf build",
    ):
        assert bash(judge, script).verdict == "allow", script


def test_rules_over_other_commands_are_found_in_the_same_way(verdict: Verdict) -> None:
    assert verdict("tool git push origin", "full", deny=["bash:git push *"]) == "deny"
    assert verdict("tool git status", "full", deny=["bash:git push *"]) == "allow"
    assert verdict("tool ./deploy now", "full", deny=["bash:./deploy *"]) == "deny"
    assert verdict("tool curl http://x.example", "full", deny=["bash:*curl*"]) == "deny"
    assert verdict("tool terraform apply", "full", deny=["bash:terr?form *"]) == "deny"


def test_guesses_over_scripts_in_scripts_come_to_an_end(ground: Ground) -> None:
    judge = ground.judge("full", deny=["bash:rm *"])
    nested = "rm x"
    for _ in range(6):
        nested = "tool " + "'" + nested.replace("'", "'\\''") + "'"
    assert bash(judge, nested).verdict in ("allow", "deny")
    assert bash(judge, "tool " + "'tool a' " * 2_000).verdict == "allow"
    assert bash(judge, "tool " + "rm " * 2_000).verdict == "deny"


def test_without_rules_that_forbid_no_guess_is_parsed(ground: Ground) -> None:
    sys.modules.pop("mcode_exec.permissions.bash_tree", None)
    assert bash(ground.judge("full"), "tool sub x").verdict == "allow"
    assert "mcode_exec.permissions.bash_tree" not in sys.modules

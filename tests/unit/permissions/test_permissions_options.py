"""Options of wrappers, as getopt and its GNU form read them, and what options hand over to be run (case B167)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcode_exec.permissions.options import Given, options, readings
from mcode_exec.permissions.script import literal

Verdict = Callable[..., str]

_KNOWN = options("ab all", "nv name value", "i in-place")


@pytest.mark.parametrize(
    ("line", "behind"),
    [
        ("x rest", ["rest"]),
        ("x -a rest", ["rest"]),
        ("x -n 1 rest", ["rest"]),
        ("x -n1 rest", ["rest"]),
        ("x -abn 1 rest", ["rest"]),
        ("x -abn1 rest", ["rest"]),
        ("x -na rest", ["rest"]),
        ("x -i rest", ["rest"]),
        ("x -ai{} rest", ["rest"]),
        ("x -5 rest", ["rest"]),
        ("x --all rest", ["rest"]),
        ("x --a rest", ["rest"]),
        ("x --name 1 rest", ["rest"]),
        ("x --name=1 rest", ["rest"]),
        ("x --na 1 rest", ["rest"]),
        ("x --v=1 rest", ["rest"]),
        ("x --in-place rest", ["rest"]),
        ("x --in-place=1 rest", ["rest"]),
        ("x -- -a rest", ["-a rest"]),
        ("x -a - rest", ["- rest"]),
        ("x -q 1 rest", ["1 rest", "rest"]),
        ("x -aq 1 rest", ["1 rest", "rest"]),
        ("x -q1 rest", ["rest"]),
        ("x --what 1 rest", ["1 rest", "rest"]),
        ("x --what=1 rest", ["rest"]),
        ("x -n", [""]),
        ("x --name", [""]),
        ("x", [""]),
    ],
)
def test_options_are_read_as_getopt_does_and_in_both_ways_where_they_are_not_known(
    line: str, behind: list[str]
) -> None:
    words = tuple(literal(word) for word in line.split())
    found = {" ".join(w.text for w in words[reading.at :]) for reading in readings(words, _KNOWN)}
    assert found == set(behind)


def test_options_come_with_their_values_and_full_names() -> None:
    words = tuple(literal(word) for word in ["x", "-abn", "1", "--val", "2", "-vy", "--in", "rest"])
    [reading] = readings(words, _KNOWN)
    assert reading.given == (
        Given("-a"),
        Given("-b"),
        Given("-n", literal("1")),
        Given("--value", literal("2")),
        Given("-v", literal("y")),
        Given("--in"),
    )


def test_many_unknown_options_are_read_in_time_that_grows_with_their_number() -> None:
    words = tuple(literal(word) for word in ["x", *["--what"] * 2_000, "rest"])
    assert {reading.at for reading in readings(words, _KNOWN)} == {len(words) - 1, len(words)}


#: every one runs `rm x`
CLUSTERED = [
    "echo x | xargs -0n 1 rm",
    "echo x | xargs -rn 1 rm",
    "echo x | xargs -0I {} rm {}",
    "echo x | xargs -0rt -P 4 -n1 rm",
    "echo x | xargs -i rm {}",
    "echo x | xargs -l rm",
    "sudo -nu root rm x",
    "sudo -Hnu root -- rm x",
    "sudo -hn rm x",
    "doas -nu root rm x",
    "timeout -vs KILL 5 rm x",
    "timeout -fk 1 5 rm x",
    "strace -fo out rm x",
    "strace -ff -e trace=file rm x",
    "ltrace -fo out rm x",
    "exec -ca foo rm x",
    "exec -cla foo rm x",
    "flock -nw 1 f rm x",
    "flock -xn f rm x",
    "time -po f rm x",
    "/usr/bin/time -vo f rm x",
    "env -iu A rm x",
    "env -i0u A B=1 rm x",
    "env -iS 'rm x'",
    "env -vS'rm x'",
    "ionice -tc 2 rm x",
    "ionice -tn7 -c2 rm x",
    "nice -5 rm x",
    "unshare -rmw / rm x",
    "nsenter -at 1 rm x",
    "chrt -fT 1 5 rm x",
    "watch -dn 1 rm x",
    "su -lc 'rm x'",
    "script -qec 'rm x' o",
    "uv run -qp 3.12 rm x",
    "docker exec -itu root c rm x",
    "ssh -tp 22 host rm x",
    "npx -yp pkg rm x",
    "setpriv --re 1 rm x",
]
ABBREVIATED = [
    "timeout --sig KILL 5 rm x",
    "timeout --k 1 5 rm x",
    "echo x | xargs --max-a 1 rm",
    "echo x | xargs --max-p=4 --nu rm",
    "echo x | xargs --repl rm",
    "echo x | xargs --max-l rm",
    "nice --adj 5 rm x",
    "nice --adj=5 rm x",
    "env --uns A rm x",
    "env --ch / rm x",
    "env --ig rm x",
    "env - rm x",
    "env -u A - rm x",
    "env --split='rm x'",
    "env --s 'rm x'",
    "env -S rm x",
    "env -S '-i rm x'",
    "env -S 'A=1 rm' x",
    "sudo --us root rm x",
    "sudo --weird 1 rm x",
    "sudo --weird rm x",
    "sudo -q 1 rm x",
    "ionice --classd 2 rm x",
    "stdbuf --out L rm x",
    "time --out f rm x",
    "chroot --user 1 / rm x",
    "systemd-run --prop A=1 rm x",
    "systemd-run -qp A=1 --unit u rm x",
    "fakeroot -i f rm x",
    "setarch x86_64 -R rm x",
    "setarch -R rm x",
    "linux64 --verb rm x",
    "prlimit --nproc=1 rm x",
    "choom -n 0 -- rm x",
    "dbus-run-session --config f -- rm x",
    "timeout $OPTIONS 5 rm x",
]
HANDED_OVER = [
    "su -c'rm x'",
    "su --command='rm x'",
    "su --com 'rm x' root",
    "su root --session-command='rm x'",
    "su - -c 'rm x'",
    "su <<< 'rm x'",
    "sudo -s <<< 'rm x'",
    "runuser -u root rm x",
    "runuser -u root -- rm x",
    "runuser root -c 'rm x'",
    "script -qc'rm x' o",
    "script --command='rm x' o",
    "script o --com 'rm x'",
    "script <<< 'rm x'",
    "flock f -c 'rm x'",
    "flock -n f --command 'rm x'",
    "flock -n f -c'rm x'",
    "sg adm 'rm x'",
    "sg adm -c 'rm x'",
    "at now <<< 'rm x'",
    "batch <<E\nrm x\nE",
    "chroot / <<< 'rm x'",
    "unshare -r <<< 'rm x'",
    "fakeroot <<< 'rm x'",
    "fish --command='rm x'",
    "fish -c 'rm x'",
    "npx -c 'rm x'",
    "npx --call='rm x'",
    "git rebase -x'rm x' HEAD",
    "git rebase -ix 'rm x' HEAD",
    "git rebase --exec='rm x' HEAD",
    "git rebase --ex 'rm x' HEAD",
    "git -C sub rebase -x 'rm x' HEAD",
    "git difftool -x 'rm x'",
    "git difftool -yx 'rm x'",
    "git difftool --extcmd='rm x'",
    "git filter-branch --tree-filter 'rm x'",
    "git filter-branch -f --index-filter='rm x'",
    "git filter-branch --msg-f 'rm x' HEAD",
    "git clone --upload-pack='rm x' a b",
    "git clone -u 'rm x' a b",
    "git push --receive-pack 'rm x'",
    "git grep -nO'rm x' foo",
    "git send-email --to-cmd='rm x' f",
    "jobs -x rm x",
    "compgen -C 'rm x'",
    "complete -C 'rm x' ls",
    "mapfile -C 'rm x' -c 1 < f",
    "readarray -tC'rm x' < f",
    "hash -p /bin/rm ls; ls x",
    "tar xf y --to-c='rm x'",
    "tar -xf y -I'rm x'",
    "tar cf y --checkpoint=1 --checkpoint-action=exec='rm x' .",
    "sort --comp 'rm x' y",
    "rsync -ae 'rm x' a b",
    "diff3 --diff='rm x' a b c",
    "env -S bash -c 'rm x'",
    "env -iS'A=1 sh -c' 'rm x'",
    "fd --exec=rm",
    "fd -xrm",
    "npm x -- rm x",
    "bun x rm x",
    "docker run --rm -v /a:/b image rm x",
    "docker compose exec -u root web rm x",
    "docker-compose exec web rm x",
    "vagrant ssh -c 'rm x'",
    "ssh host <<E\nrm x\nE",
    "ssh -o ProxyCommand='rm x' host",
    "ssh -oLocalCommand='rm x' host",
    "scp -o ProxyCommand='rm x' a host:",
    "git clone --config core.fsmonitor='rm x' a",
    "make SHELL='rm x'",
    "PS4='$(rm x)' bash -xc ls",
]


@pytest.mark.parametrize("script", [*CLUSTERED, *ABBREVIATED, *HANDED_OVER])
def test_a_deny_rule_holds_however_the_options_of_what_runs_it_are_written(
    script: str, verdict: Verdict
) -> None:
    assert verdict(script, "smart", allow=["bash:*"], deny=["bash:rm *"]) == "deny"
    assert verdict(script, "full", deny=["bash:rm *"]) == "deny"
    assert verdict(script, "read-only") == "deny"


@pytest.mark.parametrize(
    "script",
    [
        "xargs -n1 -P4 grep rm < f",
        "xargs -0rn 1 echo rm < f",
        "timeout -s KILL 5 echo rm",
        "nice -n 5 git commit -m 'rm x'",
        "env -u rm ls",
        "env --unset=rm ls",
        "flock rm ls",
        "flock -E 3 rm ls",
        "time -o rm ls",
        "watch -n 1 ls rm",
        "git rebase -X theirs rm",
        "git rebase -s rm main",
        "git difftool -t rm",
        "git clone -b rm a b",
        "git grep -e rm",
        "tar -xf rm -C rm",
        "tar -czf rm.tgz .",
        "tar cf y --checkpoint-action=echo .",
        "sort -k2 -t, rm",
        "rsync -a rm b/",
        "uv run -p rm pytest",
        "npx -p rm tsc",
        "mapfile -t rm < f",
        "complete -W rm x",
        "jobs -l",
    ],
)
def test_values_and_operands_of_options_are_no_commands(script: str, verdict: Verdict) -> None:
    assert verdict(script, allow=["bash:*"], deny=["bash:rm *"]) == "allow"


def test_what_a_shell_runs_first_or_a_changed_separator_makes_is_not_known(verdict: Verdict) -> None:
    for script in (
        "BASH_ENV=<(echo rm x) bash -c ls",
        "IFS=, a='rm,x'; $a",
        "env -S '${X} x'",
        'env -S "$X"',
    ):
        assert verdict(script, "full", deny=["bash:rm *"]) in ("ask", "deny")


def test_what_may_be_read_in_two_ways_must_be_allowed_in_both(verdict: Verdict) -> None:
    assert verdict("env --weird ls ./x", "read-only") == "deny"
    assert verdict("nice -q ls ./x", "read-only") == "deny"
    assert verdict("timeout $X ls ./x", "read-only") == "deny"
    assert verdict("timeout 5 ls ./x", "read-only") == "allow"
    assert verdict("nice -n 5 ls ./x", "read-only") == "allow"
    assert verdict("timeout $T make", "smart") == "allow"
    assert verdict("xargs -P $N -n1 make < f", "smart") == "allow"

"""The read-only preset: the known read-only set and everything that only looks like it (cases B169, B170)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Verdict = Callable[..., str]

READS = [
    "ls", "ls -la sub", "cat a b", "head -n 5 f", "tail -f f", "wc -l < f", "stat f", "du -sh .", "df -h", "pwd", "echo hi",
    'echo "a | b"', "echo 'a > b'", "echo a\\>b", "printf '%s\\n' x", "true", "test -f x", "[ -f x ]", "[[ -f x && $a == b ]]",
    "basename /a/b", "realpath .", "id", "whoami", "uname -a", "ps aux", "which git", "cut -d: -f1 f", "tr a b", "diff a b",
    "sort f", "sort -u -k2,2 f", "sort -rn -t, f", "uniq -c f", "ls | sort | uniq -c", "grep -rn foo .", "rg foo", "rg -n foo src",
    "find . -name '*.py'", "find . -type f -print0 | xargs -0 grep -l foo", "find . -exec cat {} \\;", "find . -exec wc -l {} +",
    "fd foo", "jq .a f.json", "sed -n 1,5p f", "sed -n '1,5p' f", "sed 's/a/b/' f", "sed -e 's/a/b/g' -e '/x/d' f", "sed -n '$p' f",
    "sed 's|a|b|;s/c/d/g' f", "awk '{print $1}' f", "awk -F: '{print $1}' f", "awk -F , 'NR==1' f",
    "tar tf x.tar", "tar -tzf x.tgz", "unzip -l x.zip", "date", "date +%F", "date -d yesterday +%s", "hostname", "hostname -f",
    "git status", "git log --oneline -5", "git diff HEAD~1 -- f", "git show HEAD:f", "git branch", "git branch -a",
    "git branch --show-current", "git branch --contains HEAD", "git tag", "git tag -l", "git remote -v", "git rev-parse HEAD",
    "git ls-files", "git grep foo", "git blame f", "git stash list", "git config --get user.name", "git config -l",
    "git worktree list", "git --no-pager log", "git -C sub status", "git --version", "git reflog", "git submodule status",
    "python3 --version", "node -v; true" if False else "node --version", "man ls", "man 3 printf", "command -v git", "type ls",
    "cd sub && ls", "env ls", "env A=1 ls", "A=1 ls", "timeout 5 ls", "time ls", "nice ls", "bash -c 'ls; pwd'", "(ls)", "{ ls; }",
    "if [ -f x ]; then cat x; fi", "for f in *; do echo \"$f\"; done", "while read -r l; do echo \"$l\"; done < f", "ls 2> /dev/null",
    "ls > /dev/null 2>&1", "ls 2>&1 | head", "ls &> /dev/null", "cat <<< hi", "cat <<E\nhi\nE", "diff <(ls a) <(ls b)",
    "echo $(ls)", "X=$(ls); echo $X", "export A=1", "! ls", "ls && pwd || true", "xxd f", "/bin/ls", "command ls", "# nothing", "",
    "GIT_PAGER=cat git log", "echo $HOME", "x=1", "cat -- f", "sha256sum f", "env", "printenv PATH", "sleep 1",
]  # fmt: skip

WRITES_OR_STARTS = [
    # B169
    "sort --compress-program=./x f", "sort --compress-program ./x f", "sort --comp=./x f", "sort -o f f", "sort -of f", "sort -uo f f",
    "sort --output=f g", "sort --out=f g", "sort -T /x f", "rg --pre ./x y", "rg --pre=./x y", "rg -z y", "man -P ./x ls",
    "man --pager=./x ls", "man -H ls", "git -c core.pager=./x log", "git -c alias.x='!./x' x", "git diff --ext-diff",
    "git diff --ext", "git log --textconv", "git log --output=f", "git diff --output f", "git -p log", "git --paginate log",
    "git --exec-path=. status", "git --git-dir=evil status", "git grep -O./x foo", "git grep --open-files-in-pager=./x foo",
    "tar --to-command=./x -xf f", "tar -xf f", "tar cf f g", "tar -tf f --to-command=./x", "tar tf f -I ./x", "tar tf host:f",
    "tar -tf f --checkpoint=1 --checkpoint-action=exec=./x", "awk 'BEGIN{system(\"x\")}'", "awk '{print > \"f\"}' g",
    "awk '{print | \"sh\"}' g", "awk '{\"x\" | getline}'", "awk -f x g", "gawk -i inplace 1 f", "gawk -l ./x 1", "awk '@load \"x\"'",
    "sed -n '1e x'", "sed '1w f' g", "sed 's/a/b/w f' g", "sed 's/a/b/e' g", "sed 's/x/y/w a/g' f", "sed 1e f", "sed -n 'w f' g",
    "sed -f script g", "sed 's/a/b/;w f' g", "sed $X f", "find . -delete", "find . -fprint f", "find . -fprintf f x", "find . -fls f",
    "find . -exec rm {} \\;", "find . -exec {} \\;", "find . -execdir ./x \\;", "fd x -x ./y", "fd x --exec ./y", "fd -X ./y",
    "xargs rm < f", "ls | xargs ./x", "env ./x", "env -S './x'", "tee f", "ls | tee f", "date -s x", "date --set=x", "date 01010101",
    "hostname evil", "hostname -F f", "uniq a b", "xxd -r a b", "xxd a b", "printf -v PATH x", "read PATH < f", "sort $X", "sort *",
    "git log $X", "rg * .", "file -C f", "tree -o f", "jq . f > g", "man $X",
    # B170
    "echo x > f", "cat a >> b", "sed -i s/a/b/ f", "sed -i.bak s/a/b/ f", "sed --in-place s/a/b/ f", "sed -ni p f", ": > f", "> f",
    "cp a b", "mv a b", "ln -s a b", "2> f", "ls 2> f", "ls &> f", "ls >| f", "ls >& f", "ls > $X", "ls <> f", "exec > f", "ls >f 2>&1",
    "touch f", "mkdir d", "rm f", "rmdir d", "chmod +x f", "dd if=a of=b", "truncate -s 0 f", "install a b", "patch < f",
    # neighbours
    "python3 -c 'print(1)'", "python3 x.py", "node x.js", "perl -e 1", "./x", "./ls", "make", "npm test", "bash x.sh", "bash", "source x",
    ". x", "eval $X", "curl http://x.example", "wget x.example", "ssh host ls", "sudo ls", "git commit -m x", "git checkout f",
    "git branch new", "git branch -d x", "git branch -m a b", "git tag v1", "git tag -d v1", "git stash", "git stash pop", "git push",
    "git fetch", "git remote add x y", "git config user.name x", "git config --unset x", "git reflog expire --all", "git notes add",
    "git worktree add x", "git submodule update", "git clean -fd", "git reset --hard", "git add f", "git gc", "git ls-remote ext::x",
    "git x", "git", "PATH=. ls", "LD_PRELOAD=./x ls", "IFS=x ls", "BASH_ENV=x bash -c ls", "GIT_EXTERNAL_DIFF=./x git diff",
    "GIT_PAGER=./x git log", "PAGER=./x git log", "export PATH=.; ls", "for PATH in .; do ls; done", "ls() { ./x; }; ls", "f() { ls; }; f",
    "alias ls=./x", "trap ./x EXIT", "enable -f ./x y", "hash -p ./x ls", "echo $(./x)", "echo `./x`", "cat <(./x)", "cat <<E\n$(./x)\nE",
    "bash -c './x'", "sh < f", "ls | sh", "ls; ./x", "ls && ./x", "ls & ./x", "ls | ./x", "time ./x", "! ./x", "command ./x",
    "busybox sh", "find $X", "$X", "\"$X\" a", "let 'a[$(./x)]=1'", "declare 'a[$(./x)]=1'", "[[ -v 'a[$(./x)]' ]]", "test -v 'a[$(./x)]'",
    "[[ 'a[$(./x)]' -eq 1 ]]", "unset 'a[$(./x)]'", "read 'a[$(./x)]'", "mapfile -C ./x a", "declare -n a=PATH", "less f", "vi f", "nohup ls > f",
    "ls 'unfinished", "if ls; then", "crontab -r", "kill 1", "docker ps", "psql -c x", "sqlite3 f", "ls > /etc/x", "echo x > .env",
]  # fmt: skip


@pytest.mark.parametrize("script", READS)
def test_a_reading_command_is_allowed(script: str, verdict: Verdict) -> None:
    assert verdict(script, "read-only") == "allow"


@pytest.mark.parametrize("script", WRITES_OR_STARTS)
def test_a_command_that_writes_or_starts_others_is_denied(script: str, verdict: Verdict) -> None:
    assert verdict(script, "read-only") == "deny"


def test_reading_credentials_is_asked(verdict: Verdict) -> None:
    for script in ("cat .env", "cat ~/.ssh/id_rsa", "head < .env", "grep x .env.local", "cat ./sub/../.env"):
        assert verdict(script, "read-only") == "ask"
    assert verdict("cat .env.example", "read-only") == "allow"


def test_a_rule_of_the_user_opens_one_more_command(verdict: Verdict) -> None:
    assert verdict("make test", "read-only", allow=["bash:make *"]) == "allow"
    assert verdict("make test > f", "read-only", allow=["bash:make *"]) == "deny"
    assert verdict("make test; ./x", "read-only", allow=["bash:make *"]) == "deny"

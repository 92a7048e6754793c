"""What programs write whose outputs stand in options, in operands or in programs of their own."""

from __future__ import annotations

import pytest

from mcode_exec.permissions.effects import effects
from mcode_exec.permissions.script import Simple, literal
from tests.unit.permissions.conftest import Ground, bash

#: `{}` is a directory
WRITING = [
    "gzip {}/f",
    "gzip -9 a {}/f",
    "gunzip {}/f.gz",
    "bzip2 -k {}/f",
    "xz {}/f",
    "unxz {}/f.xz",
    "lzma {}/f",
    "compress {}/f",
    "zstd {}/f",
    "zstd -q f -o {}/f.zst",
    "tar -C {} -xf a.tar",
    "tar -xf a.tar -C {}",
    "tar xzfC a.tgz {}",
    "tar -xvzf a.tgz --directory={}",
    "tar -xf a.tar --directory {}",
    "tar --extract --file a.tar -C {}",
    "tar -cf {}/f.tar sub",
    "tar czf {}/f.tgz sub",
    "tar -c -z -f {}/f.tgz sub",
    "tar -cf{}/f.tar sub",
    "tar --create --file={}/f.tar sub",
    "unzip -d {} a.zip",
    "unzip -qd {} a.zip",
    "unzip a.zip -d{}",
    "zip -r {}/f.zip sub",
    "7z x a.7z -o{}",
    "7z a {}/f.7z sub",
    "cpio -i -D {}",
    "cpio -pdm {}",
    "gcc -O2 x.c -o {}/f",
    "gcc -o{}/f x.c",
    "g++-13 -o {}/f x.cc",
    "clang -c x.c -o {}/f.o",
    "ld -o {}/f x.o",
    "as -o {}/f x.s",
    "rustc -o {}/f x.rs",
    "rustc --out-dir={} x.rs",
    "go build -o {}/f .",
    "javac -d {} X.java",
    "ar rcs {}/f.a x.o",
    "awk 'BEGIN{{print > \"{}/f\"}}'",
    "awk '{{print $1 >> \"{}/f\" ; n++}}' g",
    "awk '{{print > (\"{}/\" $1)}}' g",
    "awk -v o={}/f '{{print > o}}' g",
    "gawk -i inplace '{{print}}' {}/f",
    "sed -n 'w {}/f' g",
    "sed 's/a/b/w {}/f' g",
    "sed -e 1d -e 's|a|b|gw {}/f' g",
    "sed -n '/x/{{p;w {}/f\n}}' g",
    "sed -l 5 'y/a/b/;w {}/f' g",
    "sed -i.bak s/a/b/ {}/f",
    "sed -Ei -e s/a/b/ {}/f",
    "uniq g {}/f",
    "uniq -f 1 g {}/f",
    "xxd -r g {}/f",
    "split -l 10 g {}/x",
    "csplit -f {}/x g 3",
    "patch -o {}/f g p.diff",
    "patch {}/f p.diff",
    "patch -p1 -d {}",
    "openssl req -x509 -out {}/f",
    "openssl genrsa -out {}/f 2048",
    "mktemp -p {}",
    "mktemp -p {} x.XXXX",
    "mktemp -d {}/x.XXXX",
    "git archive -o {}/f.tar HEAD",
    "git archive --output={}/f.tar HEAD",
    "git bundle create {}/f --all",
    "git format-patch -o {} -3",
    "git diff --output={}/f",
    "git worktree add {}/w",
    "git worktree add -b x {}/w main",
    "git clone u {}/d",
    "git clone --depth 1 -b main u {}/d",
    "git init {}/d",
    "git mv a {}/f",
    "git submodule add u {}/d",
    "python -m venv {}/v",
    "python3.12 -m venv --clear {}/v",
    "virtualenv -p python3 {}/v",
    "uv venv {}/v",
    "pip install --target {}/v x",
    "python -m zipfile -e a.zip {}/d",
    "vim -es -c 'w {}/f' -c q g",
    "ex -s +'%s/a/b/|wq' {}/f",
    "ssh-keygen -t ed25519 -N '' -f {}/f",
    "gpg --output {}/f -d g",
    "gpg -bo {}/f g",
    "pandoc g -o {}/f",
    "ffmpeg -y -i g -c copy {}/f.mp4",
    "convert g -resize 10x png:{}/f",
    "wget -P {} u",
    "wget -qO {}/f u",
    "curl --output-dir {} -O u",
    "curl -sSLo {}/f u",
    "rsync -a a/ {}/",
    "rsync -ab --backup-dir={} a/ b/",
    "install -m 644 a {}/f",
    "install -Dt {} a",
    "cp -at {} a",
    "shred {}/f",
    "truncate -s 0 {}/f",
    "fallocate -l 1 {}/f",
    "touch {}/f",
    "mkfifo {}/f",
    "mknod {}/f p",
    "ln a {}/f",
    "iconv -f a -t b g -o {}/f",
    "script -qc ls {}/f",
    "strace -f -o {}/f ls",
    "docker save -o {}/f x",
    "docker cp c:/x {}/f",
    "cargo new --name x {}/f",
    "git checkout HEAD -- {}/f",
    "cd {} && git clone u",
    "cd {} && wget u",
    "cd {} && unzip a.zip",
    "cd {} && split f",
    "cd {} && curl -sSLO u",
    "cd {} && gcc -c x.c",
    "cd {} && tar -xf a.tar",
]

ORDINARY = [
    "tar -xf a.tar",
    "tar -tf /usr/share/a.tar",
    "tar -xOf /usr/share/a.tar f",
    "tar -cf - -C /usr/share x | tar -xf - -C sub",
    "gzip log",
    "gzip -c /usr/share/f > f.gz",
    "gzip -dc /usr/share/f.gz",
    "zcat /usr/share/f.gz",
    "xz -l /usr/share/f.xz",
    "gzip $F",
    "gcc -I/usr/include -L/usr/lib -o build/x x.c",
    "gcc -Wl,-rpath,/usr/lib -O2 x.c",
    "gcc -o /dev/null x.c",
    "git clone https://x.example/y dir",
    "git mv a b",
    "git worktree add sub/w",
    "git archive --prefix=/x/ HEAD | cat",
    "git format-patch -3",
    "python -m venv .venv",
    "python -m zipfile -l /usr/share/a.zip",
    "python3 -m json.tool /usr/share/f.json",
    "awk '{print}' f > out",
    "awk '$1 > 3 {print $2}' /etc/hosts",
    "awk -F: '{print $1 > \"out\"}' /etc/hosts",
    "awk '{print > \"/dev/stderr\"}' f",
    "sed -n 1,5p /etc/hosts",
    "sed 's/w /x/g' /etc/hosts",
    "sed -n '/a/w out' /etc/hosts",
    "sed -e 's|/etc/w /etc|x|' -e 'y/abc/xyz/' /etc/hosts",
    "uniq f",
    "uniq -c /etc/hosts",
    "uniq /etc/hosts out",
    "split -l 10 /etc/hosts",
    "patch -p1 < x.diff",
    "patch --dry-run /etc/hosts x.diff",
    "openssl x509 -in /etc/ssl/x.pem -text",
    "mktemp",
    "mktemp -d",
    "mktemp -u /opt/x.XXXX",
    "ssh-keygen -lf /etc/ssh/x.pub",
    "go build -o bin/x ./cmd/x",
    "go test -run X ./...",
    "vim -es -c 'w out' -c q /etc/hosts",
    "ffmpeg -i /usr/share/x.mp4",
    "convert /usr/share/x.png x.jpg",
    "wget -qO- https://x.example",
    "curl -so /dev/null -w '%{http_code}' https://x.example",
    "curl -sSLO https://x.example/f",
    "zip -r - /usr/share/x | wc -c",
    "unzip -l /usr/share/x.zip",
    "unzip -q /usr/share/x.zip -d sub",
    "7z l /usr/share/x.7z",
    "pip install x -r /usr/share/r.txt",
    "cmake -S /usr/src/x -B build -DCMAKE_INSTALL_PREFIX=/usr",
    "pandoc /usr/share/x.md -o x.html",
    "docker cp f c:/etc/x",
    "cd /usr && curl -s https://x.example",
    "cd /usr && wget -qO- https://x.example",
    "cd /usr && wget --spider https://x.example",
    "cd /usr && unzip -l x.zip",
    "cd /usr && gcc -E x.c",
    "cd /usr && gcc --version",
    "git checkout main",
    "git checkout -- .",
]


@pytest.mark.parametrize("script", WRITING)
def test_what_a_program_writes_outside_is_asked(script: str, ground: Ground) -> None:
    outside = ground.root / "outside"
    assert bash(ground.judge(), script.format(outside)).verdict == "ask"
    assert bash(ground.judge("full"), script.format(outside)).verdict == "allow"


@pytest.mark.parametrize("script", WRITING)
def test_what_a_program_writes_inside_is_allowed(script: str, ground: Ground) -> None:
    for directory in ("sub", ground.workspace / "new", ground.temp_dir):
        assert bash(ground.judge(), script.format(directory)).verdict == "allow"


@pytest.mark.parametrize("script", WRITING)
def test_no_program_writes_to_data_of_mcode(script: str, ground: Ground) -> None:
    decision = bash(ground.judge("full", allow=["bash"]), script.format(ground.data_dir))
    assert (decision.verdict, decision.origin) == ("deny", "floor")


@pytest.mark.parametrize("script", WRITING)
def test_nothing_that_writes_is_read_only(script: str, ground: Ground) -> None:
    assert bash(ground.judge("read-only"), script.format("sub")).verdict == "deny"


@pytest.mark.parametrize("script", ORDINARY)
def test_ordinary_use_is_not_asked(script: str, ground: Ground) -> None:
    assert bash(ground.judge(), script).verdict == "allow"


@pytest.mark.parametrize(
    "script",
    [
        "gzip a.lock",
        "gunzip -k a.lock.gz",
        "sed -n 'w a.lock' f",
        "awk '{print > \"a.lock\"}' f",
        "uniq f a.lock",
        "git mv a.lock b",
        "git rm a.lock",
        "git checkout -- a.lock",
        "gcc -o a.lock x.c",
        "curl -so a.lock https://x.example",
        "tar -cf a.lock sub",
        "cd sub && tar czf a.lock x",
    ],
)
def test_edit_rules_hold_for_outputs(script: str, ground: Ground) -> None:
    assert bash(ground.judge("full", deny=["edit:*.lock"]), script).verdict == "deny"
    assert (
        bash(ground.judge("full", deny=["edit:*.lock"]), script.replace("a.lock", "a.txt")).verdict == "allow"
    )


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("gzip -k f", ["f.gz"]),
        ("gunzip f.gz", ["f", "f.gz"]),
        ("gzip -c f", []),
        ("zstd --rm f", ["f.zst", "f"]),
        ("tar cfv o.tar a b", ["o.tar"]),
        ("tar -xf a.tar", ["."]),
        ("git -C sub clone u d", ["sub", "sub/d"]),
        ("mktemp -p d x.XX", ["d", "d/x.XX"]),
        ("wget -nv -O- u", []),
        ("gcc -c -fPIC -o x.o x.c", ["x.o"]),
    ],
)
def test_outputs_are_told_from_the_words(words: str, written: list[str]) -> None:
    command = Simple(words=tuple(literal(word) for word in words.split()))
    assert [word.text for word in effects(command).writes] == written

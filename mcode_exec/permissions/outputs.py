"""Which words of a program name what it writes: a table, one row for each family of programs.

A row says which options name an output, which others take a value (so that it
is no operand), and which operands are outputs.
"""

from __future__ import annotations

from msgspec import Struct

from mcode_exec.permissions.options import Given, has_option, subcommand, taken_apart
from mcode_exec.permissions.script import Word, literal
from mcode_exec.permissions.vocabulary import names

Words = tuple[Word, ...]

_ALL, _FIRST, _SECOND, _LAST = slice(None), slice(0, 1), slice(1, 2), slice(-1, None)


class Outputs(Struct, frozen=True):
    """How the outputs of a program are read from its words."""

    #: options whose value is an output
    writing: frozenset[str]
    #: all options that take a value
    valued: frozenset[str]
    operands: slice | None = None
    #: letters and long names of options with which neither an operand nor the directory is written
    unless: str = ""
    #: `-ab` is `-a -b`; otherwise it is one option of that name
    clusters: bool = True
    #: without an output among its words it writes where it is started
    here: bool = False

    def of(self, words: Words) -> list[Word]:
        given, operands = taken_apart(words, self.valued, clusters=self.clusters)
        named = option_values(given, *self.writing)
        if not self._only_looks(words):
            named += operands[self.operands] if self.operands is not None else []
            named += [literal(".")] if self.here and operands and not named else []
        return [word for word in named if word.text not in ("", "-")]

    def _only_looks(self, words: Words) -> bool:
        letters, *long_names = self.unless.split(" ")
        if self.clusters:
            return bool(self.unless) and has_option(words, letters, *long_names)
        looking = {*(f"-{letter}" for letter in letters), *long_names}
        return any(word.text in looking for word in words[1:])


def outputs(
    writing: str = "",
    valued: str = "",
    operands: slice | None = None,
    *,
    unless: str = "",
    clusters: bool = True,
    here: bool = False,
) -> Outputs:
    written = names(writing)
    return Outputs(written, written | names(valued), operands, unless, clusters, here)


_COMPILER = outputs(
    "-o --output -MF",
    "-I -L -l -x -D -U -include -isystem -T -Xlinker -Xpreprocessor -arch -target",
    unless="EM -MM -fsyntax-only --version",
    clusters=False,
    here=True,
)
_PIP = outputs(
    "-t --target --prefix --root -d --dest -w --wheel-dir --log --report",
    "-r -c -e -i -f --requirement --index-url",
)
_ENVIRONMENT = outputs("", "-p --python --prompt", _ALL)

OUTPUTS: dict[str, Outputs] = {
    # texts
    "uniq": outputs("", "-f -s -w --skip-fields --skip-chars --check-chars", _SECOND),
    "xxd": outputs("", "-c -cols -g -l -len -o -s -seek -n -name", _SECOND, clusters=False),
    "split": outputs(
        "", "-a -b -C -l -n -t --bytes --lines --number --filter --separator", _SECOND, here=True
    ),
    "csplit": outputs("-f --prefix", "-b -n --suffix-format --digits", here=True),
    "sort": outputs("-o --output", "-k -t -S -T --key --field-separator --buffer-size --parallel"),
    "patch": outputs(
        "-o --output -r --reject-file -d --directory",
        "-p -i -B -D -F -V -Y -z -g --strip --input",
        _FIRST,
        unless="C --dry-run",
    ),
    "iconv": outputs("-o --output", "-f -t --from-code --to-code"),
    **dict.fromkeys(("dos2unix", "unix2dos", "sponge", "rename", "prename"), outputs("", "", _ALL)),
    "tree": outputs("-o", "-L -P -I"),
    "pandoc": outputs("-o --output --extract-media --log", "-f -t -r -w -V -M -H -B -A -c"),
    **dict.fromkeys(("xmllint", "xsltproc"), outputs("-o --output", clusters=False)),
    "dot": outputs("-o", "-T -K -G -N -E"),
    # archives
    "unzip": outputs("-d", "-P", unless="lptvzZc", here=True),
    "zip": outputs("-O --out", "-b -n -t -tt -x -i -s -P --password", _FIRST, clusters=False),
    "cpio": outputs("-D --directory -O", "-F -I -H -C -E -M -R", _FIRST),
    "ar": outputs("", "", _SECOND),
    # compilers and builders
    **dict.fromkeys(names("gcc g++ cc c++ clang clang++ gfortran ld as nasm swiftc ghc"), _COMPILER),
    "rustc": outputs("-o --out-dir --emit", "-C -L -l --crate-name --crate-type --edition", clusters=False),
    **dict.fromkeys(("javac", "kotlinc", "scalac"), outputs("-d -s -h", "-cp -classpath", clusters=False)),
    "go": outputs(
        "-o -coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -trace -outputdir",
        "-C -tags -ldflags -gcflags -run",
        clusters=False,
    ),
    "cargo": outputs("--target-dir --out-dir --artifact-dir", "--manifest-path"),
    "tsc": outputs("--outDir --outFile --declarationDir", "-p", clusters=False),
    "esbuild": outputs("--outfile --outdir", clusters=False),
    "cmake": outputs("-B --install-prefix", "-S -G -D -U -C", clusters=False),
    **dict.fromkeys(("bison", "flex"), outputs("-o --output")),
    "strip": outputs("-o", "-K -N -R", _ALL),
    "objcopy": outputs("", "-I -O -B -j -R -K -N", _LAST),
    **dict.fromkeys(("pip", "pip3"), _PIP),
    **dict.fromkeys(("venv", "virtualenv"), _ENVIRONMENT),
    # keys
    "openssl": outputs("-out -keyout -writerand", "-in -inkey -passin -passout -subj -days", clusters=False),
    "ssh-keygen": outputs("-f", "-t -b -N -C -P -I -n -V -O -Z -m -a -D -w -s -z -R -r"),
    **dict.fromkeys(
        ("gpg", "gpg2"), outputs("-o --output", "-r -u --recipient --local-user --homedir --passphrase")
    ),
    # downloads
    "curl": outputs(
        "-o --output --output-dir -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr --libcurl "
        "--hsts --alt-svc --etag-save",
        "-A -b -C -d -e -E -F -H -h -K -m -P -Q -r -t -T -u -U -w -x -X -y -Y -z",
    ),
    "wget": outputs(
        "-O --output-document -P --directory-prefix -o --output-file -a --append-output --save-cookies",
        "-e -i -B -t -T -w -Q -U -l -A -R -D -I -X",
        unless=" --spider",
        here=True,
    ),
    "aria2c": outputs("-d --dir -l --log", "-i -j -s -x -k -T", here=True),
    **dict.fromkeys(
        ("strace", "ltrace"),
        outputs("-o --output", "-a -b -e -E -I -O -p -P -s -S -u -U -X -n -F -A -D -l -w -x"),
    ),
    # names
    "mktemp": outputs("-p --tmpdir", "--suffix", _ALL, unless="u --dry-run"),
    "script": outputs(
        "-O --log-out -B --log-io -I --log-in -T --log-timing", "-c -E -m -o --command --echo", _FIRST
    ),
    "tcpdump": outputs("-w", "-c -i -r -s -C -G -W -F -z -Z"),
    "time": outputs("-o --output", "-f --format"),
    "parallel": outputs("--joblog --results --tmpdir", "-j -a -N -n -I"),
}

#: programs whose outputs depend on their first operand
SUBCOMMANDS: dict[tuple[str, str], Outputs] = {
    ("cargo", "new"): outputs("", "--name --vcs --edition --registry", _FIRST),
    ("cargo", "init"): outputs("", "--name --vcs --edition --registry", _FIRST),
    **{
        (program, sub): row
        for program in ("docker", "podman")
        for sub, row in (
            ("save", outputs("-o --output")),
            ("export", outputs("-o --output")),
            ("cp", outputs("", "", _LAST)),
        )
    },
    ("uv", "venv"): _ENVIRONMENT,
}


def written_by_table(name: str, words: Words) -> list[Word]:
    """The outputs of a program that the table knows; `gcc-13` and `python3.12` are known without their version."""
    sub, rest = subcommand(words)
    row = SUBCOMMANDS.get((name, sub))
    if row is not None:
        return [word for word in row.of(rest) if not _is_in_a_container(name, word)]
    row = OUTPUTS.get(name) or OUTPUTS.get(without_version(name))
    if row is None:
        return []
    if name == "ssh-keygen" and has_option(words, "lyFeL"):
        return []
    if name == "mktemp":
        return _temporary(row, words)
    if name == "curl" and has_option(words, "OJ", "--remote-name", "--remote-name-all"):
        return row.of(words) or [literal(".")]
    return row.of(words)


def _is_in_a_container(name: str, word: Word) -> bool:
    return name in ("docker", "podman") and ":" in word.text


def without_version(name: str) -> str:
    return name.rstrip("0123456789.").removesuffix("-")


def _temporary(row: Outputs, words: Words) -> list[Word]:
    """A template counts from the directory that is given."""
    given, templates = taken_apart(words, row.valued)
    directories = [g.value for g in given if g.name in row.writing and g.value is not None]
    if not directories or has_option(words, "u", "--dry-run"):
        return row.of(words)
    return [*directories, *(joined(directories[-1], template) for template in templates)]


def joined(directory: Word, word: Word) -> Word:
    """A path that counts from a directory."""
    if word.text.startswith("/"):
        return word
    return Word(
        directory.text.rstrip("/") + "/" + word.text, directory.pattern.rstrip("/") + "/" + word.pattern
    )


def option_values(given: list[Given], *wanted: str) -> list[Word]:
    return [g.value for g in given if g.name in wanted and g.value is not None]

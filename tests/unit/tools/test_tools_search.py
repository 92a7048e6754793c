from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcode_exec.tools.glob_patterns import matcher
from mcode_exec.workspace import programs
from tests.unit.tools.tool_call import Session


@pytest.fixture(params=["rg", "git", "walk"])
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every way of searching: with rg on PATH, with git alone, with neither."""
    name: str = request.param
    if name == "rg" and programs.find_program("rg") is None:
        pytest.skip("rg is not installed")
    if name != "rg":
        tools = tmp_path / "bin"
        tools.mkdir()
        for tool in ("bash", "setpriv", *(["git"] if name == "git" else [])):
            path = programs.find_program(tool)
            if path:
                (tools / tool).symlink_to(path)
        monkeypatch.setenv("PATH", str(tools))
    programs.find_program.cache_clear()
    yield name
    programs.find_program.cache_clear()


@pytest.fixture
def project(session: Session) -> Session:
    root = session.workspace
    subprocess.run(["/usr/bin/env", "git", "init", "-q", str(root)], check=True)
    for name, text in {
        "src/a.py": "import os\nneedle = 1\n# after\n",
        "src/deep/b.py": "Needle\n",
        "src/deep/c.txt": "needle\r\n",
        "node_modules/x.js": "needle\n",
        ".github/ci.yml": "needle: 1\n",
        ".env": "needle=secret\n",
        ".env.local": "needle=secret\n",
        "data.bin": "needle\0\n",
        ".gitignore": "node_modules/\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return session


def test_glob_finds_files_and_leaves_ignored_ones_out(project: Session, engine: str) -> None:
    def found(pattern: str, **more: str) -> list[str]:
        return project.call("glob", pattern=pattern, **more).content.splitlines()

    assert found("*.py") == ["src/a.py", "src/deep/b.py"]
    assert found("src/*.py") == ["src/a.py"]
    assert found("**/deep/*") == ["src/deep/b.py", "src/deep/c.txt"]
    assert found("*.{txt,yml}") == [".github/ci.yml", "src/deep/c.txt"]
    assert found("*.py", path="src/deep") == ["src/deep/b.py"]
    assert found(f"{project.workspace}/src/*.py") == ["src/a.py"]
    assert found("*.js") == ["no file matches *.js"]
    assert found("node_modules/*.js") == ["node_modules/x.js"], (
        "an ignored directory that is named is searched"
    )
    assert found(".git/*") != []
    assert project.call("glob", pattern="gone/*.py").is_error
    assert project.call("glob", pattern="*/../x").is_error


def test_grep_finds_lines_and_leaves_ignored_binary_and_env_files_out(project: Session, engine: str) -> None:
    def found(**arguments: object) -> list[str]:
        return project.call("grep", **arguments).content.splitlines()

    assert found(pattern="needle") == [
        ".github/ci.yml:1: needle: 1",
        "src/a.py:2: needle = 1",
        "src/deep/c.txt:1: needle",
    ]
    assert found(pattern="^NEEDLE", ignore_case=True, glob="*.py") == [
        "src/a.py:2: needle = 1",
        "src/deep/b.py:1: Needle",
    ]
    assert found(pattern="needle", path="src/a.py", context=1) == [
        "src/a.py-1- import os",
        "src/a.py:2: needle = 1",
        "src/a.py-3- # after",
    ]
    assert found(pattern="secret", path=".env") == [".env:1: needle=secret"]
    assert found(pattern="needle", path="node_modules") == ["node_modules/x.js:1: needle"]
    assert found(pattern="e", limit=2)[2:] == ["[more than 2 lines; use a narrower pattern, path or glob]"]
    assert found(pattern="nowhere to be found") == ["no match for nowhere to be found"]
    assert found(pattern="-e") == ["no match for -e"]


def test_grep_finds_the_same_whatever_the_line_ends_and_the_byte_order_mark(
    project: Session, engine: str
) -> None:
    directory = project.workspace / "forms"
    directory.mkdir()
    for name, content in {
        "bom": b"\xef\xbb\xbfold\nx\n",
        "crlf": b"old\r\nx\r\n",
        "lf": b"old\nx\n",
        "no-end": b"x\nold\r",
        "utf-16-be": b"\xfe\xff" + "old\r\nx\r\n".encode("utf-16-be"),
        "utf-16-le": b"\xff\xfe" + "old\nx\n".encode("utf-16-le"),
    }.items():
        (directory / name).write_bytes(content)

    def found(pattern: str) -> list[str]:
        return project.call("grep", pattern=pattern, path="forms").content.splitlines()

    assert found("^old$") == [
        "forms/bom:1: old",
        "forms/crlf:1: old",
        "forms/lf:1: old",
        "forms/no-end:2: old",
        "forms/utf-16-be:1: old",
        "forms/utf-16-le:1: old",
    ]
    assert found("old\\r") == ["forms/crlf:1: old", "forms/no-end:2: old", "forms/utf-16-be:1: old"]


def test_grep_says_what_is_wrong(project: Session, engine: str) -> None:
    bad = project.call("grep", pattern="(")
    assert bad.is_error
    assert "regex" in bad.content
    assert project.call("grep", pattern="x", path="gone").is_error
    os.mkfifo(project.workspace / "fifo")
    assert project.call("grep", pattern="x", path="fifo").is_error
    assert not project.call("grep", pattern="needle").is_error, "a pipe in the tree is passed over"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/y/a.py", True),
        ("*.py", "x/a.py", False),
        ("src/**", "src/a/b", True),
        ("src/**/b", "src/b", True),
        ("src/**/b", "src/x/y/b", True),
        ("src/**/b", "src/x/y/c", False),
        ("**/x/**/y", "a/x/b/c/y", True),
        ("[ab].?", "a.c", True),
        ("[!ab].?", "a.c", False),
        ("{a,b/{c,d}}.txt", "b/d.txt", True),
        ("**/" + "*a" * 40 + "b", "a" * 200, False),
        ("**/**/**/" * 10 + "z", "/".join("x" * 60), False),
    ],
)
def test_a_pattern_matches_as_in_a_shell(pattern: str, path: str, expected: bool) -> None:
    assert matcher(pattern)(path) is expected

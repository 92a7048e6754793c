"""Files change only where the edit says; outputs are capped, the whole is readable; reads run side by side."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import Answer, call, forever, say

STREAM = ("--output-format", "stream-json")

# name: before, old text, new text, after
EXACT: dict[str, tuple[bytes, str, str, bytes]] = {
    "mixed line ends": (b"a\r\nb\nc\rd\r\n", "b", "B", b"a\r\nB\nc\rd\r\n"),
    "crlf": (b"x\r\ny\r\nz\r\n", "x\ny", "x\nq\ny", b"x\r\nq\r\ny\r\nz\r\n"),
    "lone cr": (b"a\rb\rc\r", "b", "B", b"a\rB\rc\r"),
    "latin-1": (b"caf\xe9 = 1\nold\n", "old", "new", b"caf\xe9 = 1\nnew\n"),
    "gbk": (b"\xc4\xe3\xba\xc3 = 1\nold\n", "old", "new", b"\xc4\xe3\xba\xc3 = 1\nnew\n"),
    "shift-jis and utf-8": (
        b"\x83\x65\x83\x58\x83\x67\n" + "é漢\n".encode() + b"old\n",
        "old",
        "new",
        b"\x83\x65\x83\x58\x83\x67\n" + "é漢\n".encode() + b"new\n",
    ),
    "bom": (b"\xef\xbb\xbfold\n", "old", "new", b"\xef\xbb\xbfnew\n"),
    "utf-16": ("\ufeffold é\r\n".encode("utf-16-le"), "old", "new", "\ufeffnew é\r\n".encode("utf-16-le")),
    "with final newline": (b"a\nb\n", "b", "c", b"a\nc\n"),
    "without final newline": (b"a\nb", "b", "c", b"a\nc"),
    "delete the last line": (b"a\nb\n", "b\n", "", b"a\n"),
    "empty new text": (b"a b c\n", " b", "", b"a c\n"),
    "blanks in the new text": (b"a\nx\nb\n", "x", "    x\n\n", b"a\n    x\n\n\nb\n"),
    "only a newline": (b"a-b\n", "-", "\n", b"a\nb\n"),
    "blanks in the old text": (b"a  \nb\n", "a  \n", "a\n", b"a\nb\n"),
    "tabs": (b"\tif x:\n\t\ty\n", "\tif x:\n\t\ty", "\tif z:\n\t\ty", b"\tif z:\n\t\ty\n"),
    "emoji": ("🙂 old 🙂\n".encode(), "old", "né🙂", "🙂 né🙂 🙂\n".encode()),
    "backslashes and dollars": (b"a $1 \\1 b\n", "$1 \\1", "\\g<0> $& \\n", b"a \\g<0> $& \\n b\n"),
    "form feed and other separators": (b"a\x0cb\x1cc\x85d\nold\n", "old", "new", b"a\x0cb\x1cc\x85d\nnew\n"),
    "nul-free binary tail": (b"old\n\xff\xfe\xfd", "old", "new", b"new\n\xff\xfe\xfd"),
}


def _calls(run: Run) -> list[dict[str, Any]]:
    items = [event["item"] for event in run.of_type("item.completed")]
    return [item["toolCall"] for item in items if item["type"] == "tool_call"]


def _edit(path: str, old: str, new: str, **more: Any) -> Answer:
    return call("edit", {"file_path": path, "old_string": old, "new_string": new, **more})


def _all(*answers: Answer) -> Answer:
    total = Answer()
    for one in answers:
        total = total + one
    return total


def test_an_edit_changes_its_match_and_no_other_byte_over_every_wire(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    paths = {name: f"{number}.txt" for number, name in enumerate(EXACT)}
    for name, path in paths.items():
        (mcode.workspace / path).write_bytes(EXACT[name][0])
    peer.script(
        _all(*(call("read", {"file_path": path}) for path in paths.values())),
        _all(*(_edit(paths[name], old, new) for name, (_, old, new, _) in EXACT.items())),
        say("done"),
    )
    run = mcode.exec("go", *STREAM).check()
    after = {name: (mcode.workspace / path).read_bytes() for name, path in paths.items()}
    assert {
        name: (after[name], wanted) for name, (*_, wanted) in EXACT.items() if after[name] != wanted
    } == {}
    assert [one["status"] for one in _calls(run)] == ["completed"] * 2 * len(EXACT)
    # results come in the order of the calls
    results = [one["output"] for one in _calls(run)[: len(EXACT)]]
    assert [number for number, text in enumerate(results) if "1" not in text] == []


def test_an_edit_that_is_not_certain_changes_nothing(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "twice").write_bytes(b"a\na\n")
    (mcode.workspace / "none").write_bytes(b"a\n")
    (mcode.workspace / "latin").write_bytes(b"caf\xe9\n")
    peer.script(
        _edit("twice", "a", "b"),
        _edit("none", "zzz", "b"),
        _edit("none", "a", "a"),
        _edit("latin", "caf\ufffd", "cafe"),
        _edit("missing", "a", "b"),
        _edit("twice", "a", "b", replace_all=True),
        say("done"),
    )
    run = mcode.exec("go", *STREAM).check()
    assert [one["status"] for one in _calls(run)] == ["error"] * 5 + ["completed"]
    assert (mcode.workspace / "twice").read_bytes() == b"b\nb\n"
    assert (mcode.workspace / "none").read_bytes() == b"a\n"
    assert (mcode.workspace / "latin").read_bytes() == b"caf\xe9\n"
    assert run.result["toolErrors"] == 5


def test_a_character_that_no_text_can_hold_is_refused_not_replaced(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    (mcode.workspace / "f").write_bytes(b"a\xef\xbf\xbdb old\n")
    peer.script(
        _edit("f", "old", "n\0w") + _edit("f", "a\0b", "x") + _edit("f", "old", "n\ud83dw"),
        call("write", {"file_path": "g", "content": "a\0b"})
        + call("write", {"file_path": "a\0b", "content": "x"})
        + call("bash", {"command": "echo 'a\0b' > h"}),
        _edit("f", "old", "\N{SLIGHTLY SMILING FACE}"),
        say("done"),
    )
    calls = _calls(mcode.exec("go", *STREAM).check())
    assert [one["status"] for one in calls] == ["error"] * 6 + ["completed"]
    assert ["NUL" in one["error"] for one in calls[:6]] == [True] * 6
    assert {path.name: path.read_bytes() for path in mcode.workspace.iterdir()} == {
        "f": b"a\xef\xbf\xbdb " + "🙂\n".encode()
    }


def test_modes_owners_links_and_umask_are_kept(mcode: Mcode, peer: Peer) -> None:
    work = mcode.workspace
    for name, mode in (("s.sh", 0o755), ("private", 0o600), ("group", 0o640)):
        (work / name).write_text("old\n")
        (work / name).chmod(mode)
    (work / "link").symlink_to("real")
    (work / "real").write_text("old\n")
    (work / "real").chmod(0o600)
    (work / "shared").mkdir()
    if os.geteuid() == 0:
        os.chown(work / "shared", -1, 4242)
        os.chown(work / "group", 1234, 4242)
    (work / "shared").chmod(0o2775)
    names = ("s.sh", "private", "group", "link")
    peer.script(
        _all(*(_edit(name, "old", "new") for name in names)),
        call("write", {"file_path": "shared/new", "content": "x"})
        + call("write", {"file_path": "a/b/new", "content": "x"}),
        call("bash", {"command": "echo x > by-command; umask"}),
        say("done"),
    )
    done = subprocess.run(
        ["sh", "-c", 'umask 0027; exec "$@"', "sh", *mcode.command, "exec", "go"],
        env=mcode.environment(),
        cwd=work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 0, done
    modes = {name: stat.S_IMODE((work / name).stat().st_mode) for name in names}
    assert modes == {"s.sh": 0o755, "private": 0o600, "group": 0o640, "link": 0o600}
    assert (work / "link").is_symlink()
    assert (work / "real").read_text() == "new\n"
    for name in ("shared/new", "a/b/new", "by-command"):
        assert stat.S_IMODE((work / name).stat().st_mode) == 0o640, name
    if os.geteuid() == 0:
        assert (work / "shared" / "new").stat().st_gid == 4242
        assert ((work / "group").stat().st_uid, (work / "group").stat().st_gid) == (1234, 4242)


def test_what_is_no_regular_file_is_refused_at_once(mcode: Mcode, peer: Peer) -> None:
    work = mcode.workspace
    os.mkfifo(work / "pipe")
    (work / "empty").write_bytes(b"")
    (work / "directory").mkdir()
    with open(work / "sparse", "wb") as file:
        file.truncate(3 << 30)
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.relpath(work / "socket"))
    refused = ["pipe", "socket", "directory", "sparse"]
    refused += ["/dev/zero", "/dev/tty", "/dev/random", "/proc/kmsg", "/dev/fd/0", "/dev/stdin"]
    odd = ["empty", "/proc/self/maps", "/proc/cpuinfo"]
    peer.script(
        _all(*(call("read", {"file_path": name}) for name in (*refused, *odd))),
        _all(
            *(_edit(name, "a", "b") for name in refused),
            *(
                call("write", {"file_path": name, "content": "x"})
                for name in refused
                if name not in ("/dev/fd/0", "sparse")
            ),
        ),
        say("done"),
    )
    run = mcode.exec("go", *STREAM, "--permission", "off").check()
    server.close()
    calls = _calls(run)
    done = {(one["name"], one["input"]["file_path"]) for one in calls if one["status"] != "error"}
    # a regular file by what stat says: read without blocking, whatever the kernel gives
    done.discard(("read", "/proc/kmsg"))
    assert done == {("read", name) for name in odd}
    assert "empty" in next(one["output"] for one in calls if one["input"]["file_path"] == "empty")
    assert run.duration_s < 15
    assert stat.S_ISFIFO((work / "pipe").stat().st_mode)


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(mcode: Mcode, peer: Peer) -> None:
    work = mcode.workspace
    (work / "unique").write_text("one\nold\n")
    (work / "elsewhere").write_text("old\nother\n")
    (work / "whole").write_text("mine\n")
    change = "echo three >> unique; printf 'other\\nold\\nold\\n' > elsewhere; echo theirs > whole"
    peer.script(
        _all(*(call("read", {"file_path": name}) for name in ("unique", "elsewhere", "whole"))),
        call("bash", {"command": change}),
        _all(
            _edit("unique", "old", "new"),
            _edit("elsewhere", "old", "new"),
            call("write", {"file_path": "whole", "content": "lost\n"}),
        ),
        say("done"),
    )
    run = mcode.exec("go", *STREAM).check()
    assert [one["status"] for one in _calls(run)[4:]] == ["completed", "error", "error"]
    assert (work / "unique").read_text() == "one\nnew\nthree\n"
    assert (work / "elsewhere").read_text() == "other\nold\nold\n"
    assert (work / "whole").read_text() == "theirs\n"


@pytest.fixture
def small_disk(mcode: Mcode) -> Any:
    """A workspace directory on a file system of 256 KiB."""
    target = mcode.workspace / "disk"
    target.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", target], capture_output=True
        ).returncode
    ):
        pytest.skip("needs the right to mount a small file system")
    yield target
    subprocess.run(["umount", "-l", target], check=True)


def test_on_a_full_disk_the_old_content_stays(mcode: Mcode, peer: Peer, small_disk: Path) -> None:
    (small_disk / "f").write_bytes(b"old\n" + b"x" * 150_000)
    peer.script(
        _edit("disk/f", "old", "new"),
        call("write", {"file_path": "disk/g", "content": "y" * 400_000}),
        call("bash", {"command": "ls -A disk"}),
        say("done"),
    )
    run = mcode.exec("go", *STREAM).check()
    assert [one["status"] for one in _calls(run)[:2]] == ["error", "error"]
    assert "space" in _calls(run)[0]["error"]
    assert (small_disk / "f").read_bytes() == b"old\n" + b"x" * 150_000
    assert sorted(os.listdir(small_disk)) == ["f"]


# outputs


@pytest.mark.parametrize("offset", range(4))
def test_a_cap_never_cuts_a_character_and_the_whole_output_is_readable(
    mcode: Mcode, peer: Peer, offset: int
) -> None:
    program = f'print("a" * {offset} + "🙂" * 70000 + "END-OF-IT")'
    seen: list[str] = []

    def read_it(request: Any) -> Answer:
        path = request.text.split("whole output is in ")[1].split("]")[0].split("\\")[0].strip()
        seen.append(path)
        return call("read", {"file_path": path}) + call("bash", {"command": f"tail -c 20 {path}"})

    peer.script(call("bash", {"command": f"{sys.executable} -c '{program}'"}), read_it, say("done"))
    run = mcode.exec("go", *STREAM).check()
    output = _calls(run)[0]["output"]
    assert "\ufffd" not in output
    assert len(output.encode()) < 60_000
    assert "END-OF-IT" in output
    assert "bytes" in output
    assert [one["status"] for one in _calls(run)] == ["completed"] * 3
    whole = Path(seen[0]).read_bytes()
    assert whole == b"a" * offset + "🙂".encode() * 70000 + b"END-OF-IT\n"
    assert seen[0].startswith(str(mcode.session_dir()))
    assert stat.S_IMODE(os.stat(seen[0]).st_mode) == 0o600


def test_bytes_that_are_no_text_never_reach_the_model_or_the_history(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    name = os.fsdecode(b"bad-\xff.txt")
    (mcode.workspace / name).write_bytes(b"needle \xff\xfe\n")
    program = r"import sys; sys.stdout.buffer.write(b\"\xed\xa0\xbd\x00 ok \xff\")"
    peer.script(
        call("list") + call("glob", {"pattern": "*"}) + call("grep", {"pattern": "needle"}),
        call("bash", {"command": f'{sys.executable} -c "{program}"; ls'}),
        say("done"),
    )
    run = mcode.exec("go", *STREAM).check()
    assert [one["status"] for one in _calls(run)] == ["completed"] * 4
    run.out_bytes.decode()
    for request in peer.calls:
        request.body.decode()
        assert "\\ud" not in request.body.decode().lower()
    mcode.exec("go", "--continue").check()


def test_no_byte_of_an_output_that_is_not_cut_goes_unmentioned(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "latin").write_bytes(b"\x80 needle caf\xe9\n")
    peer.script(
        call("bash", {"command": r"printf 'caf\xe9'"})
        + call("bash", {"command": r"printf '\x80\x81'; false"}),
        call("grep", {"pattern": "needle"}),
        say("done"),
    )
    shown = [one["output"] or one["error"] for one in _calls(mcode.exec("go", *STREAM).check())]
    assert shown[0] == "caf\ufffd"
    assert shown[1].startswith("\ufffd\ufffd\n")
    assert "\ufffd needle caf\ufffd" in shown[2]


# side by side


def test_reading_calls_of_one_step_run_side_by_side_and_answer_in_order(
    mcode: Mcode, peer: Peer, tmp_path: Path, api: str
) -> None:
    """Each search waits, bounded, until all three run; the first one ends last."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script = """#!/bin/sh
for last; do :; done
case "$*" in *first*) mark=first pause=0.4;; *second*) mark=second pause=0.2;; *) mark=third pause=0;; esac
touch started-$mark
for try in $(seq 100); do
  [ -e started-first ] && [ -e started-second ] && [ -e started-third ] && { sleep $pause; exit 1; }
  sleep 0.05
done
echo 'not side by side'; exit 2
"""
    (programs / "rg").write_text(script)
    (programs / "rg").chmod(0o755)
    marks = ("first", "second", "third")
    peer.script(_all(*(call("grep", {"pattern": mark}) for mark in marks)), say("done"))
    run = mcode.exec("go", *STREAM, env={"PATH": f"{programs}:{os.environ['PATH']}"}).check()
    assert [one["input"]["pattern"] for one in _calls(run)] == ["third", "second", "first"]
    places = [peer.last.text.index(f"no match for {mark}") for mark in marks]
    assert places == sorted(places), "the model gets the results in the order of its calls"


def test_writing_calls_of_one_step_run_in_order(mcode: Mcode, peer: Peer) -> None:
    peer.script(
        call("bash", {"command": "sleep 0.3; echo one >> log"})
        + call("bash", {"command": "echo two >> log"})
        + call("read", {"file_path": "log"})
        + call("bash", {"command": "echo three >> log"}),
        say("done"),
    )
    run = mcode.exec("go", *STREAM).check()
    assert (mcode.workspace / "log").read_text() == "one\ntwo\nthree\n"
    shown = _calls(run)[2]["output"]
    assert "two" in shown
    assert "three" not in shown


@pytest.mark.slow
def test_a_reader_and_a_killed_run_see_the_old_content_or_the_new(mcode: Mcode, peer: Peer) -> None:
    target = mcode.workspace / "big"
    old, new = b"old" + b"." * 20_000_000, b"new" + b"." * 20_000_000
    mcode.may_leave_processes = True
    for number in range(20):
        target.write_bytes(old)
        peer.script(_edit("big", "old", "new"), say("done"))
        running = mcode.start("exec", "go", *STREAM)
        running.wait_event("item.updated")
        time.sleep(0.005 * number)
        running.kill()
        running.process.wait()
        content = target.read_bytes()
        assert content in (old, new)


def test_edits_of_one_step_build_on_each_other(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "f").write_text("end\n")
    peer.script(
        call("read", {"file_path": "f"}),
        _all(
            _edit("f", "end", "ab\nabc\nend"),
            # what is put in matches again, and is not replaced again
            _edit("f", "ab", "aab", replace_all=True),
            call("read", {"file_path": "f"}),
            _edit("f", "aab\n", "a\n"),
            _edit("f", "ab", "b"),
            call("write", {"file_path": "g", "content": "one\n"}),
            _edit("g", "one", "two"),
            call("write", {"file_path": "g", "content": "three\n"}),
        ),
        say("done"),
    )
    run = mcode.exec("go", *STREAM).check()
    assert [one["status"] for one in _calls(run)] == ["completed"] * 9
    assert "changed since" not in run.out
    assert (mcode.workspace / "f").read_text() == "a\nabc\nend\n"
    assert (mcode.workspace / "g").read_text() == "three\n"


def test_several_runs_that_edit_one_file_lose_nothing(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "f").write_text("end\n")

    def next_edit(request: Any) -> Answer:
        done = sum(message["role"] == "assistant" for message in request.messages)
        return _edit("f", "end", f"line {done}\nend") if done < 8 else say("done")

    peer.script(forever(next_edit))
    running = [mcode.start("exec", "go", *STREAM) for _ in range(3)]
    calls = [one for run in running for one in _calls(run.finish().check())]
    edited = [one for one in calls if one["status"] == "completed"]
    assert len(calls) == 24
    assert (mcode.workspace / "f").read_text().count("line") == len(edited)
    assert os.listdir(mcode.workspace) == ["f"]

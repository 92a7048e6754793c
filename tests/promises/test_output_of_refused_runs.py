"""A run that is refused before it has a turn says so in its files, and costs nobody an earlier answer."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import Gate, forever, gated, hang, say

FILES = ("--events", "e", "-o", "o", "--result", "r", "--session-id-file", "id")
EARLIER = {name: f"earlier {name}\n" for name in ("e", "o", "r", "id")}
JSON = ("--output-format", "json")

Setup = Callable[[Mcode, Peer], tuple[str, ...]]


def put_earlier(mcode: Mcode) -> None:
    for name, text in EARLIER.items():
        (mcode.workspace / name).write_text(text)


def found(mcode: Mcode) -> dict[str, str]:
    return {
        name: (mcode.workspace / name).read_text() for name in EARLIER if (mcode.workspace / name).exists()
    }


def check_refused(mcode: Mcode, run: Run, session: str | None = None) -> None:
    """Events and result say what this run said on stdout; answer and session id are kept, or known."""
    files = found(mcode)
    assert json.loads(files["r"]) == run.result
    lines = [json.loads(line) for line in files["e"].splitlines()]
    assert [line["type"] for line in lines] == ["exec.started", "exec.completed"]
    assert lines[-1]["result"] == run.result
    assert run.result["status"] != "succeeded"
    assert files["o"] == EARLIER["o"]
    assert files["id"] == (EARLIER["id"] if session is None else session + "\n")


def earlier_session(mcode: Mcode, *args: str) -> str:
    session: str = mcode.exec("before", *JSON, *args).check(0).result["sessionId"]
    return session


@contextmanager
def locked_store(mcode: Mcode) -> Iterator[None]:
    earlier_session(mcode)
    connection = sqlite3.connect(mcode.data / "mcode.db", isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        connection.close()


def wait_for(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def flags(*args: str) -> Setup:
    return lambda mcode, peer: args


def of_another_workspace(mcode: Mcode, peer: Peer) -> tuple[str, ...]:
    (mcode.root / "other").mkdir()
    return "hi", "--session", earlier_session(mcode, "--cwd", str(mcode.root / "other"))


def a_bad_config(mcode: Mcode, peer: Peer) -> tuple[str, ...]:
    mcode.configure(top="no_such_key = 1")
    return ("hi",)


def an_untrusted_workspace(mcode: Mcode, peer: Peer) -> tuple[str, ...]:
    (mcode.workspace / ".mcode").mkdir()
    (mcode.workspace / ".mcode" / "config.toml").write_text('model = "fake/other"\n')
    return ("hi",)


def no_price(mcode: Mcode, peer: Peer) -> tuple[str, ...]:
    mcode.configure(cost="")
    return "hi", "--max-cost", "1"


def a_provider_without_a_key(mcode: Mcode, peer: Peer) -> tuple[str, ...]:
    mcode.configure(
        tables=f'[providers.bare]\napi = "anthropic-messages"\nbase_url = "{peer.url}"\n'
        'api_key = "${NO_SUCH_KEY}"\n[providers.bare.models."m"]\ncontext = 1000\noutput = 100'
    )
    return "hi", "--model", "bare/m"


def a_damaged_store(mcode: Mcode, peer: Peer) -> tuple[str, ...]:
    mcode.data.mkdir(mode=0o700)
    (mcode.data / "mcode.db").write_bytes(b"no database " * 1000)
    return ("hi",)


REFUSALS: dict[str, tuple[Setup, int]] = {
    "an unknown session": (flags("hi", "--session", "mvs_" + "f" * 32), 4),
    "no session to continue": (flags("hi", "--continue"), 4),
    "another workspace's session": (of_another_workspace, 4),
    "an unknown model": (flags("hi", "--model", "nobody/none"), 3),
    "an unknown agent": (flags("hi", "--agent", "nobody"), 3),
    "no price": (no_price, 3),
    "a missing key": (a_provider_without_a_key, 77),
    "a bad config": (a_bad_config, 3),
    "a missing config": (flags("hi", "--config", "none.toml"), 3),
    "an untrusted workspace": (an_untrusted_workspace, 3),
    "a missing workspace": (flags("hi", "--cwd", "none"), 2),
    "a prompt of blanks": (flags(" "), 2),
    "a missing prompt file": (flags("--input", "none"), 2),
    "a missing system prompt": (flags("hi", "--system-prompt-file", "none"), 2),
    "a missing attachment": (flags("hi", "--file", "none"), 2),
    "a prompt that is no UTF-8": (flags("\udcff"), 2),
    "an unknown effort": (flags("hi", "--effort", "huge"), 2),
    "a bad value": (flags("hi", "--timeout", "5"), 2),
    "a bad session id": (flags("hi", "--session", "none"), 2),
    "an empty value": (flags("hi", "--model", ""), 2),
    "flags that contradict": (flags("hi", "-q", "-v"), 2),
    "a data directory that is a file": (flags("hi", "--data-dir", "e"), 74),
    "a data directory that cannot be made": (flags("hi", "--data-dir", "/proc/none"), 74),
    "a damaged store": (a_damaged_store, 74),
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refused_run_writes_its_failure_over_an_earlier_success(
    mcode: Mcode, peer: Peer, refusal: str
) -> None:
    setup, code = REFUSALS[refusal]
    args = setup(mcode, peer)
    put_earlier(mcode)
    calls = len(peer.calls)
    run = mcode.exec(*args, *FILES, *JSON).check(code)
    check_refused(mcode, run)
    put_earlier(mcode)
    text = mcode.exec(*args, *FILES).check(code)
    assert "Traceback" not in text.err
    assert json.loads(found(mcode)["r"])["exitCode"] == code
    assert json.loads(found(mcode)["e"].splitlines()[-1])["result"]["exitCode"] == code
    assert found(mcode)["o"] == EARLIER["o"]
    assert len(peer.calls) == calls


def test_a_run_without_a_home_too(mcode: Mcode) -> None:
    put_earlier(mcode)
    env = {"HOME": "relative", "MCODE_HOME": None, "XDG_DATA_HOME": None}
    check_refused(mcode, mcode.exec("hi", *FILES, *JSON, env=env).check(3))


def test_another_input_under_a_request_id_too(mcode: Mcode) -> None:
    session = earlier_session(mcode, "--request-id", "r1")
    put_earlier(mcode)
    check_refused(mcode, mcode.exec("hi", "--request-id", "r1", *FILES, *JSON).check(4), session)


def test_a_busy_session_too(mcode: Mcode, peer: Peer) -> None:
    session = earlier_session(mcode)
    gate = Gate()
    peer.script(gated(say("hello"), gate))
    running = mcode.start("exec", "hi", "--session", session)
    gate.wait_reached()
    put_earlier(mcode)
    check_refused(mcode, mcode.exec("hi", "--session", session, *FILES, *JSON).check(75), session)
    gate.open()
    running.finish().check(0)


def test_a_busy_store_and_its_deadline_too(mcode: Mcode) -> None:
    with locked_store(mcode):
        put_earlier(mcode)
        check_refused(mcode, mcode.exec("hi", "--timeout", "1s", *FILES, *JSON).check(6))


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_before_the_turn_too(mcode: Mcode, signum: int) -> None:
    with locked_store(mcode):
        put_earlier(mcode)
        running = mcode.start("exec", "hi", *FILES, *JSON)
        wait_for(lambda: not (mcode.workspace / "r").exists())
        running.send(signum)
        run = running.finish()
    if signum == signal.SIGKILL:
        assert list(found(mcode)) == ["e", "o", "id"]
        assert "exec.completed" not in found(mcode)["e"]
    else:
        check_refused(mcode, run.check(-signum))


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("hi", "--evnets"), 2),
        (("hi", "more", "words"), 2),
        (("hi", "--model"), 2),
        ((), 2),
        (("hi", "-o", "e"), 2),
        (("hi", "--result", "-", *JSON), 2),
        (("--help",), 0),
        (("hi", "--dry-run"), 0),
        (("hi", "--dry-run", "--model", "nobody/none"), 3),
    ],
)
def test_a_command_line_that_may_mean_other_files_leaves_them(
    mcode: Mcode, args: tuple[str, ...], code: int
) -> None:
    put_earlier(mcode)
    named = (*FILES[:4], *FILES[6:])
    mcode.exec(*named, *args).check(code)
    assert found(mcode) == EARLIER
    if code == 2 and "--result" not in args:  # which hears of every outcome
        mcode.exec(*FILES, *args).check(code)
        assert json.loads(found(mcode)["r"])["exitCode"] == 2
        assert {**found(mcode), "r": ""} == {**EARLIER, "r": ""}


@pytest.mark.parametrize("flag", ["--events", "-o", "--session-id-file"])
def test_a_target_that_cannot_be_written_is_left_and_the_others_tell_of_it(mcode: Mcode, flag: str) -> None:
    put_earlier(mcode)
    (mcode.workspace / "d").mkdir()
    (mcode.workspace / "d" / "content").write_text("mine")
    named = list(FILES)
    named[named.index(flag) + 1] = "d"
    run = mcode.exec("hi", *named, *JSON).check(74)
    files = found(mcode)
    assert json.loads(files["r"]) == run.result
    assert (mcode.workspace / "d" / "content").read_text() == "mine"
    left = {"--events": "e", "-o": "o", "--session-id-file": "id"}[flag]
    assert files.pop(left) == EARLIER[left]
    if "e" in files:
        assert json.loads(files["e"].splitlines()[-1])["result"] == run.result
    assert all(files[name] == EARLIER[name] for name in files.keys() & {"o", "id"})


def test_mcodes_own_files_are_no_targets(mcode: Mcode) -> None:
    session = earlier_session(mcode)
    for flag in ("--events", "--result", "-o", "--session-id-file"):
        for target in (mcode.data / "mcode.db", mcode.session_dir() / "messages.jsonl"):
            assert "mcode's own" in mcode.exec("hi", flag, str(target)).check(74).err
            mcode.exec("hi", flag, str(target), "--model", "").check(2)
            mcode.exec("hi", flag, str(target), "--dry-run").check(74)
    mcode.exec("hi", "--session", session, "--result", str(mcode.data / "last.json")).check(0)


def test_a_run_that_goes_on_keeps_its_events_and_a_dead_one_does_not(mcode: Mcode, peer: Peer) -> None:
    session = earlier_session(mcode)
    gate = Gate()
    peer.script(gated(say("hello"), gate))
    command = ("exec", "hi", "--session", session, *FILES)
    running = mcode.start(*command)
    gate.wait_reached()
    refused = mcode.run(*command).check(75)
    assert "left to the run that writes it" in refused.err
    gate.open()
    running.finish().check(0)
    files = found(mcode)
    types = [json.loads(line)["type"] for line in files["e"].splitlines()]
    assert (types[0], types[-1], types.count("exec.started")) == ("exec.started", "exec.completed", 1)
    assert json.loads(files["r"])["exitCode"] == 0
    assert (files["o"], files["id"]) == ("hello\n", session + "\n")

    peer.script(hang())
    killed = mcode.start(*command)
    peer.wait_for(len(peer.calls) + 1)
    killed.send(signal.SIGKILL)
    killed.finish()
    mcode.may_leave_processes = True
    assert "o" not in found(mcode)
    put_earlier(mcode)
    check_refused(mcode, mcode.run(*command, *JSON, "--model", "nobody/none").check(3))


def test_a_replay_writes_the_files_of_the_run_that_it_repeats(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("the answer"))
    first: dict[str, Any] = mcode.exec("x", "--request-id", "r1", *JSON).check(0).result
    put_earlier(mcode)
    again = mcode.exec("x", "--request-id", "r1", *FILES, *JSON).check(0)
    files = found(mcode)
    assert again.result["replayed"]
    assert json.loads(files["r"]) == json.loads(files["e"].splitlines()[-1])["result"] == again.result
    assert files["o"] == "the answer\n"
    assert files["id"] == first["sessionId"] + "\n"
    assert len(peer.calls) == 1


def test_a_replay_that_was_waited_for_names_the_session_that_answered(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(gated(say("the answer"), gate))
    command = ("exec", "x", "--request-id", "r1", "--session-id-file")
    first = mcode.start(*command, "one")
    gate.wait_reached()
    second = mcode.start(*command, "two")
    wait_for(lambda: len(list((mcode.data / "run").iterdir())) == 2)
    gate.open()
    first.finish().check(0)
    second.finish().check(0)
    one = (mcode.workspace / "one").read_text()
    assert one.startswith("mvs_")
    assert (mcode.workspace / "two").read_text() == one


def test_a_prompt_that_is_to_be_replaced_by_its_answer_survives_a_refusal(mcode: Mcode, peer: Peer) -> None:
    prompt = mcode.workspace / "p.md"
    prompt.write_text("improve this")
    os.symlink("p.md", mcode.workspace / "link.md")
    peer.script(forever(say("improved")))
    for target in ("p.md", "link.md"):
        mcode.exec("--input", "p.md", "-o", target, "--model", "nobody/none").check(3)
        mcode.exec("--input", "p.md", "-o", target, "--timeout", "5").check(2)
    assert prompt.read_text() == "improve this"
    mcode.exec("--input", "p.md", "-o", "link.md").check(0)
    assert Path(prompt).read_text() == "improved\n"
    assert "improve this" in json.dumps(mcode.messages()[0])


def test_an_admitted_run_gets_an_events_file_of_its_own_from_one_that_is_writing_it(
    mcode: Mcode, peer: Peer
) -> None:
    gate = Gate()
    peer.script(gated(say("first"), gate), say("second"))
    (mcode.workspace / "e").write_text("")
    (mcode.workspace / "e").chmod(0o600)
    first = mcode.start("exec", "hi", "--events", "e")
    gate.wait_reached()
    second = mcode.exec("hi", "--events", "e").check(0)
    assert "another run was writing" in second.err
    gate.open()
    first.finish().check(0)
    lines = [json.loads(line) for line in (mcode.workspace / "e").read_text().splitlines()]
    assert len({line["runId"] for line in lines}) == 1
    assert lines[-1]["result"]["output"] == "second"
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    assert (mcode.workspace / "e").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("flag", ["-o", "--result", "--session-id-file", "--events"])
def test_a_full_disk_for_an_output_file_is_found_before_any_model_call(
    mcode: Mcode, peer: Peer, flag: str
) -> None:
    disk = mcode.root / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    try:
        (disk / "fill").write_bytes(bytes(64 * 1024))
        run = mcode.exec("hi", flag, str(disk / "out"), *JSON).check(74)
        assert run.result["error"]["code"] == "OUTPUT_WRITE_FAILED"
        assert peer.calls == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)

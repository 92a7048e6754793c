"""The other commands: stable output, the same exit codes, no terminal, no pager, no prompt."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.steps import answer, call, say, think


@pytest.fixture
def two_sessions(mcode: Mcode, peer: Peer) -> list[str]:
    """Two conversations here and one elsewhere, oldest first."""
    (mcode.root / "elsewhere").mkdir()
    peer.script(
        answer(think("hm"), say("Running."), call("bash", {"command": "echo tool-said"})),
        say("fertig é"),
        say("two"),
        say("three"),
    )
    made = []
    for cwd, title in (
        (mcode.workspace, 'first, "one"'),
        (mcode.workspace, "second"),
        (mcode.root / "elsewhere", "third"),
    ):
        run = mcode.exec("the prompt", "--title", title, "--output-format", "json", cwd=cwd).check(0)
        made.append(run.result["sessionId"])
    return made


def test_list_shows_this_workspace_newest_first(mcode: Mcode, two_sessions: list[str]) -> None:
    table = mcode.run("sessions", "list").check(0).out
    assert table.index(two_sessions[1]) < table.index(two_sessions[0])
    assert two_sessions[2] not in table
    rows = [
        json.loads(line)
        for line in mcode.run("sessions", "list", "--all", "--output-format", "jsonl")
        .check(0)
        .out.splitlines()
    ]
    assert [row["id"] for row in rows] == two_sessions[::-1]
    assert {row["status"] for row in rows} == {"idle"}


def test_formats_of_a_list_carry_the_same(mcode: Mcode, two_sessions: list[str]) -> None:
    lines = mcode.run("sessions", "list", "--output-format", "jsonl").check(0).out.splitlines()
    whole = json.loads(mcode.run("sessions", "list", "--output-format", "json").check(0).out)
    table = list(
        csv.DictReader(io.StringIO(mcode.run("sessions", "list", "--output-format", "csv").check(0).out))
    )
    assert [json.loads(line) for line in lines] == whole["sessions"]
    assert [row["id"] for row in table] == [row["id"] for row in whole["sessions"]]
    assert table[-1]["title"] == 'first, "one"'


def test_a_cursor_leads_through_the_list(mcode: Mcode, two_sessions: list[str]) -> None:
    seen, cursor = [], None
    while True:
        more = ("--before", cursor) if cursor else ()
        page = json.loads(
            mcode.run("sessions", "list", "--all", "--limit", "1", "--output-format", "json", *more)
            .check(0)
            .out
        )
        seen += [row["id"] for row in page["sessions"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert seen == two_sessions[::-1]


def test_show_reads_a_session_by_a_prefix(mcode: Mcode, two_sessions: list[str]) -> None:
    text = mcode.run("sessions", "show", two_sessions[0][:14]).check(0).out
    for part in ("the prompt", "Running.", "echo tool-said", "fertig é"):
        assert part in text
    assert text.index("the prompt") < text.index("echo tool-said") < text.index("fertig é")
    rows = [
        json.loads(line)
        for line in mcode.run("sessions", "show", two_sessions[0], "--output-format", "jsonl")
        .check(0)
        .out.splitlines()
    ]
    assert [row["role"] for row in rows] == ["user", "assistant", "assistant"]
    assert {"sessionId", "turnId", "createdMs", "finishReason"} <= rows[1].keys()
    (tool,) = [part for part in rows[1]["parts"] if part["type"] == "tool"]
    assert tool["state"]["input"] == {"command": "echo tool-said"}
    assert {"callId", "tool", "index"} <= tool.keys()
    before = mcode.run("sessions", "list", "--output-format", "json").out
    mcode.run("sessions", "show", two_sessions[0]).check(0)
    assert mcode.run("sessions", "list", "--output-format", "json").out == before, "showing moves nothing"


def test_export_is_one_document_with_secrets_masked(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": f"echo {KEY}"}), say(f"the key is {KEY}"))
    session = mcode.exec("hi", "--output-format", "json").check(0).result["sessionId"]
    run = mcode.run("sessions", "export", session).check(0)
    document = json.loads(run.out)
    assert KEY not in run.out
    assert "***" in run.out
    assert session in json.dumps(document)


def test_verify_finds_a_bad_line_and_repair_sets_it_aside(mcode: Mcode, two_sessions: list[str]) -> None:
    assert "sound" in mcode.run("sessions", "verify", two_sessions[0]).check(0).err
    file = mcode.session_dir(two_sessions[0]) / "messages.jsonl"
    lines = file.read_bytes().split(b"\n")
    lines.insert(2, b'{"role":"user",')
    file.write_bytes(b"\n".join(lines))
    run = mcode.run("sessions", "verify", two_sessions[0], "--output-format", "json").check(4)
    assert json.loads(run.out)["findings"][0]["line"] == 3
    blocked = mcode.exec("--session", two_sessions[0], "x", "--output-format", "json").check(4)
    assert blocked.result["error"]["code"] == "HISTORY_CORRUPT"
    mcode.run("sessions", "verify", two_sessions[0], "--repair").check(0)
    assert b'{"role":"user",' in b"".join(
        p.read_bytes() for p in (file.parent / "reports").rglob("*") if p.is_file()
    )
    mcode.exec("--session", two_sessions[0], "x").check(0)


@pytest.mark.parametrize(
    "args",
    [
        ("sessions", "show", "mvs_" + "0" * 32),
        ("sessions", "export", "mvs_" + "0" * 32),
        ("sessions", "verify", "mvs_" + "0" * 32),
    ],
    ids=lambda args: args[1],
)
def test_an_unknown_session_is_4_in_one_sentence(mcode: Mcode, args: tuple[str, ...]) -> None:
    run = mcode.run(*args).check(4)
    assert run.out == ""
    assert len(run.err.splitlines()) == 1


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "args",
    [
        ("sessions", "list", "--output-format", "xml"),
        ("sessions", "list", "--limit", "0"),
        ("sessions", "list", "--before", "nonsense"),
        ("sessions", "list", "extra"),
        ("sessions", "show"),
        ("sessions", "show", "nonsense"),
        ("sessions", "list", "--all", "--cwd", "."),
        ("sessions", "frobnicate"),
        ("sessions",),
        ("doctor", "--nope"),
        ("models", "--nope"),
        ("schema",),
        ("completion", "tcsh"),
        ("completion",),
        ("frobnicate",),
        ("fix the test",),
        (),
    ],
    ids=" ".join,
)
def test_a_bad_invocation_is_2_in_one_sentence(mcode: Mcode, args: tuple[str, ...]) -> None:
    run = mcode.run(*args).check(2)
    assert run.out == ""
    assert len(run.err.splitlines()) == 1
    assert "Traceback" not in run.err


def test_a_prompt_without_exec_gets_the_hint(mcode: Mcode) -> None:
    assert "mcode exec 'fix the test'" in mcode.run("fix the test").check(2).err


def test_commands_on_nothing_at_all(mcode: Mcode) -> None:
    assert mcode.run("sessions", "list").check(0).err.startswith("mcode: ")
    assert json.loads(mcode.run("sessions", "list", "--output-format", "json").check(0).out)["sessions"] == []
    assert mcode.run("sessions", "list", "--output-format", "jsonl").check(0).out == ""


def test_doctor_is_well_here_and_says_what_is_not(mcode: Mcode) -> None:
    run = mcode.run("doctor").check(0)
    for part in ("git", "config.toml", "fake", str(mcode.data)):
        assert part in run.out
    assert KEY not in run.out
    rows = json.loads(mcode.run("doctor", "--output-format", "json").check(0).out)["checks"]
    assert all(row["ok"] is not False for row in rows)
    bad = mcode.run("doctor", env={"FAKE_KEY": None}).check(4)
    assert "FAKE_KEY" in bad.out
    mcode.config.write_text("modle = 1\n")
    assert "modle" in mcode.run("doctor").check(4).out


def test_doctor_finds_a_damaged_database(mcode: Mcode) -> None:
    mcode.data.mkdir()
    (mcode.data / "mcode.db").write_bytes(b"no database" * 1000)
    assert "move it away" in mcode.run("doctor").check(4).out


def damage(database: Path, *, every: bool) -> None:
    """Overwrite the pages of the tables: the last one, or all but the first, which names them."""
    page = 4096
    with open(database, "r+b") as file:
        last = database.stat().st_size // page - 1
        for number in range(1 if every else last, last + 1):
            file.seek(number * page)
            file.write(b"\xa5" * page)


@pytest.mark.parametrize("every", [True, False], ids=["every page", "one page"])
def test_doctor_tells_of_damaged_pages_in_one_line_with_a_remedy(mcode: Mcode, every: bool) -> None:
    mcode.exec("hi").check()
    damage(mcode.data / "mcode.db", every=every)
    run = mcode.run("doctor").check(4)
    (line,) = [line for line in run.out.splitlines() if line.startswith("FAIL")]
    assert "\\n" not in line
    assert "mcode.db is not a usable database (" in line
    assert "move it away, put a backup in its place" in line


def test_a_run_that_meets_a_damaged_page_is_74(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("hi").check()
    damage(mcode.data / "mcode.db", every=True)
    for args in (("hi", "--continue"), ("hi",), ("hi", "--continue", "--dry-run")):
        run = mcode.exec(*args, "--output-format", "json").check(74)
        assert run.result["error"]["code"] == "STORE_FAILED"
        assert "move it away" in run.err
    assert len(peer.calls) == 1


def test_models_name_what_can_be_named(mcode: Mcode) -> None:
    run = mcode.run("models").check(0)
    assert "fake/big-1" in run.out
    row = next(
        json.loads(line)
        for line in mcode.run("models", "fake", "--output-format", "jsonl").check(0).out.splitlines()
    )
    assert row["model"] == "fake/big-1"
    assert row["context"] == 200_000
    everything = mcode.run("models", "--all", "--output-format", "jsonl").check(0).out
    assert "anthropic/" in everything
    mcode.run("models", "nobody")


def test_version_and_help(mcode: Mcode) -> None:
    assert mcode.run("--version").check(0).out.startswith("mcode ")
    text = mcode.run("--help").check(0).out
    for name in ("exec", "sessions", "jobs", "models", "doctor", "schema", "completion"):
        assert name in text
    assert "serve" not in text


# shells


def in_path(mcode: Mcode) -> dict[str, str]:
    """An environment in which the shell finds `mcode`."""
    shim = mcode.root / "bin" / "mcode"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text("#!/bin/sh\nexec " + " ".join(mcode.command) + ' "$@"\n')
    shim.chmod(0o755)
    return mcode.environment({"PATH": f"{shim.parent}:{os.environ['PATH']}"})


def completed(mcode: Mcode, words: str) -> list[str]:
    """What bash offers for the line `words`."""
    script = (
        'eval "$(mcode completion bash)"\n'
        f'COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); COMP_LINE="${{COMP_WORDS[*]}}"\n'
        "spec=$(complete -p mcode); fn=${spec#*-F }; fn=${fn%% *}\n"
        '$fn mcode "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=in_path(mcode),
        capture_output=True,
        text=True,
        timeout=20,
        cwd=mcode.workspace,
    )
    assert done.returncode == 0, done
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_flags_and_values(mcode: Mcode) -> None:
    assert {"exec", "sessions", "doctor"} <= set(completed(mcode, 'mcode ""'))
    assert completed(mcode, "mcode ses") == ["sessions"]
    assert {"--output-format", "--max-steps"} <= set(completed(mcode, "mcode exec --"))
    assert set(completed(mcode, 'mcode exec --permission ""')) == {"smart", "full", "off", "read-only"}
    assert {"list", "show", "export", "verify"} <= set(completed(mcode, 'mcode sessions ""'))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_parse(mcode: Mcode, shell: str, tmp_path: Path) -> None:
    script = mcode.run("completion", shell).check(0).out
    assert "_MCODE_COMPLETE" in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(script)
    subprocess.run([program, "-n", str(tmp_path / "script")], check=True, capture_output=True)


@pytest.mark.parametrize(
    "line",
    [
        "mcode sessions list",
        "mcode doctor",
        "mcode models --all",
        "mcode exec --help",
        "mcode sessions show $SESSION",
        "mcode schema events",
    ],
)
def test_no_command_needs_a_terminal(mcode: Mcode, line: str) -> None:
    session = mcode.exec("hi", "--output-format", "json").check(0).result["sessionId"]
    done = subprocess.run(
        ["bash", "-c", f"setsid --wait timeout 10 {line} </dev/null 2>&1 | cat; echo ${{PIPESTATUS[0]}}"],
        env={**in_path(mcode), "SESSION": session, "PAGER": "less", "TERM": "xterm"},
        cwd=mcode.workspace,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.endswith("\n0\n"), done
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    "line", ["mcode schema events", "mcode models --all", "mcode exec --help", "mcode doctor"]
)
def test_a_closed_pipe_is_141_and_quiet(mcode: Mcode, line: str) -> None:
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{line} | true; echo ${{PIPESTATUS[0]}}; {line} >/dev/full; echo $?; {line} >&-; echo $?",
        ],
        env=in_path(mcode),
        cwd=mcode.workspace,
        capture_output=True,
        text=True,
        timeout=30,
    )
    piped, full, closed = done.stdout.split()
    assert piped in ("141", "0"), done
    assert full == "74", done
    assert closed == "141", done
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("command", ["exec --help", "doctor", "schema result", "models --all"])
def test_a_stdout_that_others_set_non_blocking_gets_every_byte(mcode: Mcode, command: str) -> None:
    whole = mcode.run(*command.split()).check(0).out_bytes
    assert len(whole) > 2500
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"x" * 2000)
    os.set_blocking(writer, False)
    running = mcode.start(*command.split(), stdout=writer)
    os.close(writer)
    time.sleep(0.4)  # it has met a full pipe by now
    received = b"".join(iter(lambda: os.read(reader, 65536), b""))
    os.close(reader)
    running.finish().check(0)
    assert received[2000:] == whole

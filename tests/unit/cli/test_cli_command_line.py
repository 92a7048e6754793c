"""What the command line accepts, refuses and imports.  Real processes where the process matters."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest

from mcode_exec.cli.argv_scan import ENDING_WITH_A_RESULT, Wanted, scan
from mcode_exec.cli.exec_command import command, to_invocation
from mcode_exec.cli.group import group
from mcode_exec.cli.main import RUNNING
from mcode_exec.errors import McodeError
from mcode_exec.records.invocation import Invocation

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("scripted_mcode.py")
ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}


def mcode(
    *args: str | bytes, env: dict[str, str] | None = None, **settings: Any
) -> subprocess.CompletedProcess[str]:
    settings = {"stdin": subprocess.DEVNULL, "capture_output": True, "check": False, **settings}
    return subprocess.run(
        [sys.executable, "-m", "mcode_exec", *args], env={**ENV, **(env or {})}, encoding="utf-8", **settings
    )


def parse(*args: str) -> Invocation:
    with command.make_context("exec", list(args)) as ctx:
        return to_invocation(ctx, dict(ctx.params), started_s=1.5)


def refuse(*args: str) -> str:
    with pytest.raises((McodeError, click.UsageError)) as caught:
        parse(*args)
    error = caught.value
    if isinstance(error, McodeError):
        assert error.exit_code == 2
        return error.message
    assert isinstance(error, click.UsageError)
    return error.format_message()


def test_flags_become_an_invocation() -> None:
    invocation = parse(
        "do it", "--session-key", "pr-1", "--label", "a=b=c", "--label", "d=", "--timeout", "1.5m",
        "--max-cost", "0.30", "--max-steps", "4", "--tools", "read, grep", "--output-format", "jsonl",
        "--no-deltas", "-o", "out.txt", "--env", "NPM_TOKEN", "--cwd", "@recorded",
    )  # fmt: skip

    assert invocation.prompt == "do it"
    assert invocation.session_key == "pr-1"
    assert invocation.labels == (("a", "b=c"), ("d", ""))
    assert invocation.timeout_s == 90.0
    assert invocation.max_cost_usd == Decimal("0.30")
    assert invocation.tools == ("read", "grep")
    assert invocation.output_format == "stream-json"
    assert invocation.deltas is False
    assert invocation.env == ("NPM_TOKEN",)
    assert invocation.started_monotonic_s == 1.5
    assert invocation.run_id.startswith("run_")


def test_without_flags_everything_is_at_its_default() -> None:
    given = parse("x")
    expected = Invocation(run_id=given.run_id, prompt="x", started_monotonic_s=1.5)
    assert given == expected


def test_a_prompt_of_a_dash_is_stdin() -> None:
    assert (parse("-").prompt, parse("-").input_source) == (None, "-")
    assert parse("review", "--input", "-").input_source == "-"
    assert "cannot be combined" in refuse("-", "--input", "file")


def test_resume_is_session() -> None:
    assert parse("x", "--resume", "mvs_01234567").session == "mvs_01234567"


def test_allow_and_deny_keep_their_common_order() -> None:
    rules = parse("x", "--deny", "edit:*", "--allow=edit:a", "--title", "--allow", "--deny", "edit:b").rules

    assert [(rule.verdict, rule.text) for rule in rules] == [
        ("deny", "edit:*"),
        ("allow", "edit:a"),
        ("deny", "edit:b"),
    ]
    assert [rule.verdict for rule in parse("x", "--allow", "a:b", "--allow", "c:d").rules] == [
        "allow",
        "allow",
    ]


def test_tools_none_is_no_tool_and_absent_is_all() -> None:
    assert parse("x", "--tools", "none").tools == ()
    assert parse("x").tools is None


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ((), "nothing to run"),
        (("",), "nothing to run"),
        ((" \n",), "nothing to run"),
        (("x", "--session", "mvs_01234567", "--continue"), "--session and --continue cannot be combined"),
        (("x", "--resume", "mvs_01234567", "--session", "mvs_01234567"), "cannot be combined"),
        (("x", "-c", "--session-key", "k"), "--continue and --session-key cannot be combined"),
        (("x", "--ephemeral", "-c"), "--continue and --ephemeral cannot be combined"),
        (("x", "--ephemeral", "--request-id", "r"), "--ephemeral and --request-id cannot be combined"),
        (("x", "-q", "-v"), "cannot be combined"),
        (("x", "--session-key", ""), "--session-key is empty"),
        (("x", "--result", ""), "--result is empty"),
        (("x", "--result", "a", "-o", "a"), "cannot be combined on the same file"),
        (("x", "--input-format", "json"), "--input-format needs --input"),
        (("x", "--session", "12"), "no session id"),
        (("x", "--timeout", "30"), "--timeout"),
        (("x", "--timeout", "0s"), "longer than zero"),
        (("x", "--max-cost", "NaN"), "no amount"),
        (("x", "--max-cost", "-1"), "more than zero"),
        (("x", "--max-steps", "1.5"), "'1.5' is no whole number"),
        (("x", "--max-cost", "free"), "no amount"),
        (("x", "--max-cost", "1_0"), "no amount"),
        (("x", "--max-cost", "\u0661"), "no amount"),
        (("x", "--max-steps", "1_0"), "'1_0' is no whole number"),
        (("x", "--max-steps", "0"), "0 is not in the range"),
        (("x", "--label", "novalue"), "KEY=VALUE"),
        (("x", "--env", "A=b"), "no variable name"),
        (("x", "--tools", "read,,grep"), "neither a list"),
        (("x", "--permission", "yolo"), "is not one of"),
        (("x", "--on-ask", "pause"), "is not one of"),
        (("fix", "the", "bug"), "unexpected extra argument"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(args: tuple[str, ...], sentence: str) -> None:
    assert sentence in refuse(*args)


def test_the_wanted_format_is_found_in_any_spelling_and_the_last_one_counts() -> None:
    assert scan(["exec", "--output-format", "json"]).output_format == "json"
    assert scan(["exec", "--output-format=jsonl", "--bad"]).output_format == "stream-json"
    assert scan(["exec", "--output-format", "json", "--output-format=text"]).output_format == "text"
    assert scan(["exec", "--output-format", "xml"]) == Wanted()
    assert scan(["exec", "--output-format"]) == Wanted()
    assert scan(["exec", "--", "--output-format", "json"]) == Wanted()
    assert scan(["sessions", "list", "--output-format", "json"]) == Wanted()
    assert scan(["exec", "--result=r", "-v"]) == Wanted(result_file="r", verbose=True)


@pytest.mark.parametrize("output_format", ["json", "stream-json"])
@pytest.mark.parametrize(
    "args", [["--no-such-flag", "x"], [], ["x", "--session", "mvs_01234567", "-c"], ["\udcff"]]
)
def test_usage_errors_give_exactly_one_result(output_format: str, args: list[str]) -> None:
    done = mcode("exec", *map(os.fsencode, args), f"--output-format={output_format}")

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    result = lines[-1].get("result", lines[-1])
    assert (result["exitCode"], result["error"]["category"]) == (2, "invocation")
    expected = ["exec.started", "exec.completed"] if output_format == "stream-json" else ["exec.result"]
    assert [line["type"] for line in lines] == expected


def test_the_result_file_is_written_for_usage_errors_too(tmp_path: Path) -> None:
    done = mcode("exec", "x", "--bad", "--result", str(tmp_path / "r.json"))

    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads((tmp_path / "r.json").read_text())["exitCode"] == 2


def test_an_argument_that_is_not_utf8_is_refused_with_the_offset() -> None:
    done = mcode("exec", b"ab\xff")

    assert done.returncode == 2
    assert "PROMPT is not valid UTF-8: byte 0xff at offset 2" in done.stderr


@pytest.mark.parametrize(
    "args", [[], ["sessions"], ["nope"], ["--nope"], ["exec", "a", "b"], ["models", "--nope"]]
)
def test_a_wrong_command_line_is_one_sentence_and_2(args: list[str]) -> None:
    done = mcode(*args)

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "--help" in done.stderr


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["exec", "hi", "-o"], "Option '-o' requires an argument. See: mcode exec --help"),
        (["sessions", "list", "--limit"], "requires an argument. See: mcode sessions list --help"),
        (["sessions", "list", "--limit", "1.5"], "'1.5' is no whole number. See: mcode sessions list --help"),
        (["help"], "No such command 'help': it is mcode --help."),
        (["version"], "No such command 'version': it is mcode --version."),
        (["exce", "hi"], "No such command 'exce'. Did you mean 'exec'? See: mcode --help"),
        (["fix the bug"], "No such command 'fix the bug'. To run a prompt: mcode exec 'fix the bug'."),
        (["exec", "hi", "--bogus"], "No such option '--bogus'. See: mcode exec --help"),
        (["exec", "hi", "--sesion", "x"], "'--sesion'. Did you mean '--session' or '--session-key'? See"),
        (["exec", "hi", "--output", "x"], "Did you mean '--output-format' or '--output-last-message'? See"),
        (["models", "--bogus"], "No such option '--bogus'. See: mcode models --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_was_meant_is_said_where_it_can_be_told(args: list[str], sentence: str) -> None:
    done = mcode(*args)
    assert done.returncode == 2
    assert sentence in done.stderr


@pytest.mark.parametrize(
    "args", [["--help"], ["exec", "--help"], ["exec", "-h"], ["sessions", "list", "--help"], ["--version"]]
)
def test_help_needs_no_terminal_no_locale_and_no_home(args: list[str]) -> None:
    done = mcode(
        *args, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, start_new_session=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_help_into_a_closed_pipe_is_quiet() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = mcode("exec", "--help", capture_output=False, stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)

    assert (done.returncode, done.stderr) == (141, "")


def test_version_and_usage_errors_import_no_more_than_click_needs() -> None:
    program = (
        "import os, runpy, sys\n"
        "def leave(code):\n"
        "    heavy = {'peewee', 'asyncio', 'msgspec', 'h11', 'ssl', 'http.client', 'tabulate', 'psutil', 'tenacity'}\n"
        "    print(sorted(heavy & set(sys.modules)), file=sys.stderr, flush=True)\n"
        "    real(code)\n"
        "real, os._exit = os._exit, leave\n"
        "from mcode_exec.cli.main import main\n"
        "main()\n"
    )
    for args in (["--version"], ["exec", "--bad"], ["exec"], ["--help"], ["sessions", "list", "--bad"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *args], env=ENV, capture_output=True, text=True, check=False
        )
        assert done.stderr.splitlines()[-1] == "[]", (args, done.stderr)


def hello(stdin: Any, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "exec", "hi", *flags], env={**ENV, "SCRIPT": "hello"}, stdin=stdin,
        capture_output=True, text=True, timeout=20, check=True,
    )  # fmt: skip
    assert done.stdout == "hello\n"
    return done.stderr


def test_waiting_bytes_on_a_pipe_are_named_and_left_there() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"rest of the script\n")

    assert "mcode: stdin has unread input; it is read only with --input -\n" in hello(read_end)
    assert "stdin" not in hello(read_end, "-q")
    assert "stdin" not in hello(read_end, "--input", "-")
    assert os.read(read_end, 100) == b"rest of the script\n"
    os.close(read_end)
    os.close(write_end)


def test_waiting_bytes_on_a_socket_are_named_too() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(b"x")
        assert "--input -" in hello(theirs)


def test_an_open_stdin_without_bytes_is_neither_waited_for_nor_named(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    assert "stdin" not in hello(read_end)
    os.close(read_end)
    os.close(write_end)
    script = tmp_path / "script"
    script.write_text("echo next\n")
    with script.open() as file:
        assert "stdin" not in hello(file)
    assert "stdin" not in hello(subprocess.DEVNULL)


def test_a_while_read_loop_keeps_its_lines() -> None:
    loop = f"printf 'a\\nb\\nc\\n' | while read l; do {sys.executable} {PROGRAM} exec \"say $l\"; done"
    done = subprocess.run(
        ["sh", "-c", loop], env={**ENV, "SCRIPT": "hello"}, capture_output=True, text=True, check=True
    )

    assert done.stdout == "hello\n" * 3


def test_a_terminal_shows_a_status_line_that_other_lines_replace() -> None:
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "exec", "hi"], env={**ENV, "SCRIPT": "status", "TERM": "xterm", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while piece := _read(master):
        shown += piece
    os.close(master)

    assert process.communicate()[0] == b"hello\n"
    text = shown.decode()
    assert "step 1 · bash · 1.2k tokens · $0.0123 · 0:00" in text
    assert "\r\x1b[Kmcode: a line of its own\r\n" in text
    assert "step 30 · model" in text
    assert "\x1b[2m" not in text
    assert text.count("\x1b[K") < 15  # at most ten a second
    before_last, last = text.rsplit("mcode: session", 1)
    assert before_last.endswith("\r\x1b[K")
    assert "\x1b" not in last


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the last holder of the terminal's other end is gone
        return b""


def test_a_dumb_terminal_and_quiet_get_no_status_line() -> None:
    for env, flags in (({"TERM": "dumb"}, []), ({"TERM": "xterm"}, ["-q"])):
        master, terminal = pty.openpty()
        subprocess.run(
            [sys.executable, str(PROGRAM), "exec", "hi", *flags], env={**ENV, "SCRIPT": "status", **env},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal, check=True,
        )  # fmt: skip
        os.close(terminal)
        shown = b""
        while piece := _read(master):
            shown += piece
        os.close(master)
        assert b"\x1b" not in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_mcode(shell: str) -> None:
    done = mcode("completion", shell)

    assert done.returncode == 0
    assert "_MCODE_COMPLETE" in done.stdout


def test_completion_offers_commands_and_flags() -> None:
    env = {"_MCODE_COMPLETE": "bash_complete", "COMP_WORDS": "mcode exec --out", "COMP_CWORD": "2"}

    assert "plain,--output-format" in mcode(env=env).stdout


@pytest.mark.parametrize("what", ["events", "result"])
def test_the_schema_holds_for_what_is_printed(what: str) -> None:
    import jsonschema_rs

    schema = json.loads(mcode("schema", what).stdout)
    validator = jsonschema_rs.validator_for(schema)
    output_format = "stream-json" if what == "events" else "json"
    for script in ("hello", "asks", "limit", "busy", "bug"):
        done = subprocess.run(
            [sys.executable, str(PROGRAM), "exec", "hi", "--output-format", output_format],
            env={**ENV, "SCRIPT": script}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        for line in done.stdout.splitlines():
            validator.validate(json.loads(line))


def _commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from _commands(command, *path, name)
            else:
                yield (*path, name), command


def test_every_command_that_writes_a_result_is_known_before_its_line_is_parsed() -> None:
    with_result = {
        path
        for path, command in _commands(group)
        if any("--result" in parameter.opts for parameter in command.params)
    }
    assert ("exec",) in with_result
    assert set(ENDING_WITH_A_RESULT) == with_result
    assert with_result <= set(RUNNING)

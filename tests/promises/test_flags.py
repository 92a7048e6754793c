"""Every flag with bad values: one sentence, the documented exit code, exactly one result; and what good ones do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.steps import call, say

BAD = [
    ("--session", ""),
    ("--session", "mvs_12"),
    ("--session", "nonsense"),
    ("--session", "mvs_" + "g" * 32),
    ("--session", "mvs_" + "0" * 33),
    ("--resume", "x"),
    ("--session-key", ""),
    ("--cwd", ""),
    ("--cwd", "no/such/dir"),
    ("--cwd", "/etc/passwd"),
    ("--cwd", "@recorded"),
    ("--file", "missing.txt"),
    ("--file", "."),
    ("--input", "missing.txt"),
    ("--input-format", "json"),  # without --input
    ("--input-format", "yaml"),
    ("--effort", ""),
    ("--model", ""),
    ("--agent", ""),
    ("--config", ""),
    ("--data-dir", ""),
    ("--diagnostics-dir", ""),
    ("--system-prompt-file", ""),
    ("--input", ""),
    ("--tools", ""),
    ("--tools", "read,,bash"),
    ("--tools", "none,read"),
    ("--tools", "raed"),
    ("--label", "novalue"),
    ("--label", "=v"),
    ("--permission", "yolo"),
    ("--permission", ""),
    ("--allow", ""),
    ("--allow", "nonsense:*"),
    ("--deny", "bsh:*"),
    ("--deny", ":x"),
    ("--on-ask", "wait"),
    ("--env", "A=b"),
    ("--env", ""),
    ("--request-id", ""),
    ("--timeout", "5"),
    ("--timeout", "0s"),
    ("--timeout", "-1s"),
    ("--timeout", "soon"),
    ("--timeout", "nan s"),
    ("--timeout", "1e400s"),
    ("--max-steps", "0"),
    ("--max-steps", "-3"),
    ("--max-steps", "many"),
    ("--max-steps", "1.5"),
    ("--max-cost", "0"),
    ("--max-cost", "free"),
    ("--max-cost", "NaN"),
    ("--max-cost", "-1"),
    ("--max-tokens", "0"),
    ("--max-tokens", "x"),
    ("--events", ""),
    ("-o", ""),
    ("--result", ""),
    ("--session-id-file", ""),
    ("--system-prompt-file", "missing.md"),
    ("--system-prompt-file", "."),
    ("--nonsense", "x"),
    ("--max-step", "3"),
    ("--title", b"\xff"),
    ("--append-system-prompt", b"a\xc3"),
]


@pytest.mark.sample(16)
@pytest.mark.parametrize(
    ("flag", "value"), BAD, ids=lambda value: value.hex() if isinstance(value, bytes) else value
)
def test_a_bad_value_is_one_sentence_exit_2_and_one_result(
    mcode: Mcode, peer: Peer, flag: str, value: str | bytes
) -> None:
    text = value if isinstance(value, str) else os.fsdecode(value)
    run = mcode.exec("hi", flag, text, "--output-format", "json")
    assert run.code == 2, run
    assert run.out.count("\n") == 1
    result = run.result
    assert (result["status"], result["exitCode"]) == ("failed", 2)
    assert result["error"]["category"] == "invocation"
    assert not peer.requests
    lines = run.err.splitlines()
    assert len(lines) <= 1, lines
    assert "\n" not in result["error"]["message"]
    assert flag.lstrip("-")[:5] in result["error"]["message"] or text[:5] in result["error"]["message"]


BAD_CONFIG = [
    ("--model", "nonsense"),
    ("--model", "no/such"),
    ("--agent", "nobody"),
    ("--config", "missing.toml"),
    ("--config", "."),
]


@pytest.mark.parametrize(("flag", "value"), BAD_CONFIG)
def test_what_the_configuration_does_not_have_is_3(mcode: Mcode, peer: Peer, flag: str, value: str) -> None:
    run = mcode.exec("hi", flag, value, "--output-format", "stream-json")
    assert run.code == 3, run
    assert len(run.of_type("exec.completed")) == 1
    assert run.result["exitCode"] == run.code
    assert not peer.requests


def test_text_mode_says_the_same_on_stderr_alone(mcode: Mcode) -> None:
    for args in (("--timeout", "5", "hi"), ("--nope",), ("hi", "there"), ("--output-format", "xml", "hi")):
        run = mcode.exec(*args).check(2)
        assert run.out == ""
        assert len(run.err.splitlines()) == 1
        assert run.err.startswith("mcode: error: ")


@pytest.mark.sample(6)
@pytest.mark.parametrize("form", ["json", "stream-json", "jsonl"])
@pytest.mark.parametrize(
    "args",
    [("--nope", "hi"), ("hi", "--timeout"), ("a", "b"), ()],
    ids=["unknown", "valueless", "two-prompts", "nothing"],
)
def test_a_line_that_does_not_parse_is_answered_in_the_form_it_asked_for(
    mcode: Mcode, form: str, args: tuple[str, ...]
) -> None:
    for placed in ((f"--output-format={form}", *args), ("--output-format", form, *args)):
        run = mcode.exec(*placed).check(2)
        assert run.result["exitCode"] == 2
        types = [event["type"] for event in run.events]
        assert types == (["exec.result"] if form == "json" else ["exec.started", "exec.completed"])


def test_every_kind_of_early_error_leaves_one_result(mcode: Mcode, tmp_path: Path, peer: Peer) -> None:
    (tmp_path / "bad.toml").write_text("model = \n")
    (tmp_path / "file").write_text("")
    for args, env, code in (
        (("hi",), {"FAKE_KEY": None}, 77),
        (("hi", "--config", tmp_path / "bad.toml"), {}, 3),
        (("hi",), {"MCODE_HOME": str(tmp_path / "file" / "x")}, 74),
        (("hi",), {"MCODE_CONFIG": "/nonexistent.toml"}, 3),
        (("--unknown-flag",), {}, 2),
    ):
        run = mcode.exec(*args, "--output-format", "stream-json", env=env).check(code)
        assert [e["type"] for e in run.events].count("exec.completed") == 1
        assert run.events[-1]["type"] == "exec.completed"
        assert [e["sequence"] for e in run.events] == list(range(1, len(run.events) + 1))
    assert not peer.calls


SELECTORS = [
    ("--session", "mvs_" + "0" * 32),
    ("--continue",),
    ("--resume", "mvs_" + "0" * 32),
    ("--session-key", "k"),
]


@pytest.mark.parametrize("first", range(4))
def test_two_session_selectors_cannot_be_combined(mcode: Mcode, first: int) -> None:
    for second in range(first + 1, 4):
        run = mcode.exec("hi", *SELECTORS[first], *SELECTORS[second]).check(2)
        assert "cannot be combined" in run.err


def test_ephemeral_goes_with_no_selector_and_no_request_id(mcode: Mcode) -> None:
    for other in (("--continue",), ("--session-key", "k"), ("--request-id", "r")):
        assert "cannot be combined" in mcode.exec("hi", "--ephemeral", *other).check(2).err


def test_a_prompt_that_begins_with_a_dash_stands_after_two_dashes(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("-q", "--", "--output-format json is a flag, this is none").check(0)
    assert "--output-format json is a flag, this is none" in peer.last.text
    run = mcode.exec("--", "-x", "--output-format=json")
    assert run.code == 2
    assert run.out == "", "what follows -- is no flag"


def test_ephemeral_leaves_the_data_directory_unopened_and_nothing_in_tmp(mcode: Mcode) -> None:
    run = mcode.exec("hi", "--ephemeral").check(0)
    assert run.out == "hello\n"
    assert not mcode.data.exists()
    assert not (mcode.home / ".local").exists()
    assert list((mcode.root / "tmp").iterdir()) == []
    assert "--session" not in run.err


def test_title_and_labels_are_seen_in_the_list(mcode: Mcode) -> None:
    mcode.exec("hi", "--title", "Naïve title", "--label", "ci=1", "--label", "branch=a=b").check(0)
    row = json.loads(mcode.run("sessions", "list", "--output-format", "jsonl").check(0).out)
    assert row["title"] == "Naïve title"
    assert row["labels"] in ({"ci": "1", "branch": "a=b"}, [["ci", "1"], ["branch", "a=b"]])
    assert "Naïve title" in mcode.run("sessions", "list").check(0).out


def test_allow_and_deny_are_read_in_the_order_they_stand(mcode: Mcode, peer: Peer) -> None:
    def denials(*flags: str) -> int:
        peer.script(call("bash", {"command": "echo x"}), say("done"))
        return len(mcode.exec("go", *flags, "--output-format", "json").check(0).result["permissionDenials"])

    assert denials("--deny", "bash:echo *", "--allow", "bash:echo x") == 0
    assert denials("--allow", "bash:echo x", "--deny", "bash:echo *") == 1


def test_env_passes_a_secret_looking_variable_and_nothing_else_does(mcode: Mcode, peer: Peer) -> None:
    show = call("bash", {"command": "echo [$MY_TOKEN] [$FAKE_KEY] [$MCODE_HOME]"})
    peer.script(show, say("done"), show, say("done"))
    mcode.exec("go", env={"MY_TOKEN": "visible-value"}).check(0)
    assert "[] [] []" in peer.calls[1].text
    mcode.exec("go", "--env", "MY_TOKEN", env={"MY_TOKEN": "visible-value"}).check(0)
    assert "[visible-value] [] []" in peer.calls[3].text or "] [] []" in peer.calls[3].text


def test_the_system_prompt_can_be_replaced_and_added_to(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "sys.md").write_text("You are a parrot.")
    mcode.exec("hi", "--system-prompt-file", "sys.md", "--append-system-prompt", "Squawk é.").check(0)
    system = json.dumps(peer.last.json["system"], ensure_ascii=False)
    assert "You are a parrot." in system
    assert "Squawk é." in system


def test_tools_limits_what_the_model_is_offered(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("hi", "--tools", "read, grep").check(0)
    assert sorted(tool["name"] for tool in peer.last.json["tools"]) == ["grep", "read"]
    mcode.exec("hi", "--tools", "none").check(0)
    assert not peer.last.json.get("tools")


def test_project_instructions_are_read_and_can_be_left_out(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "AGENTS.md").write_text("Always rhyme.")
    mcode.exec("hi").check(0)
    assert "Always rhyme." in peer.last.text
    mcode.exec("hi", "--no-project-instructions").check(0)
    assert "Always rhyme." not in peer.last.text


def test_cwd_takes_a_tilde_and_a_relative_path(mcode: Mcode, peer: Peer) -> None:
    (mcode.home / "proj").mkdir()
    for value in ("~/proj", "../home/proj/"):
        run = mcode.exec("hi", "--cwd", value, "--output-format", "stream-json").check(0)
        assert run.of_type("session.started")[0]["workspace"] == str(mcode.home / "proj")


def test_quiet_says_nothing_and_verbose_says_more_but_no_key(mcode: Mcode, peer: Peer) -> None:
    assert mcode.exec("hi", "-q").check(0).err == ""
    plain = mcode.exec("hi").check(0)
    peer.script(call("bash", {"command": f"echo {KEY}"}), say("done"))
    verbose = mcode.exec("hi", "-v", "--output-format", "stream-json").check(0)
    assert len(verbose.err.splitlines()) > len(plain.err.splitlines())
    assert KEY not in verbose.err + verbose.out
    assert all(line.startswith("mcode: ") for line in verbose.err.splitlines())
    assert "Traceback" not in verbose.err
    assert "cannot be combined" in mcode.exec("hi", "-q", "-v").check(2).err


def test_quiet_still_says_errors(mcode: Mcode) -> None:
    run = mcode.exec("hi", "-q", "--session", "mvs_" + "0" * 32).check(4)
    assert len(run.err.splitlines()) == 1


def test_a_flag_given_twice_takes_its_last_value(mcode: Mcode) -> None:
    run = mcode.exec("hi", "--output-format", "text", "--output-format", "json").check(0)
    assert run.result["output"] == "hello"


def test_help_names_every_flag_and_no_flag_that_is_not_there(mcode: Mcode) -> None:
    help_text = mcode.exec("--help").check(0).out
    promised = [
        "--session",
        "--continue",
        "--ephemeral",
        "--session-key",
        "--cwd",
        "--file",
        "--input",
        "--input-format",
        "--model",
        "--effort",
        "--agent",
        "--tools",
        "--no-project-instructions",
        "--title",
        "--label",
        "--permission",
        "--allow",
        "--deny",
        "--on-ask",
        "--env",
        "--request-id",
        "--when-busy",
        "--wait-timeout",
        "--drain",
        "--paused-queue",
        "--timeout",
        "--max-steps",
        "--max-cost",
        "--max-tokens",
        "--output-format",
        "--deltas",
        "--no-deltas",
        "--events",
        "-o",
        "--result",
        "--session-id-file",
        "--config",
        "--data-dir",
        "--trust-workspace",
        "--dry-run",
        "--diagnostics-dir",
        "--system-prompt-file",
        "--append-system-prompt",
        "-q",
        "-v",
    ]
    assert [flag for flag in promised if flag not in help_text] == []
    assert "--resume" not in help_text
    assert not [flag for flag in ("--add-dir", "--schema") if flag in help_text]
    assert max(map(len, help_text.splitlines())) <= 110


def test_a_workspace_whose_name_is_no_text_is_refused_in_a_sentence(mcode: Mcode, peer: Peer) -> None:
    directory = os.fsencode(mcode.workspace) + b"/d\xff"
    os.mkdir(directory)
    for how in ({"cwd": os.fsdecode(directory)}, {"env": {"PWD": None}}):
        flags = () if "cwd" in how else ("--cwd", os.fsdecode(directory))
        run = mcode.exec("hi", *flags, "--output-format", "json", **how).check(2)
        assert "UTF-8" in run.result["error"]["message"]
    assert mcode.run("sessions", "list", cwd=os.fsdecode(directory)).check(0).out == ""
    assert not peer.calls


def test_paths_that_are_no_text_work_as_files(mcode: Mcode, peer: Peer) -> None:
    name = os.fsdecode(b"f\xff")
    (mcode.workspace / name).write_text("content é")
    mcode.exec("hi", "--file", name, "--result", name + ".json", "-o", name + ".o").check(0)
    assert "content é" in peer.last.text
    assert (mcode.workspace / (name + ".o")).read_bytes() == b"hello\n"
    mcode.exec("--input", name, "--data-dir", name + ".d").check(0)
    run = mcode.exec(
        "hi", "--events", f"no/{name}", "--diagnostics-dir", name + ".r", "--output-format", "json"
    ).check(74)
    assert run.result["error"]["code"] == "OUTPUT_WRITE_FAILED"
    assert len(list((mcode.workspace / (name + ".r")).iterdir())) == 1


def test_too_few_descriptors_are_no_bug_of_ours(mcode: Mcode) -> None:
    import subprocess

    command = [
        "bash",
        "-c",
        'ulimit -n 12; exec "$@"',
        "-",
        *mcode.command,
        "exec",
        "hi",
        "--output-format",
        "json",
    ]
    done = subprocess.run(
        command, env=mcode.environment(), cwd=mcode.workspace, capture_output=True, timeout=20
    )
    assert done.returncode in (0, 74), done
    assert json.loads(done.stdout)["exitCode"] == done.returncode

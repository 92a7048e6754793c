"""Secrets stay where they are: in no argument list, no child, no log, no history, no event, no report."""

from __future__ import annotations

import base64
import html
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mcode import KEY, Mcode
from tests.support.peer import Peer
from tests.support.steps import Gate, call, gated, say, status, stream_error

JSON = ("--output-format", "json")
STREAM = ("--output-format", "stream-json")
STRANGER = 12345


def _forms(secret: str) -> list[bytes]:
    return [
        secret.encode(),
        urllib.parse.quote(secret, safe="").encode(),
        base64.b64encode(secret.encode()).rstrip(b"=")[:-1],
    ]


def _nowhere(mcode: Mcode, secret: str, *texts: bytes) -> None:
    """`secret` is in none of `texts` and in no file that mcode has written."""
    for text in texts:
        assert not [form for form in _forms(secret) if form in text], text
    for top in (mcode.data, mcode.workspace, mcode.root / "tmp", mcode.home):
        for path in top.rglob("*"):
            if path.is_file() and path != mcode.config and not path.is_symlink():
                data = path.read_bytes()
                assert not [form for form in _forms(secret) if form in data], path


def test_a_key_is_in_no_argument_list_and_no_environment_of_a_child(mcode: Mcode, peer: Peer) -> None:
    gate = Gate()
    peer.script(
        call("bash", {"command": "(sleep 1.2 &); sleep 0.6; cat /proc/*/cmdline | tr '\\0' ' '"}),
        gated(say("done"), gate),
    )
    seen: list[bytes] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        seen.append((entry / "cmdline").read_bytes())
                        if b"sleep" in seen[-1]:
                            seen.append((entry / "environ").read_bytes())
                    except OSError:
                        pass
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        running = mcode.start("exec", "go", *STREAM, "-v")
        gate.wait_reached()
        gate.open()
        run = running.finish().check()
    finally:
        stop.set()
        watcher.join()
    assert any(b"sleep" in line for line in seen)
    assert not [line for line in seen if KEY.encode() in line]
    _nowhere(mcode, KEY, run.out_bytes, run.err.encode())


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    "kind",
    [
        "error body",
        "error in the stream",
        "answer",
        "tool result",
        "tool arguments",
        "request id",
        "foreign body",
    ],
)
def test_a_key_that_comes_back_is_masked_everywhere(mcode: Mcode, peer: Peer, api: str, kind: str) -> None:
    leak = f"Authorization: Bearer {KEY} is wrong"
    steps = {
        "error body": [status(401, {"error": {"message": leak, "type": "authentication_error"}})],
        "error in the stream": [stream_error("invalid_request_error", leak)],
        "answer": [say(leak, piece=3)],
        "tool result": [call("bash", {"command": f"printf %s%s {KEY[:9]} {KEY[9:]}"}), say("done")],
        "tool arguments": [call("bash", {"command": f"true {leak}"}), say("done")],
        "request id": [status(400, {"error": {"message": "no"}}, {"x-request-id": f"req {leak}"})],
        "foreign body": [status(502, f"<html>{leak}</html>")],
    }[kind]
    mcode.configure(retry='base_delay = "10ms"\nmax_retries = 1')
    peer.script(*steps)
    run = mcode.exec(
        "go",
        *STREAM,
        "-v",
        "--events",
        "events",
        "--result",
        "result",
        "-o",
        "answer",
        "--diagnostics-dir",
        "diag",
    )
    events, result = mcode.workspace / "events", mcode.workspace / "result"
    texts = [run.out_bytes, run.err.encode(), events.read_bytes(), result.read_bytes()]
    for text in texts:
        assert KEY.encode() not in text, text
    for path in (mcode.workspace / "diag").rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    if kind not in ("answer", "tool result", "tool arguments"):
        _nowhere(mcode, KEY, *texts)
    export = mcode.run("sessions", "export", run.events[-1]["sessionId"])
    assert KEY.encode() not in export.out_bytes
    shown = mcode.run("sessions", "show", run.events[-1]["sessionId"])
    assert KEY.encode() not in shown.out_bytes + shown.err.encode()


def test_a_key_that_an_error_page_escapes_is_masked_too(mcode: Mcode, peer: Peer) -> None:
    key = "s3cret/d+e&w=<x>'y\"z\\q"
    as_json = json.dumps(key)[1:-1]
    said = [
        html.escape(key),
        html.escape(key, quote=False),
        urllib.parse.quote(key),
        as_json.replace("/", "\\/"),
    ]
    peer.script(status(401, f"<html><title>{' | '.join(said)} |</title></html>"))
    run = mcode.exec("go", *STREAM, "-v", "--diagnostics-dir", "diag", env={"FAKE_KEY": key}).check(77)
    assert "*** | *** | *** | *** |" in run.result["error"]["message"]
    for form in said:
        _nowhere(mcode, form, run.out_bytes, run.err.encode())


def test_other_secrets_of_the_environment_are_masked_too(mcode: Mcode, peer: Peer) -> None:
    secret = "another-Secret-77"
    peer.script(
        say(
            f"it is {secret}, or {urllib.parse.quote(secret)} or {base64.b64encode(secret.encode()).decode()}"
        )
    )
    run = mcode.exec("go", *JSON, env={"DEPLOY_TOKEN": secret})
    assert secret not in run.out + run.err
    assert "***" in run.out


def test_a_title_made_of_a_prompt_with_a_key_is_masked_in_every_list(mcode: Mcode, peer: Peer) -> None:
    run = mcode.exec(f"use {KEY} now", *STREAM).check()
    session_id = run.events[-1]["sessionId"]
    for form in ("table", "json", "jsonl", "csv"):
        listed = mcode.run("sessions", "list", "--output-format", form).check()
        assert session_id in listed.out
        assert KEY not in listed.out, form
    for args in (["sessions", "show", session_id], ["sessions", "export", session_id]):
        assert KEY not in mcode.run(*args).check().out, args


def test_the_password_of_a_proxy_is_masked(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(retry='base_delay = "10ms"\nmax_retries = 0', base_url="http://model.invalid/v1")
    run = mcode.exec(
        "go",
        *JSON,
        "-v",
        "--diagnostics-dir",
        "diag",
        env={"http_proxy": "http://me:pr0xy-passw0rd@127.0.0.1:9"},
    )
    run.check(69)
    _nowhere(mcode, "pr0xy-passw0rd", run.out_bytes, run.err.encode())
    dry = mcode.exec("go", "--dry-run", *JSON, env={"http_proxy": "http://me:pr0xy-passw0rd@127.0.0.1:9"})
    assert "pr0xy-passw0rd" not in dry.out + dry.err


@pytest.mark.parametrize("source", ["env", "literal-header", "file", "command"])
def test_dry_run_doctor_and_models_do_not_show_keys(
    mcode: Mcode, peer: Peer, source: str, tmp_path: Path
) -> None:
    secret = "k3y-from-elsewhere-00"
    key_file = tmp_path / "key"
    key_file.write_text(secret + "\n")
    key_file.chmod(0o600)
    config = mcode.config.read_text()
    other = {
        "env": 'api_key = "${OTHER_KEY}"',
        "literal-header": f'api_key = "${{OTHER_KEY}}"\nheaders = {{ "x-extra-token" = "{secret}" }}',
        "file": f'api_key_file = "{key_file}"',
        "command": f'api_key_command = ["cat", "{key_file}"]',
    }[source]
    mcode.config.write_text(config.replace('api_key = "${FAKE_KEY}"', other))
    env = {"OTHER_KEY": secret}
    for args in (
        ["exec", "go", "--dry-run", *JSON],
        ["exec", "go", "--dry-run"],
        ["doctor"],
        ["models"],
        ["doctor", *JSON],
    ):
        run = mcode.run(*args, env=env)
        assert secret not in run.out + run.err, args
    run = mcode.exec("go", *JSON, "-v", env=env).check()
    assert secret in str(peer.last.headers)
    _nowhere(mcode, secret, run.out_bytes, run.err.encode())


def _send(mcode: Mcode, headers: str) -> None:
    """Send further headers with each call."""
    key = 'api_key = "${FAKE_KEY}"\n'
    mcode.config.write_text(mcode.config.read_text().replace(key, f"{key}headers = {{ {headers} }}\n"))


HEADERS = {
    "bearer": ("Authorization", "Bearer h3ader-t0ken-0001", ["h3ader-t0ken-0001"]),
    "bearer elsewhere": ("X-Upstream", "bEaReR h3ader-t0ken-0001", ["h3ader-t0ken-0001"]),
    "basic": (
        "Proxy-Upstream",
        "Basic " + base64.b64encode("me:pässw0rd-of-header".encode()).decode(),
        ["pässw0rd-of-header", base64.b64encode("me:pässw0rd-of-header".encode()).decode().rstrip("=")],
    ),
    "a scheme of its own": ("X-Api-Key", "Token h3ader-t0ken-0001", ["h3ader-t0ken-0001"]),
}


@pytest.mark.parametrize("case", HEADERS)
def test_the_credential_of_a_header_is_masked_without_its_scheme_too(
    mcode: Mcode, peer: Peer, api: str, case: str
) -> None:
    name, value, secrets = HEADERS[case]
    _send(mcode, f'"{name}" = "{value}"')
    peer.script(say(f"it was {' and '.join(secrets)}."))
    recording = mcode.root / "rec"
    run = mcode.exec("go", *STREAM, "-v", "--record", str(recording)).check()
    assert value in str(peer.last.headers)
    assert "it was ***" in run.result["output"]
    said = [
        run.out_bytes,
        run.err.encode(),
        *(path.read_bytes() for path in recording.rglob("*") if path.is_file()),
    ]
    for secret in secrets:
        assert not [text for text in said for form in _forms(secret) if form in text]


def test_a_refused_header_is_named_and_not_the_variable_of_the_key(mcode: Mcode, peer: Peer) -> None:
    _send(mcode, '"Authorization" = "Bearer h3ader-t0ken-0001", "x-api-key" = "x"')
    peer.script(status(401, {"error": {"message": "no"}}))
    run = mcode.exec("go", *JSON)
    assert (run.code, "FAKE_KEY" in run.err + run.out) == (77, False)
    assert "in place of a key" in run.result["error"]["message"]


# the environment of commands

SECRETS = {
    "FAKE_KEY": KEY,
    "OPENAI_API_KEY": "sk-not-for-children-1",
    "GITHUB_TOKEN": "ghp_notforchildren",
    "MY_SECRET": "s3cr3t-value",
    "DB_PASSWORD": "db-pass-value",
    "PASSWORD_FILE_X": "pw-value-xyz",
    "AWS_ACCESS_KEY_ID": "AKIAXXXXXXXX",
    "AWS_PROFILE": "aws-profile-value",
    "ACTIONS_RUNTIME_URL": "actions-value",
    "GITHUB_ENV": "/tmp/github-env",
    "GITHUB_OUTPUT": "/tmp/github-output",
    "SSH_AUTH_SOCK": "/tmp/ssh-sock",
    "MCODE_MODEL": "fake/big-1",
    "my_token": "lower-case-token",
    "COPY_OF_IT": KEY,
}


def test_a_command_sees_no_secret(mcode: Mcode, peer: Peer) -> None:
    peer.script(
        call("bash", {"command": "env > seen; export -p >> seen; cat /proc/$$/environ >> seen"}), say("done")
    )
    mcode.exec("go", "--allow", "bash", env=SECRETS).check()
    seen = (mcode.workspace / "seen").read_text()
    assert "PATH=" in seen
    for name, value in SECRETS.items():
        assert value not in seen, name
        assert f"{name}=" not in seen, name


@pytest.mark.parametrize("way", ["flag", "config"])
def test_a_named_variable_is_passed_and_no_other(mcode: Mcode, peer: Peer, way: str) -> None:
    flags = ["--env", "MY_SECRET", "--env", "AWS_PROFILE"] if way == "flag" else []
    if way == "config":
        mcode.configure(tables='[env]\npass = ["MY_SECRET", "AWS_PROFILE"]')
    peer.script(call("bash", {"command": "env > seen"}), say("done"))
    mcode.exec("go", *flags, env=SECRETS).check()
    seen = (mcode.workspace / "seen").read_text().splitlines()
    assert "MY_SECRET=s3cr3t-value" in seen
    assert "AWS_PROFILE=aws-profile-value" in seen
    assert not [line for line in seen if "GITHUB_TOKEN" in line or KEY in line]


def test_search_tools_run_without_secrets_too(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("rg", "git"):
        (programs / name).write_text(f"#!/bin/sh\nenv > {tmp_path}/seen-{name}-$$\nexit 1\n")
        (programs / name).chmod(0o755)
    (mcode.workspace / "a").write_text("x\n")
    peer.script(call("grep", {"pattern": "x"}) + call("glob", {"pattern": "*"}), say("done"))
    mcode.exec("go", env={**SECRETS, "PATH": f"{programs}:{os.environ['PATH']}"}).check()
    found = list(tmp_path.glob("seen-*"))
    assert found
    for seen in found:
        assert KEY not in seen.read_text(), seen


# other users and children that look

unprivileged = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root to become somebody else"
)


@pytest.fixture
def stranger(peer: Peer) -> Iterator[Mcode]:
    """An installation of a user without privileges and without a passwd entry."""
    root = Path(tempfile.mkdtemp(prefix="stranger-", dir="/tmp"))
    installation = Mcode(root, peer)
    for path in (root, *root.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    os.chmod(root, 0o755)
    who = ["setpriv", "--reuid", str(STRANGER), "--regid", str(STRANGER), "--clear-groups"]
    installation.command = [*who, *installation.command]
    try:
        yield installation
        installation.close()
    finally:
        shutil.rmtree(root)


@unprivileged
def test_a_child_cannot_read_the_environment_or_memory_of_its_mcode(stranger: Mcode, peer: Peer) -> None:
    look = (
        "p=$PPID; while [ $p -gt 1 ]; do echo pid $p; cat /proc/$p/environ; head -c 10 /proc/$p/mem;"
        " ls -l /proc/$p/fd; p=$(awk '/^PPid/{print $2}' /proc/$p/status);"
        " grep -q mcode_exec /proc/$p/cmdline || break; done; id -u; echo end"
    )
    peer.script(call("bash", {"command": look}), say("done"))
    run = stranger.exec("go", *STREAM, "--permission", "off").check()
    output = str(run.of_type("item.completed"))
    assert f"{STRANGER}" in output
    assert "Permission denied" in output
    assert "MCODE_HOME" not in output
    assert KEY not in json.dumps(peer.last.json)


def test_what_is_kept_for_people_stays_masked_when_the_secret_is_out_of_sight(
    mcode: Mcode, peer: Peer
) -> None:
    other = "oth3r-token-value"
    prompt = f"use {KEY} and {other}"
    peer.script(call("bash", {"command": f"echo {KEY} {other}"}), say(f"I used {KEY} and {other}"))
    flags = ("--title", f"with {other}", "--request-id", "r1")
    session = mcode.exec(prompt, *JSON, *flags, env={"DEPLOY_TOKEN": other}).check().result["sessionId"]
    config = mcode.config.read_text()
    mcode.config.write_text("")
    for args in (
        ["sessions", "export", session],
        ["sessions", "show", session],
        ["sessions", "show", session, "--output-format", "json"],
        ["sessions", "list", "--all"],
    ):
        run = mcode.run(*args, env={"FAKE_KEY": None}).check(0)
        assert KEY not in run.out
        assert other not in run.out
        assert "***" in run.out
    mcode.config.write_text(config)
    replayed = mcode.exec(prompt, *JSON, *flags).check()
    assert len(peer.calls) == 2, "the first run's result"
    assert other not in replayed.out
    for path in mcode.data.glob("mcode.db*"):
        assert other.encode() not in path.read_bytes(), "no row has it, receipts included"
        assert KEY.encode() not in path.read_bytes()
    assert other in json.dumps(peer.calls[1].json), "the model got it"


def test_no_child_finds_a_secret_in_the_environment_its_mcode_was_started_with(
    mcode: Mcode, peer: Peer
) -> None:
    look = "tr '\\0' '\\n' </proc/$PPID/environ | rev; echo end"
    peer.script(call("bash", {"command": look}), call("bash", {"command": look}), say("done"))
    env = {"MY_API_TOKEN": "t0ken-abcdefgh", "EMPTY_KEY": "", "HARMLESS": "harmless-value"}
    run = mcode.exec("go", *STREAM, "--permission", "off", env=env).check()
    output = str(run.of_type("item.completed"))
    assert "end" in output
    for secret in (KEY, env["MY_API_TOKEN"]):
        assert secret[::-1] not in output
    if os.geteuid() == 0:
        assert env["HARMLESS"][::-1] in output, "root reads what is left"


@unprivileged
def test_what_a_run_leaves_is_readable_by_its_user_only(stranger: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "head -c 300000 /dev/zero | tr '\\0' x"}), say("done"))
    stranger.exec("go", "--events", "e", "--result", "r").check()
    for path in (stranger.data, *stranger.data.rglob("*")):
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


def test_a_key_on_standard_error_of_its_command_or_a_wide_open_key_file_is_told(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    secret = "k3y-on-stderr-1234"
    program = f"import sys; sys.stderr.write('{secret}'); sys.exit(3)"
    config = mcode.config.read_text()
    command = json.dumps([sys.executable, "-c", program])
    mcode.config.write_text(config.replace('api_key = "${FAKE_KEY}"', f"api_key_command = {command}"))
    run = mcode.exec("go", *JSON)
    assert run.code in (3, 77), run
    assert secret not in run.err + run.out.replace(command[1:-1], "")
    assert peer.calls == []

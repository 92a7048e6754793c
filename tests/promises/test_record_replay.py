"""--record keeps a run, and a provider whose api is `replay` plays it back without a network."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer
from tests.support.pictures import png
from tests.support.steps import (
    CUT,
    Gate,
    answer,
    call,
    forever,
    gated,
    hang,
    raw,
    say,
    stall_after,
    status,
    think,
)
from tests.support.wire import CHAT

JSON = ("--output-format", "json")
STREAM = ("--output-format", "stream-json")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def at_another_address(path: Path) -> None:
    manifest = json.loads(path.read_text())
    manifest["models"][0]["baseUrl"] = "ftp://host/v1"
    path.write_text(json.dumps(manifest))


def replay_with(mcode: Mcode, recording: str | Path, more: str = "") -> None:
    """From here on there is no server: only the recording can answer."""
    mcode.configure(
        tables=f"""
[providers.tape]
api = "replay"
path = "{recording}"
{more}
"""
    )


def play(mcode: Mcode, *args: str, **how: Any) -> Run:
    return mcode.exec(*args, "--model", "tape/big-1", **how)


def test_a_run_is_repeated_from_its_recording(mcode: Mcode, peer: Peer, tmp_path: Path, api: str) -> None:
    peer.script(
        answer(think("hm"), call("bash", {"command": "echo one; date"}), call("list", {})),
        call("read", {"file_path": str(mcode.workspace / "a.txt")}),
        say("the answer"),
    )
    (mcode.workspace / "a.txt").write_text("content of a\n")
    made = mcode.exec("go", *JSON, "--record", tmp_path / "rec").check().result
    asked = len(peer.calls)
    (mcode.workspace / "a.txt").unlink()
    replay_with(mcode, tmp_path / "rec")
    played = play(mcode, "go", *JSON).check().result
    assert len(peer.calls) == asked
    assert played["output"] == made["output"] == "the answer"
    assert played["usage"] == made["usage"]
    assert made["costUsd"] is not None
    assert played["costUsd"] is None
    assert (played["steps"], played["toolCalls"], played["toolFailures"]) == (3, 3, [])
    assert played["model"] == {"providerId": "tape", "modelId": "big-1"}
    (row, *_) = mcode.query("SELECT cost_usd FROM token_usage ORDER BY row DESC")
    assert row["cost_usd"] is None


def test_a_recording_is_private_readable_and_without_secrets(
    mcode: Mcode, peer: Peer, tmp_path: Path, api: str
) -> None:
    secret = "sesame-9f8e7d6c5b4a"
    # the answer says the secret in pieces, none of which is one
    peer.script(
        call("bash", {"command": "echo $UNUSED; cat secret.txt"}),
        answer(say(f"it is {secret}, I think"), piece=3),
    )
    (mcode.workspace / "secret.txt").write_text(secret)
    mcode.exec("go", "--record", "rec", env={"MY_TOKEN": secret}).check()
    directory = mcode.workspace / "rec"
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert sorted(files) == [
        "0001.json",
        "0001.request.json",
        "0001.response",
        "0002.json",
        "0002.request.json",
        "0002.response",
        "recording.json",
        "tools.jsonl",
    ]
    assert oct(directory.stat().st_mode & 0o777) == "0o700"
    assert {oct(path.stat().st_mode & 0o777) for path in directory.iterdir()} == {"0o600"}
    everything = b"".join(files.values())
    assert secret.encode() not in everything
    assert b"fake-key" not in everything
    assert secret[:6].encode() not in files["0002.response"]
    assert json.loads(files["0001.request.json"])["model"] == "big-1"
    exchange = json.loads(files["0002.json"])
    assert exchange["status"] == 200
    assert sum(size for _, size in exchange["pieces"]) == len(files["0002.response"])
    assert [at for at, _ in exchange["pieces"]] == sorted(at for at, _ in exchange["pieces"])
    manifest = json.loads(files["recording.json"])
    assert (manifest["format"], manifest["version"]) == ("mcode-recording", 1)
    (tool,) = files["tools.jsonl"].splitlines()
    assert json.loads(tool)["outcome"]["content"].startswith("\n***")
    # what is masked stands for anything
    replay_with(mcode, directory)
    assert play(mcode, "go").check().out == "it is ***, I think\n"


def test_a_recording_moves_to_another_place(mcode: Mcode, peer: Peer, tmp_path: Path, api: str) -> None:
    peer.script(
        call("read", {"file_path": str(mcode.workspace / "a.txt")}),
        answer(call("write", {"file_path": str(mcode.workspace / "b.txt"), "content": "B"}), piece=2),
        say(f"wrote {mcode.workspace}/b.txt"),
    )
    (mcode.workspace / "a.txt").write_text("A")
    mcode.exec("go", "--record", tmp_path / "rec").check()
    other = Mcode(tmp_path / "elsewhere", None, api=api)
    (other.workspace / "a.txt").write_text("A")
    replay_with(other, tmp_path / "rec")
    assert play(other, "go").check().out == f"wrote {other.workspace}/b.txt\n"
    assert not (other.workspace / "b.txt").exists()
    replay_with(other, tmp_path / "rec", 'tools = "live"')
    assert play(other, "go").check().out == f"wrote {other.workspace}/b.txt\n"
    assert (other.workspace / "b.txt").read_text() == "B"
    other.close()


def test_what_the_tools_give_back_now_is_compared_where_they_run(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    peer.script(call("bash", {"command": "cat a.txt"}), say("done"))
    (mcode.workspace / "a.txt").write_text("it was so")
    mcode.exec("go", "--record", tmp_path / "rec").check()
    (mcode.workspace / "a.txt").write_text("it is not")
    replay_with(mcode, tmp_path / "rec", 'tools = "live"')
    run = play(mcode, "go", *STREAM).check(4)
    error = run.result["error"]
    assert error["code"] == "REPLAY_MISMATCH"
    assert "request 2" in error["message"]
    assert "it was so" in error["message"]
    assert "it is not" in error["message"]
    assert run.of_type("llm.retry") == []


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (("another prompt",), "another prompt"),
        (("go", "--append-system-prompt", "Be brief."), "Be brief."),
        (("go", "--tools", "read"), "tools: recorded 8 entries, now 1"),
    ],
)
def test_another_request_is_an_error_that_shows_the_difference(
    mcode: Mcode, peer: Peer, tmp_path: Path, args: tuple[str, ...], shown: str
) -> None:
    mcode.exec("go", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec")
    error = play(mcode, *args, *JSON).check(4).result["error"]
    assert error["code"] == "REPLAY_MISMATCH"
    assert shown in error["message"]


def test_a_run_that_asks_more_or_less_than_the_recording_is_told(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    peer.script(call("bash", {"command": "echo 1"}), say("done"))
    mcode.exec("go", "--record", tmp_path / "rec").check()
    for name in ("0002.json", "0002.request.json", "0002.response"):
        (tmp_path / "rec" / name).rename(tmp_path / name)
    replay_with(mcode, tmp_path / "rec")
    error = play(mcode, "go", *JSON).check(4).result["error"]
    assert error["code"] == "REPLAY_MISMATCH"
    assert "holds 1 request" in error["message"]
    for name in ("0002.json", "0002.request.json", "0002.response"):
        (tmp_path / name).rename(tmp_path / "rec" / name)
    for kind in ("json", "request.json", "response"):
        (tmp_path / "rec" / f"0003.{kind}").write_bytes((tmp_path / "rec" / f"0002.{kind}").read_bytes())
    run = play(mcode, "go", *STREAM).check()
    assert [notice["code"] for notice in run.of_type("notice")] == ["replay.unused"]


def test_failures_are_played_back_without_their_waits(
    mcode: Mcode, peer: Peer, tmp_path: Path, api: str
) -> None:
    mcode.configure(retry='base_delay = "20ms"')
    peer.script(
        status(503, {"error": {"message": "try later"}}),
        answer(say("half"), ending=CUT),
        call("bash", {"command": "echo 1"}),
        status(429, {"error": {"message": "slow down"}}, headers={"retry-after": "1"}),
        say("done"),
    )
    made = mcode.exec("go", *STREAM, "--record", tmp_path / "rec").check()
    mcode.configure(retry='base_delay = "20s"')
    replay_with(mcode, tmp_path / "rec")
    played = play(mcode, "go", *STREAM).check()
    assert played.result["output"] == "done"
    assert [event["code"] for event in played.of_type("llm.retry")] == [
        event["code"] for event in made.of_type("llm.retry")
    ]
    assert played.result["retries"] == made.result["retries"] == 3


def test_a_call_that_failed_for_good_fails_again(mcode: Mcode, peer: Peer, tmp_path: Path, api: str) -> None:
    mcode.configure(retry='max_retries = 2\nbase_delay = "10ms"')
    peer.script(forever(status(529, {"error": {"message": "overloaded"}})))
    made = mcode.exec("go", *JSON, "--record", tmp_path / "rec").check(69).result
    replay_with(mcode, tmp_path / "rec")
    played = play(mcode, "go", *JSON).check(69).result
    assert played["error"]["code"] == made["error"]["code"]
    assert played["error"]["httpStatus"] == made["error"]["httpStatus"] == 529


def test_a_stalled_stream_stalls_again_at_once(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    mcode.configure(retry='max_retries = 0\n[timeouts]\nidle = "300ms"\nfirst_byte = "2s"')
    peer.script(stall_after("half an"))
    made = mcode.exec("go", *JSON, "--record", tmp_path / "rec").check(69).result
    mcode.configure(retry="max_retries = 0")
    replay_with(mcode, tmp_path / "rec")
    played = play(mcode, "go", *JSON, timeout=20).check(69).result
    assert played["error"]["code"] == made["error"]["code"] == "LLM_STALLED"
    assert "the recorded run gave request 1 up after " in played["error"]["message"]
    assert " ms after what had come last" in played["error"]["message"]


def test_a_run_that_was_stopped_leaves_a_recording_of_what_there_was(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    peer.script(call("bash", {"command": "echo 1"}), hang())
    running = mcode.start("exec", "go", *JSON, "--record", str(tmp_path / "rec"))
    peer.wait_for(2)
    running.process.send_signal(signal.SIGTERM)
    running.finish().check(-signal.SIGTERM)
    exchange = json.loads((tmp_path / "rec" / "0002.json").read_text())
    assert (exchange["status"], exchange["end"]) == (None, "given-up")
    replay_with(mcode, tmp_path / "rec")
    # with the retries of the default: that run made none, so none can follow
    error = play(mcode, "go", *JSON).check(69).result["error"]
    assert error["code"] == "LLM_STALLED"
    assert f"the recorded run gave request 2 up after {exchange['endMs']} ms" in error["message"]
    assert " within " not in error["message"]


def test_a_run_that_was_killed_leaves_the_request_that_was_under_way(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    peer.script(call("bash", {"command": "echo 1"}), hang())
    running = mcode.start("exec", "go", "--record", str(tmp_path / "rec"))
    peer.wait_for(2)
    running.process.kill()
    running.finish()
    assert (tmp_path / "rec" / "0002.request.json").exists()
    replay_with(mcode, tmp_path / "rec")
    error = play(mcode, "go", *JSON).check(4).result["error"]
    assert error["code"] == "REPLAY_MISMATCH"
    assert "no answer to request 2" in error["message"]


def test_strict_means_byte_for_byte(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(call("bash", {"command": "echo 1"}), say("done"))
    mcode.exec("go", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec", "strict = true")
    # the ids that stand in the second request are of this run
    error = play(mcode, "go", *JSON).check(4).result["error"]
    assert error["message"].startswith("request 2 is not the recorded one: byte ")
    peer.script(say("no tools"))
    mcode.exec("go", "--record", tmp_path / "plain").check()
    replay_with(mcode, tmp_path / "plain", "strict = true")
    assert play(mcode, "go").check().out == "no tools\n"


def test_a_fallback_is_recorded_and_played_back(mcode: Mcode, peer: Peer, tmp_path: Path, api: str) -> None:
    spare = f"""
[providers.spare]
api = "{CHAT}"
base_url = "{peer.url}/v1"
api_key = "${{FAKE_KEY}}"
"""
    mcode.configure(retry="max_retries = 0", tables=spare)
    peer.script(call("bash", {"command": "echo 1"}), status(503), say("from the spare"))
    mcode.exec("go", "--fallback-model", "spare/small-1", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec")
    run = play(mcode, "go", "--fallback-model", "tape/small-1", *STREAM).check()
    assert run.result["output"] == "from the spare"
    (switch,) = run.of_type("model.switched")
    assert switch["to"] == {"providerId": "tape", "modelId": "small-1"}


def test_two_models_of_one_name_are_told_apart_by_their_providers(
    mcode: Mcode, peer: Peer, tmp_path: Path, api: str
) -> None:
    spare = f'[providers.spare]\napi = "{CHAT}"\nbase_url = "{peer.url}/v1"\napi_key = "${{FAKE_KEY}}"'
    mcode.configure(retry="max_retries = 0", tables=spare)
    peer.script(status(503), say("from the spare"))
    mcode.exec("go", "--fallback-model", "spare/big-1", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec")
    both = ("--model", "tape/fake/big-1", "--fallback-model", "tape/spare/big-1")
    assert mcode.exec("go", *both).check().out == "from the spare\n"
    assert "tape/spare/big-1" in play(mcode, "go").check(3).err


@pytest.mark.parametrize("tools", ["recorded", "live"])
def test_a_tool_output_that_was_cut_is_the_same_in_the_replay(
    mcode: Mcode, peer: Peer, tmp_path: Path, api: str, tools: str
) -> None:
    peer.script(call("bash", {"command": "seq 1 6000"}), say("cut"))
    mcode.exec("go", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec", f'tools = "{tools}"')
    assert play(mcode, "go").check().out == "cut\n"
    assert play(mcode, "go", "--ephemeral").check().out == "cut\n"


def test_a_command_whose_secret_is_masked_is_not_run(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(call("bash", {"command": "touch sesame-9f8e7d6c5b4a"}), say("done"))
    mcode.exec("go", "--record", tmp_path / "rec", env={"MY_TOKEN": "sesame-9f8e7d6c5b4a"}).check()
    replay_with(mcode, tmp_path / "rec", 'tools = "live"')
    assert "is masked in the recording" in play(mcode, "go").check(4).err
    assert not any("*" in path.name for path in mcode.workspace.iterdir())


def test_a_recording_is_private_whatever_the_umask(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    old = os.umask(0o777)
    try:
        running = mcode.start("exec", "go", "--record", str(tmp_path / "rec"))
    finally:
        os.umask(old)
    running.finish().check()
    assert oct((tmp_path / "rec").stat().st_mode & 0o777) == "0o700"
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "rec").iterdir()} == {"0o600"}


@pytest.mark.parametrize(
    "secret", ['pa"ss-zz9x"word', "-----BEGIN X-----\nMIIabcdef123\nZZZtail99\n-----END X-----"]
)
def test_a_secret_that_is_escaped_twice_is_masked(
    mcode: Mcode, peer: Peer, tmp_path: Path, api: str, secret: str
) -> None:
    peer.script(
        call("write", {"file_path": "key.json", "content": json.dumps({"key": secret})}),
        call("bash", {"command": "cat key.json"}),
        say("done"),
    )
    mcode.exec("go", "--record", tmp_path / "rec", env={"MY_PASSWORD": secret}).check()
    everything = b"".join(path.read_bytes() for path in (tmp_path / "rec").iterdir())
    assert b"MIIabcdef123" not in everything
    assert b"ss-zz9x" not in everything
    replay_with(mcode, tmp_path / "rec")
    assert play(mcode, "go", env={"MY_PASSWORD": secret}).check().out == "done\n"


def test_a_request_that_was_answered_before_says_that_nothing_is_recorded(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    mcode.exec("go", "--request-id", "r").check()
    run = mcode.exec("go", "--request-id", "r", "--record", tmp_path / "rec", *STREAM).check()
    assert [notice["code"] for notice in run.of_type("notice")] == ["record.nothing"]
    assert not (tmp_path / "rec").exists()
    mcode.exec("go", "--record", "-").check(2)


def test_a_key_that_was_read_again_is_one_in_the_replay_too(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("first-key-1234")
    tables = f"""
[providers.turning]
api = "{CHAT}"
base_url = "{peer.url}/v1"
api_key_command = ["sh", "-c", "cat {key}; echo second-key-5678 > {key}"]
"""
    mcode.configure(tables=tables)
    peer.script(status(401, {"error": {"message": "key expired"}}), say("done"))
    mcode.exec("go", "--model", "turning/m", "--record", tmp_path / "rec").check()
    assert len(list((tmp_path / "rec").glob("*.request.json"))) == 2
    replay_with(mcode, tmp_path / "rec")
    assert mcode.exec("go", "--model", "tape/m").check().out == "done\n"
    for path in (tmp_path / "rec").glob("0002.*"):
        path.unlink()
    assert mcode.exec("go", "--model", "tape/m", *JSON).check(77).result["error"]["code"] == "LLM_AUTH_ERROR"


def test_an_answer_that_a_proxy_may_have_given_is_told_as_that_in_the_replay(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    mcode.configure(
        tables=f"""
[providers.far]
api = "{CHAT}"
base_url = "http://gateway.example/v1"
api_key = "${{FAKE_KEY}}"
"""
    )
    peer.script(raw(b"<html>blocked</html>", status=403, headers={"content-type": "text/html"}))
    env = {"http_proxy": peer.url}
    made = mcode.exec("go", "--model", "far/m", *JSON, "--record", tmp_path / "rec", env=env)
    assert "the proxy" in made.result["error"]["message"]
    replay_with(mcode, tmp_path / "rec")
    played = mcode.exec("go", "--model", "tape/m", *JSON)
    assert played.code == made.code
    assert played.result["error"]["message"] == made.result["error"]["message"]


def test_images_that_tools_read_are_in_the_recording(
    mcode: Mcode, peer: Peer, tmp_path: Path, api: str
) -> None:
    mcode.configure(context="200_000\nimages = true")
    (mcode.workspace / "dot.png").write_bytes(png(3, 2))
    peer.script(call("read", {"file_path": "dot.png"}), say("a dot"))
    mcode.exec("go", "--record", tmp_path / "rec").check()
    (mcode.workspace / "dot.png").unlink()
    replay_with(mcode, tmp_path / "rec")
    assert play(mcode, "go").check().out == "a dot\n"


def test_a_replay_can_be_recorded(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(call("bash", {"command": "echo 1"}), say("done"))
    mcode.exec("go", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec")
    play(mcode, "go", "--record", tmp_path / "again").check()
    replay_with(mcode, tmp_path / "again")
    assert play(mcode, "go").check().out == "done\n"


def test_an_earlier_recording_is_replaced_when_the_turn_begins(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    peer.script(call("bash", {"command": "echo 1"}), say("one"), say("two"))
    mcode.exec("go", "--record", "rec", "--request-id", "r").check()
    # a request that is only repeated records nothing
    assert mcode.exec("go", "--record", "rec", "--request-id", "r").check().out == "one\n"
    assert (mcode.workspace / "rec" / "tools.jsonl").exists()
    mcode.exec("go", "--model", "nobody/x", "--record", "rec").check(3)
    assert (mcode.workspace / "rec" / "tools.jsonl").exists()
    mcode.exec("go", "--record", "rec").check()
    assert sorted(path.name for path in (mcode.workspace / "rec").iterdir()) == [
        "0001.json",
        "0001.request.json",
        "0001.response",
        "recording.json",
    ]
    replay_with(mcode, mcode.workspace / "rec")
    run = play(mcode, "go", "--record", "rec", *JSON).check(2)
    assert "is what is played back" in run.result["error"]["message"]
    play(mcode, "go", "--record", "rec", "--dry-run").check(2)


def test_two_runs_do_not_record_into_one_directory(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    gate = Gate()
    peer.script(gated(say("first"), gate), say("second"))
    running = mcode.start("exec", "go", "--record", "rec")
    peer.wait_for(1)
    run = mcode.exec("go", "--record", "rec", *JSON).check(2)
    assert "another run is recording" in run.result["error"]["message"]
    gate.open()
    running.finish().check()
    mcode.exec("go", "--record", "rec").check()


def test_a_recording_goes_into_a_new_or_empty_directory(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    run = mcode.exec("go", "--record", tmp_path / "full", *JSON).check(2)
    assert "holds other things than a recording" in run.result["error"]["message"]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]
    run = mcode.exec("go", "--record", tmp_path / "full" / "mine" / "x", *JSON).check(74)
    assert run.result["error"]["code"] == "OUTPUT_WRITE_FAILED"
    assert mcode.exec("go", "--record", "", *JSON).code == 2
    assert peer.calls == []
    assert mcode.session_dirs() == []
    (tmp_path / "empty").mkdir()
    mcode.exec("go", "--record", tmp_path / "empty").check()
    dry = mcode.exec("go", "--record", tmp_path / "made", "--dry-run", *JSON).check()
    assert json.loads(dry.out)["invocation"]["outputs"] == {"--record": str(tmp_path / "made")}
    assert not (tmp_path / "made").exists()
    mcode.exec("go", "--record", tmp_path / "empty", "--dry-run").check()
    mcode.exec("go", "--record", tmp_path / "full", "--dry-run").check(2)
    mcode.exec("go", "--record", mcode.data / "sessions" / "x").check(74)


def _link(path: Path) -> None:
    target = path.parent.parent / "target"
    path.replace(target)
    path.symlink_to(target)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("foreign", "change"),
    [
        ("recording.json", lambda rec: (rec / "recording.json").write_text('{"takes": [1, 2]}')),
        ("recording.json", lambda rec: _link(rec / "recording.json")),
        ("0001.json", lambda rec: (rec / "0001.json").write_text('{"page": 1}')),
        ("0001.json", lambda rec: _link(rec / "0001.json")),
        ("0001.request.json", lambda rec: (rec / "0001.request.json").write_text("[]")),
        ("0003.json", lambda rec: (rec / "0003.json").mkdir()),
        ("0003.response", lambda rec: (rec / "0003.response").write_text("x")),
        ("2024.request.json", lambda rec: (rec / "2024.request.json").write_text("{}")),
        ("tools.jsonl", lambda rec: (rec / "tools.jsonl").write_text('{"tool": "saw"}\n')),
        ("tools.jsonl", lambda rec: fifo(rec / "tools.jsonl")),
        ("0001.json~", lambda rec: (rec / "0001.json~").write_text("x")),
    ],
)
def test_what_is_not_of_a_recording_is_not_replaced(
    mcode: Mcode, peer: Peer, tmp_path: Path, foreign: str, change: Any
) -> None:
    peer.script(call("bash", {"command": "echo 1"}), say("done"))
    rec = tmp_path / "rec"
    mcode.exec("go", "--record", rec).check()
    change(rec)

    def state() -> dict[str, tuple[int, int]]:
        return {path.name: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in rec.iterdir()}

    before = state()
    run = mcode.exec("go", "--record", rec, *JSON).check(2)
    assert f"holds other things than a recording, such as '{foreign}'" in run.result["error"]["message"]
    assert state() == before
    mcode.exec("go", "--record", rec, "--dry-run").check(2)
    assert len(peer.calls) == 2


def test_a_recording_that_a_run_died_writing_is_replaced(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(call("bash", {"command": "echo 1"}), say("done"), say("again"))
    rec = tmp_path / "rec"
    mcode.exec("go", "--record", rec).check()
    for path in rec.iterdir():
        path.write_bytes(path.read_bytes()[:20])
    (rec / "0002.json").unlink()
    mcode.exec("go", "--record", rec).check()
    assert sorted(path.name for path in rec.iterdir()) == [
        "0001.json",
        "0001.request.json",
        "0001.response",
        "recording.json",
    ]


@pytest.mark.parametrize(
    "args",
    [
        ("-o", "rec/recording.json"),
        ("--events", "rec/0001.json"),
        ("--result", "rec"),
        ("--session-id-file", "../work/rec/sub/id"),
        ("--events", "link/x"),
        ("--record", "out/rec", "-o", "out"),
    ],
)
def test_nothing_else_is_written_into_a_recording(
    mcode: Mcode, peer: Peer, tmp_path: Path, args: tuple[str, ...]
) -> None:
    (mcode.workspace / "link").symlink_to("rec")
    run = mcode.exec("go", "--record", "rec", *args, *JSON).check(2)
    assert "cannot be combined on one target" in run.result["error"]["message"]
    mcode.exec("go", "--record", "rec", *args, "--dry-run").check(2)
    assert [path.name for path in mcode.workspace.iterdir()] == ["link"]
    assert peer.calls == []


def test_a_result_file_in_a_recording_is_refused_without_damage(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("go", "--record", "rec").check()
    before = (mcode.workspace / "rec" / "0001.json").read_bytes()
    mcode.exec("go", "--record", "rec", "--result", "rec/0001.json").check(2)
    assert (mcode.workspace / "rec" / "0001.json").read_bytes() == before


def test_a_recording_that_cannot_be_written_ends_the_run(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(call("bash", {"command": "rm -r rec"}), say("done"))
    run = mcode.exec("go", "--record", "rec", *JSON).check(74)
    assert run.result["error"]["code"] == "OUTPUT_WRITE_FAILED"
    assert "--record" in run.result["error"]["message"]
    assert len(peer.calls) == 1


@pytest.mark.parametrize("trusted", [(), ("--trust-workspace",)])
@pytest.mark.parametrize("text", ['api = "replay"\npath = "rec"', 'path = "rec"', 'tools = "live"'])
def test_only_the_users_own_file_names_a_replay(
    mcode: Mcode, peer: Peer, tmp_path: Path, trusted: tuple[str, ...], text: str
) -> None:
    mcode.exec("go", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec")
    (mcode.workspace / ".mcode").mkdir()
    (mcode.workspace / ".mcode" / "config.toml").write_text(f"[providers.tape]\n{text}\n")
    run = play(mcode, "go", *trusted, *JSON).check(3)
    assert "providers.tape" in run.result["error"]["message"] or "'tape'" in run.result["error"]["message"]


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda rec: (rec / "recording.json").unlink(), "is no recording"),
        (lambda rec: (rec / "recording.json").write_text("{"), "cannot be used"),
        (lambda rec: (rec / "recording.json").write_text('{"format":"x","version":9}'), "cannot be used"),
        (lambda rec: (rec / "tools.jsonl").write_text("no\n"), "cannot be used"),
        (lambda rec: (rec / "0001.json").write_text("[]"), "cannot be used"),
        (lambda rec: (rec / "0001.request.json").unlink(), "it lacks 0001.request.json"),
        (lambda rec: (rec / "0002.request.json").unlink(), "it lacks 0002.request.json"),
        (
            lambda rec: at_another_address(rec / "recording.json"),
            "recording.json: baseUrl of big-1 must begin",
        ),
        (lambda rec: (rec / "0001.response").unlink(), "cannot be read"),
        (lambda rec: (rec / "0001.request.json").write_text("{"), "no JSON"),
        (lambda rec: (rec / "0001.response").write_text("data: {}"), "not as long as its pieces"),
        (lambda rec: fifo(rec / "0001.response"), "no regular file"),
        (lambda rec: fifo(rec / "tools.jsonl"), "no regular file"),
    ],
)
def test_a_damaged_recording_is_a_sentence(
    mcode: Mcode, peer: Peer, tmp_path: Path, damage: Any, said: str
) -> None:
    peer.script(call("bash", {"command": "echo 1"}), say("done"))
    mcode.exec("go", "--record", tmp_path / "rec").check()
    damage(tmp_path / "rec")
    replay_with(mcode, tmp_path / "rec")
    run = play(mcode, "go", *JSON)
    assert run.code in (3, 4)
    assert said in run.result["error"]["message"]


def test_a_replay_has_no_price_and_a_limit_on_cost_says_so(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    mcode.exec("go", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec")
    error = play(mcode, "go", "--max-cost", "1", *JSON).check(3).result["error"]
    assert error["code"] == "PRICE_UNKNOWN"
    assert "a replay costs nothing" in error["message"]
    assert "`cost`" not in error["message"]
    error = mcode.exec("go", "--model", "tape/other", *JSON).check(3).result["error"]
    assert error["code"] == "MODEL_UNKNOWN"
    assert "tape/big-1" in error["message"]


def test_doctor_and_models_know_replays(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    mcode.exec("go", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec")
    said = mcode.run("doctor", "--model", "tape/big-1").check().out
    assert f"plays {tmp_path / 'rec'} back" in said
    assert "TAPE_API_KEY" not in said
    (row,) = json.loads(mcode.run("models", "tape", *JSON).check().out)["models"]
    assert (row["model"], row["source"], row["input"]) == ("tape/big-1", "recording", None)
    assert (row["context"], row["output"]) == (200_000, 16_384)
    (tmp_path / "rec" / "recording.json").unlink()
    assert "is no recording" in mcode.run("models", "tape").check(3).err
    assert "is no recording" in mcode.run("doctor").out
    mcode.run("models").check()


def test_a_refused_key_is_the_recorded_runs_in_its_replay(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(status(401, {"error": {"message": "no such key"}}))
    mcode.exec("hi", "--record", tmp_path / "rec").check(77)
    replay_with(mcode, tmp_path / "rec")
    assert "its key is from the recorded run" in play(mcode, "hi").check(77).err


def test_a_recorded_model_is_also_called_by_its_full_name(mcode: Mcode, peer: Peer, tmp_path: Path) -> None:
    peer.script(say("the answer"))
    mcode.exec("hi", "--record", tmp_path / "rec").check()
    replay_with(mcode, tmp_path / "rec")
    assert mcode.exec("hi", "--model", "tape/fake/big-1").check().out == "the answer\n"

"""Every class of ending has its own exit code, one sentence, and a result that says the same."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import KEY, Mcode, Run
from tests.support.peer import Peer
from tests.support.steps import (
    CUT,
    answer,
    call,
    forever,
    hang,
    raw,
    reset,
    say,
    status,
    stream_error,
    think,
)
from tests.support.wire import CHAT

FEW_RETRIES = 'base_delay = "10ms"\nmax_retries = 2'


def both_ways(mcode: Mcode, *args: str, **how: Any) -> tuple[Run, Run]:
    """The same invocation in text and in json; what they must have in common is checked here."""
    text = mcode.exec(*args, **how)
    as_json = mcode.exec(*args, "--output-format", "json", **how)
    result = as_json.result
    assert as_json.code == text.code == result["exitCode"], (text, as_json)
    assert (result["status"] == "succeeded") == (text.code == 0)
    assert result["retryable"] == (text.code in (69, 75))
    if text.code != 0:
        assert result["error"]["code"]
        assert result["output"] is None or text.code == 5
        assert text.out == "" or text.code == 5
        assert text.err.strip(), "a failure without a word on stderr"
        assert "Traceback" not in text.err + as_json.err
    assert all(line.startswith("mcode: ") for line in (text.err + as_json.err).splitlines())
    assert KEY not in text.err + as_json.err + as_json.out
    return text, as_json


RATE_LIMITED = status(429, {"error": {"type": "rate_limit_error", "message": "limit"}})


def test_a_run_of_nothing_but_429_is_no_success(mcode: Mcode, peer: Peer, api: str) -> None:
    mcode.configure(retry=FEW_RETRIES)
    peer.script(forever(RATE_LIMITED))
    text, as_json = both_ways(mcode, "hi")
    assert text.code == 69
    assert as_json.result["error"]["code"] == "LLM_RATE_LIMITED"
    assert as_json.result["error"]["httpStatus"] == 429
    assert as_json.result["retries"] == 2
    assert len(peer.calls) == 6


def test_a_retried_error_that_recovers_leaves_no_mark_on_the_exit_code(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(status(503), say("done"))
    run = mcode.exec("hi", "--output-format", "json").check(0)
    result = run.result
    assert (result["status"], result["output"], result["retries"], result["error"]) == (
        "succeeded",
        "done",
        1,
        None,
    )


@pytest.mark.parametrize(
    ("step", "code", "name", "calls"),
    [
        (
            status(401, {"error": {"message": "invalid api key", "type": "authentication_error"}}),
            77,
            "LLM_AUTH_ERROR",
            1,
        ),
        (status(403, {"error": {"message": "no access"}}), 77, "LLM_AUTH_ERROR", 1),
        (status(402, {"error": {"message": "pay"}}), 77, "LLM_CREDITS_EXHAUSTED", 1),
        (
            status(429, {"error": {"code": "insufficient_quota", "message": "quota"}}),
            77,
            "LLM_CREDITS_EXHAUSTED",
            1,
        ),
        (status(400, {"error": {"message": "no such parameter"}}), 4, "LLM_BAD_REQUEST", 1),
        (
            status(404, {"error": {"code": "model_not_found", "message": "no such model"}}),
            3,
            "MODEL_UNKNOWN",
            1,
        ),
        (
            status(
                400,
                {
                    "error": {
                        "code": "context_length_exceeded",
                        "message": "prompt is too long: 9 tokens > 8 maximum",
                    }
                },
            ),
            4,
            "LLM_CONTEXT_OVERFLOW",
            1,
        ),
        (status(500), 69, "LLM_UPSTREAM_ERROR", 3),
        (status(529, {"error": {"type": "overloaded_error"}}), 69, "LLM_CLUSTER_OVERLOADED", 3),
        (status(302, headers={"location": "http://127.0.0.1:9/"}), 3, "LLM_BAD_RESPONSE", 1),
        (raw(b"<html>hello</html>", headers={"content-type": "text/html"}), 3, "LLM_BAD_RESPONSE", 1),
        (reset(), 69, "LLM_UPSTREAM_ERROR", 3),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_each_answer_of_a_provider_has_its_code(
    mcode: Mcode, peer: Peer, step: Any, code: int, name: str, calls: int
) -> None:
    mcode.configure(retry=FEW_RETRIES)
    peer.script(forever(step))
    run = mcode.exec("hi", "--output-format", "json")
    error = run.result["error"]
    assert (run.code, run.result["exitCode"], error["code"]) == (code, code, name)
    assert len(peer.calls) == calls
    assert error["message"] in run.err


@pytest.mark.parametrize("code", [401, 402, 403])
def test_a_refused_key_is_named_by_its_provider_and_its_source_never_itself(
    mcode: Mcode, peer: Peer, code: int
) -> None:
    peer.script(forever(status(code, {"error": {"message": f"no: {KEY}"}})))
    text, as_json = both_ways(mcode, "hi")
    assert text.code == 77
    assert "provider 'fake', its key is from the variable FAKE_KEY" in text.err
    assert "FAKE_KEY" in as_json.result["error"]["message"]
    file = mcode.config.parent / "key.txt"
    file.write_text(KEY)
    config = mcode.config.read_text()
    mcode.config.write_text(config.replace('api_key = "${FAKE_KEY}"', 'api_key_file = "key.txt"'))
    text, _ = both_ways(mcode, "hi")
    assert f"its key is from the file {file}" in text.err


def test_a_provider_that_wants_a_key_after_all_is_told_so(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(status(401, {"error": {"message": "no" * 400}})))
    run = mcode.exec("hi", "--model", "ollama/any", env={"OLLAMA_BASE_URL": peer.url}).check(77)
    assert "provider 'ollama', which was asked without a key" in run.err


def test_an_overflow_says_what_to_do_and_nothing_leads_back_into_the_full_session(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(say("one"), forever(status(400, {"error": {"message": "prompt is too long"}})))
    mcode.exec("hi").check()
    text, as_json = both_ways(mcode, "hi", "--continue")
    assert text.code == 4
    assert "begin a new session" in text.err
    assert "continue with" not in text.err
    session = as_json.result["sessionId"]
    last = text.err.splitlines()[-1]
    assert last.startswith(f"mcode: session {session}, read it with: ")
    assert last.endswith(f"mcode sessions show {session}")


def test_a_refusal_without_words_says_that_there_are_none(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(api=CHAT)
    body = b'data: {"choices":[{"delta":{},"finish_reason":"content_filter"}]}\n\ndata: [DONE]\n\n'
    peer.script(forever(raw(body, headers={"content-type": "text/event-stream"})))
    run = mcode.exec("hi").check(4)
    assert "the model refused to answer: it gave no reason (content_filter)" in run.err


def test_a_401_is_an_authentication_failure_in_every_format(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(
        forever(status(401, {"error": {"message": "invalid api key", "type": "authentication_error"}}))
    )
    run = mcode.exec("hi", "--output-format", "stream-json").check(77)
    assert [e["type"] for e in run.events][-2:] == ["turn.failed", "exec.completed"]
    assert run.result["error"]["category"] == "provider"


@pytest.mark.parametrize(
    "body",
    [
        b"data: [DONE]\n\n",
        b'data: {"choices":[]}\n\ndata: [DONE]\n\n',
        b'data: {"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
        b"",
    ],
)
def test_an_empty_stream_never_counts_as_an_answer_over_chat(mcode: Mcode, peer: Peer, body: bytes) -> None:
    mcode.configure(api=CHAT, retry=FEW_RETRIES)
    peer.script(forever(raw(body, headers={"content-type": "text/event-stream"})))
    run = mcode.exec("hi", "--output-format", "json").check(69)
    assert run.result["error"]["code"] in ("LLM_EMPTY_RESPONSE", "LLM_UPSTREAM_ERROR")
    assert len(peer.calls) == 3


def test_an_anthropic_stream_without_a_block_is_empty(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(retry=FEW_RETRIES)
    start = {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}}
    body = "".join(
        f"event: {data['type']}\ndata: {json.dumps(data)}\n\n" for data in (start, {"type": "message_stop"})
    ).encode()
    peer.script(forever(raw(body, headers={"content-type": "text/event-stream"})))
    text, as_json = both_ways(mcode, "hi")
    assert (text.code, as_json.result["error"]["code"]) == (69, "LLM_EMPTY_RESPONSE")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "empty",
    [say(""), say("   \n"), say("\ufeff\u200b\u00a0\n\u200b", piece=1), think("only thoughts")],
    ids=["empty", "blank", "invisible", "thoughts"],
)
def test_an_answer_without_text_is_no_success(mcode: Mcode, peer: Peer, api: str, empty: Any) -> None:
    mcode.configure(retry=FEW_RETRIES)
    peer.script(forever(empty))
    run = mcode.exec("hi", "--output-format", "json").check(69)
    assert run.result["error"]["code"] == "LLM_EMPTY_RESPONSE"


def test_a_refused_connection_names_host_and_port(mcode: Mcode) -> None:
    mcode.configure(base_url="http://127.0.0.1:9/v1", retry=FEW_RETRIES)
    text, _as_json = both_ways(mcode, "hi")
    assert text.code == 69
    assert "127.0.0.1:9" in text.err
    assert "refused" in text.err.lower()


def test_a_host_that_does_not_resolve_is_named(mcode: Mcode) -> None:
    mcode.configure(base_url="http://no-such-host.invalid:8080/v1", retry=FEW_RETRIES)
    text, _ = both_ways(mcode, "hi")
    assert text.code == 69
    assert "no-such-host.invalid" in text.err
    assert "resolve" in text.err.lower()


def test_a_missing_key_names_the_variable_and_no_model_is_asked(mcode: Mcode, peer: Peer) -> None:
    text, as_json = both_ways(mcode, "hi", env={"FAKE_KEY": None})
    assert (text.code, as_json.result["error"]["code"]) == (77, "KEY_MISSING")
    assert "FAKE_KEY" in text.err
    assert not peer.calls


def test_a_missing_key_of_a_built_in_provider_names_its_usual_variable(mcode: Mcode) -> None:
    text, as_json = both_ways(mcode, "hi", "--model", "anthropic/claude-sonnet-4-5")
    assert (text.code, as_json.result["error"]["code"]) == (77, "KEY_MISSING")
    assert "ANTHROPIC_API_KEY" in text.err


def test_an_unknown_provider_is_a_configuration_error_that_names_it(mcode: Mcode, peer: Peer) -> None:
    text, as_json = both_ways(mcode, "hi", "--model", "no/such-model")
    assert (text.code, as_json.result["error"]["code"]) == (3, "MODEL_UNKNOWN")
    assert "no" in text.err
    assert not peer.requests


def test_without_any_model_the_line_to_add_is_said(mcode: Mcode) -> None:
    for make in (lambda: mcode.config.write_text("# nothing set\n"), mcode.config.unlink):
        make()
        run = mcode.exec("hi").check(3)
        assert 'model = "' in run.err


@pytest.mark.parametrize(
    "content", ["model = ", "modle = 'x/y'\n", "model = 3\n", "[limits]\nmax_steps = 0\n", "\xff"]
)
def test_a_bad_configuration_is_3_with_file_and_line(mcode: Mcode, peer: Peer, content: str) -> None:
    mcode.config.write_bytes(content.encode("latin-1"))
    run = mcode.exec("hi", "--output-format", "json").check(3)
    assert run.result["error"]["category"] == "config"
    assert "config.toml:" in run.err
    assert not peer.requests


def test_failed_tool_calls_are_counted_and_listed_in_a_success(mcode: Mcode, peer: Peer, api: str) -> None:
    (mcode.workspace / "ro").mkdir()
    (mcode.workspace / "ro").chmod(0o500)
    blocked = mcode.workspace / "ro" / "x" if os.geteuid() else mcode.workspace / "work.txt" / "x"
    if not os.geteuid():
        (mcode.workspace / "work.txt").write_text("a file, not a directory")
    peer.script(
        call("bash", {"command": "false"}),
        call("write", {"file_path": str(blocked), "content": "x"}),
        say("All done"),
    )
    result = mcode.exec("go", "--output-format", "json").check(0).result
    assert result["toolErrors"] == 2, result
    assert [one["tool"] for one in result["toolFailures"]] == ["bash", "write"]


def test_an_ask_that_nobody_answers_is_5_with_its_output(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(call("bash", {"command": "sudo true"}), say("could not"))
    run = mcode.exec("go", "--output-format", "json").check(5)
    result = run.result
    assert (result["status"], result["output"]) == ("interaction_required", "could not")
    assert result["error"]["code"] == "PERMISSION_ASKED"
    assert result["permissionDenials"][0]["verdict"] == "ask"
    peer.script(call("bash", {"command": "sudo true"}), say("could not"))
    text = mcode.exec("go").check(5)
    assert text.out == "could not\n"
    assert "--allow" in text.err


def test_on_ask_deny_leaves_the_exit_code_alone(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "sudo true"}), say("fine"))
    result = mcode.exec("go", "--on-ask", "deny", "--output-format", "json").check(0).result
    assert len(result["permissionDenials"]) == 1


def test_a_deny_rule_is_no_ask(mcode: Mcode, peer: Peer) -> None:
    peer.script(call("bash", {"command": "echo x"}), say("fine"))
    result = mcode.exec("go", "--deny", "bash:echo *", "--output-format", "json").check(0).result
    assert result["permissionDenials"][0]["verdict"] == "deny"


def test_three_identical_calls_with_identical_results_end_the_turn(mcode: Mcode, peer: Peer) -> None:
    peer.script(*(call("bash", {"command": "echo same"}, call_id=f"t{i}") for i in range(9)))
    run = mcode.exec("go", "--output-format", "json").check(4)
    assert run.result["error"]["code"] == "LOOP_DETECTED"


def test_a_busy_session_is_75_and_says_who_holds_it(mcode: Mcode, peer: Peer) -> None:
    peer.script(say("first"), hang())
    first = mcode.exec("hi", "--output-format", "json").check(0)
    session = first.result["sessionId"]
    holder = mcode.start("exec", "--session", session, "again")
    peer.wait_for(2)
    text, as_json = both_ways(mcode, "--session", session, "me too")
    assert (text.code, as_json.result["error"]["code"]) == (75, "session_busy")
    assert str(holder.pid) in text.err
    holder.send(signal.SIGTERM)
    assert holder.finish().code == -signal.SIGTERM


def test_a_store_that_others_lock_is_75(mcode: Mcode, peer: Peer) -> None:
    mcode.exec("hi").check(0)
    with sqlite3.connect(mcode.data / "mcode.db", isolation_level=None) as locker:
        locker.execute("BEGIN IMMEDIATE")
        run = mcode.exec("hi", "--output-format", "json", timeout=30)
        locker.execute("ROLLBACK")
    locker.close()
    run.check(75)
    assert run.result["error"]["code"] == "STORE_BUSY"
    assert len(peer.calls) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_data_directory_is_74_before_any_call(mcode: Mcode, peer: Peer) -> None:
    mcode.data.mkdir(mode=0o500)
    run = mcode.exec("hi", "--output-format", "json").check(74)
    assert run.result["error"]["category"] == "storage"
    assert not peer.calls


def test_a_data_directory_on_a_read_only_file_system_is_74_before_any_call(mcode: Mcode, peer: Peer) -> None:
    run = mcode.exec("hi", "--data-dir", "/proc/nowhere", "--output-format", "json").check(74)
    assert run.result["error"]["category"] == "storage"
    assert not peer.calls


@pytest.mark.parametrize(
    "content", [b"not a database at all, whatever it is" * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_damaged_database_is_74(mcode: Mcode, peer: Peer, content: bytes) -> None:
    mcode.data.mkdir()
    (mcode.data / "mcode.db").write_bytes(content)
    text, as_json = both_ways(mcode, "hi")
    assert (text.code, as_json.result["error"]["code"]) == (74, "STORE_FAILED")
    assert not peer.calls
    assert (mcode.data / "mcode.db").read_bytes() == content


def test_a_data_directory_that_is_a_file_is_74(mcode: Mcode, peer: Peer) -> None:
    mcode.data.write_text("a file")
    text, _ = both_ways(mcode, "hi")
    assert text.code == 74
    assert not peer.calls


def test_a_full_stdout_is_74(mcode: Mcode) -> None:
    with open("/dev/full", "wb") as full:
        for form in ("text", "json", "stream-json"):
            run = mcode.start("exec", "hi", "--output-format", form, stdout=full).finish()
            assert run.code == 74, (form, run)
            assert "stdout: cannot write the result: No space left on device" in run.err
            assert "closed" not in run.err


def test_an_unknown_session_is_4(mcode: Mcode, peer: Peer) -> None:
    text, as_json = both_ways(mcode, "--session", "mvs_" + "0" * 32, "hi")
    assert (text.code, as_json.result["error"]["code"]) == (4, "session_not_found")
    text, as_json = both_ways(mcode, "--continue", "hi")
    assert (text.code, as_json.result["error"]["code"]) == (4, "session_not_found")
    assert not peer.calls


def test_the_exit_code_1_is_never_used_and_the_result_goes_to_a_file_for_every_outcome(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    for step, code in ((say("ok"), 0), (status(400), 4), (status(401), 77)):
        peer.script(forever(step))
        run = mcode.exec("hi", "--result", file)
        assert run.code == code
        assert json.loads(file.read_text())["exitCode"] == code
        file.unlink()
    for args, code in (
        (("--nope",), 2),
        (("--model", "no/x", "hi"), 3),
        (("--session", "mvs_" + "1" * 32, "hi"), 4),
    ):
        run = mcode.exec(*args, "--result", file)
        assert run.code == code
        assert json.loads(file.read_text())["exitCode"] == code
        file.unlink()


def test_an_error_event_inside_a_stream_is_an_error(mcode: Mcode, peer: Peer, api: str) -> None:
    mcode.configure(retry=FEW_RETRIES)
    peer.script(forever(stream_error("overloaded_error", "Overloaded", after="half an ans")))
    run = mcode.exec("hi", "--output-format", "json").check(69)
    assert run.result["output"] is None
    assert run.result["retries"] == 2
    assert run.result["partialOutput"] in (None, "half an ans")


@pytest.mark.parametrize("before", [True, False])
def test_text_of_a_discarded_attempt_is_no_partial_output(
    mcode: Mcode, peer: Peer, api: str, before: bool
) -> None:
    earlier = [say("GOOD") + call("bash", {"command": "echo 1"})] if before else []
    peer.script(
        *earlier,
        answer(say("DISCARDED"), ending=CUT),
        call("bash", {"command": "echo 2"}),
        status(400, {"error": {"message": "no"}}),
    )
    run = mcode.exec("x", "--output-format", "json").check(4)
    assert run.result["partialOutput"] == ("GOOD" if before else None)
    assert run.result["retries"] == 1


def test_the_time_of_a_call_that_was_cut_off_counts(mcode: Mcode, peer: Peer) -> None:
    peer.script(hang())
    result = mcode.exec("x", "--timeout", "1s", "--output-format", "json").check(6).result
    assert result["apiDurationMs"] > 0


def test_events_of_no_known_format_are_a_wrong_base_url_whatever_ends_them(mcode: Mcode, peer: Peer) -> None:
    mcode.configure(api=CHAT)
    body = b'data: {"foo":1}\n\ndata: [DONE]\n\n'
    peer.script(forever(raw(body, headers={"content-type": "text/event-stream"})))
    run = mcode.exec("hi", "--output-format", "json").check(3)
    assert run.result["error"]["code"] == "LLM_BAD_RESPONSE"
    assert '{"foo":1}' in run.result["error"]["message"]
    assert len(peer.calls) == 1

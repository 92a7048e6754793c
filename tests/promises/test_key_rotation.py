"""A key that is rotated while a run goes on is read again; one that is still refused ends the run."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Step, answer, call, forever, hang, say, status

REFUSED = status(401, {"error": {"message": "invalid api key", "type": "authentication_error"}})
OLD, NEW = "old-key-0123456789", "new-key-9876543210"
SOURCES = {"file": 'api_key_file = "{key}"', "command": 'api_key_command = ["cat", "{key}"]'}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, mcode: Mcode) -> str:
    key = mcode.root / "key"
    key.write_text(OLD)
    config = mcode.config.read_text()
    line = SOURCES[request.param].format(key=key)
    mcode.config.write_text(config.replace('api_key = "${FAKE_KEY}"', line))
    return str(request.param)


def keys_of(peer: Peer) -> list[str | None]:
    return [request.header("x-api-key") for request in peer.calls]


@pytest.mark.usefixtures("source")
def test_a_key_that_changed_meanwhile_is_tried_once(mcode: Mcode, peer: Peer) -> None:
    rotate = call("bash", {"command": f"printf {NEW} > {mcode.root}/key"})
    peer.script(rotate, REFUSED, call("bash", {"command": f"echo {NEW}"}), say(f"the key is {NEW}"))
    run = mcode.exec("go", "--allow", "bash:*", "--allow", "external_directory:*", "--output-format", "json")
    result: dict[str, Any] = run.check().result
    assert keys_of(peer) == [OLD, OLD, NEW, NEW]
    assert (result["steps"], result["output"]) == (3, "the key is ***")
    assert NEW not in run.out + run.err


@pytest.mark.parametrize(
    "refused",
    [
        status(400, [{"error": {"message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]),
        status(200, {"base_resp": {"status_code": 1004, "status_msg": "login fail"}}),
    ],
    ids=["400", "200"],
)
@pytest.mark.usefixtures("source")
def test_a_refused_key_is_read_again_however_that_is_said(mcode: Mcode, peer: Peer, refused: Step) -> None:
    peer.script(call("bash", {"command": f"printf {NEW} > {mcode.root}/key"}), refused, say("done"))
    mcode.exec("go", "--permission", "off").check()
    assert keys_of(peer) == [OLD, OLD, NEW]


def test_a_403_is_no_word_on_the_key(mcode: Mcode, peer: Peer, source: str) -> None:
    rotate = call("bash", {"command": f"printf {NEW} > {mcode.root}/key"})
    peer.script(rotate, forever(status(403, {"error": {"message": "not for you"}})))
    mcode.exec("go", "--permission", "off").check(77)
    assert keys_of(peer) == [OLD, OLD]


@pytest.mark.usefixtures("source")
def test_what_was_billed_under_the_old_key_is_counted_too(mcode: Mcode, peer: Peer) -> None:
    rotate = call("bash", {"command": f"printf {NEW} > {mcode.root}/key"})
    empty = answer(say(""), usage={"input": 7, "output": 3})
    peer.script(
        answer(rotate, usage={"input": 10, "output": 1}),
        empty,
        REFUSED,
        answer(say("done"), usage={"input": 20, "output": 2}),
    )
    usage = mcode.exec("go", "--permission", "off", "--output-format", "json").check().result["usage"]
    assert keys_of(peer) == [OLD, OLD, OLD, NEW]
    assert (usage["inputTokens"], usage["outputTokens"]) == (37, 6)


@pytest.mark.usefixtures("source")
def test_what_was_billed_under_the_old_key_is_kept_if_the_rest_is_cut_off(mcode: Mcode, peer: Peer) -> None:
    rotate = call("bash", {"command": f"printf {NEW} > {mcode.root}/key"})
    empty = answer(say(""), usage={"input": 7, "output": 3})
    peer.script(answer(rotate, usage={"input": 10, "output": 1}), empty, REFUSED, hang())
    run = mcode.start("exec", "go", "--permission", "off", "--output-format", "json")
    peer.wait_for(4)
    run.send(signal.SIGTERM)
    result = run.finish().result
    assert (result["usage"]["inputTokens"], result["usageIncomplete"]) == (17, True)


@pytest.mark.usefixtures("source")
def test_a_key_that_is_the_same_is_not_sent_again(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(REFUSED))
    mcode.exec("go").check(77)
    assert keys_of(peer) == [OLD]


def test_a_key_that_cannot_be_read_any_more_is_77(mcode: Mcode, peer: Peer, source: str) -> None:
    peer.script(call("bash", {"command": f"rm {mcode.root}/key"}), forever(REFUSED))
    run = mcode.exec("go", "--permission", "off", "--output-format", "json").check(77)
    assert f"api_key_{source}" in run.result["error"]["message"]


def test_a_new_key_that_is_refused_too_ends_the_run(mcode: Mcode, peer: Peer, source: str) -> None:
    peer.script(call("bash", {"command": f"printf {NEW} > {mcode.root}/key"}), forever(REFUSED))
    mcode.exec("go", "--permission", "off").check(77)
    assert keys_of(peer) == [OLD, OLD, NEW]


def test_a_key_from_a_variable_is_not_asked_for_again(mcode: Mcode, peer: Peer) -> None:
    peer.script(forever(REFUSED))
    mcode.exec("go").check(77)
    assert len(peer.calls) == 1


@pytest.mark.parametrize(
    ("spoil", "reason"), [(": > {key}", "gives nothing"), ("rm {key}", "cannot be read|exit code 1")]
)
def test_a_key_that_cannot_be_read_anew_leaves_the_refusal_what_it_is(
    mcode: Mcode, peer: Peer, source: str, spoil: str, reason: str
) -> None:
    command = spoil.format(key=f"{mcode.root}/key")
    peer.script(call("bash", {"command": command}), forever(REFUSED))
    run = mcode.exec("go", "--permission", "off", "--output-format", "json").check(77)
    error = run.result["error"]
    assert (error["code"], error["httpStatus"]) == ("LLM_AUTH_ERROR", 401)
    assert "invalid api key" in error["message"]
    assert re.search(f"the key could not be read anew: .*({reason})", error["message"])
    assert keys_of(peer) == [OLD, OLD]

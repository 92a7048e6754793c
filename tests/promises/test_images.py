"""Images: attached or read, in every wire format, within what a provider takes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer, Request
from tests.support.pictures import images_of, png
from tests.support.steps import call, say, status
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

JSON = ("--output-format", "json")
STREAM = ("--output-format", "stream-json")


GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==")
PDF = b"%PDF-1.4\n1 0 obj<<>>endobj\ntrailer<<>>\n%%EOF\n"


def _calls(run: Run) -> list[dict[str, Any]]:
    items = [event["item"] for event in run.of_type("item.completed")]
    return [item["toolCall"] for item in items if item["type"] == "tool_call"]


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_an_attached_image_reaches_the_model_and_stays_in_the_session(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    data = png()
    (mcode.workspace / "a.png").write_bytes(data)
    mcode.exec("what is it", "--file", "a.png").check()
    assert images_of(peer.last) == [_encoded(data)]
    kept = mcode.session_dir() / "attachments" / hashlib.sha256(data).hexdigest()
    assert kept.read_bytes() == data
    assert kept.stat().st_mode & 0o777 == 0o600
    assert _encoded(data) not in json.dumps(mcode.history())
    (mcode.workspace / "a.png").unlink()
    mcode.exec("and now", "--continue").check()
    assert images_of(peer.last) == [_encoded(data)]


def test_a_model_that_takes_no_images_is_not_asked_about_one(mcode: Mcode, peer: Peer, api: str) -> None:
    data = png()
    (mcode.workspace / "a.png").write_bytes(data)
    mcode.exec("what is it", "--file", "a.png").check()
    config = mcode.config.read_text()
    mcode.config.write_text(f'{config}\n[providers.fake.models."blind"]\nimages = false\n')
    refused = mcode.exec("what is it", "--file", "a.png", "--model", "fake/blind", *JSON).check(2)
    assert "a.png" in refused.result["error"]["message"]
    assert len(peer.calls) == 1
    run = mcode.exec("and now", "--continue", "--model", "fake/blind", *STREAM).check()
    assert images_of(peer.last) == []
    assert "image a.png (image/png) is not shown" in json.dumps(peer.last.json)
    assert [event["code"] for event in run.of_type("notice")] == ["images.not-taken"]
    mcode.exec("and again", "--continue").check()
    assert images_of(peer.last) == [_encoded(data)], "it is not lost"


def test_an_image_that_the_model_reads_comes_with_its_result(mcode: Mcode, peer: Peer, api: str) -> None:
    data = png()
    (mcode.workspace / "a.png").write_bytes(data)
    (mcode.workspace / "wrong-name.txt").write_bytes(GIF)
    peer.script(
        call("read", {"file_path": "a.png"}) + call("read", {"file_path": "wrong-name.txt"}) + call("list"),
        say("done"),
        say("again"),
    )
    mcode.exec("look").check()
    assert images_of(peer.last) == [_encoded(data), _encoded(GIF)]
    mcode.exec("again", "--continue").check()
    assert images_of(peer.last) == [_encoded(data), _encoded(GIF)]


def test_text_and_documents_may_be_attached_too(mcode: Mcode, peer: Peer, api: str) -> None:
    (mcode.workspace / "a.txt").write_text("attached-words é\n")
    (mcode.workspace / "a.pdf").write_bytes(PDF)
    mcode.exec("read", "--file", "a.txt", "--file", "a.pdf").check()
    assert "attached-words é" in peer.last.text
    assert _encoded(PDF) in peer.last.text


BAD: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "cut short": lambda: png()[:40],
    "too large": lambda: png(padding=4_900_000),
    "too wide": lambda: png(width=10_000, height=1),
}


@pytest.mark.parametrize("kind", BAD)
def test_an_attachment_that_no_provider_takes_is_refused_before_any_call(
    mcode: Mcode, peer: Peer, kind: str
) -> None:
    (mcode.workspace / "a.png").write_bytes(BAD[kind]())
    run = mcode.exec("look", "--file", "a.png", *JSON).check(2)
    assert "a.png" in run.result["error"]["message"]
    assert peer.calls == []
    assert not mcode.session_dirs() if mcode.data.exists() else True


def test_a_read_of_a_bad_image_is_a_tool_error_and_never_stored_as_an_image(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    (mcode.workspace / "text.png").write_text("only text\n")
    for kind, make in BAD.items():
        (mcode.workspace / f"{kind}.png").write_bytes(make())
    names = [*(f"{kind}.png" for kind in BAD), "text.png"]
    peer.script(*(call("read", {"file_path": name}) for name in names), say("done"))
    run = mcode.exec("look", *STREAM).check()
    assert [one["status"] for one in _calls(run) if one["input"]["file_path"] != "empty.png"] == ["error"] * 4
    assert images_of(peer.last) == []
    assert '"image"' not in json.dumps(mcode.messages())
    # nothing poisons the session
    mcode.exec("again", "--continue").check()


def test_the_limit_is_on_what_the_provider_counts(mcode: Mcode, peer: Peer) -> None:
    """3.7 MB are 4.93 MB of base64: taken; a little more is not."""
    (mcode.workspace / "fits.png").write_bytes(png(padding=3_700_000))
    (mcode.workspace / "not.png").write_bytes(png(padding=3_760_000))
    peer.script(call("read", {"file_path": "fits.png"}) + call("read", {"file_path": "not.png"}), say("done"))
    run = mcode.exec("look", *STREAM).check()
    assert sorted(one["status"] for one in _calls(run)) == ["completed", "error"]
    [image] = images_of(peer.last)
    assert len(image) <= 5_000_000


def test_images_that_pile_up_are_kept_within_a_budget_the_newest_first(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    """More images than a provider takes in one request: the oldest become notes, and the run goes on."""
    images = [png(padding=3_700_000 + number) for number in range(5)]
    for number, data in enumerate(images):
        (mcode.workspace / f"{number}.png").write_bytes(data)
    peer.script(*(call("read", {"file_path": f"{number}.png"}) for number in range(5)), say("done"))
    run = mcode.exec("look", *STREAM).check()
    assert {event["code"] for event in run.of_type("notice")} == {"images.left-out"}
    assert max(len(request.body) for request in peer.calls) < 20_000_000
    sent = images_of(peer.last)
    assert 0 < len(sent) < 5
    assert sent == [_encoded(data) for data in images[-len(sent) :]]


def test_an_image_that_is_read_again_and_again_counts_every_time(mcode: Mcode, peer: Peer, api: str) -> None:
    data = png(padding=3_000_000)
    (mcode.workspace / "big.png").write_bytes(data)
    reads = [
        call("read", {"file_path": "big.png"}) + call("bash", {"command": f"echo {number}"})
        for number in range(6)
    ]
    peer.script(*reads, say("done"))
    run = mcode.exec("look", *STREAM).check()
    assert max(len(request.body) for request in peer.calls) < 17_000_000
    assert images_of(peer.last) == [_encoded(data)] * 4
    assert {event["code"] for event in run.of_type("notice")} == {"images.left-out"}
    # the next run begins where this one ended
    mcode.exec("again", "--continue").check()
    assert images_of(peer.last) == [_encoded(data)] * 4


def test_no_more_images_than_every_provider_takes_in_one_request(mcode: Mcode, peer: Peer, api: str) -> None:
    """Small ones count too: a history that no provider takes any more could never go on."""
    images = [png(padding=number + 1) for number in range(30)]
    reads = call("list")
    for number, data in enumerate(images):
        (mcode.workspace / f"{number}.png").write_bytes(data)
        reads += call("read", {"file_path": f"{number}.png"})
    peer.script(reads, say("done"))
    mcode.exec("look").check()
    assert images_of(peer.last) == [_encoded(data) for data in images[-20:]]


def test_after_a_413_the_oldest_images_become_notes_and_the_run_goes_on(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    images = [png(padding=1_000_000 + number) for number in range(4)]
    for number, data in enumerate(images):
        (mcode.workspace / f"{number}.png").write_bytes(data)
    refused: list[int] = []

    def limited(then: Any) -> Any:
        def step(request: Request) -> Any:
            if len(request.body) > 5_000_000:
                refused.append(len(request.body))
                return status(413, {"error": {"type": "request_too_large", "message": "too large"}})
            return then

        return step

    reads = [limited(call("read", {"file_path": f"{number}.png"})) for number in range(4)]
    # a refused request consumes a step: the next one stands for the same point of the script
    peer.script(*reads, limited(say("too large")), say("done"))
    run = mcode.exec("look", *STREAM).check()
    assert len(refused) == 1
    assert run.result["output"] == "done"
    sent = images_of(peer.last)
    assert 0 < len(sent) < 4
    assert sent[-1] == _encoded(images[-1])
    assert [event["code"] for event in run.of_type("notice")] == ["images.left-out"]
    assert run.result["retries"] in (0, 1)


def test_a_413_without_images_fails_once(mcode: Mcode, peer: Peer, api: str) -> None:
    peer.script(status(413, {"error": {"type": "request_too_large", "message": "too large"}}))
    run = mcode.exec("look", *JSON).check(4)
    assert run.result["error"]["httpStatus"] == 413
    assert len(peer.calls) == 1


def test_a_413_that_stays_ends_the_run(mcode: Mcode, peer: Peer) -> None:
    (mcode.workspace / "a.png").write_bytes(png())
    peer.script(status(413, {"error": {"type": "request_too_large", "message": "too large"}}))
    mcode.exec("look", "--file", "a.png", *JSON).check(4)
    assert len(peer.calls) == 2


def test_a_model_that_takes_no_images_gets_a_note(mcode: Mcode, peer: Peer, api: str) -> None:
    (mcode.workspace / "a.png").write_bytes(png())
    known = {ANTHROPIC: "claude-2.1", CHAT: "gpt-3.5-turbo", RESPONSES: "gpt-3.5-turbo"}[api]
    mcode.configure(tables=f'[providers.fake.models."{known}"]\ncontext = 16_000\noutput = 4_000\n')
    run = mcode.exec("look", "--file", "a.png", "--model", f"fake/{known}")
    # a model that nobody knows is taken to see; in any case the run ends well
    run.check()


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--file", "missing.png"], 2),
        (["--file", "."], 2),
        (["--file", "/dev/zero"], 2),
        (["--file", "pipe"], 2),
        (["--file", "bad.txt"], 2),
        ([*(["--file", "ok.txt"] * 11)], 2),
        ([*(["--file", "ok.txt"] * 10)], 0),
    ],
)
def test_attachments_that_cannot_be_used_are_refused(
    mcode: Mcode, peer: Peer, flags: list[str], code: int
) -> None:
    os.mkfifo(mcode.workspace / "pipe")
    (mcode.workspace / "bad.txt").write_bytes(b"a\xff\xfe\0\1\2")
    (mcode.workspace / "ok.txt").write_text("fine\n")
    mcode.exec("look", *flags, *JSON, timeout=15).check(code)
    assert len(peer.calls) == (code == 0)


def test_an_attachment_that_was_lost_becomes_a_note(mcode: Mcode, peer: Peer, api: str) -> None:
    (mcode.workspace / "a.png").write_bytes(png())
    mcode.exec("look", "--file", "a.png").check()
    [kept] = (mcode.session_dir() / "attachments").iterdir()
    kept.unlink()
    run = mcode.exec("again", "--continue", *STREAM).check()
    assert images_of(peer.last) == []
    assert [event["code"] for event in run.of_type("notice")] == ["attachment.lost"]

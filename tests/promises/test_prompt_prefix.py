"""Requests of one session, of several steps, turns and processes, begin with each other's bytes: see
tests/unit/providers/test_providers_prefix.py for the rule."""

from __future__ import annotations

import signal
from itertools import pairwise

from tests.support.mcode import KEY as FAKE_KEY
from tests.support.mcode import Mcode, make_repository
from tests.support.peer import Peer, Request
from tests.support.pictures import images_of, png
from tests.support.steps import call, hang, say, think
from tests.support.wire import RESPONSES

KEY = ("--session-key", "k")
MARK = b',"cache_control":{"type":"ephemeral"}'


def conversation(request: Request) -> bytes:
    """The request without its moving marks, up to the closing bracket of the conversation."""
    body = request.body.replace(MARK, b"")
    field = b'"input":[' if request.api == RESPONSES else b'"messages":['
    begin = body.index(field)
    depth, is_text, at = 0, False, begin + len(field) - 1
    while True:
        byte = body[at : at + 1]
        if is_text:
            at += byte == b"\\"
            is_text = byte != b'"'
        elif byte == b'"':
            is_text = True
        else:
            depth += (byte in b"[{") - (byte in b"]}")
        if depth == 0:
            return body[:at]
        at += 1


def test_every_request_of_a_session_begins_with_the_one_before(mcode: Mcode, peer: Peer, api: str) -> None:
    make_repository(mcode.workspace, {"a.txt": "one\n"})
    (mcode.workspace / "a.png").write_bytes(png())
    reads = call("read", {"file_path": "a.txt"}) + call("read", {"file_path": "a.png"}) + call("list")
    peer.script(
        think("hm") + say("I look.") + reads,
        # the workspace changes: nothing of the prompt may follow it
        call("write", {"file_path": "b.txt", "content": "é 🙂\n"})
        + call("bash", {"command": "echo x; exit 3"}),
        call("bash", '{"command": "cut of') + call("bash", {"command": f"echo {FAKE_KEY}"}),
        think("so") + say("Done."),
        call("bash", {"command": "git add -A && git commit -qm more && date"}),
        say("half", finish="length"),
        say("rest"),
        say("again"),
    )
    mcode.exec("look", *KEY).check()
    mcode.exec("commit it", *KEY, "--file", "a.txt").check()
    mcode.exec("once more", *KEY).check()
    assert len(peer.calls) == 8
    for before, after in pairwise(peer.calls):
        assert conversation(after).startswith(conversation(before))


def test_a_prompt_after_an_interrupted_turn_leaves_all_but_the_last_entry_as_it_was(
    mcode: Mcode, peer: Peer, api: str
) -> None:
    peer.script(call("bash", {"command": "echo 1"}), say("first"))
    mcode.exec("go", *KEY).check()
    peer.script(hang())
    running = mcode.start("exec", "never answered", *KEY)
    peer.wait_for(3)
    running.send(signal.SIGINT)
    running.finish().check(-signal.SIGINT)
    peer.script(say("fine"))
    mcode.exec("the last", *KEY).check()
    before, cut, after = peer.calls[1:]
    assert conversation(cut).startswith(conversation(before))
    told = conversation(cut).index(b"never answered") + len(b"never answered")
    assert conversation(after).startswith(conversation(cut)[:told])


def test_attachments_beyond_what_a_request_carries_leave_several_together(mcode: Mcode, peer: Peer) -> None:
    """Each time one leaves, the prompt cache ends there: of 24 steps with an image each, one does that."""
    for number in range(24):
        (mcode.workspace / f"{number}.png").write_bytes(png(padding=number + 1))
    peer.script(*(call("read", {"file_path": f"{number}.png"}) for number in range(24)), say("done"))
    mcode.exec("look", *KEY).check()
    kept = [conversation(after).startswith(conversation(before)) for before, after in pairwise(peer.calls)]
    assert kept.count(False) == 1
    assert len(images_of(peer.last)) == 19

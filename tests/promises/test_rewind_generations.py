"""A rewind goes behind a compaction where what it put away is kept, and its undo comes forward again."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.promises.test_fork import everything_of, words
from tests.promises.test_import import CLAUDE, CODEX, MAIN, SOURCES
from tests.promises.test_rewind import prompts, rewind
from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import say
from tests.support.wire import ANTHROPIC, CHAT, RESPONSES

KILLED = -signal.SIGKILL
COMPACTED = {"opencode-v1-composed": MAIN, "claude-composed": CLAUDE, "codex-composed": CODEX}


def compacted(mcode: Mcode, at: Path, name: str) -> str:
    """A session of another program that had compacted it; its id here."""
    run = mcode.run("sessions", "import", SOURCES[name][0](at / name), "--output-format", "json")
    rows = {row["sourceId"]: row for row in json.loads(run.out)["sessions"]}
    return str(rows[COMPACTED[name]]["sessionId"])


def early(mcode: Mcode, session: str) -> str:
    """The first prompt, which stands before the compaction."""
    said = prompts(mcode, session)
    sent = (mcode.session_dir(session) / "messages.jsonl").read_text()
    assert said[0] not in sent
    return said[0]


def rows_of(mcode: Mcode, session: str) -> list[dict[str, Any]]:
    """What people are shown, whatever order it was written in."""
    return mcode.query("SELECT id, role, data FROM messages WHERE session_id = ? ORDER BY row", session)


def goes_on(mcode: Mcode, peer: Peer, session: str) -> str:
    """What a model is sent by the next turn."""
    peer.script(say("fine"))
    mcode.exec("go on", "--session", session, "--cwd", ".").check()
    assert not peer.last.violations
    mcode.run("sessions", "verify", session).check()
    return peer.last.text


@pytest.mark.parametrize(
    ("api", "name"),
    [
        (CHAT, "opencode-v1-composed"),
        (ANTHROPIC, "claude-composed"),
        (RESPONSES, "codex-composed"),
    ],
)
def test_a_rewind_goes_behind_a_compaction_and_its_undo_comes_back(
    mcode: Mcode, peer: Peer, api: str, tmp_path: Path, name: str
) -> None:
    session = compacted(mcode, tmp_path, name)
    path = mcode.session_dir(session) / "messages.jsonl"
    records, shown, said = path.read_text().splitlines()[1:], rows_of(mcode, session), words(mcode, session)
    first = early(mcode, session)
    told = rewind(mcode, session, "--to", first)
    assert words(mcode, session) == []
    rewind(mcode, session, "--undo")
    assert rows_of(mcode, session) == shown
    assert path.read_text().splitlines()[1:] == records
    mcode.run("sessions", "verify", session).check()
    assert rewind(mcode, session, "--to", first[:20])["messages"] == told["messages"]
    rewind(mcode, session, "--undo")
    assert (words(mcode, session), path.read_text().splitlines()[1:]) == (said, records)
    assert "fine" not in goes_on(mcode, peer, session)


def middle(mcode: Mcode, peer: Peer, tmp_path: Path) -> tuple[str, str]:
    """A compacted session with a turn of ours, and a prompt from before the compaction that is not its first."""
    session = compacted(mcode, tmp_path, "codex-composed")
    peer.script(say("ours"))
    mcode.exec("our prompt", "--session", session, "--cwd", ".").check()
    return session, early(mcode, session)


def test_rewinds_and_undos_follow_each_other_across_the_compaction(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    session, first = middle(mcode, peer, tmp_path)
    shown = rows_of(mcode, session)
    rewind(mcode, session, "--to", "last")
    rewind(mcode, session, "--to", first)
    rewind(mcode, session, "--undo")
    assert rows_of(mcode, session) == shown[:-2]
    run = mcode.run("sessions", "rewind", session, "--undo").check(4)
    assert "no rewind that could be undone" in run.err
    rewind(mcode, session, "--to", first)
    assert "three files" not in goes_on(mcode, peer, session)
    went_on = rows_of(mcode, session)
    assert "has gone on since" in mcode.run("sessions", "rewind", session, "--undo").check(4).err
    rewind(mcode, session, "--to", "last")
    rewind(mcode, session, "--undo")
    assert rows_of(mcode, session) == went_on
    run = mcode.run("sessions", "rewind", session, "--to", first).check(4)
    assert "message_not_found" in run.err


def test_what_is_not_kept_or_damaged_refuses_it_and_changes_nothing(
    mcode: Mcode, peer: Peer, tmp_path: Path
) -> None:
    session, first = middle(mcode, peer, tmp_path)
    fork = mcode.run("sessions", "fork", session).check().out.strip()
    run = mcode.run("sessions", "rewind", fork, "--to", prompts(mcode, fork)[0]).check(4)
    assert "is not kept with session" in run.err
    assert "(compaction_between)" in run.err
    snapshot = mcode.session_dir(session) / "snapshots" / "g000000000001--import.jsonl"
    whole = snapshot.read_bytes()
    for data in (whole[:-20] + b"\n", b"", whole.replace(session.encode(), b"mvs_" + b"0" * 32), None):
        if data is None:
            snapshot.unlink()
        else:
            snapshot.write_bytes(data)
        before = everything_of(mcode, session)
        run = mcode.run("sessions", "rewind", session, "--to", first).check(4)
        assert snapshot.name in run.err
        assert "(compaction_between)" in run.err
        assert everything_of(mcode, session) == before
        assert snapshot.name in mcode.run("sessions", "verify", session).check(4).out
        mcode.run("sessions", "rewind", session, "--to", "last").check()
        mcode.run("sessions", "rewind", session, "--undo").check()

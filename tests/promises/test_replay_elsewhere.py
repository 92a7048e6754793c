"""A recording is played back in other directories than it was made in, whatever these are called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import answer, call, say

NAMES = ["plain", 'q"q', "b\\x", "n\nl", "ü", "in/ner"]


def made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "a.txt").write_text("A")
    return directory


def record(
    mcode: Mcode, peer: Peer, workspace: Path, said: str, env: Mapping[str, str] | None = None
) -> None:
    """A run that reads a file, writes one, and says where things are."""
    peer.script(
        call("read", {"file_path": str(made(workspace) / "a.txt")}),
        answer(call("write", {"file_path": str(workspace / "b.txt"), "content": "B"}), piece=3),
        answer(say(said), piece=7),
    )
    mcode.exec("go", "--record", mcode.root / "rec", cwd=workspace, env=env).check()
    (workspace / "b.txt").unlink()


def play(mcode: Mcode, workspace: Path, *, tools: str, env: Mapping[str, str] | None = None) -> str:
    path = mcode.root / "rec"
    (workspace / "b.txt").unlink(missing_ok=True)
    mcode.configure(tables=f'[providers.tape]\napi = "replay"\npath = "{path}"\ntools = "{tools}"')
    return mcode.exec("go", "--model", "tape/big-1", cwd=workspace, env=env).check().out.removesuffix("\n")


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("there", "here"), [*((name, "plain2") for name in NAMES), *(("plain", name) for name in NAMES)]
)
def test_a_recording_moves_from_and_to_a_directory_of_any_name(
    mcode: Mcode, peer: Peer, api: str, there: str, here: str
) -> None:
    old, new = mcode.root / "ws" / there, made(mcode.root / "ws" / here)
    record(mcode, peer, old, f"wrote {old}/b.txt")
    assert play(mcode, new, tools="recorded") == f"wrote {new}/b.txt"
    assert not (new / "b.txt").exists()
    assert play(mcode, new, tools="live") == f"wrote {new}/b.txt"
    assert (new / "b.txt").exists()


@pytest.mark.sample(2)
@pytest.mark.parametrize("tools", ["recorded", "live"])
def test_each_directory_moves_once_and_by_itself(mcode: Mcode, peer: Peer, api: str, tools: str) -> None:
    homes, temps = [mcode.root / "h1", mcode.root / "h2"], [mcode.root / "t1", mcode.root / "t2"]
    for directory in (*homes, *temps):
        directory.mkdir()
    inside = homes[0] / "proj"
    # an instruction file above the workspace is in both runs
    (homes[0] / ".git").mkdir()
    (homes[0] / "AGENTS.md").write_text("Be brief.")
    record(
        mcode, peer, inside, f"{inside}/x {homes[0]}/y {temps[0]}/z /bak{temps[0]}/z", {"HOME": str(homes[0])}
    )
    for workspace in (inside, made(inside / "sub"), made(homes[0] / "other")):
        for home in homes:
            out = play(mcode, workspace, tools=tools, env={"HOME": str(home)})
            assert out == f"{workspace}/x {home}/y {temps[0]}/z /bak{temps[0]}/z"


@pytest.mark.parametrize("tools", ["recorded", "live"])
def test_a_workspace_in_the_temporary_directory_stays_when_that_moves(
    mcode: Mcode, peer: Peer, api: str, tools: str
) -> None:
    workspace = mcode.root / "tmp" / "proj"
    record(mcode, peer, workspace, f"{workspace}/x {mcode.root}/tmp/y /data{mcode.root}/tmp/y")
    other = mcode.root / "tmp2"
    other.mkdir()
    out = play(mcode, workspace, tools=tools, env={"TMPDIR": str(other)})
    assert out == f"{workspace}/x {other}/y /data{mcode.root}/tmp/y"
    # where the workspace is what another place was, too
    out = play(mcode, made(mcode.root / "tmp"), tools=tools)
    assert out == f"{mcode.root}/tmp/x {mcode.root}/tmp/y /data{mcode.root}/tmp/y"

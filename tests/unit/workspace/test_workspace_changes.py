"""Tree snapshots, what differs between two of them, and the patches of it: against real git, in real directories."""

from __future__ import annotations

import difflib
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from mcode_exec.records.change import FileState
from mcode_exec.workspace import snapshot, snapshot_files
from mcode_exec.workspace.beneath import Beneath
from mcode_exec.workspace.changed_files import MAX_CHANGES
from mcode_exec.workspace.contents import Contents, digest_of
from mcode_exec.workspace.followed import MAX_PLAIN_FILES, NotFollowedError, list_followed
from mcode_exec.workspace.line_matching import count_changes, matching_blocks, split_lines
from mcode_exec.workspace.patches import Side, file_patch
from mcode_exec.workspace.programs import Stop, run_program
from mcode_exec.workspace.replacing import Wanted, check, replace
from mcode_exec.workspace.snapshot import Snapshot
from mcode_exec.workspace.watching import Found, Watched

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "t"), ("EMAIL", "t@example.org"))
}


def git(directory: Path, *arguments: str, given: bytes | None = None) -> bytes:
    return subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=directory,
        input=given,
        env={**os.environ, **IDENTITY},
        check=True,
        capture_output=True,
    ).stdout


def commit(directory: Path) -> None:
    if not (directory / ".git").exists():
        git(directory, "init", "-q")
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", "x")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


def watched(work: Path) -> Watched:
    return Watched(str(work), str(work.parent / "changes"), ())


def after_command(work: Path) -> Watched:
    found = watched(work)
    found.before_command(30, Stop())
    return found


def names(found: Found) -> list[str]:
    return [os.fsdecode(change.path) for change in found.changes]


def take(work: Path, earlier: Snapshot | None = None) -> Snapshot:
    contents = snapshot_files.contents_of(str(work.parent / "changes"), str(work))
    return snapshot.take(str(work), contents, earlier=earlier, excluded=(), limit_s=30, stop=Stop())


def age(work: Path) -> None:
    """Make every file older than the clock of a file system is coarse, and let git know them so."""
    for path in work.rglob("*"):
        if ".git" not in path.parts and path.is_file():
            os.utime(path, (1_600_000_000, 1_600_000_000))


def test_a_program_gets_all_that_is_given_however_slowly_it_reads() -> None:
    given = b"x" * 300_000
    result = run_program(["sh", "-c", "sleep 0.3; wc -c"], cwd="/", limit_s=20, stop=Stop(), given=given)
    assert (result.exit_code, result.stdout.strip()) == (0, b"300000")


def test_a_submodule_and_a_checkout_inside_are_followed(work: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "o.txt").write_text("o\n")
    commit(other)
    (work / "a.txt").write_text("a\n")
    commit(work)
    git(work, "submodule", "--quiet", "add", str(other), "sub")
    git(work, "clone", "--quiet", str(other), "inner")
    turn = after_command(work)
    (work / "sub" / "o.txt").write_text("changed\n")
    (work / "inner" / "new.txt").write_text("n\n")
    found = turn.compare(10, Stop())
    assert names(found) == ["inner/new.txt", "sub/o.txt"]
    assert found.contents[digest_of(b"o\n")] == b"o\n"


def test_a_commit_in_between_is_no_change_and_what_it_held_is_known(work: Path) -> None:
    (work / "a.txt").write_text("a\n")
    commit(work)
    age(work)
    git(work, "status")
    turn = after_command(work)
    (work / "a.txt").write_text("b\n")
    commit(work)
    git(work, "checkout", "-q", "-b", "elsewhere")
    found = turn.compare(10, Stop())
    assert names(found) == ["a.txt"]
    assert found.contents[digest_of(b"a\n")] == b"a\n"


@pytest.mark.parametrize("config", [("core.autocrlf", "true"), ("core.eol", "crlf")])
def test_line_ends_that_git_converts_are_told_as_they_are_on_disk(
    work: Path, config: tuple[str, str]
) -> None:
    (work / ".gitattributes").write_text("*.txt text\n")
    git(work, "init", "-q")
    git(work, "config", *config)
    for number in range(50):
        (work / f"{number}.txt").write_bytes(b"one\r\ntwo\r\n")
    commit(work)
    age(work)
    git(work, "status")
    turn = after_command(work)
    (work / "7.txt").write_bytes(b"one\r\n")
    found = turn.compare(10, Stop())
    assert names(found) == ["7.txt"]
    assert digest_of(b"one\r\ntwo\r\n") in found.contents


def test_files_that_say_nothing_to_git_are_read_themselves(work: Path) -> None:
    """assume-unchanged and skip-worktree make git's index blind; a snapshot is not."""
    for name in ("assumed", "skipped"):
        (work / name).write_text("1\n")
    commit(work)
    git(work, "update-index", "--assume-unchanged", "assumed")
    git(work, "update-index", "--skip-worktree", "skipped")
    turn = after_command(work)
    for name in ("assumed", "skipped"):
        (work / name).write_text("2\n")
    assert names(turn.compare(10, Stop())) == ["assumed", "skipped"]


def test_a_change_within_one_tick_of_the_clock_and_of_one_size_is_seen(work: Path) -> None:
    (work / "a.txt").write_text("1")
    status = (work / "a.txt").stat()
    turn = after_command(work)
    with open(work / "a.txt", "r+") as file:
        file.write("2")
    os.utime(work / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert names(turn.compare(10, Stop())) == ["a.txt"]


def test_a_repository_that_is_removed_or_made_changes_no_file(work: Path) -> None:
    (work / ".gitignore").write_text("ignored/\n")
    (work / "ignored").mkdir()
    (work / "ignored" / "x").write_text("x\n")
    (work / "a.txt").write_text("a\n")
    commit(work)
    time.sleep(0.2)  # what is younger than a tick of the clock may be new
    turn = after_command(work)
    time.sleep(0.1)
    subprocess.run(["rm", "-r", work / ".git"], check=True)
    assert names(turn.compare(10, Stop())) == []
    plain = after_command(work)
    git(work, "init", "-q")
    assert names(plain.compare(10, Stop())) == []


def test_names_that_are_no_text_and_odd_files(work: Path) -> None:
    commit_first = work / "a"
    commit_first.write_text("a")
    commit(work)
    turn = after_command(work)
    for name in (b"\xff\xfe", b"new\nline", b'quo"te', b"-dash", b":(top)x"):
        (work / os.fsdecode(name)).write_text("x\n")
    os.mkfifo(work / "pipe")
    (work / "loop").symlink_to("loop")
    found = turn.compare(10, Stop())
    paths = {change.path for change in found.changes}
    assert paths == {b"\xff\xfe", b"new\nline", b'quo"te', b"-dash", b":(top)x", b"loop"}


def test_a_workspace_that_is_itself_ignored_is_followed(work: Path) -> None:
    (work / ".gitignore").write_text("inner/\n")
    (work / "inner").mkdir()
    commit(work)
    (work / "inner" / "a").write_text("a\n")
    turn = after_command(work / "inner")
    (work / "inner" / "a").write_text("bb\n")
    assert names(turn.compare(10, Stop())) == ["a"]


def test_of_a_turn_that_is_stopped_before_its_command_nothing_is_missing(work: Path) -> None:
    (work / "a").write_text("a\n")
    turn = watched(work)
    turn.before_edit(str(work / "a"), Stop())
    (work / "a").write_text("b\n")
    stop = Stop()
    stop.set()
    turn.before_command(30, stop)
    found = turn.compare(10, Stop())
    assert (names(found), found.gap) == (["a"], "none")


def test_where_time_runs_out_what_edits_named_is_known(work: Path) -> None:
    (work / "a").write_text("a\n")
    turn = watched(work)
    turn.before_command(0, Stop())
    turn.before_edit(str(work / "a"), Stop())
    (work / "a").write_text("b\n")
    (work / "by-command").write_text("x\n")
    found = turn.compare(10, Stop())
    assert (names(found), found.gap) == (["a"], "some")
    again = after_command(work)
    (work / "a").write_text("c\n")
    assert again.compare(0, Stop()).gap == "all"


def test_a_workspace_below_the_root_of_its_repository(work: Path) -> None:
    (work / "inner").mkdir()
    for name in ("inner/a.txt", "inner/gone.txt", "outer.txt"):
        (work / name).write_text(name + "\n")
    commit(work)
    age(work)
    git(work, "status")
    turn = after_command(work / "inner")
    (work / "inner" / "gone.txt").unlink()
    (work / "inner" / "new.txt").write_text("n\n")
    (work / "outer.txt").write_text("not in the workspace\n")
    found = turn.compare(10, Stop())
    assert names(found) == ["gone.txt", "new.txt"]
    assert digest_of(b"inner/gone.txt\n") in found.contents


def test_more_files_than_are_kept_are_counted(work: Path) -> None:
    commit_me = work / "a"
    commit_me.write_text("a")
    commit(work)
    turn = after_command(work)
    for number in range(MAX_CHANGES + 3):
        (work / f"{number:06}").write_text(f"{number}\n")
    found = turn.compare(30, Stop())
    assert (len(found.changes), found.gap, found.reason) == (MAX_CHANGES, "some", "3 more files changed")


def test_too_many_files_are_not_followed(work: Path) -> None:
    for number in range(MAX_PLAIN_FILES + 1):
        os.close(os.open(work / str(number), os.O_CREAT))
    with pytest.raises(NotFollowedError, match="20,000"):
        list_followed(str(work), deadline_s=time.monotonic() + 60, stop=Stop())


def test_a_large_file_is_changed_though_its_content_is_not_kept(work: Path) -> None:
    with open(work / "large", "wb") as file:
        file.truncate(snapshot.MAX_FILE_BYTES + 1)
    turn = after_command(work)
    time.sleep(0.1)
    with open(work / "large", "r+b") as file:
        file.write(b"x")
    (change,) = turn.compare(10, Stop()).changes
    assert (change.before and change.before.digest, change.additions) == (None, None)


def test_an_unchanged_workspace_is_not_read_again(work: Path) -> None:
    for number in range(100):
        (work / str(number)).write_text(str(number))
    age(work)
    time.sleep(2.1)  # the times that were set are whole seconds, as a coarse clock's are
    first = take(work)
    assert all(seen.is_known for seen in first.files)
    kept = snapshot.decode(snapshot.encode(first))
    assert kept == first
    assert snapshot_files.is_unchanged(first, take(work, first))


def test_torn_snapshots_and_contents_read_as_not_there(work: Path, tmp_path: Path) -> None:
    (work / "a").write_text("a")
    changes = str(tmp_path / "kept")
    snapshot_files.save_latest(changes, str(work), take(work))
    path = Path(snapshot_files.workspace_dir(changes, str(work))) / "latest"
    path.write_bytes(path.read_bytes()[:-3])
    assert snapshot_files.load_latest(changes, str(work)) is None
    contents = Contents(str(tmp_path / "c"))
    contents.put(b"data", digest_of(b"data"))
    contents.flush()
    (file,) = (one for one in (tmp_path / "c").rglob("*") if one.is_file())
    assert contents.get(digest_of(b"data"), 100) == b"data"
    file.write_bytes(b"other")
    assert contents.get(digest_of(b"data"), 100) is None


def test_what_no_snapshot_names_goes_once_it_is_old(work: Path, tmp_path: Path) -> None:
    changes = str(tmp_path / "changes")
    (work / "a").write_text("old")
    after_command(work)
    (work / "a").write_text("newer")
    after_command(work)
    contents = snapshot_files.contents_of(changes, str(work))
    for path in Path(changes).rglob("contents/**/*"):
        os.utime(path, (1, 1))
    snapshot_files.clean(changes, unused_s=1e6, most=10, busy=[str(work)])
    assert contents.has(digest_of(b"old"))
    snapshot_files.clean(changes, unused_s=1e6, most=10, busy=[])
    assert (contents.has(digest_of(b"old")), contents.has(digest_of(b"newer"))) == (False, True)
    assert snapshot_files.clean(changes, unused_s=-1, most=10, busy=[]) == 1
    assert not os.listdir(Path(changes) / "workspaces")


def test_many_contents_are_batches_and_what_is_not_named_goes(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    contents = Contents(str(directory))
    data = {digest_of(b"%d" % number): b"%d" % number for number in range(100)}
    for digest, one in data.items():
        assert contents.put(one, digest)
    assert contents.get(digest_of(b"7"), 10) == b"7"
    assert not list(directory.iterdir())  # nothing for others yet
    contents.flush()
    (batch,) = directory.iterdir()
    assert batch.stat().st_mode & 0o777 == 0o600
    fresh = Contents(str(directory))
    assert all(fresh.get(digest, 10) == one for digest, one in data.items())
    assert fresh.put(b"7", digest_of(b"7"))  # it is there
    fresh.flush()
    os.utime(batch, (1, 1))
    assert fresh.sweep(data.keys()) == 0
    assert fresh.sweep({digest_of(b"7")}) == 99
    assert (fresh.has(digest_of(b"8")), fresh.get(digest_of(b"7"), 10)) == (False, b"7")
    batch.write_bytes(batch.read_bytes()[:-1])
    assert Contents(str(directory)).get(digest_of(b"7"), 10) is None
    os.utime(batch, (1, 1))
    Contents(str(directory)).sweep(frozenset())
    assert not list(directory.iterdir())


SEED = 20


@pytest.mark.parametrize("seed", range(SEED))
def test_a_patch_of_texts_by_chance_is_what_git_applies(work: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = [b"a\n", b"b\n", b"c\n", b"\n", b"\xff\n", b"d\r\n"]
    old = b"".join(chance.choices(lines, k=chance.randrange(60))) + chance.choice([b"", b"end"])
    parts = split_lines(old)
    for _ in range(chance.randrange(1, 8)):
        at = chance.randrange(len(parts) + 1)
        parts[at : at + chance.randrange(3)] = chance.choices(lines, k=chance.randrange(3))
    new = b"".join(parts)
    git(work, "init", "-q")
    (work / "f").write_bytes(old)
    patch = file_patch(
        Side(b"f", FileState(permissions=0o644), old), Side(b"f", FileState(permissions=0o644), new)
    )
    if old == new:
        assert patch == b""
        return
    git(work, "apply", "--whitespace=nowarn", given=patch)
    assert (work / "f").read_bytes() == new
    git(work, "apply", "-R", "--whitespace=nowarn", given=patch)
    assert (work / "f").read_bytes() == old


@pytest.mark.parametrize("seed", range(SEED))
def test_shared_lines_are_shared_and_as_many_as_difflib_finds(seed: int) -> None:
    chance = random.Random(seed)
    old = [bytes([chance.randrange(97, 103)]) for _ in range(chance.randrange(80))]
    new = [bytes([chance.randrange(97, 103)]) for _ in range(chance.randrange(80))]
    blocks = matching_blocks(old, new)
    at_old = at_new = 0
    for begin_old, begin_new, length in blocks:
        assert (begin_old >= at_old, begin_new >= at_new) == (True, True)
        assert old[begin_old : begin_old + length] == new[begin_new : begin_new + length]
        at_old, at_new = begin_old + length, begin_new + length
    found = sum(length for _, _, length in blocks)
    theirs = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    assert found >= 0.8 * sum(block.size for block in theirs)


def test_files_with_nothing_in_common_are_counted_in_bounded_work() -> None:
    old = b"".join(b"%d\n" % number for number in range(50_000))
    new = b"".join(b"%d\n" % (number * 7 % 50_021) for number in range(50_000))
    additions, deletions = count_changes(old, new)
    assert additions == deletions
    assert count_changes(old, old) == (0, 0)


@pytest.mark.parametrize(
    "path", [b"../x", b"/etc/x", b".git/config", b"a/../../x", b"a//b", b"", b"sub/.GIT/x"]
)
def test_paths_that_lead_out_or_into_gits_own_are_never_written(work: Path, path: bytes) -> None:
    wanted = [Wanted(path, None, FileState(permissions=0o644, digest=digest_of(b"x")))]
    (conflict,) = check(str(work), wanted, lambda _: True, ignores_mode=False)
    assert not conflict.can_force
    outcome = replace(str(work), wanted, lambda _: b"x", ignores_mode=False, force=True)
    assert (outcome.done, len(outcome.kept)) == ((), 1)
    assert sorted(os.listdir(work.parent)) == ["work"]
    assert os.listdir(work) == []


def test_reading_never_leaves_the_directory_nor_waits(work: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (work / "up").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    with Beneath(os.fsencode(work)) as beneath:
        assert beneath.status(b"up/secret") is None
        with pytest.raises(OSError):
            beneath.read(b"up/secret", 100)
        assert beneath.read(b"pipe", 100) is None
        assert beneath.read(b"up", 100) == os.fsencode(tmp_path)


def test_an_edit_through_a_link_is_told_of_the_file_that_it_changes(work: Path) -> None:
    (work / "real.txt").write_text("a\n")
    (work / "link.txt").symlink_to("real.txt")
    turn = watched(work)
    turn.before_edit(str(work / "link.txt"), Stop())
    (work / "real.txt").write_text("b\n")
    assert names(turn.compare(10, Stop())) == ["real.txt"]


def test_an_edit_outside_is_said_not_followed(work: Path, tmp_path: Path) -> None:
    turn = watched(work)
    turn.before_edit(str(tmp_path / "elsewhere"), Stop())
    (tmp_path / "elsewhere").write_text("x")
    found = turn.compare(10, Stop())
    assert (found.changes, found.gap, found.reason) == (
        (),
        "some",
        "1 file outside of the workspace not followed",
    )


def test_what_an_ignored_file_held_before_a_command_changed_it_is_not_guessed(work: Path) -> None:
    """A command has written into it before the edit: what it held is not known, and it is no new file."""
    (work / ".gitignore").write_text("*.log\n")
    (work / "x.log").write_text("old\n")
    commit(work)
    turn = after_command(work)
    time.sleep(0.1)
    (work / "x.log").write_text("by a command\n")
    turn.before_edit(str(work / "x.log"), Stop())
    (work / "x.log").write_text("by an edit\n")
    (change,) = turn.compare(10, Stop()).changes
    assert change.before is not None
    assert change.before.digest is None

"""Which files instruct the agent, in which order, and what is left out with a notice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcode_exec.agent.instructions import (
    MAX_TOTAL_BYTES,
    REPAIRED,
    SHORTENED,
    SKIPPED,
    Instructions,
    read_instructions,
)
from mcode_exec.config import InstructionFile


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "repo" / "a" / "b").mkdir(parents=True)
    return tmp_path / "repo"


def read(root: Path, below: str = "", *further: InstructionFile, with_project: bool = True) -> Instructions:
    return read_instructions(
        workspace=str(root / below), git_root=str(root), further=further, with_project=with_project
    )


def project_file(path: Path) -> InstructionFile:
    return InstructionFile(path=str(path), is_project=True, source="test")


def own_file(path: Path) -> InstructionFile:
    return InstructionFile(path=str(path), is_project=False, source="test")


def shown(instructions: Instructions) -> list[tuple[str, str]]:
    return [(section.path, section.text) for section in instructions.sections]


def test_files_are_read_from_the_root_down_to_the_workspace(root: Path) -> None:
    (root.parent / "AGENTS.md").write_text("above the root")
    (root / "AGENTS.md").write_text("top\n")
    (root / "a" / "CLAUDE.md").write_text("middle")
    (root / "a" / "b" / "AGENTS.md").write_text("here")
    assert shown(read(root, "a/b")) == [
        ("AGENTS.md", "top"),
        ("a/CLAUDE.md", "middle"),
        ("a/b/AGENTS.md", "here"),
    ]
    assert shown(read(root, "a")) == [("AGENTS.md", "top"), ("a/CLAUDE.md", "middle")]
    assert shown(read(root)) == [("AGENTS.md", "top")]


def test_agents_wins_where_both_exist(root: Path) -> None:
    (root / "AGENTS.md").write_text("agents")
    (root / "CLAUDE.md").write_text("claude")
    assert shown(read(root)) == [("AGENTS.md", "agents")]


def test_without_git_only_the_workspace_counts(root: Path) -> None:
    (root / "AGENTS.md").write_text("top")
    (root / "a" / "AGENTS.md").write_text("here")
    found = read_instructions(workspace=str(root / "a"), git_root=None)
    assert shown(found) == [("AGENTS.md", "here")]


def test_a_git_root_elsewhere_does_not_count(root: Path, tmp_path: Path) -> None:
    (root / "AGENTS.md").write_text("here")
    found = read_instructions(workspace=str(root), git_root=str(tmp_path / "repo-other"))
    assert shown(found) == [("AGENTS.md", "here")]


def test_the_workspace_may_be_reached_through_a_link(root: Path, tmp_path: Path) -> None:
    (root / "AGENTS.md").write_text("top")
    (root / "a" / "AGENTS.md").write_text("here")
    (tmp_path / "link").symlink_to(root / "a")
    found = read_instructions(workspace=str(tmp_path / "link"), git_root=str(root))
    assert shown(found) == [("AGENTS.md", "top"), ("a/AGENTS.md", "here")]


def test_a_link_out_of_the_project_is_left_out_and_the_other_file_is_read(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (root / "AGENTS.md").symlink_to(tmp_path / "secret")
    (root / "CLAUDE.md").write_text("claude")
    found = read(root)
    assert shown(found) == [("CLAUDE.md", "claude")]
    assert [code for code, _ in found.notices] == [SKIPPED]
    assert "outside the project" in found.notices[0][1]


def test_a_link_inside_the_project_is_read_once(root: Path) -> None:
    (root / "CLAUDE.md").write_text("text")
    (root / "AGENTS.md").symlink_to("CLAUDE.md")
    (root / "a" / "AGENTS.md").symlink_to("../CLAUDE.md")
    found = read(root, "a")
    assert shown(found) == [("AGENTS.md", "text")]
    assert found.notices == ()


@pytest.mark.parametrize("kind", ["fifo", "directory", "dangling", "loop"])
def test_what_is_no_regular_file_is_left_out_with_a_notice(root: Path, kind: str) -> None:
    path = root / "AGENTS.md"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("AGENTS.md" if kind == "loop" else "nothing")
    found = read(root)
    assert found.sections == ()
    assert [code for code, _ in found.notices] == [SKIPPED]


def test_the_text_is_cut_at_a_character_and_later_files_are_named(root: Path) -> None:
    (root / "AGENTS.md").write_text("x" + "é" * MAX_TOTAL_BYTES)
    (root / "a" / "AGENTS.md").write_text("later")
    found = read(root, "a")
    (section,) = found.sections
    assert section.text == "x" + "é" * ((MAX_TOTAL_BYTES - 1) // 2)
    assert [code for code, _ in found.notices] == [SHORTENED, SHORTENED]
    assert "AGENTS.md was cut" in found.notices[0][1]
    assert "a/AGENTS.md was left out" in found.notices[1][1]


def test_a_file_of_exactly_the_limit_is_whole(root: Path) -> None:
    (root / "AGENTS.md").write_text("x" * MAX_TOTAL_BYTES)
    found = read(root)
    assert len(found.sections[0].text) == MAX_TOTAL_BYTES
    assert found.notices == ()


def test_faulty_bytes_are_replaced_and_nul_is_dropped(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"\xef\xbb\xbfa\xffb\0c")
    found = read(root)
    assert shown(found) == [("AGENTS.md", "a\ufffdbc")]
    assert [code for code, _ in found.notices] == [REPAIRED]


def test_empty_files_say_nothing(root: Path) -> None:
    (root / "AGENTS.md").write_text(" \n")
    assert read(root) == Instructions()


def test_further_files_follow_and_the_users_own_come_first(root: Path, tmp_path: Path) -> None:
    (root / "AGENTS.md").write_text("top")
    (root / "more.md").write_text("more")
    (tmp_path / "mine.md").write_text("mine")
    found = read(root, "a", project_file(root / "more.md"), own_file(tmp_path / "mine.md"))
    assert [(s.text, s.is_project) for s in found.sections] == [
        ("mine", False),
        ("top", True),
        ("more", True),
    ]


def test_a_further_file_of_the_project_must_lie_inside_it(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("mine")
    (root / "link.md").symlink_to(tmp_path / "mine.md")
    found = read(root, "", project_file(root / "link.md"), project_file(root / "missing.md"))
    assert found.sections == ()
    assert [code for code, _ in found.notices] == [SKIPPED, SKIPPED]
    assert "No such file" in found.notices[1][1]


def test_the_project_cannot_crowd_out_the_users_own_file(root: Path, tmp_path: Path) -> None:
    (root / "AGENTS.md").write_text("x" * MAX_TOTAL_BYTES * 2)
    (tmp_path / "mine.md").write_text("mine")
    assert read(root, "", own_file(tmp_path / "mine.md")).sections[0].text == "mine"


def test_nothing_of_the_project_is_read_when_that_is_asked_for(root: Path, tmp_path: Path) -> None:
    (root / "AGENTS.md").write_text("top")
    (root / "more.md").write_text("more")
    (tmp_path / "mine.md").write_text("mine")
    further = (project_file(root / "more.md"), own_file(tmp_path / "mine.md"))
    found = read(root, "", *further, with_project=False)
    assert [section.text for section in found.sections] == ["mine"]
    assert found.notices == ()


def test_a_name_with_control_characters_is_shown_escaped(root: Path) -> None:
    odd = root / "a\nb\x1b"
    odd.mkdir()
    (odd / "AGENTS.md").write_text("odd")
    assert read(root, "a\nb\x1b").sections[0].path == "a\\nb\\x1b/AGENTS.md"

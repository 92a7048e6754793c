"""Paths: links, both names, case, NUL, and what lies outside (cases B172, B173 and their neighbours)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcode_exec.permissions.judge import Judge
from mcode_exec.permissions.places import Name, Places
from mcode_exec.permissions.rulebook import RuleBook
from mcode_exec.permissions.rules import layer, parse_flag_rule
from mcode_exec.records.permission import Need, Rule
from tests.unit.permissions.conftest import Ground, ask_for, bash


@pytest.fixture
def linked(ground: Ground) -> Ground:
    """`~/.ssh` is a link to `data/ssh`, which holds a key with a second, hard-linked name elsewhere."""
    real = ground.root / "data/ssh"
    real.mkdir(parents=True)
    (real / "id").write_text("key")
    (ground.home / ".ssh").symlink_to(real)
    os.link(real / "id", ground.workspace / "harmless.txt")
    (ground.workspace / "hop").symlink_to(ground.home / ".ssh")
    return ground


def test_a_rule_on_a_link_hits_the_real_path_and_the_other_way_round(linked: Ground) -> None:
    real = linked.root / "data/ssh"
    names = [
        linked.home / ".ssh/id",
        real / "id",
        linked.home / ".ssh",
        real,
        linked.workspace / "hop/id",
        linked.workspace / "../.ssh/id",
        Path(f"/proc/self/root{real}/id"),
        Path(f"/proc/{os.getpid()}/root{linked.home}/.ssh/id"),
        linked.workspace / "harmless.txt",
    ]
    for rule in (
        "read:~/.ssh/**",
        "read:$HOME/.ssh/*",
        f"read:{real}/**",
        "read:~/.ssh/id",
        f"read:{real}/id",
    ):
        judge = linked.judge("full", deny=[rule])
        for name in names:
            if name.name in (".ssh", "ssh") and rule.endswith("/id"):
                continue
            assert ask_for(judge, "read", name).verdict == "deny", (rule, name)
        assert ask_for(judge, "read", linked.workspace / "other.txt").verdict == "allow"


def test_a_descriptor_is_judged_by_what_it_is_open_on(linked: Ground) -> None:
    judge = linked.judge("full", deny=["read:~/.ssh/**"])
    fd = os.open(linked.root / "data/ssh/id", os.O_RDONLY)
    try:
        assert ask_for(judge, "read", f"/dev/fd/{fd}").verdict == "deny"
        assert ask_for(judge, "read", f"/proc/self/fd/{fd}").verdict == "deny"
    finally:
        os.close(fd)


def test_a_hard_link_to_a_named_file_is_that_file(ground: Ground) -> None:
    (ground.workspace / ".env").write_text("x")
    os.link(ground.workspace / ".env", ground.workspace / "copy.txt")
    judge = ground.judge("full", deny=["read:.env"])
    assert ask_for(judge, "read", ground.workspace / "copy.txt").verdict == "deny"
    assert bash(judge, "cat copy.txt").verdict == "deny"


def test_a_relative_rule_hits_through_links(ground: Ground) -> None:
    (ground.root / "outside/s").write_text("x")
    (ground.workspace / "secrets").symlink_to(ground.root / "outside")
    judge = ground.judge("full", deny=["read:secrets/**", "edit:secrets/**"])
    for permission in ("read", "edit"):
        assert ask_for(judge, permission, ground.workspace / "secrets/s").verdict == "deny"
        assert ask_for(judge, permission, ground.root / "outside/s").verdict == "deny"
    assert bash(judge, f"cat {ground.root}/outside/s").verdict == "deny"
    assert bash(judge, "cat secrets/s").verdict == "deny"


def test_an_allow_rule_must_hold_for_both_names(ground: Ground) -> None:
    (ground.workspace / "docs").mkdir()
    (ground.workspace / "docs/link").symlink_to(ground.workspace / "src.py")
    rules = [
        Rule(permission="edit", pattern="*", verdict="deny", source="config"),
        Rule(permission="edit", pattern="docs/*", verdict="allow", source="config"),
    ]
    judge = ground.judge(config=rules)
    assert ask_for(judge, "edit", ground.workspace / "docs/a.md").verdict == "allow"
    assert ask_for(judge, "edit", ground.workspace / "docs/link").verdict == "deny"
    assert ask_for(judge, "edit", ground.workspace / "docs/../src.py").verdict == "deny"


@pytest.mark.parametrize(
    "name", [".env", "./.env", "sub/../.env", "sub/.env", "nosuch/../.env", "//.env", "sub//../.env/."]
)
def test_a_name_is_judged_after_normalising(name: str, ground: Ground) -> None:
    judge = ground.judge("full", deny=["read:.env"])
    assert ask_for(judge, "read", f"{ground.workspace}/{name}").verdict == "deny"
    assert ask_for(judge, "read", name if not name.startswith("/") else "." + name).verdict == "deny"


def test_case_counts_where_the_file_system_counts_it(ground: Ground) -> None:
    (ground.workspace / ".env").write_text("x")
    judge = ground.judge("full", deny=["read:.env"])
    is_sensitive = not (ground.workspace / ".ENV").exists()
    for name in (".ENV", ".Env"):
        assert ask_for(judge, "read", ground.workspace / name).verdict == (
            "allow" if is_sensitive else "deny"
        )
    assert ask_for(judge, "read", f"{ground.workspace}/.env ").verdict == "allow"  # another file


def test_on_a_file_system_that_folds_case_rules_that_forbid_fold_it_too(ground: Ground) -> None:
    book = RuleBook(
        layer("full", flags=[parse_flag_rule("read:caf\u00e9/.env", "deny", "--deny")]), ground.scope
    )
    for relative in ("CAFE\u0301/.ENV", "caf\u00e9/.Env"):
        name = Name(path=f"{ground.workspace}/{relative}", relative=relative, folds_case=True)
        assert book.find_for_name("read", name) is not None
        assert book.find_for_name("read", Name(path=name.path, relative=relative)) is None
    decomposed = Name(path=f"{ground.workspace}/cafe\u0301/.env", relative="cafe\u0301/.env")
    assert book.find_for_name("read", decomposed) is not None, "it looks the same wherever it lies"
    allowing = RuleBook(layer("full", flags=[parse_flag_rule("read:a", "allow", "--allow")]), ground.scope)
    assert allowing.find_for_name("read", Name(path="/A", relative="A", folds_case=True)) is None


def test_the_probe_for_case_agrees_with_the_file_system(ground: Ground) -> None:
    (ground.workspace / "Probe").write_text("x")
    names = Places(ground.scope).names(f"{ground.workspace}/Probe")
    assert names is not None
    assert names[0].folds_case is (ground.workspace / "pROBE").exists()


def test_a_nul_is_refused_under_every_preset_that_checks(ground: Ground) -> None:
    for preset in ("smart", "full", "read-only"):
        judge = ground.judge(preset, allow=["read", "edit", "external_directory"])
        for permission in ("read", "edit", "glob", "grep", "list", "external_directory"):
            assert ask_for(judge, permission, f"{ground.workspace}/.env\0x").verdict == "deny"


def test_strange_paths_get_a_verdict(ground: Ground) -> None:
    (ground.workspace / "loop").symlink_to("loop")
    judge = ground.judge(deny=["read:x/**"])
    for path in (
        "",
        "/",
        ".",
        "..",
        "~",
        "a" * 5_000,
        "a/" * 3_000,
        "\udc80",
        "\ud800",
        "loop",
        "loop/x",
        "\n",
        "\u202e",
        "//",
        "///x",
    ):
        assert ask_for(judge, "read", path).verdict in ("allow", "ask", "deny")


def test_a_tool_name_is_one_whatever_its_case(ground: Ground) -> None:
    for written in ("bash", "Bash", "BASH"):
        judge = ground.judge(deny=[written])
        assert judge.hides("bash")
        assert bash(judge, "ls").verdict == "deny"
        assert ask_for(judge, "Bash" if written == "bash" else "bash", "ls").verdict == "deny"


# -- presets ----------------------------------------------------------------------------------------------------


def test_smart_reads_everything_inside_but_env_files(ground: Ground) -> None:
    judge = ground.judge()
    for permission in ("read", "glob", "grep", "list"):
        assert ask_for(judge, permission, ground.workspace / "a.py").verdict == "allow"
    for name in (".env", ".env.local", ".envrc", "sub/.env.production"):
        assert ask_for(judge, "read", ground.workspace / name).verdict == "ask"
        assert ask_for(judge, "grep", ground.workspace / name).verdict == "ask"
    for name in (".env.example", ".env.sample", ".env.template", "env", "environment.py"):
        assert ask_for(judge, "read", ground.workspace / name).verdict == "allow"


def test_a_link_to_an_env_file_is_an_env_file(ground: Ground) -> None:
    (ground.workspace / ".env").write_text("x")
    (ground.workspace / "innocent.txt").symlink_to(".env")
    assert ask_for(ground.judge(), "read", ground.workspace / "innocent.txt").verdict == "ask"


def test_smart_edits_inside_but_not_git_or_mcode(ground: Ground) -> None:
    judge = ground.judge()
    for name in ("a.py", "sub/deep/new.py", ".github/x.yml", ".gitignore", "x.git"):
        assert ask_for(judge, "edit", ground.workspace / name).verdict == "allow"
    for name in (".git/config", ".git/hooks/pre-commit", "sub/.git/config", ".mcode/config.toml"):
        assert ask_for(judge, "edit", ground.workspace / name).verdict == "ask"
    for path in (
        ground.root / "outside/x",
        ground.home / ".bashrc",
        "/etc/hosts",
        f"{ground.workspace}-other/x",
    ):
        decision = ask_for(judge, "edit", path)
        assert (decision.verdict, decision.permission) == ("ask", "external_directory")
    assert ask_for(judge, "edit", ground.temp_dir / "x").verdict == "allow"


def test_reading_outside_needs_external_directory(ground: Ground) -> None:
    path = ground.root / "outside/x"
    assert ask_for(ground.judge(), "read", path).permission == "external_directory"
    allowed = ground.judge(allow=[f"external_directory:{ground.root}/outside/*"])
    assert ask_for(allowed, "read", path).verdict == "allow"
    assert ask_for(allowed, "read", "/etc/hosts").verdict == "ask"
    assert ask_for(ground.judge("full"), "read", "/etc/hosts").verdict == "allow"
    assert ask_for(ground.judge("full", deny=["external_directory"]), "read", "/etc/hosts").verdict == "deny"
    assert ask_for(ground.judge("read-only"), "read", path).verdict == "ask"


def test_credentials_are_asked_even_where_the_outside_is_allowed(ground: Ground) -> None:
    judge = ground.judge(allow=["external_directory"])
    for name in (".ssh/id_rsa", ".aws/credentials", ".netrc", ".docker/config.json"):
        assert ask_for(judge, "read", ground.home / name).verdict == "ask"
    assert ask_for(judge, "read", ground.home / "notes.txt").verdict == "allow"
    assert (
        ask_for(
            ground.judge(allow=["external_directory", "read:~/.netrc"]), "read", ground.home / ".netrc"
        ).verdict
        == "allow"
    )


def test_large_outputs_that_were_set_aside_can_be_read_and_nothing_else_of_the_data(ground: Ground) -> None:
    output = ground.data_dir / "sessions/2026/01/02/x/reports/tool-outputs/call_1.txt"
    output.parent.mkdir(parents=True)
    output.write_text("x")
    for preset in ("smart", "read-only"):
        judge = ground.judge(preset)
        assert ask_for(judge, "read", output).verdict == "allow"
        assert ask_for(judge, "read", ground.data_dir / "mcode.db").verdict == "ask"


def test_the_floor_keeps_mcodes_own_files(ground: Ground) -> None:
    (ground.workspace / "db").symlink_to(ground.data_dir / "mcode.db")
    (ground.workspace / "data").symlink_to(ground.data_dir)
    for preset in ("smart", "full"):
        judge = ground.judge(preset, allow=["edit", "external_directory"])
        for path in (
            ground.data_dir / "mcode.db",
            ground.config_file,
            ground.workspace / "db",
            ground.workspace / "data/x",
            "/dev/sda",
            ground.workspace / "../.local/share/mcode/x",
        ):
            decision = ask_for(judge, "edit", path)
            assert (decision.verdict, decision.origin) == ("deny", "floor")
    assert ask_for(ground.judge("off"), "edit", ground.data_dir / "x").verdict == "allow"


def test_a_workspace_that_lies_in_the_data_directory_is_no_data(ground: Ground) -> None:
    from msgspec.structs import replace

    worktree = ground.data_dir / "worktrees/w"
    worktree.mkdir(parents=True)
    judge = Judge(layer("smart"), replace(ground.scope, workspace=str(worktree)))
    assert ask_for(judge, "edit", worktree / "a.py").verdict == "allow"
    assert ask_for(judge, "edit", ground.data_dir / "mcode.db").verdict == "deny"


def test_read_only_denies_every_change(ground: Ground) -> None:
    judge = ground.judge("read-only")
    for permission in ("read", "glob", "grep", "list"):
        assert ask_for(judge, permission, ground.workspace / "a.py").verdict == "allow"
    decision = ask_for(judge, "edit", ground.workspace / "a.py")
    assert decision.verdict == "deny"
    assert "preset read-only" in decision.reason


@pytest.mark.parametrize("preset", ["smart", "full", "off", "read-only"])
def test_the_doom_loop_is_asked_whatever_the_preset(preset: str, ground: Ground) -> None:
    assert ask_for(ground.judge(preset), "doom_loop", "bash").verdict == "ask"
    assert ask_for(ground.judge(preset, allow=["doom_loop"]), "doom_loop", "bash").verdict == "allow"
    assert ask_for(ground.judge(preset, deny=["doom_loop"]), "doom_loop", "bash").verdict == "deny"


def test_the_strictest_of_several_needs_decides(ground: Ground) -> None:
    judge = ground.judge(deny=["edit:*.lock"])
    needs = [
        Need(permission="edit", subject=f"{ground.workspace}/{name}")
        for name in ("a", ".git/x", "a.lock", "b")
    ]
    assert judge.judge(needs).verdict == "deny"
    assert judge.judge(needs[:2]).verdict == "ask"
    assert judge.judge(needs[:1]).verdict == "allow"
    assert judge.judge([]).verdict == "allow"

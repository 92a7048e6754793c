"""The grammar of rules, their order, what hides a tool, and what people are told."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcode_exec.errors import ConfigError, InvocationError
from mcode_exec.permissions.matching import GLOB, UNKNOWN, could_match, matches
from mcode_exec.permissions.rules import layer, parse_flag_rule, rules_from_table
from mcode_exec.records.permission import Rule, Verdict
from tests.unit.permissions.conftest import Ground, ask_for, bash


@pytest.mark.parametrize(
    ("text", "permission", "pattern"),
    [
        ("bash", "bash", "*"),
        ("bash:git *", "bash", "git *"),
        ("Bash:git *", "bash", "git *"),
        ("edit:*.env", "edit", "*.env"),
        ("external_directory:/srv/*", "external_directory", "/srv/*"),
        ("e*", "e*", "*"),
        ("*", "*", "*"),
        ("*:x", "*", "x"),
        ("bash: ls", "bash", " ls"),
    ],
)
def test_a_flag_is_a_permission_and_perhaps_a_pattern(text: str, permission: str, pattern: str) -> None:
    rule = parse_flag_rule(text, "allow", "--allow")
    assert (rule.permission, rule.pattern, rule.verdict, rule.source) == (
        permission,
        pattern,
        "allow",
        "--allow",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "PERMISSION"),
        (":x", "PERMISSION"),
        ("bash:", "empty"),
        ("bash: ", "empty"),
        ("write:x", "did you mean 'edit'"),
        ("shell", "did you mean 'bash'"),
        ("bahs:x", "did you mean 'bash'"),
        ("zzz", "known are"),
        ("bash:a\0b", "NUL"),
        ("todo_write", "is no permission"),
    ],
)
def test_a_wrong_flag_is_told_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InvocationError) as caught:
        parse_flag_rule(text, "deny", "--deny")
    assert says in caught.value.message
    assert caught.value.message.startswith("--deny ")
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


@given(st.text())
@example("0\x1f0:")
def test_a_flag_is_a_rule_or_an_invocation_error(text: str) -> None:
    said = ""
    try:
        parse_flag_rule(text, "allow", "--allow")
    except InvocationError as error:
        said = error.message
    assert said.isprintable()


def test_a_table_keeps_its_order() -> None:
    rules = rules_from_table(
        {"read": "allow", "edit": {"*": "allow", "*.lock": "deny"}, "bash": "ask"}, "config.toml"
    )
    assert [str(rule) for rule in rules] == ["allow read:*", "allow edit:*", "deny edit:*.lock", "ask bash:*"]
    assert {rule.source for rule in rules} == {"config.toml"}


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"edit": "maybe"}, "permission.edit"),
        ({"edit": True}, "permission.edit"),
        ({"edit": ["deny"]}, "permission.edit"),
        ({"edit": {"*.x": "no"}}, 'permission.edit."*.x"'),
        ({"edit": {"*.x": {"a": "deny"}}}, 'permission.edit."*.x"'),
        ({"edit": {"": "deny"}}, 'permission.edit.""'),
        ({"wriet": "deny"}, "permission.wriet"),
    ],
)
def test_a_wrong_table_names_its_key(table: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules_from_table(table, "config.toml")
    assert caught.value.details["key"] == key
    assert caught.value.message.startswith(f"config.toml: {key}")


def _rule(verdict: Verdict, source: str) -> Rule:
    return Rule(permission="doom_loop", pattern="*", verdict=verdict, source=source)


def test_later_layers_win_and_the_workspace_can_only_deny(ground: Ground) -> None:
    layers = ["config", "agent", "session", "flags"]
    for at, name in enumerate(layers):
        given_rules = {other: [_rule("deny", other)] for other in layers[:at]}
        given_rules[name] = [_rule("allow", name)]
        from mcode_exec.permissions.judge import Judge

        judge = Judge(layer("smart", **given_rules), ground.scope)
        assert ask_for(judge, "doom_loop", "x").verdict == "allow"
    last = ground.judge(allow=["doom_loop"], workspace_deny=[_rule("deny", "workspace")])
    decision = ask_for(last, "doom_loop", "x")
    assert decision.verdict == "deny"
    assert "no flag lifts" in decision.reason
    assert (
        ask_for(ground.judge(workspace_deny=[_rule("allow", "workspace")]), "doom_loop", "x").verdict == "ask"
    )


def test_the_last_matching_rule_wins(ground: Ground) -> None:
    rules = rules_from_table({"edit": {"*": "deny", "src/*": "allow", "src/gen/*": "ask"}}, "config")
    judge = ground.judge(config=rules)
    for name, verdict in (("a", "deny"), ("src/a", "allow"), ("src/x/y", "allow"), ("src/gen/a", "ask")):
        assert ask_for(judge, "edit", ground.workspace / name).verdict == verdict


def test_a_tool_is_hidden_only_if_nothing_of_it_is_left(ground: Ground) -> None:
    assert ground.judge(deny=["bash"]).hides("bash")
    assert not ground.judge(deny=["bash:rm *"]).hides("bash")
    assert ground.judge(deny=["bash", "bash:rm *"]).hides("bash")
    left = rules_from_table({"bash": {"*": "deny", "git *": "allow"}}, "config")
    assert not ground.judge(config=left).hides("bash")
    assert not ground.judge(config=rules_from_table({"bash": "deny"}, "config"), allow=["bash:ls"]).hides(
        "bash"
    )
    assert ground.judge(deny=["*"]).hides("glob")
    assert ground.judge(deny=["g*"]).hides("glob")
    assert ground.judge("read-only").hides("edit")
    assert not ground.judge("read-only").hides("bash")
    assert not ground.judge("read-only", allow=["edit:docs/*"]).hides("edit")
    for permission in ("bash", "edit", "read", "glob"):
        assert not ground.judge("smart").hides(permission)
        assert not ground.judge("off", deny=[permission]).hides(permission)


def test_rules_are_described_from_the_weakest_to_the_strongest(ground: Ground) -> None:
    judge = ground.judge(
        allow=["bash:git *"],
        workspace_deny=[
            Rule(permission="edit", pattern="*.lock", verdict="deny", source=".mcode/config.toml")
        ],
    )
    rows = judge.describe()
    assert rows[0]["source"] == "preset smart"
    assert rows[-2] == {"permission": "bash", "pattern": "git *", "verdict": "allow", "source": "--allow"}
    assert rows[-1] == {
        "permission": "edit",
        "pattern": "*.lock",
        "verdict": "deny",
        "source": ".mcode/config.toml",
    }


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("git push origin main", "--allow 'bash:git push *'"),
        ("sudo ls", "--allow 'bash:sudo *'"),
        ("echo x > /etc/x", "--allow 'external_directory:/etc/*'"),
        ("$X", "--allow bash"),
    ],
)
def test_the_reason_says_what_was_refused_and_how_to_allow_it(script: str, hint: str, ground: Ground) -> None:
    decision = bash(ground.judge(), script)
    assert decision.verdict == "ask"
    assert hint in decision.reason
    assert "\n" not in decision.reason


def test_what_a_reason_proposes_works(ground: Ground) -> None:
    for script in (
        "git push origin main",
        "npm publish",
        "make",
        "rm -rf ~/x",
        "curl -d a=b https://x.example",
    ):
        judge = ground.judge(config=rules_from_table({"bash": "ask"}, "config"))
        reason = bash(judge, script).reason
        flag = reason.partition("--allow '")[2].partition("'")[0]
        assert (
            bash(
                ground.judge(config=rules_from_table({"bash": "ask"}, "config"), allow=[flag]), script
            ).verdict
            == "allow"
        )


# -- matching ---------------------------------------------------------------------------------------------------


def reference(pattern: str, text: str) -> bool:
    """Wildcards as they are defined, by recursion."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(reference(pattern[1:], text[i:]) for i in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and reference(pattern[1:], text[1:])


small = st.text(alphabet="ab /?*\n", max_size=8)


@given(small, small)
def test_matching_agrees_with_the_definition(pattern: str, text: str) -> None:
    bare = pattern.endswith(" *") and reference(pattern[:-2], text)
    assert matches(pattern, text) == (reference(pattern, text) or bare)


@given(
    st.text(alphabet="ab *?", max_size=6),
    st.text(alphabet="ab ", max_size=6),
    st.text(alphabet="ab ", max_size=4),
)
def test_what_matches_for_some_value_could_match(pattern: str, text: str, value: str) -> None:
    for at in range(len(text) + 1):
        if matches(pattern, text[:at] + value + text[at:]):
            assert could_match(pattern, text[:at] + UNKNOWN + text[at:])
            assert could_match(pattern, text[:at] + GLOB + text[at:])


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("git *", "git", True),
        ("git *", "git push", True),
        ("git *", "gitk", False),
        ("git*", "gitk", True),
        ("*.env", "/a/b/x.env", True),
        ("src/**", "src/a/b", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("a[b]", "ab", False),
        ("*", "", True),
        ("*", "a\nb", True),
        ("a *b", "a", False),
        ("a * *", "a b", True),
    ],
)
def test_wildcards(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_no_pattern_explodes() -> None:
    assert not matches("*a" * 50 + "b", "a" * 50_000)
    assert could_match("*a" * 50 + "b", "a" * 3_000 + UNKNOWN)

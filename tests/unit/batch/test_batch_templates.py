"""Templates and conditions: two small languages, and nothing that a value says is read as one of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcode_exec.batch.conditions import Condition
from mcode_exec.batch.paths import PathError
from mcode_exec.batch.templates import Template

VALUES: dict[str, Any] = {
    "area": "src/{{ item.path }}",
    "item": {"path": "a b.py", "n": 3, "tags": ["x", "y"], "big": True, "price": Decimal("1.50")},
    "needs": {"plan": {"status": "succeeded", "output": "do it"}, "a.b/c": {"status": "failed"}},
}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("no names", "no names"),
        ("{{area}}", "src/{{ item.path }}"),
        ("<{{ item.path }}|{{item . n}}>", "<a b.py|3>"),
        ('{{ needs["a.b/c"].status }} {{ needs.plan["output"] }}', "failed do it"),
        ("{{ item.tags }} {{ item.big }} {{ item.price }}", '["x","y"] true 1.50'),
        ("{{ \"{{\" }} not a name {{ '}}' }}", "{{ not a name }}"),
        ("a } b }} { c", "a } b }} { c"),
    ],
)
def test_names_stand_for_values_once(text: str, expanded: str) -> None:
    assert Template(text).expand(VALUES) == expanded


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ area", 'a "{{" has no "}}"'),
        ("{{ }}", "no name between"),
        ("{{ item..path }}", "is no name"),
        ("{{ item path }}", "is no name"),
        ("{{ __import__('os') }}", "is no name"),
        ("{{ item.nothing }}", 'unknown name "item.nothing"; known in "item": big, n, path, price, tags'),
        ("{{ nothing }}", "known here: area, item, needs"),
        ("{{ item.path.more }}", '"item.path" has no parts'),
    ],
)
def test_a_name_that_leads_nowhere_is_told(text: str, said: str) -> None:
    with pytest.raises(PathError) as caught:
        Template(text).expand(VALUES)
    assert said in str(caught.value)


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_value_is_never_read_again(before: str, value: str) -> None:
    before = before.replace("{{", "")
    assert Template(before.rstrip("{") + "{{ x }}").expand({"x": value}) == before.rstrip("{") + value


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("needs.plan.status == 'succeeded'", True),
        ('needs.plan.status != "succeeded"', False),
        ('needs["a.b/c"].status in ["failed", "timeout"]', True),
        ("item.n == 3 and not (item.n == 4 or false)", True),
        ("item.price == 1.5", True),
        ("'do' in needs.plan.output", True),
        ("item.big == 1", False),
        ("item.big", True),
        ("not item.tags", False),
        ("null == false", False),
    ],
)
def test_a_condition_holds_or_does_not(text: str, holds: bool) -> None:
    assert Condition(text).holds(VALUES) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 ==",
        "a b",
        ")",
        "(a",
        "a = b",
        "a == b == c",
        "len(a)",
        "a; b",
        "[1 2]",
        "and a",
        "not " * 80 + "a",
        "(" * 80 + "a",
    ],
)
def test_what_is_no_condition_is_told(text: str) -> None:
    with pytest.raises(PathError):
        Condition(text)

"""docs/providers.md names every fixture, and nothing that is not there."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from tests.support.streams import EXPECTED

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "providers.md").read_text()
SPANS = re.findall(r"`([^`\n]+)`", TEXT)


def is_named(pattern: str, name: str) -> bool:
    """`*-` stands for the prefix of a wire format."""
    return fnmatch(name, pattern) and (not pattern.startswith("*-") or name[:3] in ("oa-", "an-", "re-"))


def test_every_fixture_is_named_and_every_name_is_a_fixtures() -> None:
    patterns = [span for span in SPANS if re.fullmatch(r"[\w*-]+\.(sse|json)", span)]
    for pattern in patterns:
        assert any(is_named(pattern, name) for name in EXPECTED), pattern
    missing = [name for name in EXPECTED if not any(is_named(pattern, name) for pattern in patterns)]
    assert not missing


def test_every_test_that_is_named_exists() -> None:
    tests = [span for span in SPANS if span.startswith("tests/") and ".py" in span]
    assert len(tests) > 5
    for path, _, name in (test.partition("::") for test in tests):
        text = (ROOT / path).read_text()
        assert not name or f"def {name}(" in text, name


def test_lines_are_short_enough_to_read_outside_of_the_table() -> None:
    assert [line for line in TEXT.splitlines() if len(line) > 200 and not line.startswith("|")] == []

"""Labels of sessions: words of a script's own, KEY=VALUE, by which it finds them again.

They are names that a script gives: kept as they are, never masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mcode_exec.errors import InvocationError

MAX_LABELS = 64  # of one session
MAX_KEY = 128  # characters
MAX_VALUE = 1024  # characters


def check_label(key: str, value: str) -> None:
    """Raise InvocationError for a label that is none, or too long."""
    if not key or "=" in key:
        raise InvocationError("a label is KEY=VALUE.")
    if len(key) > MAX_KEY:
        raise InvocationError(f"the label {key[:40]!r}… is too long: a key has at most {MAX_KEY} characters.")
    if len(value) > MAX_VALUE:
        raise InvocationError(
            f"the value of the label {key[:40]!r} is too long: at most {MAX_VALUE:,} characters."
        )


def changed(kept: Mapping[str, str], added: Mapping[str, str], removed: Iterable[str]) -> dict[str, str]:
    """`kept` without `removed` and with `added`.  Raises: InvocationError where there are too many."""
    gone = frozenset(removed)
    labels = {key: value for key, value in kept.items() if key not in gone} | dict(added)
    if len(labels) > MAX_LABELS:
        raise InvocationError(
            f"a session has at most {MAX_LABELS} labels, and with these it would have {len(labels)}; "
            "--remove takes some away"
        )
    return labels

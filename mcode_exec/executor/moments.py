"""Moments as people write them for `--since` and `--until`: `7d`, `2026-01-31`, `2026-01-31T12:00`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mcode_exec.errors import InvocationError

if TYPE_CHECKING:
    from datetime import tzinfo


def moment_ms(text: str, name: str, zone: tzinfo | None = None) -> int:
    """A duration before now, a date at its midnight, or a date with a time; zone or UTC where it names none.

    `name`: the flag, for the sentence.  Raises: InvocationError.
    """
    import re
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is not None:
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone or UTC)
        return int(moment.timestamp() * 1000)
    from mcode_exec.durations import parse_duration

    try:
        seconds = parse_duration(text, name=name, error=InvocationError)
    except InvocationError as error:
        if re.fullmatch(r"[0-9.]+(?:ms|[smhd])", text):  # a duration, though one that is too long
            raise
        raise InvocationError(
            f"{name}: {text[:40]!r} is neither a duration such as 7d, nor a date such as 2026-01-31, "
            "nor a time such as 2026-01-31T12:00"
        ) from error
    return int((time.time() - seconds) * 1000)

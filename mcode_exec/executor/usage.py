"""What model calls have used and cost, for `mcode usage`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from mcode_exec.errors import InvocationError
from mcode_exec.executor.inspect import opened
from mcode_exec.executor.moments import moment_ms
from mcode_exec.records.usage import By, Usage
from mcode_exec.sessions import finding
from mcode_exec.store.usage_rows import UsageSum, sum_usage

if TYPE_CHECKING:
    from datetime import tzinfo


class UsageRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """Tokens in disjoint classes, null where nothing was reported; money in US dollars, exact."""

    by: str
    key: str | None
    title: str | None = None
    answers: int
    failed: int
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    usage_incomplete: bool
    #: null when the price or the usage of a call is unknown
    cost_usd: Decimal | None
    #: what the calls with a price come to
    known_cost_usd: Decimal


async def usage(
    data_dir: str | None,
    env: Mapping[str, str],
    *,
    by: By,
    since: str | None,
    until: str | None,
    session: str | None,
    timezone: str | None,
) -> tuple[list[UsageRow], UsageRow]:
    """Groups by key (sessions by their newest call), and the sum of all.

    Raises: InvocationError for a time or a zone that is none; SessionError; StoreFailedError.
    """
    zone = _zone(timezone)
    since_ms = None if since is None else moment_ms(since, "--since", zone)
    until_ms = None if until is None else moment_ms(until, "--until", zone)
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise InvocationError(f"--since {since} is not before --until {until}: nothing lies between them")
    async with opened(data_dir, env, reads_only=True) as runtime:
        session_id = None
        if session is not None:
            session_id = (await finding.find_exact(runtime.store, session)).id
        sums = await runtime.store.read(
            lambda: sum_usage(
                by, since_ms=since_ms, until_ms=until_ms, session_id=session_id, day_of=_day_of(zone)
            )
        )
    return [_row(by, one) for one in sums], _row("total", _total(sums))


def _zone(name: str | None) -> tzinfo | None:
    """The time zone; None is UTC.  Raises: InvocationError."""
    if name is None or name.upper() == "UTC":
        return None
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise InvocationError(
            f"--timezone: there is no time zone {name[:60]!r}; write one such as Europe/Berlin"
        ) from None


def _day_of(zone: tzinfo | None) -> Callable[[int], str]:
    from datetime import UTC, datetime

    def day(at_ms: int) -> str:
        return datetime.fromtimestamp(at_ms // 1000, zone or UTC).date().isoformat()

    return day


def _total(sums: Sequence[UsageSum]) -> UsageSum:
    def tokens(name: str) -> int | None:
        known = [value for one in sums if (value := getattr(one.usage, name)) is not None]
        return sum(known) if known else None

    return UsageSum(
        key=None,
        answers=sum(one.answers for one in sums),
        failed=sum(one.failed for one in sums),
        usage=Usage(**{name: tokens(name) for name in Usage.__struct_fields__}),
        incomplete=sum(one.incomplete for one in sums),
        known_cost_usd=sum((one.known_cost_usd for one in sums), Decimal(0)),
        unpriced=sum(one.unpriced for one in sums),
    )


def _row(by: str, one: UsageSum) -> UsageRow:
    return UsageRow(
        by=by,
        key=one.key,
        title=one.title,
        answers=one.answers,
        failed=one.failed,
        input_tokens=one.usage.input_tokens,
        cache_read_tokens=one.usage.cache_read_tokens,
        cache_write_tokens=one.usage.cache_write_tokens,
        output_tokens=one.usage.output_tokens,
        reasoning_tokens=one.usage.reasoning_tokens,
        total_tokens=one.usage.total_tokens,
        usage_incomplete=one.incomplete > 0,
        cost_usd=one.known_cost_usd if not one.unpriced else None,
        known_cost_usd=one.known_cost_usd,
    )

"""When a provider says to come back, in every odd form; a hint that cannot be read is none."""

from __future__ import annotations

from math import isfinite

#: no hint is longer than a day; what waits on it is capped far below
_MAX_MS = 86_400_000


def retry_after_ms(headers: list[tuple[bytes, bytes]], now_ms: int) -> int | None:
    """Milliseconds to wait: `retry-after-ms`, else `retry-after` in seconds or as a date, HTTP's or ISO 8601's.

    Never raises; a past date is 0, a negative number is no hint.
    """
    for wanted, unit_ms in ((b"retry-after-ms", 1.0), (b"retry-after", 1000.0)):
        for name, value in headers:
            if name != wanted:
                continue
            text = value.decode("latin-1").strip()
            # a proxy may have joined two lines into one; a date has its comma behind a name
            found = _number_ms(text.partition(",")[0].rstrip(), unit_ms)
            if found is None and unit_ms > 1.0:
                found = _date_ms(text, now_ms)
            if found is not None:
                return found
    return None


def _number_ms(text: str, unit_ms: float) -> int | None:
    if "_" in text:  # float() takes 1_000
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    if number < 0 or not (isfinite(number) or text[:1].isdigit()):
        return None  # digits without end are a number all the same
    return int(min(number * unit_ms, _MAX_MS))


def _date_ms(text: str, now_ms: int) -> int | None:
    if not text:
        return None
    if text[4:5] == "-" and text[:4].isdigit():
        return _iso_date_ms(text, now_ms)
    from datetime import UTC, datetime, timedelta
    from email.utils import parsedate_tz

    fields = None
    try:
        fields = parsedate_tz(text)
        if fields is None:
            return None
        # checked, for a day or an hour that does not exist makes no date; 60 is a leap second
        moment = datetime(*fields[:5], min(fields[5], 59), tzinfo=UTC) - timedelta(seconds=fields[9] or 0)
        at_s = moment.timestamp()
    except OverflowError:  # a zone that leads out of the calendar
        return 0 if fields and fields[0] < 1000 else _MAX_MS
    except (ValueError, TypeError, IndexError):
        return None
    return int(min(max(at_s * 1000 - now_ms, 0), _MAX_MS))


def _iso_date_ms(text: str, now_ms: int) -> int | None:
    from datetime import UTC, datetime

    try:
        at = datetime.fromisoformat(text)
        moment = at if at.tzinfo else at.replace(tzinfo=UTC)
        return int(min(max(moment.timestamp() * 1000 - now_ms, 0), _MAX_MS))
    except (ValueError, OverflowError):
        return None

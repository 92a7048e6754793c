"""How old the catalogue's data are and where they are from, for `mcode models` and `mcode doctor`."""

from __future__ import annotations

import datetime

from msgspec import Struct

from mcode_exec.clock import SystemClock
from mcode_exec.plurals import counted
from mcode_exec.providers.catalogue_data import CatalogueData

#: data that are older deserve a word
STALE_DAYS = 90
_DAY_MS = 86_400_000
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()


class DataState(Struct, frozen=True, kw_only=True):
    """The data in force."""

    #: of what day they are, where they are from, how old that is; a sentence for people
    sentence: str
    date: str | None
    #: why fetched data are not used
    trouble: str | None


def state_of(data: CatalogueData, now_ms: int | None = None) -> DataState:
    """How old the data are; those fetched are as old as their fetching."""
    today = (SystemClock().now_ms() if now_ms is None else now_ms) // _DAY_MS
    fetched = data.fetched
    if data.date is None:
        return DataState(
            sentence="no data: every model has the stated defaults", date=None, trouble=data.trouble
        )
    age = today + _EPOCH_DAY - datetime.date.fromisoformat(data.date).toordinal()
    sentence = f"limits and prices of {data.date}, {counted(max(age, 0), 'day')} old, "
    if fetched is None:
        sentence += "from the packaged catalogue"
    else:
        age = today - fetched.fetched_ms // _DAY_MS
        when = "today" if age <= 0 else f"{counted(age, 'day')} ago"
        sentence += f"fetched {when} from {fetched.url}"
    if age > STALE_DAYS:
        sentence += "; newer ones: mcode models --refresh"
    return DataState(sentence=sentence, date=data.date, trouble=data.trouble)

"""The times that English texts name."""

import re
from collections.abc import Sequence
from datetime import date, timedelta

from localmem.types import DateRange, TimeSpan

_DAYS = {"yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1}
_WORD = re.compile(rf"\b({'|'.join(_DAYS)})\b", re.IGNORECASE)


def find_times(
    text: str, day: date, context: Sequence[TimeSpan] = (), *, day_first: bool | None = None
) -> list[TimeSpan]:
    """The times that an English text names; see `localmem.times.resolver`."""
    del context, day_first
    spans = []
    for match in _WORD.finditer(text):
        moment = day + timedelta(days=_DAYS[match[0].lower()])
        spans.append(TimeSpan(match[0], match.start(), (DateRange(moment, moment),), "day"))
    return spans

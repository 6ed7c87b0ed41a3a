"""Durations of event time, as Spark and people write them: "10 minutes", "1 day 12 hours". Does not import Spark."""

from __future__ import annotations

import re
from typing import Final

from ottla.streams.errors import StreamsError

DEFAULT_MAX_FUTURE: Final = "1 day"
_UNITS_MS: Final = {
    "millisecond": 1, "ms": 1, "second": 1000, "s": 1000, "minute": 60_000, "min": 60_000, "hour": 3_600_000,
    "h": 3_600_000, "day": 86_400_000, "d": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_AMOUNT: Final = re.compile(r"\s*(\d{1,9})\s*([a-z]+)\s*", re.IGNORECASE)


def milliseconds(what: str, text: str) -> int:
    """Return the milliseconds of a duration. Raises StreamsError."""
    total, position = 0, 0
    while position < len(text) or not text:
        found = _AMOUNT.match(text, position)
        unit = "" if found is None else found[2].lower()
        unit_ms = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if found is None or unit_ms is None:
            raise StreamsError(f'{what} is {text!r}; it must be a duration such as "10 minutes" or "1 day"')
        total += int(found[1]) * unit_ms
        position = found.end()
    return total

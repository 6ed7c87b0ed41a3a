"""Checks of offsets and timestamps in arguments: whole numbers of any integer type."""

from __future__ import annotations

import operator
from datetime import datetime
from typing import Any

MAX_INT64 = 2**63 - 1


def as_offset(given: Any, what: str = "An offset") -> int:
    """Return the offset as an int. Raises ValueError if it is negative, TypeError if it is not a whole number."""
    offset = _whole(given, what)
    if not 0 <= offset <= MAX_INT64:
        raise ValueError(f"{what} must be from 0 to 2^63 - 1, not {given!r}")
    return offset


def as_timestamp_ms(given: Any) -> int:
    """Return a timestamp in ms since the epoch from a whole number or a datetime (a naive one is local time).

    Raises ValueError.
    """
    if isinstance(given, datetime):
        timestamp_ms = round(given.timestamp() * 1000)
    else:
        try:
            timestamp_ms = _whole(given, "A timestamp")
        except TypeError:
            raise ValueError(
                f"A timestamp must be whole milliseconds since the epoch or a datetime, not {given!r}"
            ) from None
    if not 0 <= timestamp_ms <= MAX_INT64:
        raise ValueError(f"A timestamp must be from 0 to 2^63 - 1 ms since the epoch, not {given!r}")
    return timestamp_ms


def _whole(given: Any, what: str) -> int:
    if isinstance(given, bool):
        raise TypeError(f"{what} must be a whole number, not {given!r}")
    try:
        return operator.index(given)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, not {given!r}") from None

"""Durations in declarations, as people and Spark write them: "10 minutes", "1 day 12 hours". Does not import Spark."""

from __future__ import annotations

from typing import Final

from ottla.common.units import parse_duration
from ottla.streams.errors import StreamsError

DEFAULT_MAX_FUTURE: Final = "1 day"


def milliseconds(what: str, text: str) -> int:
    """Return the milliseconds of the setting `what`. Raises StreamsError."""
    try:
        return parse_duration(text)
    except (TypeError, AttributeError, ValueError):
        raise StreamsError(f'{what} is {text!r}; it must be a duration such as "10 minutes" or "1 day"') from None

"""Dates, times and intervals: PostgreSQL's ISO text to Debezium's numbers and strings.

The calendar is proleptic Gregorian, as PostgreSQL's, with years before Christ and beyond 9999. Infinity becomes the
numbers that Debezium's stream sends.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final

DAY_US: Final = 86_400_000_000
INFINITE_DATE: Final = {"infinity": -2_147_472_692, "-infinity": -2_147_472_691}
INFINITE_US: Final = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}
EPOCH: Final = date(1970, 1, 1).toordinal()
_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)( BC)?")
_STAMP = re.compile(
    r"(\d{4,}-\d\d-\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?( BC)?"
)
_INTERVAL = re.compile(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?")
_DAYS_PER_MONTH: Final = 365.25 / 12


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a date; year 0 is 1 BC."""
    cycle, year_in_cycle = divmod(year - 1, 400)
    return date(year_in_cycle + 1, month, day).toordinal() + cycle * 146_097 - EPOCH


def civil_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of days since 1970."""
    cycle, rest = divmod(days + EPOCH - 1, 146_097)
    found = date.fromordinal(rest + 1)
    return found.year + 400 * cycle, found.month, found.day


@lru_cache(maxsize=4096)
def days(text: str) -> int:
    """Return the days since 1970 of a date."""
    if text in INFINITE_DATE:
        return INFINITE_DATE[text]
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(f"not a date: {text!r}")
    year = int(found[1])
    return days_of(1 - year if found[4] else year, int(found[2]), int(found[3]))


def _fraction(text: str | None) -> int:
    return int(text.ljust(6, "0")) if text else 0


def micros_of_day(text: str) -> int:
    """Return the microseconds since midnight of a time without zone."""
    return (int(text[0:2]) * 3600 + int(text[3:5]) * 60 + int(text[6:8])) * 1_000_000 + _fraction(text[9:])


def micros(text: str) -> int:
    """Return the microseconds since 1970 of a timestamp; without an offset it is taken as UTC."""
    try:  # the usual form: four digits of the year
        if text[10] == " " and len(text) <= 26:
            return days(text[:10]) * DAY_US + micros_of_day(text[11:])
    except (ValueError, IndexError):
        pass  # the general form decides
    if text in INFINITE_US:
        return INFINITE_US[text]
    found = _STAMP.fullmatch(text)
    if found is None:
        raise ValueError(f"not a timestamp: {text!r}")
    day, hours, minutes, seconds, fraction, sign, zone_h, zone_m, zone_s, era = found.groups()
    result = days(day + (era or "")) * DAY_US + _fraction(fraction)
    result += (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000
    if sign:
        zone = int(zone_h) * 3600 + int(zone_m or 0) * 60 + int(zone_s or 0)
        result -= (zone if sign == "+" else -zone) * 1_000_000
    return result


def year_text(year: int) -> str:
    """Return a year as Java's ISO formats write it."""
    if 0 <= year <= 9999:
        return f"{year:04d}"
    return f"+{year}" if year > 0 else f"-{-year:04d}"


def iso_date(text: str) -> str:
    """Return a date in ISO form (IsoDate); infinity stays as it is."""
    if text in INFINITE_DATE:
        return text
    year, month, day = civil_of(days(text))
    return f"{year_text(year)}-{month:02d}-{day:02d}Z"


def _clock(us: int, digits: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}"[: 9 + digits] if digits else text


def iso_stamp(text: str, digits: int) -> str:
    """Return a timestamp as ISO text in UTC with digits of the second (ZonedTimestamp); infinity stays as it is."""
    if text in INFINITE_US:
        return text
    if len(text) >= 22 and text.endswith("+00") and text[10] == " ":
        head, fraction = text[11:19], text[20:-3]
        tail = "." + fraction.ljust(digits, "0")[:digits] if digits else ""
        return f"{text[:10]}T{head}{tail}Z"
    day, rest = divmod(micros(text), DAY_US)
    year, month, date_ = civil_of(day)
    return f"{year_text(year)}-{month:02d}-{date_:02d}T{_clock(rest, digits)}Z"


def iso_zoned_time(text: str) -> str:
    """Return a time with offset as ISO text in UTC (ZonedTime)."""
    cut = max(text.rfind("+"), text.rfind("-"))
    clock, offset = text[:cut], text[cut:]
    hours, _, rest = offset[1:].partition(":")
    minutes, _, seconds = rest.partition(":")
    zone = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    us = micros_of_day(clock)
    if us == DAY_US and zone == 0:
        return "24:00:00Z"
    us = (us - (zone if offset[0] == "+" else -zone) * 1_000_000) % DAY_US
    shown = _clock(us, 6).rstrip("0").rstrip(".") if us % 1_000_000 else _clock(us, 0)
    return f"{shown}Z"


def iso_time(text: str) -> str:
    """Return a time without zone in ISO form (IsoTime)."""
    return f"{text}Z"


def logical_date(text: str) -> date:
    """Return Connect's Date. Raises ValueError for infinity and for years that Python does not have."""
    return date.fromordinal(days(text) + EPOCH)


def logical_time(text: str) -> time:
    """Return Connect's Time, in milliseconds; 24:00 is midnight."""
    ms = micros_of_day(text) // 1000 % 86_400_000
    return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)).time()


def logical_timestamp(text: str) -> datetime:
    """Return Connect's Timestamp. Raises OverflowError for years that Python does not have."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=micros(text) // 1000)


def interval_parts(text: str) -> tuple[int, int, int, int, int, Decimal]:
    """Return years, months, days, hours, minutes and seconds of an interval in ISO 8601."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"not an interval: {text!r}")
    years, months, days_, hours, minutes, seconds = (found[each] or "0" for each in range(1, 7))
    return int(years), int(months), int(days_), int(hours), int(minutes), Decimal(seconds)


def interval_micros(text: str) -> int:
    """Return an interval in microseconds, with Debezium's average month (MicroDuration)."""
    years, months, days_, hours, minutes, seconds = interval_parts(text)
    whole = (((years * 12 + months) * _DAYS_PER_MONTH + days_) * 24 + hours) * 60 + minutes
    return int((whole * 60 + float(seconds)) * 1_000_000)


def interval_iso(text: str) -> str:
    """Return an interval as Debezium's ISO text (Interval)."""
    years, months, days_, hours, minutes, seconds = interval_parts(text)
    shown = format(seconds.normalize(), "f") if seconds else "0"
    return f"P{years}Y{months}M{days_}DT{hours}H{minutes}M{shown}S"

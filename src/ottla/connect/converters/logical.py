"""Logical types: Python values of Decimal, Date, Time and Timestamp, and the numbers and bytes that stand for them.

Source: org.apache.kafka.connect.data.Decimal, Date, Time and Timestamp of Kafka 4.3. Python's dates end with the year
9999; a later one in a record is a DataError.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from typing import Final

from ottla.connect.data import Schema
from ottla.connect.errors import DataError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000
# Decimals of databases have up to 131072 digits before and 16383 after the point.
_EXACT: Final = Context(prec=150_000, traps=[Inexact, InvalidOperation])


def decimal_scale(schema: Schema) -> int:
    """Return the digits after the point. Raises DataError if the schema does not say."""
    try:
        return int(schema.parameters["scale"])
    except (KeyError, ValueError) as error:
        raise DataError("Invalid Decimal schema: scale parameter not found or not an integer") from error


@lru_cache(maxsize=64)
def _quantum(scale: int) -> Decimal:
    return Decimal((0, (1,), -scale))


def scaled(value: Decimal, scale: int) -> Decimal:
    """Return a decimal with exactly `scale` digits after the point. Raises DataError if digits would be lost."""
    try:
        return value.quantize(_quantum(scale), context=_EXACT)
    except (Inexact, InvalidOperation) as error:
        raise DataError(f"{value} does not fit the Decimal schema with scale {scale}") from error


def decimal_to_bytes(value: Decimal, scale: int) -> bytes:
    """Return the unscaled value as two's complement, as short as possible. Raises DataError."""
    sign, digits, _ = scaled(value, scale).as_tuple()
    number = int("".join(map(str, digits)))
    number = -number if sign else number
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def decimal_from_bytes(unscaled: bytes, scale: int) -> Decimal:
    """Return the decimal of an unscaled value."""
    return Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(-scale, _EXACT)


def date_to_days(value: object) -> int:
    """Return days since 1970. Raises DataError for other values than dates."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH_DAY
    raise DataError(f"Invalid type for Date, expected date but was {type(value).__name__}")


def date_from_days(days: int) -> date:
    """Return the date of days since 1970. Raises DataError if Python has no such date."""
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError) as error:
        raise DataError(f"There is no date {days} days after 1970-01-01 in the years 1 to 9999") from error


def time_to_ms(value: object) -> int:
    """Return milliseconds of the day. Raises DataError for other values than times."""
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    raise DataError(f"Invalid type for Time, expected time but was {type(value).__name__}")


def time_from_ms(milliseconds: int) -> time:
    """Return the time of day. Raises DataError if there are more milliseconds than in a day."""
    if not 0 <= milliseconds < _DAY_MS:
        raise DataError(f"Time values must be from 0 to {_DAY_MS - 1} milliseconds, but one is {milliseconds}")
    seconds, milliseconds = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return time(hours, minutes, seconds, milliseconds * 1000)


def timestamp_to_ms(value: object) -> int:
    """Return milliseconds since 1970. A datetime without time zone is in UTC. Raises DataError for other values."""
    if isinstance(value, datetime):
        return ((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - EPOCH) // _MILLISECOND
    raise DataError(f"Invalid type for Timestamp, expected datetime but was {type(value).__name__}")


def timestamp_from_ms(milliseconds: int) -> datetime:
    """Return the time in UTC. Raises DataError if Python has no such time."""
    try:
        return EPOCH + milliseconds * _MILLISECOND
    except OverflowError as error:
        raise DataError(f"There is no time {milliseconds} ms after 1970 in the years 1 to 9999") from error

"""Logical types as the messages of Google and Confluent: Decimal, Date, Time and Timestamp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, Final

from ottla.connect import data
from ottla.connect.converters import logical
from ottla.connect.data import Schema
from ottla.connect.errors import DataError

_MOST_DIGITS: Final = 150_000
"""How many digits a decimal may have, before or after the point: a few bytes must not become gigabytes of text."""
_MOST_BYTES: Final = int(_MOST_DIGITS / 2.4)
_MS_NANOS: Final = 1_000_000


def _write_decimal(message: Any, schema: Schema, value: Any) -> None:
    if not isinstance(value, Decimal):
        raise DataError(f"Invalid type for Decimal, expected Decimal but was {type(value).__name__}")
    scale = logical.decimal_scale(schema)
    message.value = logical.decimal_to_bytes(value, scale)
    message.precision = len(logical.scaled(value, scale).as_tuple().digits)
    message.scale = scale


def _read_decimal(message: Any) -> Decimal:
    if abs(message.scale) > _MOST_DIGITS or len(message.value) > _MOST_BYTES:
        raise DataError(f"A decimal with scale {message.scale} and {len(message.value)} bytes is too large")
    value = logical.decimal_from_bytes(message.value, message.scale)
    if not 0 < message.precision < len(value.as_tuple().digits):
        return value
    with localcontext(Context(prec=message.precision, rounding=ROUND_HALF_UP)):
        return +value


def _write_date(message: Any, schema: Schema, value: Any) -> None:
    del schema
    logical.date_to_days(value)
    message.year, message.month, message.day = value.year, value.month, value.day


def _read_date(message: Any) -> date:
    try:
        return date(message.year, message.month, message.day)
    except (ValueError, OverflowError) as error:
        raise DataError(f"There is no date {message.year}-{message.month}-{message.day}: {error}") from error


def _write_time(message: Any, schema: Schema, value: Any) -> None:
    del schema
    milliseconds = logical.time_to_ms(value)
    message.hours, message.minutes, message.seconds = value.hour, value.minute, value.second
    message.nanos = milliseconds % 1000 * _MS_NANOS


def _read_time(message: Any) -> Any:
    parts = (message.hours, message.minutes, message.seconds, message.nanos)
    for part, most in zip(parts, (24, 60, 60, 1000 * _MS_NANOS), strict=True):
        if not 0 <= part < most:
            raise DataError(f"A time has {part} where a number from 0 to {most - 1} must be")
    seconds = (message.hours * 60 + message.minutes) * 60 + message.seconds
    return logical.time_from_ms(seconds * 1000 + message.nanos // _MS_NANOS)


def _write_timestamp(message: Any, schema: Schema, value: Any) -> None:
    del schema
    seconds, milliseconds = divmod(logical.timestamp_to_ms(value), 1000)
    message.seconds, message.nanos = seconds, milliseconds * _MS_NANOS


def _read_timestamp(message: Any) -> Any:
    if not 0 <= message.nanos < 1000 * _MS_NANOS:
        raise DataError(f"A timestamp has {message.nanos} nanoseconds, which are not from 0 to 999999999")
    return logical.timestamp_from_ms(message.seconds * 1000 + message.nanos // _MS_NANOS)


WRITE: Final[Mapping[str, Callable[[Any, Schema, Any], None]]] = {
    data.DECIMAL: _write_decimal, data.DATE: _write_date, data.TIME: _write_time, data.TIMESTAMP: _write_timestamp,
}  # fmt: skip
"""Fill the message of a logical type. They raise DataError."""
READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    data.DECIMAL: _read_decimal, data.DATE: _read_date, data.TIME: _read_time, data.TIMESTAMP: _read_timestamp,
}  # fmt: skip
"""The value of the message of a logical type. They raise DataError."""

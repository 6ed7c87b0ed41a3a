"""Columns to Python's objects, for single values: dictionaries, lists, datetimes, decimals. Needs no pyarrow.

A map becomes a dictionary, whose last one of duplicate keys wins; a timestamp a datetime, in UTC if it has a time zone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final

from ottla.serde._builders import Column, Plan

_CODES: Final[dict[str, Any]] = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "float32": "f", "float64": "d"}
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a time without a zone
_FIRST_DAY: Final = dt.date(1970, 1, 1)
_DECIMALS: Final = Context(prec=38)


def objects_of(plan: Plan, column: Column) -> list[Any]:
    """Return the rows of a column of this plan. Raises ValueError for a time that Python does not have."""
    values = _values(plan, column)
    validity = column.buffers[0]
    if validity is None or not column.null_count:
        return [values(row) for row in range(column.length)]
    return [values(row) if validity[row // 8] >> row % 8 & 1 else None for row in range(column.length)]


def moment(micros: int, is_utc: bool) -> dt.datetime:
    """Return a time from microseconds since the epoch. Raises ValueError outside of the years 1 to 9999."""
    try:
        found = _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        raise ValueError(f"a time of {micros} microseconds, which is not between the years 1 and 9999") from None
    return found.replace(tzinfo=dt.UTC) if is_utc else found


def _values(plan: Plan, column: Column) -> Callable[[int], Any]:
    """Return a function from a row that is not null to its value."""
    kind, buffers = plan[0], column.buffers
    if kind == "struct":
        names = [name for name, _ in plan[1]]
        fields = [objects_of(child, part) for (_, child), part in zip(plan[1], column.children, strict=True)]
        return lambda row: {name: field[row] for name, field in zip(names, fields, strict=True)}
    if kind in ("list", "map"):
        return _lists(plan, column)
    if kind in ("string", "binary"):
        ends, data = memoryview(buffers[1]).cast("i"), bytes(buffers[2])
        if kind == "binary":
            return lambda row: data[ends[row] : ends[row + 1]]
        return lambda row: data[ends[row] : ends[row + 1]].decode()
    if kind == "bool":
        return lambda row: bool(buffers[1][row // 8] >> row % 8 & 1)
    if kind == "decimal128":
        return lambda row: _decimal(buffers[1][16 * row : 16 * row + 16], plan[2])
    if kind == "date32":
        days = memoryview(buffers[1]).cast("i")
        return lambda row: _date(days[row])
    if kind == "timestamp_us":
        micros = memoryview(buffers[1]).cast("q")
        return lambda row: moment(micros[row], plan[1])
    numbers: Any = memoryview(buffers[1]).cast(_CODES[kind])
    return lambda row: numbers[row]


def _lists(plan: Plan, column: Column) -> Callable[[int], Any]:
    ends = memoryview(column.buffers[1]).cast("i")
    if plan[0] == "list":
        items = objects_of(plan[1], column.children[0])
        return lambda row: items[ends[row] : ends[row + 1]]
    entries = column.children[0]
    keys, values = (objects_of(each, part) for each, part in zip(plan[1:], entries.children, strict=True))
    return lambda row: dict(zip(keys[ends[row] : ends[row + 1]], values[ends[row] : ends[row + 1]], strict=True))


def _decimal(data: bytes, scale: int) -> Decimal:
    return Decimal(int.from_bytes(data, "little", signed=True)).scaleb(-scale, _DECIMALS)


def _date(days: int) -> dt.date:
    try:
        return _FIRST_DAY + dt.timedelta(days=days)
    except OverflowError:
        raise ValueError(f"a date of {days} days since 1970, which is not between the years 1 and 9999") from None

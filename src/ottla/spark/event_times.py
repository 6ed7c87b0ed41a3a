"""Finds values whose event time is missing, or too far in the future.

Without an event time, a value would vanish from windows and joins. One far in the future would make all later records
of a stream late.

`value.time` names the field with the event time, and `value.maxFuture` how far it may be after the timestamp of its
record, which is the clock of the producer or broker. Brokers reject records whose timestamp is in the future
(message.timestamp.after.max.ms). So the same records are invalid whenever a topic is read, and a repeated micro-batch
decides as the first one did.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql.types import DataType, StructType, TimestampNTZType, TimestampType

from ottla.clients.arrow_columns import InvalidValue
from ottla.common.units import duration, parse_duration
from ottla.spark.json_schema import CORRUPT
from ottla.spark.names import OptionError

DEFAULT_MAX_FUTURE: Final = "1d"
_TIME: Final = "value.time"
_MAX_FUTURE: Final = "value.maxfuture"
_LATEST_US: Final = 2**63 - 1


class EventTimes:
    """Finds the values of a batch whose event time is null, or too far in the future."""

    def __init__(self, field: str, max_future_ms: int) -> None:
        self._field = field
        self._max_future_ms = max_future_ms

    def find(self, values: Any, timestamps: Any) -> Sequence[InvalidValue]:
        """Return row, field and reason of each such value. `timestamps` are the records' own.

        A null value has no event time, and is not invalid. The times of records without a timestamp are not compared.
        """
        times = pc.struct_field(values, [self._field]).cast(pa.int64())
        stamps = timestamps.cast(pa.int64())
        allowed_us = self._max_future_ms * 1000
        limits = pc.add(pc.min_element_wise(stamps, pa.scalar(_LATEST_US - allowed_us)), allowed_us)
        is_future = pc.and_(pc.greater(times, limits), pc.greater_equal(stamps, 0))
        is_missing = pc.and_(times.is_null(), values.is_valid())
        if values.type.get_field_index(CORRUPT) >= 0:  # it has the text of a value that is invalid as a whole
            is_missing = pc.and_(is_missing, pc.struct_field(values, [CORRUPT]).is_null())
        if not pc.any(is_future).as_py() and not pc.any(is_missing).as_py():
            return ()
        rows = pc.indices_nonzero(pc.or_(pc.fill_null(is_future, False), is_missing)).to_pylist()
        return [(row, self._field, self._problem(times[row].as_py(), stamps[row].as_py())) for row in rows]

    def _problem(self, time_us: int | None, stamp_us: int) -> str:
        if time_us is None:
            return "is null, but it is the event time"
        return (
            f"is {_shown(time_us)}, more than {duration(self._max_future_ms)} after the record's timestamp "
            f"{_shown(stamp_us)}"
        )


def event_times(formats: Mapping[str, str]) -> EventTimes | None:
    """Return the check that the options of a read demand, if any. Raises OptionError."""
    if _TIME not in formats:
        if _MAX_FUTURE in formats:
            raise OptionError("value.maxFuture has no effect without value.time, the field with the event time")
        return None
    try:
        max_future_ms = parse_duration(formats.get(_MAX_FUTURE, DEFAULT_MAX_FUTURE))
    except ValueError as error:
        raise OptionError(f"value.maxFuture: {error}") from None
    return EventTimes(formats[_TIME], min(max_future_ms, _LATEST_US // 1000))


def check_time(kind: DataType, formats: Mapping[str, str]) -> None:
    """Raise OptionError if `value.time` is not a field of type timestamp in values of this type."""
    if event_times(formats) is None:
        return
    name = formats[_TIME]
    fields = kind.fields if isinstance(kind, StructType) else []
    if not any(each.name == name and isinstance(each.dataType, (TimestampType, TimestampNTZType)) for each in fields):
        columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in fields)
        raise OptionError(
            f"value.time is {name!r}; it must be a field of type timestamp of the value; "
            + (f"the fields are {columns}" if columns else "the value has no fields")
        )


def _shown(time_us: int) -> str:
    try:
        return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us // 1000} ms"

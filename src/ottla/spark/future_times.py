"""Finds values whose event time is too far in the future: one of them would make all later records of a stream late.

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

from ottla.common.units import duration, parse_duration
from ottla.spark.columns import InvalidValue
from ottla.spark.names import OptionError

DEFAULT_MAX_FUTURE: Final = "1d"
_TIME: Final = "value.time"
_MAX_FUTURE: Final = "value.maxfuture"
_LATEST_US: Final = 2**63 - 1


class FutureTimes:
    """Finds the values of a batch whose event time is too far in the future."""

    def __init__(self, field: str, max_future_ms: int) -> None:
        self._field = field
        self._max_future_ms = max_future_ms

    def find(self, values: Any, timestamps: Any) -> Sequence[InvalidValue]:
        """Return row, field and reason of each such value. `timestamps` are those of the records.

        Records without a timestamp are not checked.
        """
        times = pc.struct_field(values, [self._field]).cast(pa.int64())
        stamps = timestamps.cast(pa.int64())
        allowed_us = self._max_future_ms * 1000
        limits = pc.add(pc.min_element_wise(stamps, pa.scalar(_LATEST_US - allowed_us)), allowed_us)
        is_bad = pc.and_(pc.greater(times, limits), pc.greater_equal(stamps, 0))
        if not pc.any(is_bad).as_py():
            return ()
        rows = pc.indices_nonzero(is_bad).to_pylist()
        return [(row, self._field, self._problem(times[row].as_py(), stamps[row].as_py())) for row in rows]

    def _problem(self, time_us: int, stamp_us: int) -> str:
        return (
            f"is {_shown(time_us)}, more than {duration(self._max_future_ms)} after the record's timestamp "
            f"{_shown(stamp_us)}"
        )


def future_times(formats: Mapping[str, str]) -> FutureTimes | None:
    """Return the check that the options of a read demand, if any. Raises OptionError."""
    if _TIME not in formats:
        if _MAX_FUTURE in formats:
            raise OptionError("value.maxFuture has no effect without value.time, the field with the event time")
        return None
    try:
        max_future_ms = parse_duration(formats.get(_MAX_FUTURE, DEFAULT_MAX_FUTURE))
    except ValueError as error:
        raise OptionError(f"value.maxFuture: {error}") from None
    return FutureTimes(formats[_TIME], min(max_future_ms, _LATEST_US // 1000))


def check_time(kind: DataType, formats: Mapping[str, str]) -> None:
    """Raise OptionError if `value.time` is not a field of type timestamp in values of this type."""
    if future_times(formats) is None:
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

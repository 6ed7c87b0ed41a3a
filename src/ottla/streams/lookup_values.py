"""Converts the value of one record to Python's objects. Needs pyarrow, and pyspark for the types of schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from ottla.spark.formats import decode
    from ottla.spark.range_reader import arrow_schema
except ImportError as error:
    if error.name not in ("pyarrow", "pyspark"):
        raise
    raise ImportError("A value with a schema needs the types of Spark: pip install 'ottla[spark]'") from error

if TYPE_CHECKING:
    from ottla.spark.options import SourceOptions
    from ottla.streams.lookup import Stored


def decode_value(record: Stored, source: SourceOptions) -> Any:
    """Return a dictionary, or another object for Avro. Raises FormatError."""
    row = {
        "key": record.key,
        "value": record.value,
        "topic": record.place.topic,
        "partition": record.place.partition,
        "offset": record.offset,
        "timestamp": None,
        "timestampType": 0,
    }
    batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema())
    return next(decode(iter((batch,)), source)).column("value")[0].as_py()

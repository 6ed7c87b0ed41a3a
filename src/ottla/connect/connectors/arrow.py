"""Connect's data as Arrow: types of schemas, and columns of records. All fields are nullable, so that tables can grow.

Records that do not fit are found one by one, so that an error names the record and the field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.converters.logical import decimal_scale, time_to_ms
from ottla.connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.records import SinkRecord

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

METADATA: Final = "_kafka"
"""The column with topic, partition, offset, timestamp and key of a record."""
_DECIMAL_DIGITS: Final = 38
Reject = Callable[[SinkRecord, Exception], None]


def arrow_type(schema: Schema) -> pa.DataType:
    """Return the Arrow type of a schema."""
    import pyarrow as pa

    if schema.name == DECIMAL:
        return pa.decimal128(_DECIMAL_DIGITS, decimal_scale(schema))
    if schema.name in (DATE, TIME, TIMESTAMP):
        return {DATE: pa.date32(), TIME: pa.int32(), TIMESTAMP: pa.timestamp("us", tz="UTC")}[schema.name]
    if schema.type is Type.STRUCT:
        return pa.struct([pa.field(each.name, arrow_type(each.schema)) for each in schema.fields])
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return pa.list_(arrow_type(schema.value_schema))
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        return pa.map_(arrow_type(schema.key_schema), arrow_type(schema.value_schema))
    return {
        Type.INT8: pa.int8(),
        Type.INT16: pa.int16(),
        Type.INT32: pa.int32(),
        Type.INT64: pa.int64(),
        Type.FLOAT32: pa.float32(),
        Type.FLOAT64: pa.float64(),
        Type.BOOLEAN: pa.bool_(),
        Type.STRING: pa.string(),
        Type.BYTES: pa.binary(),
    }[schema.type]


def _metadata_type() -> pa.DataType:
    import pyarrow as pa

    return pa.struct(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("key", pa.string()),
        ]
    )


def metadata_of(record: SinkRecord) -> dict[str, Any]:
    """Return where a record comes from; the timestamp is in ms."""
    key = record.key
    return {
        "topic": record.original_topic,
        "partition": record.original_partition,
        "offset": record.original_offset,
        "timestamp": record.timestamp,
        "key": key.decode(errors="replace") if isinstance(key, bytes) else None if key is None else str(key),
    }


def _adapter(schema: Schema) -> Callable[[Any], Any] | None:
    """Return a function that prepares values for Arrow; None if they are ready."""
    if schema.name == TIME:
        return lambda value: None if value is None else time_to_ms(value)
    if schema.type is Type.MAP:
        keys, values = (_adapter(each) or _same for each in (schema.key_schema, schema.value_schema) if each)
        return lambda value: None if value is None else [(keys(key), values(item)) for key, item in value.items()]
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        inner = _adapter(schema.value_schema)
        return inner and (lambda value: None if value is None else [inner(each) for each in value])
    if schema.type is Type.STRUCT:
        rows = [(each.name, found) for each in schema.fields if (found := _adapter(each.schema))]
        if rows:
            return lambda value: (
                None if value is None else {**value, **{name: convert(value.get(name)) for name, convert in rows}}
            )
    return None


def _same(value: Any) -> Any:
    return value


class Columns:
    """Converts records with one schema to Arrow."""

    def __init__(self, schema: Schema | None, *, with_metadata: bool) -> None:

        self._with_metadata = with_metadata
        self._is_struct = schema is None or schema.type is Type.STRUCT
        self._adapt = None if schema is None else _adapter(schema)
        self._type: pa.DataType | None = None if schema is None else arrow_type(schema)

    def table(self, records: Sequence[SinkRecord], reject: Reject) -> pa.Table | None:
        """Return the rows of records; a record that does not fit is rejected. None: there are no rows."""
        import pyarrow as pa

        try:
            return self._converted(records)
        except (pa.ArrowException, TypeError, ValueError, AttributeError, DataError):
            good = [each for each in records if self._fits(each, reject)]
        try:
            return self._converted(good) if good else None
        except (pa.ArrowException, TypeError, ValueError) as error:
            first, last = good[0], good[-1]
            raise DataError(
                f"Records {first.original_topic}-{first.original_partition} offsets {first.original_offset} to "
                f"{last.original_offset} have values without a common type; use a converter with schemas: {error}"
            ) from error

    def of_values(self, values: Sequence[str | bytes]) -> pa.Table:
        """Return text or bytes as rows."""
        import pyarrow as pa

        return pa.table({"value": pa.array(values, self._type)})

    def _fits(self, record: SinkRecord, reject: Reject) -> bool:
        import pyarrow as pa

        try:
            self._converted([record])
        except (pa.ArrowException, TypeError, ValueError, AttributeError, DataError) as error:
            place = f"{record.original_topic}-{record.original_partition} offset {record.original_offset}"
            reject(record, DataError(f"The record {place}{self._field(record.value)} does not fit: {error}"))
            return False
        return True

    def _field(self, value: Any) -> str:
        """Return the words for the first field that does not fit."""
        import pyarrow as pa

        if self._type is None or not pa.types.is_struct(self._type) or not isinstance(value, dict):
            return ""
        for each in self._type:
            try:
                pa.array([value.get(each.name)], each.type)
            except (pa.ArrowException, TypeError, ValueError):
                if not pa.types.is_nested(each.type):
                    return f" field {each.name}"
        return ""

    def _converted(self, records: Sequence[SinkRecord]) -> pa.Table:
        import pyarrow as pa

        values = [each.value for each in records]
        if self._adapt is not None:
            values = [self._adapt(each) for each in values]
        if self._type is None and not all(isinstance(each, dict) for each in values):
            raise DataError("A value without a schema must be a JSON object")
        array = pa.array(values, self._type)
        table = pa.Table.from_struct_array(array) if self._is_struct else pa.table({"value": array})
        if self._with_metadata:
            rows = [metadata_of(each) for each in records]
            for row in rows:
                row["timestamp"] = None if row["timestamp"] is None else row["timestamp"] * 1000
            table = table.append_column(METADATA, pa.array(rows, _metadata_type()))
        return table

"""The encoder of a sink, from its options and the columns of the DataFrame."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.avro_values import written_schema
from ottla.spark.formats import PARTS, Part, refuse_others
from ottla.spark.names import OptionError
from ottla.spark.options import SinkOptions
from ottla.spark.protobuf_values import written_message
from ottla.spark.registry_writing import registry_encoding
from ottla.spark.write_encodings import Encoder, Encoding

BESIDE_VALUE: Final = frozenset({"key", "value", "topic", "partition", "headers", "timestamp"})
"""Columns of a sink with a special meaning. Without a column `value`, all other columns are the value."""
_KNOWN: Final = (
    BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType, StringType, BinaryType,
    DateType, TimestampType, TimestampNTZType,
)  # fmt: skip


def encoder(options: SinkOptions, schema: StructType) -> Encoder | None:
    """Return the encoder of a DataFrame of `schema`; None if there is nothing to encode. Raises OptionError.

    Without a column `value`, the columns that are not in `BESIDE_VALUE` are the fields of the value.
    """
    asked: dict[Part, str] = {"key": options.key_format, "value": options.value_format}
    parts = tuple(part for part in PARTS if asked[part] != "raw")
    names = schema.fieldNames()
    fields: tuple[str, ...] = ()
    for part in PARTS:
        refuse_others(part, asked[part], options.formats)
    encodings = []
    for part in parts:
        kind = schema[part].dataType if part in names else None
        if kind is None and part == "key":
            raise OptionError("key.format is given, but there is no column 'key'")
        if kind is None:
            fields = tuple(name for name in names if name not in BESIDE_VALUE)
            if not fields:
                raise OptionError("value.format is given, but there are no columns that could be the value")
            kind = StructType([schema[name] for name in fields])
        encodings.append(_encoding(part, asked[part], options, kind, part in names and schema[part].nullable))
    return Encoder(tuple(encodings), fields) if encodings else None


def _encoding(part: Part, asked: str, options: SinkOptions, kind: DataType, may_be_null: bool) -> Encoding:
    if asked == "avro":
        return Encoding(part, "avro", schema=written_schema(part, options.formats, kind, may_be_null))
    if asked == "registry":
        found = registry_encoding(options, part, kind)
        if found.format == "json":
            _check_writable(kind, part)
        return found
    if asked == "protobuf":
        message, descriptors = written_message(part, options.formats, kind)
        return Encoding(part, "protobuf", message=message, descriptors=descriptors)
    _check_writable(kind, part)
    return Encoding(part)


def _check_writable(kind: DataType, path: str) -> None:
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_writable(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, ArrayType):
        _check_writable(kind.elementType, path)
    elif isinstance(kind, MapType):
        if not isinstance(kind.keyType, (StringType, LongType, IntegerType, ShortType, ByteType)):
            raise OptionError(
                f"The column {path!r} has keys of {kind.keyType.simpleString()}, which JSON does not support"
            )
        _check_writable(kind.valueType, path)
    elif not isinstance(kind, (*_KNOWN, NullType)):
        raise OptionError(f"The column {path!r} is of {kind.simpleString()}, which cannot be written as JSON")

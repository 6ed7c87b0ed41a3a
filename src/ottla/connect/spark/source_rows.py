"""The records of a source: from rows of a format to keys and values as the converters write them.

JSON is what JsonConverter writes for the same data: times are milliseconds, dates are days since 1970, and null fields
are written. It is made by Spark's own functions, without Python.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
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
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.connect.errors import ConnectError
from ottla.connect.spark.settings import SparkSettings
from ottla.connect.spark.sink_rows import selected
from ottla.connect.spark.values import Form, Part

_PRIMITIVES: Final[dict[type[DataType], str]] = {
    BooleanType: "boolean",
    ByteType: "int8",
    ShortType: "int16",
    IntegerType: "int32",
    LongType: "int64",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
}
_TIMES: Final = (TimestampType, TimestampNTZType)
_DATE: Final = {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1}
_TIMESTAMP: Final = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1}


def source_rows(session: SparkSession, rows: DataFrame, key: Part, value: Part, settings: SparkSettings) -> DataFrame:
    """Return the columns key and value. Raises ConnectError for columns that cannot be written."""
    if settings.select:
        rows = selected(session, rows, settings.select)
    missing = [name for name in settings.key if name not in rows.columns]
    if missing:
        raise ConnectError(f"spark.key has {missing[0]}, and the columns are {', '.join(rows.columns)}")
    columns = [_value(rows, value).alias("value")]
    if settings.key:
        columns.append(_key(rows, settings.key, key).alias("key"))
    return rows.select(*columns)


def _value(rows: DataFrame, part: Part) -> Column:
    if part.form in (Form.BYTES, Form.TEXT):
        name = "value" if "value" in rows.columns else rows.columns[0]
        if "value" not in rows.columns and len(rows.columns) > 1:
            raise ConnectError(
                f"value.converter writes one column, and there are {', '.join(rows.columns)}: choose one with "
                "spark.select, or JsonConverter"
            )
        return F.col(_quoted(name)).cast("binary" if part.form is Form.BYTES else "string")
    fields = rows.schema.fields
    return _written(F.struct(*(F.col(_quoted(each.name)) for each in fields)), StructType(fields), part, nullable=False)


def _key(rows: DataFrame, names: tuple[str, ...], part: Part) -> Column:
    fields = [rows.schema[name] for name in names]
    if len(fields) == 1:
        column = F.col(_quoted(names[0]))
        if part.form in (Form.BYTES, Form.TEXT):
            return column.cast("binary" if part.form is Form.BYTES else "string")
        return _written(column, fields[0].dataType, part, nullable=fields[0].nullable)
    if part.form in (Form.BYTES, Form.TEXT):
        raise ConnectError("spark.key has several columns: that needs JsonConverter or a registry as key.converter")
    return _written(F.struct(*(F.col(_quoted(name)) for name in names)), StructType(list(fields)), part, nullable=False)


def _written(column: Column, kind: DataType, part: Part, *, nullable: bool) -> Column:
    if part.form is Form.REGISTRY:
        return column
    # to_json takes no primitive: the array around it is cut off.
    text = F.to_json(F.array(_plain(column, kind, part)), {"ignoreNullFields": "false"})
    payload = F.substring(text, F.lit(2), F.length(text) - 2)
    if part.form is Form.JSON:
        return payload
    schema = json.dumps(_schema(kind, nullable=nullable), separators=(",", ":"))
    return F.concat(F.lit(f'{{"schema":{schema},"payload":'), payload, F.lit("}"))


def _plain(column: Column, kind: DataType, part: Part) -> Column:
    """Return the numbers by which Connect represents times and dates, at any depth."""
    if isinstance(kind, _TIMES):
        return F.unix_millis(column.cast("timestamp"))
    if isinstance(kind, DateType):
        return F.unix_date(column)
    if isinstance(kind, DecimalType) and not part.numeric_decimals:
        raise ConnectError(
            f"A column is of {kind.simpleString()}: set {part.name}.converter.decimal.format=NUMERIC with "
            "schemas.enable=false, or cast it in spark.select"
        )
    if isinstance(kind, StructType):
        inner = [_plain(column.getField(each.name), each.dataType, part).alias(each.name) for each in kind.fields]
        return F.when(column.isNotNull(), F.struct(*inner))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(column, lambda each: _plain(each, element, part))
    return column


def _schema(kind: DataType, *, nullable: bool) -> dict[str, Any]:
    """Return the schema of a type as JsonConverter writes it. Raises ConnectError."""
    optional = {"optional": nullable}
    if isinstance(kind, _TIMES):
        return {**_TIMESTAMP, **optional}
    if isinstance(kind, DateType):
        return {**_DATE, **optional}
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [_field(each) for each in kind.fields], **optional}
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": _schema(kind.elementType, nullable=kind.containsNull), **optional}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        values = _schema(kind.valueType, nullable=kind.valueContainsNull)
        return {"type": "map", "keys": {"type": "string", "optional": False}, "values": values, **optional}
    name = _PRIMITIVES.get(type(kind))
    if name is None:
        raise ConnectError(f"A column of {kind.simpleString()} has no schema in Connect: cast it in spark.select")
    return {"type": name, **optional}


def _field(given: StructField) -> dict[str, Any]:
    return {**_schema(given.dataType, nullable=given.nullable), "field": given.name}


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

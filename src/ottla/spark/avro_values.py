"""Converts Avro values to typed columns and back, with the types of Spark's from_avro and to_avro. See `serde.avro`.

For a source, `value.avro.schema` is the writer's schema and `value.avro.readerSchema` the reader's. With
`value.avro.header=confluent`, each value begins with the five bytes of Confluent's wire format, which are skipped. No
schema registry is queried. A sink writes with the given schema, or derives one from the columns as to_avro does.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.clients.arrow_columns import InvalidValue, array_of, plan_of, rows_of, view_of
from ottla.serde._builders import Plan
from ottla.serde.avro import one_number, plan
from ottla.serde.avro_schema import AvroSchemaError, Node, parse
from ottla.serde.avro_writing import AvroEncoder
from ottla.spark.avro_options import avro_decoder, parsed_schema
from ottla.spark.ddl import data_type, nullable
from ottla.spark.names import OptionError

SQL_TYPES: Final[dict[str, DataType]] = {
    "bool": BooleanType(), "int32": IntegerType(), "int64": LongType(), "float32": FloatType(), "float64": DoubleType(),
    "string": StringType(), "binary": BinaryType(), "date32": DateType(),
}  # fmt: skip
"""The types of columns by the first word of their plan."""
_AVRO: Final[dict[type[DataType], Any]] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    NullType: "null",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


# -- reading ----------------------------------------------------------------------------------------------------------


def avro_type(part: str, formats: Mapping[str, str], *, permissive: bool) -> DataType:
    """Return the type of a column of Avro values. `permissive`: every field is nullable. Raises OptionError."""
    kind, _ = sql_type(avro_decoder(part, formats).schema)
    return data_type(nullable(kind.jsonValue())) if permissive else kind


class AvroReader:
    """Reads the values of a column. Raises OptionError for invalid options."""

    def __init__(self, part: str, formats: Mapping[str, str], arrow_type: Any) -> None:
        self._decoder = avro_decoder(part, formats)
        self._type = arrow_type

    def read(self, values: Any, only_first: bool) -> tuple[Any, list[InvalidValue]]:
        """Return a column with a row for each of the binary `values`; and row, field and reason of each invalid value.

        The rows of invalid values are null. With `only_first`, the column is None if there is an invalid value.
        """
        column, bad = self._decoder.decode(rows_of(values), only_first)
        return None if column is None else array_of(self._type, column), bad


def sql_type(node: Node) -> tuple[DataType, bool]:
    """Return the type that from_avro returns, and whether it is nullable."""
    if node.kind == "record":
        fields = [StructField(each.name, *sql_type(each.node)) for each in node.fields]
        return StructType(fields), False
    if node.kind == "array":
        assert node.items is not None
        return ArrayType(*sql_type(node.items)), False
    if node.kind == "map":
        assert node.items is not None
        return MapType(StringType(), *sql_type(node.items)), False
    if node.kind == "union":
        branches = node.non_null()
        if len(branches) == 1:
            return sql_type(branches[0])[0], node.is_nullable()
        if one_number(branches) is None:
            members = [StructField(f"member{i}", sql_type(each)[0], True) for i, each in enumerate(branches)]
            return StructType(members), node.is_nullable()
    kind: Any = plan(node)
    if kind[0] == "decimal128":
        return DecimalType(kind[1], kind[2]), False
    if kind[0] == "timestamp_us":
        return TimestampType() if kind[1] else TimestampNTZType(), False
    return SQL_TYPES[kind[0]], node.is_nullable()


# -- writing ---------------------------------------------------------------------------------------------------------


def written_schema(
    part: str, formats: Mapping[str, str], kind: DataType, nullable: bool, referenced: tuple[str, ...] = ()
) -> str:
    """Return the schema, as JSON, to write a column of this type with. Raises OptionError if there is none.

    `referenced` are the texts of the schemas that the given schema refers to.
    """
    for name, why in (
        ("readerschema", "written values have one schema"),
        ("header", f"{part}.format=registry writes it, with the id of a registered schema"),
    ):
        if f"{part}.avro.{name}" in formats:
            raise OptionError(f"{part}.avro.{name.replace('readers', 'readerS')} is for reading: {why}")
    name = f"{part}.avro.schema"
    derived = avro_schema(kind, nullable=nullable)
    text = formats.get(name, derived)
    try:
        node = parsed_schema(name, formats, referenced) if name in formats else parse(text)
        AvroEncoder(node, _plan(kind))
    except AvroSchemaError as error:
        raise OptionError(f"{name} {error}") from None
    return text


def avro_schema(kind: DataType, *, nullable: bool = False) -> str:
    """Return the Avro schema, as JSON, that a sink uses by default, and that Spark's to_avro derives.

    `kind` is a DataFrame's schema, if its columns become the value; or the type of a column `key` or `value`, which may
    be null if `nullable`. Raises OptionError for a type without an Avro type.
    """
    return json.dumps(_derived(kind, nullable, "topLevelRecord", "", ""))


def to_avro(column: Any, schema: str, referenced: tuple[str, ...] = ()) -> tuple[Any, InvalidValue | None]:
    """Encode a column as a binary array, null for null; or return row, field and reason of an invalid value."""
    values, bad = _encoder(schema, referenced, plan_of(column.type)).encode(view_of(column))
    return None if values is None else array_of(pa.binary(), values), bad


@functools.lru_cache(maxsize=32)
def _encoder(schema: str, referenced: tuple[str, ...], plan: Plan) -> AvroEncoder:
    return AvroEncoder(parse(schema, referenced), plan)


def _derived(kind: DataType, nullable: bool, name: str, namespace: str, path: str) -> Any:
    full = f"{namespace}.{name}" if namespace else name
    if isinstance(kind, StructType):
        fields = [
            {"name": each.name, "type": _derived(each.dataType, each.nullable, each.name, full, f"{path}.{each.name}")}
            for each in kind.fields
        ]
        found: Any = {"type": "record", "name": full, "fields": fields}
    elif isinstance(kind, ArrayType):
        found = {"type": "array", "items": _derived(kind.elementType, kind.containsNull, name, namespace, path)}
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        found = {"type": "map", "values": _derived(kind.valueType, kind.valueContainsNull, name, namespace, path)}
    elif isinstance(kind, DecimalType):
        size = next(size for size in range(1, 17) if 2 ** (8 * size - 1) >= 10**kind.precision)
        found = {"type": "fixed", "name": f"{full}.fixed", "size": size, "logicalType": "decimal"}
        found |= {"precision": kind.precision, "scale": kind.scale}
    elif type(kind) in _AVRO:
        found = _AVRO[type(kind)]
    else:
        raise OptionError(
            f"The column {path.removeprefix('.')!r} is of {kind.simpleString()}, which Avro does not support"
        )
    return [found, "null"] if nullable and found != "null" else found


def _plan(kind: DataType) -> Plan:
    """Return the layout of Spark's Arrow column for a type that `_derived` supports."""
    from pyspark.sql.pandas.types import to_arrow_type

    return plan_of(to_arrow_type(kind, timezone="UTC"))

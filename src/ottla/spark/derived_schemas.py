"""Protobuf files and JSON Schemas for the columns of a DataFrame, as a sink with a registry derives them."""

from __future__ import annotations

import json
import re
from typing import Any, Final

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

from ottla.spark.names import OptionError

MESSAGE: Final = "TopLevelRecord"
_PROTOBUF: Final[dict[type[DataType], str]] = {
    BooleanType: "bool",
    ByteType: "int32",
    ShortType: "int32",
    IntegerType: "int32",
    LongType: "int64",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    TimestampType: "google.protobuf.Timestamp",
}
_KEYS: Final = (BooleanType, ByteType, ShortType, IntegerType, LongType, StringType)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JSON: Final[dict[type[DataType], dict[str, Any]]] = {
    BooleanType: {"type": "boolean"},
    ByteType: {"type": "integer", "connect.type": "int8"},
    ShortType: {"type": "integer", "connect.type": "int16"},
    IntegerType: {"type": "integer", "connect.type": "int32"},
    LongType: {"type": "integer", "connect.type": "int64"},
    FloatType: {"type": "number", "connect.type": "float32"},
    DoubleType: {"type": "number", "connect.type": "float64"},
    DecimalType: {"type": "number"},
    StringType: {"type": "string"},
    BinaryType: {"type": "string", "contentEncoding": "base64"},
    DateType: {"type": "string", "format": "date"},
    TimestampType: {"type": "string", "format": "date-time"},
    TimestampNTZType: {"type": "string"},
}


# -- Protobuf ---------------------------------------------------------------------------------------------------------


def protobuf_file(kind: DataType) -> tuple[str, str]:
    """Return the text of a file with a message for columns of this type, and the name of the message.

    Fields are numbered in the order of the columns; a nullable column has presence. Raises OptionError.
    """
    if not isinstance(kind, StructType):
        raise OptionError(f"The column is of {kind.simpleString()}; a Protobuf message needs columns or a struct")
    body = "\n".join(_message(kind, MESSAGE, "", ""))
    imports = 'import "google/protobuf/timestamp.proto";\n\n' if "google.protobuf.Timestamp" in body else ""
    return f'syntax = "proto3";\n\n{imports}{body}\n', MESSAGE


def _message(kind: StructType, name: str, path: str, indent: str) -> list[str]:
    lines = [f"{indent}message {name} {{"]
    taken = set(kind.fieldNames())
    for number, field in enumerate(kind.fields, 1):
        place = f"{path}.{field.name}".removeprefix(".")
        if not _NAME.fullmatch(field.name):
            raise OptionError(f"The column {place!r} cannot be a field of Protobuf: rename it to letters, digits and _")
        nested = "".join(part.capitalize() for part in field.name.split("_")) or "Nested"
        while nested in taken:
            nested += "_"
        taken.add(nested)
        structs: list[StructType] = []
        word = _field(field, place, nested, structs)
        for each in structs:
            lines += _message(each, nested, place, indent + "  ")
        lines.append(f"{indent}  {word} {field.name} = {number};")
    return [*lines, f"{indent}}}"]


def _field(field: StructField, path: str, nested: str, structs: list[StructType]) -> str:
    """Return the type of a field with its label; a nested struct is appended to `structs`."""
    kind = field.dataType
    if isinstance(kind, ArrayType):
        return f"repeated {_word(kind.elementType, path, nested, structs)}"
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, _KEYS):
            raise OptionError(
                f"The column {path!r} has keys of {kind.keyType.simpleString()}, which Protobuf does not support"
            )
        value = _word(kind.valueType, path, nested, structs)
        return f"map<{_PROTOBUF[type(kind.keyType)]}, {value}>"
    word = _word(kind, path, nested, structs)
    return word if isinstance(kind, (StructType, TimestampType)) or not field.nullable else f"optional {word}"


def _word(kind: DataType, path: str, nested: str, structs: list[StructType]) -> str:
    if isinstance(kind, StructType):
        structs.append(kind)
        return nested
    if type(kind) not in _PROTOBUF:
        raise OptionError(
            f"The column {path!r} is of {kind.simpleString()}, which Protobuf does not support: convert it, or give "
            "the message with value.protobuf.message and value.protobuf.descriptors"
        )
    return _PROTOBUF[type(kind)]


# -- JSON Schema ------------------------------------------------------------------------------------------------------


def json_schema(kind: DataType) -> str:
    """Return a JSON Schema (draft 7) for columns of this type, as JSON. Raises OptionError.

    Nulls are not written, so a nullable column is a property that is not required. The schema permits no other
    properties, as Confluent's serializer derives it: so a new nullable column is a compatible change.
    """
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": MESSAGE, **_json(kind, "")}
    return json.dumps(schema, separators=(",", ":"))


def _json(kind: DataType, path: str) -> dict[str, Any]:
    if isinstance(kind, StructType):
        properties = {each.name: _json(each.dataType, f"{path}.{each.name}") for each in kind.fields}
        required = [each.name for each in kind.fields if not each.nullable]
        found = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**found, "required": required} if required else found
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": _or_null(_json(kind.elementType, path), kind.containsNull)}
    if isinstance(kind, MapType):
        values = _or_null(_json(kind.valueType, path), kind.valueContainsNull)
        return {"type": "object", "additionalProperties": values}
    if type(kind) not in _JSON:
        raise OptionError(
            f"The column {path.removeprefix('.')!r} is of {kind.simpleString()}, which has no JSON Schema"
        )
    return _JSON[type(kind)]


def _or_null(schema: dict[str, Any], may_be_null: bool) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema]} if may_be_null else schema

"""Schemas of values: a dataclass, DDL, the JSON of a Spark type or Avro schema, or a Protobuf message.

Does not import Spark.

A dataclass becomes DDL. Its fields are nullable, because the records of a topic need not match a program.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from ottla.serde.protobuf_fields import descriptors_of
from ottla.streams.errors import StreamsError

Schema: TypeAlias = str | type | Mapping[str, Any]
"""DDL or JSON; a dataclass; an Avro schema as a dictionary; a generated Protobuf class, or `FILE#MESSAGE`; REGISTRY."""

REGISTRY: Final = "registry"
"""In place of an Avro schema: values have schemas in a registry, and the subject's latest version gives the columns."""

_TYPES: Final[Mapping[object, str]] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    bytes: "BINARY",
    dt.datetime: "TIMESTAMP",
    dt.date: "DATE",
    decimal.Decimal: "DECIMAL(38,18)",
}


def ddl(schema: Schema) -> str:
    """Return a schema as DDL or as the JSON of a Spark type. Raises StreamsError."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, type) and dataclasses.is_dataclass(schema):
        return ", ".join(f"{name} {kind}" for name, kind in _columns(schema))
    raise StreamsError(f"schema={_shown(schema)} is neither a dataclass nor DDL")


def avro(schema: Schema) -> str:
    """Return an Avro schema as JSON, or REGISTRY. Raises StreamsError."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, Mapping):
        return json.dumps(schema)
    raise StreamsError(f"schema={_shown(schema)} is not an Avro schema in JSON")


def protobuf(schema: Schema) -> str:
    """Return the full name of a message and, after a space, a FileDescriptorSet in base64. Raises StreamsError.

    `schema` is a generated class, or `FILE#MESSAGE` with a file of `protoc --include_imports --descriptor_set_out`.
    """
    descriptor = getattr(schema, "DESCRIPTOR", None)
    if isinstance(schema, type) and descriptor is not None:
        return f"{descriptor.full_name} {descriptors_of(schema)}"
    file, _, message = schema.partition("#") if isinstance(schema, str) else ("", "", "")
    if not file or not message:
        raise StreamsError(f'schema={_shown(schema)} is neither a generated Protobuf class nor "FILE#MESSAGE"')
    try:
        return f"{message} {_encoded(Path(file).read_bytes())}"
    except OSError as error:
        raise StreamsError(f"schema={schema!r}: {error}") from None


def _encoded(descriptors: bytes) -> str:
    return base64.b64encode(descriptors).decode("ascii")


def _columns(schema: type) -> list[tuple[str, str]]:
    try:
        hints = typing.get_type_hints(schema)
    except NameError as error:
        raise StreamsError(f"schema={schema.__name__}: {error}") from None
    names = [field.name for field in dataclasses.fields(schema)]
    if not names:
        raise StreamsError(f"schema={schema.__name__} has no fields")
    return [(f"`{name}`", _type(hints[name], f"{schema.__name__}.{name}")) for name in names]


def _type(hint: Any, place: str) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        others = [each for each in arguments if each is not type(None)]
        if len(others) == 1:
            return _type(others[0], place)
    elif origin is list and len(arguments) == 1:
        return f"ARRAY<{_type(arguments[0], place)}>"
    elif origin is dict and len(arguments) == 2 and arguments[0] is str:
        return f"MAP<STRING, {_type(arguments[1], place)}>"
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in _columns(hint))}>"
    elif hint in _TYPES:
        return _TYPES[hint]
    known = ", ".join(each.__name__ for each in _TYPES if isinstance(each, type))
    raise StreamsError(
        f"{place} is of type {getattr(hint, '__name__', hint)}; the types are {known}, a dataclass, and list[...], "
        "dict[str, ...] and ... | None of them"
    )


def _shown(schema: object) -> str:
    return schema.__name__ if isinstance(schema, type) else repr(schema)

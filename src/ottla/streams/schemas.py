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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from ottla.streams.errors import StreamsError

Schema: TypeAlias = str | type | Mapping[str, Any]
"""DDL or JSON; a dataclass; an Avro schema as a dictionary; a generated Protobuf class, or `FILE#MESSAGE`."""

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
    """Return an Avro schema as JSON. Raises StreamsError."""
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
        return f"{descriptor.full_name} {_encoded(b''.join(_files(descriptor.file, set())))}"
    file, _, message = schema.partition("#") if isinstance(schema, str) else ("", "", "")
    if not file or not message:
        raise StreamsError(f'schema={_shown(schema)} is neither a generated Protobuf class nor "FILE#MESSAGE"')
    try:
        return f"{message} {_encoded(Path(file).read_bytes())}"
    except OSError as error:
        raise StreamsError(f"schema={schema!r}: {error}") from None


def _encoded(descriptors: bytes) -> str:
    return base64.b64encode(descriptors).decode("ascii")


def _files(file: Any, seen: set[str]) -> Iterator[bytes]:
    """Yield the files of a FileDescriptorSet, encoded: each after those that it imports."""
    if file.name in seen:
        return
    seen.add(file.name)
    for each in file.dependencies:
        yield from _files(each, seen)
    data: bytes = file.serialized_pb
    length, size = bytearray(), len(data)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    # The field 1, of length-delimited values.
    yield b"\x0a" + bytes(length) + data


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

"""A record as the data of an event: one line of JSON.

A key or value that is not of the stream's format is null, and its bytes are in `key_base64` or `value_base64`: a stream
does not end at such a record.
"""

from __future__ import annotations

import binascii
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

import orjson

from ottla.clients.consumer import Record
from ottla.rest.schemas.registry import UserSchemas
from ottla.schemas.model import SchemaType

Part: TypeAlias = Callable[[bytes], str]
"""A key or value as JSON in one line. Raises ValueError."""


def text(data: bytes) -> str:
    """UTF-8 as a string."""
    return orjson.dumps(data.decode()).decode()


def json(data: bytes) -> str:
    """JSON as it is. Between the tokens of valid JSON a line end means nothing, and inside of them it is escaped."""
    orjson.loads(data)
    return data.decode().replace("\r", " ").replace("\n", " ")


def binary(data: bytes) -> str:
    """Bytes in base64."""
    return f'"{binascii.b2a_base64(data, newline=False).decode()}"'


FORMATS: Final[dict[str, Part]] = {"text": text, "json": json, "binary": binary}
SCHEMA_FORMATS: Final = {"avro": SchemaType.AVRO, "jsonschema": SchemaType.JSON, "protobuf": SchemaType.PROTOBUF}
"""The formats with schemas in the registry, whose JSON is as in answers of v2 (`ottla.rest.schemas`)."""
NAMES: Final = (*FORMATS, *SCHEMA_FORMATS)


class Parts(NamedTuple):
    """How the keys and values of a stream become JSON."""

    key: Part
    value: Part
    load: Callable[[int, SchemaType], Awaitable[None]] | None = None
    """Caches the schema of a MissingSchema. Raises HttpError if the registry does not answer."""


def with_schema(schemas: UserSchemas, kind: SchemaType) -> Part:
    """Return the part of a format with schemas. It raises MissingSchema, too."""

    def decode(data: bytes) -> str:
        found = orjson.dumps(schemas.decode(kind, data)).decode()
        # JSON of other producers may have line ends between its tokens.
        return found.replace("\r", " ").replace("\n", " ")

    return decode


def row(record: Record[bytes, bytes], parts: Parts) -> str:
    """Return the record as JSON in one line. Raises MissingSchema."""
    key = _field("key", record.key, parts.key)
    value = _field("value", record.value, parts.value)
    headers = ",".join(f'{{"name":{text(name.encode())},"value":{_base64(data)}}}' for name, data in record.headers)
    return (
        f'{{"topic":"{record.topic}","partition":{record.partition},"offset":{record.offset},'
        f'"timestamp":{record.timestamp},{key},{value},"headers":[{headers}]}}'
    )


def _field(name: str, data: bytes | None, part: Part) -> str:
    if data is None:
        return f'"{name}":null'
    try:
        return f'"{name}":{part(data)}'
    except ValueError:
        return f'"{name}":null,"{name}_base64":{binary(data)}'


def _base64(data: bytes | None) -> str:
    return "null" if data is None else binary(data)

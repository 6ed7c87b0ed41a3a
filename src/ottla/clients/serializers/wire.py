"""Confluent's wire format: where a value has the id of its schema.

- A prefix of the value: a zero byte and four bytes of id. Protobuf adds the path of the message.
- The header `__value_schema_id` or `__key_schema_id` (8.x): the byte 1 and 16 bytes of the schema's GUID; the value
  has no prefix. The path of a Protobuf message follows the GUID.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

MAGIC_ID: Final = 0
MAGIC_GUID: Final = 1
PREFIX_SIZE: Final = 5
GUID_SIZE: Final = 17


class SerializationContext(NamedTuple):
    """The topic, the part of the record (`key` or `value`), and its headers."""

    topic: str
    field: str = "value"
    headers: Any = ()


class Identified(NamedTuple):
    """The id of a value's schema, or else its GUID, and the position of the value's body.

    `path` is the beginning of the body that is in the header: for Protobuf, the path of the message.
    """

    id: int | None
    guid: str | None
    position: int
    path: bytes = b""


class NotFramed(ValueError):
    """A value does not begin with the id of a schema."""


def prefix(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def header_name(part: str) -> str:
    return f"__{part}_schema_id"


def header_value(guid: str) -> bytes:
    return bytes([MAGIC_GUID]) + uuid.UUID(guid).bytes


def identify(data: bytes, part: str, headers: object = ()) -> Identified:
    """Return the schema of a value: from its header, else from its prefix. Raises NotFramed."""
    if headers:
        found = _header(headers, header_name(part))
        if found is not None:
            return _from_header(found)
    if len(data) < PREFIX_SIZE:
        raise NotFramed(f"it has {len(data)} bytes, and the prefix with the schema id alone has {PREFIX_SIZE}")
    if data[0] != MAGIC_ID:
        raise NotFramed(f"it begins with the byte {data[0]}, not with 0 and a schema id")
    return Identified(int.from_bytes(data[1:PREFIX_SIZE], "big"), None, PREFIX_SIZE)


def _header(headers: Any, name: str) -> bytes | None:
    pairs: Iterable[tuple[str, bytes | None]] = headers.items() if isinstance(headers, Mapping) else headers
    found = None
    for each, value in pairs:
        if each == name:
            found = value
    return found


def _from_header(found: bytes) -> Identified:
    found = bytes(found)
    if len(found) >= PREFIX_SIZE and found[0] == MAGIC_ID:
        return Identified(int.from_bytes(found[1:PREFIX_SIZE], "big"), None, 0, found[PREFIX_SIZE:])
    if len(found) < GUID_SIZE or found[0] != MAGIC_GUID:
        raise NotFramed(f"its header with the schema id is {found!r}, not the byte 1 and a GUID")
    return Identified(None, str(uuid.UUID(bytes=found[1:GUID_SIZE])), 0, found[GUID_SIZE:])

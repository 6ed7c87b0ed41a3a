"""Protobuf messages and the values of their fields, column by column. Without pyarrow.

`fields_of` is the one place that decides what the value of a field is. `clients.message_columns` makes Arrow arrays of
it, and lookups of tables make Python's objects of it. Messages and descriptors are from Google's package `protobuf`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from enum import IntEnum
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.serde._builders import Plan

TIMESTAMP: Final = "google.protobuf.Timestamp"
_SECONDS: Final = range(-62_135_596_800, 253_402_300_800)
"""The seconds of a Timestamp: the years 1 to 9999."""


class Kind(IntEnum):
    """The numbers of FieldDescriptor.type. The package `protobuf` has them too, but it may not be installed."""

    DOUBLE = 1
    FLOAT = 2
    INT64 = 3
    UINT64 = 4
    INT32 = 5
    FIXED64 = 6
    FIXED32 = 7
    BOOL = 8
    STRING = 9
    BYTES = 12
    UINT32 = 13
    ENUM = 14
    SFIXED32 = 15
    SFIXED64 = 16
    SINT32 = 17
    SINT64 = 18


_UNSIGNED_64: Final[Plan] = ("decimal128", 20, 0)
_PLANS: Final[Mapping[int, Plan]] = {
    Kind.DOUBLE: ("float64",),
    Kind.FLOAT: ("float32",),
    Kind.INT64: ("int64",),
    Kind.UINT64: _UNSIGNED_64,
    Kind.INT32: ("int32",),
    Kind.FIXED64: _UNSIGNED_64,
    Kind.FIXED32: ("int64",),
    Kind.BOOL: ("bool",),
    Kind.STRING: ("string",),
    Kind.BYTES: ("binary",),
    Kind.UINT32: ("int64",),
    Kind.ENUM: ("string",),
    Kind.SFIXED32: ("int32",),
    Kind.SFIXED64: ("int64",),
    Kind.SINT32: ("int32",),
    Kind.SINT64: ("int64",),
}


class NoColumn(ValueError):
    """No column can hold messages of a descriptor."""


def message_plan(message: Any, outer: tuple[str, ...] = ()) -> Plan:
    """Return the layout of a column of messages of this descriptor. Raises NoColumn."""
    if message.full_name in outer:
        raise NoColumn(f"The message {message.full_name} contains itself, which no column can hold")
    if not message.fields:
        raise NoColumn(f"The message {message.full_name} has no fields")
    within = (*outer, message.full_name)
    return ("struct", tuple((field.name, _field_plan(field, within)) for field in message.fields))


def _field_plan(field: Any, outer: tuple[str, ...]) -> Plan:
    if is_map(field):
        key, value = field.message_type.fields
        return ("map", _one_plan(key, outer), _one_plan(value, outer))
    plan = _one_plan(field, outer)
    return ("list", plan) if field.is_repeated else plan


def _one_plan(field: Any, outer: tuple[str, ...]) -> Plan:
    if field.message_type is None:
        return _PLANS[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return ("timestamp_us", True)
    return message_plan(field.message_type, outer)


# -- the values of fields ----------------------------------------------------------------------------------------------


class Scalars(NamedTuple):
    """Values of a field; None is null."""

    values: Sequence[Any]
    is_time: bool = False
    """Whether the values are microseconds since the epoch."""


class Structs(NamedTuple):
    """Messages, by field. The fields of a null message are null or empty."""

    is_null: Sequence[bool]
    fields: Mapping[str, Values]


class Lists(NamedTuple):
    """Repeated fields: row i has the items from `offsets[i]` to before `offsets[i + 1]`. Maps have keys, too."""

    offsets: Sequence[int]
    items: Values
    keys: Values | None = None


Values: TypeAlias = Scalars | Structs | Lists


def fields_of(descriptor: Any, rows: Sequence[Any]) -> Structs:
    """Return the fields of messages of this descriptor; None is a null message.

    Raises ValueError for a time that no column can hold.
    """
    is_null = [row is None for row in rows]
    has_nulls = any(is_null)
    return Structs(is_null, {field.name: _field(field, rows, has_nulls) for field in descriptor.fields})


def _field(field: Any, rows: Sequence[Any], has_nulls: bool) -> Values:
    get = attrgetter(field.name)
    if field.is_repeated:
        return _lists(field, [() if row is None else get(row) for row in rows] if has_nulls else list(map(get, rows)))
    if field.has_presence:
        name = field.name
        return _values(field, [get(row) if row is not None and row.HasField(name) else None for row in rows])
    return _values(field, [None if row is None else get(row) for row in rows] if has_nulls else list(map(get, rows)))


def _lists(field: Any, lists: list[Any]) -> Lists:
    offsets = list(accumulate(map(len, lists), initial=0))
    if is_map(field):
        key, value = field.message_type.fields
        items = [pair for each in lists for pair in (each.items() if each else ())]
        return Lists(offsets, _values(value, [item for _, item in items]), _values(key, [name for name, _ in items]))
    return Lists(offsets, _values(field, list(chain.from_iterable(lists))))


def _values(field: Any, values: list[Any]) -> Values:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return Scalars([None if value is None else _micros(value) for value in values], is_time=True)
        return fields_of(field.message_type, values)
    if field.type == Kind.ENUM:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return Scalars([None if value is None else names.get(value, str(value)) for value in values])
    if field.type in (Kind.UINT64, Kind.FIXED64):
        return Scalars([None if value is None else Decimal(value) for value in values])
    return Scalars(values)


def _micros(timestamp: Any) -> int:
    if timestamp.seconds not in _SECONDS:
        raise ValueError(f"a time of {timestamp.seconds} s is not between the years 1 and 9999")
    return int(timestamp.seconds) * 1_000_000 + int(timestamp.nanos) // 1000


def is_map(field: Any) -> bool:
    """Whether a field is a map, which messages have as a repeated pair."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def descriptors_of(message_class: Any) -> str:
    """Return the files of a class's message, each after those that it imports: a FileDescriptorSet in base64."""
    return base64.b64encode(b"".join(_files(message_class.DESCRIPTOR.file, set()))).decode("ascii")


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

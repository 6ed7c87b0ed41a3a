"""Converts Protobuf values to typed columns and back, with Google's package `protobuf` (the extra `[protobuf]`).

`value.protobuf.message` is the full name of the message, and `value.protobuf.descriptors` a FileDescriptorSet in base64
that has it (`protoc --include_imports --descriptor_set_out`). A message is a struct, an enum its name, a repeated field
an array, google.protobuf.Timestamp a timestamp, uint32 a BIGINT and uint64 a DECIMAL(20,0). Fields with presence are
null if they are not set; the others have their default. Unknown fields are skipped. Recursive messages are an error.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.spark.columns import InvalidValue
from ottla.spark.names import OptionError

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_SECONDS: Final = range(-62_135_596_800, 253_402_300_800)
"""The seconds of a Timestamp: the years 1 to 9999."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class _Kind(IntEnum):
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


_UNSIGNED_64: Final = DecimalType(20, 0)
_SQL: Final[Mapping[int, DataType]] = {
    _Kind.DOUBLE: DoubleType(),
    _Kind.FLOAT: FloatType(),
    _Kind.INT64: LongType(),
    _Kind.UINT64: _UNSIGNED_64,
    _Kind.INT32: IntegerType(),
    _Kind.FIXED64: _UNSIGNED_64,
    _Kind.FIXED32: LongType(),
    _Kind.BOOL: BooleanType(),
    _Kind.STRING: StringType(),
    _Kind.BYTES: BinaryType(),
    _Kind.UINT32: LongType(),
    _Kind.ENUM: StringType(),
    _Kind.SFIXED32: IntegerType(),
    _Kind.SFIXED64: LongType(),
    _Kind.SINT32: IntegerType(),
    _Kind.SINT64: LongType(),
}


@lru_cache(maxsize=64)
def message_class(message: str, descriptors: str) -> Any:
    """Return the class of a message. Raises OptionError."""
    try:
        from google.protobuf import (  # type: ignore[import-untyped,unused-ignore]
            descriptor_pb2,
            descriptor_pool,
            message_factory,
        )
    except ImportError:
        raise OptionError("The format protobuf needs a package: pip install 'ottla[protobuf]'") from None
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(base64.b64decode(descriptors, validate=True))
    except (binascii.Error, ValueError, _decode_error()) as error:
        raise OptionError(f"protobuf.descriptors is not a FileDescriptorSet in base64: {error}") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in found.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except (KeyError, TypeError) as error:
        raise OptionError(f"protobuf.message is {message!r}, which the descriptors do not have: {error}") from None


def _decode_error() -> type[Exception]:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]

    found: type[Exception] = DecodeError
    return found


def given_class(part: str, formats: Mapping[str, str]) -> Any:
    """Return the class of the message that the options of a part name. Raises OptionError."""
    names = f"{part}.protobuf.message", f"{part}.protobuf.descriptors"
    for name in names:
        if name not in formats:
            raise OptionError(f"{part}.format=protobuf needs {name}")
    try:
        return message_class(*(formats[name] for name in names))
    except OptionError as error:
        raise OptionError(f"{part}.{error}" if str(error).startswith("protobuf.") else str(error)) from None


def protobuf_type(part: str, formats: Mapping[str, str]) -> DataType:
    """Return the type of a column of Protobuf values. Raises OptionError."""
    return _struct(given_class(part, formats).DESCRIPTOR, ())


def _struct(message: Any, outer: tuple[str, ...]) -> StructType:
    if message.full_name in outer:
        raise OptionError(f"The message {message.full_name} contains itself, which no column can hold")
    if not message.fields:
        raise OptionError(f"The message {message.full_name} has no fields")
    within = (*outer, message.full_name)
    return StructType([StructField(field.name, _field_type(field, within)) for field in message.fields])


def _field_type(field: Any, outer: tuple[str, ...]) -> DataType:
    if _is_map(field):
        key, value = field.message_type.fields
        return MapType(_one_type(key, outer), _one_type(value, outer))
    kind = _one_type(field, outer)
    return ArrayType(kind) if field.is_repeated else kind


def _one_type(field: Any, outer: tuple[str, ...]) -> DataType:
    if field.message_type is None:
        return _SQL[field.type]
    return TimestampType() if field.message_type.full_name == _TIMESTAMP else _struct(field.message_type, outer)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


# -- reading ----------------------------------------------------------------------------------------------------------


class ProtobufReader:
    """Reads the values of a column. Raises OptionError for invalid options."""

    def __init__(self, part: str, formats: Mapping[str, str], arrow_type: Any) -> None:
        self._message = given_class(part, formats)
        self._type = arrow_type
        self._error = _decode_error()

    def read(self, values: Any, only_first: bool) -> tuple[Any, list[InvalidValue]]:
        """Return a column with a row for each of the binary `values`; and row, field and reason of each invalid value.

        The rows of invalid values are null. With `only_first`, the column is None if there is an invalid value.
        """
        messages: list[Any] = []
        bad: list[InvalidValue] = []
        parse = self._message.FromString
        for row, data in enumerate(values.to_pylist()):
            try:
                messages.append(None if data is None else parse(data))
            except self._error:
                bad.append((row, "", f"is not a message {self._message.DESCRIPTOR.full_name}"))
                messages.append(None)
        try:
            column = self._column(messages)
        except (ValueError, pa.ArrowException):
            bad = sorted([*bad, *self._refused(messages)])
            column = self._column(messages)
        return (None if bad and only_first else column), bad

    def _refused(self, messages: list[Any]) -> list[InvalidValue]:
        """Replace the messages that no column can hold by None, and return their rows."""
        bad = []
        for row, message in enumerate(messages):
            try:
                self._column([message])
            except (ValueError, pa.ArrowException) as error:
                bad.append((row, "", f"has a field without a column: {error}"))
                messages[row] = None
        return bad

    def _column(self, messages: list[Any]) -> Any:
        return _structs(self._message.DESCRIPTOR, messages, self._type)


def _structs(descriptor: Any, rows: list[Any], kind: Any) -> Any:
    """Return a struct for each of `rows`, which are messages of this descriptor; None becomes null."""
    is_null = [row is None for row in rows]
    mask = pa.array(is_null) if any(is_null) else None
    children = [
        _field(field, rows, mask is not None, kind[index].type) for index, field in enumerate(descriptor.fields)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _field(field: Any, rows: list[Any], has_nulls: bool, kind: Any) -> Any:
    get = attrgetter(field.name)
    if field.is_repeated:
        lists = [() if row is None else get(row) for row in rows] if has_nulls else list(map(get, rows))
        return _lists(field, lists, kind)
    if field.has_presence:
        name = field.name
        return _values(field, [get(row) if row is not None and row.HasField(name) else None for row in rows], kind)
    return _values(
        field, [None if row is None else get(row) for row in rows] if has_nulls else list(map(get, rows)), kind
    )


def _lists(field: Any, lists: list[Any], kind: Any) -> Any:
    offsets = pa.array(accumulate(map(len, lists), initial=0), pa.int32())
    if _is_map(field):
        key, value = field.message_type.fields
        items = [pair for each in lists for pair in (each.items() if each else ())]
        keys = _values(key, [name for name, _ in items], kind.key_type)
        return pa.MapArray.from_arrays(offsets, keys, _values(value, [item for _, item in items], kind.item_type), kind)
    values = _values(field, list(chain.from_iterable(lists)), kind.value_type)
    return pa.ListArray.from_arrays(offsets, values, kind)


def _values(field: Any, values: list[Any], kind: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return pa.array([None if value is None else _micros(value) for value in values], pa.int64()).cast(kind)
        return _structs(field.message_type, values, kind)
    if field.type == _Kind.ENUM:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return pa.array([None if value is None else names.get(value, str(value)) for value in values], kind)
    if pa.types.is_decimal(kind):
        values = [None if value is None else Decimal(value) for value in values]
    return pa.array(values, kind)


def _micros(timestamp: Any) -> int:
    if timestamp.seconds not in _SECONDS:
        raise ValueError(f"a time of {timestamp.seconds} s is not between the years 1 and 9999")
    return int(timestamp.seconds) * 1_000_000 + int(timestamp.nanos) // 1000


# -- writing ---------------------------------------------------------------------------------------------------------


def written_message(part: str, formats: Mapping[str, str], kind: DataType) -> tuple[str, str]:
    """Return message and descriptors for a column of this type. Raises OptionError for columns without a field."""
    message = given_class(part, formats)
    fields = [field.name for field in message.DESCRIPTOR.fields]
    if not isinstance(kind, StructType):
        raise OptionError(f"The {part} is of {kind.simpleString()}; a Protobuf message needs columns or a struct")
    odd = [name for name in kind.fieldNames() if name not in fields]
    if odd:
        raise OptionError(
            f"The message {message.DESCRIPTOR.full_name} of the {part} has no field {odd[0]!r}; it has "
            f"{', '.join(fields)}"
        )
    return formats[f"{part}.protobuf.message"], formats[f"{part}.protobuf.descriptors"]


def to_protobuf(column: Any, message: Any) -> tuple[Any, InvalidValue | None]:
    """Return the values of a struct column as messages; or the first row that is not one, with field and reason."""
    fields = {field.name: field for field in message.DESCRIPTOR.fields}
    names = [(each.name, fields[each.name]) for each in column.type]
    found: list[bytes | None] = []
    for row, value in enumerate(column.to_pylist()):
        if value is None:
            found.append(None)
            continue
        filled = message()
        for name, field in names:
            try:
                _set(filled, field, value[name])
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                return None, (row, name, f"does not fit {message.DESCRIPTOR.full_name}: {error}")
        found.append(filled.SerializeToString(deterministic=True))
    return pa.array(found, pa.binary()), None


def _set(message: Any, field: Any, value: Any) -> None:
    if value is None:
        return
    if _is_map(field):
        place, (_, item) = getattr(message, field.name), field.message_type.fields
        for key, each in value:
            if item.message_type is None:
                place[key] = _plain(item, each)
            else:
                _fill(place[key], item, each)
    elif field.is_repeated:
        place = getattr(message, field.name)
        for each in value:
            if field.message_type is None:
                place.append(_plain(field, each))
            else:
                _fill(place.add(), field, each)
    elif field.message_type is not None:
        place = getattr(message, field.name)
        place.SetInParent()
        _fill(place, field, value)
    else:
        setattr(message, field.name, _plain(field, value))


def _fill(message: Any, field: Any, value: Any) -> None:
    """Fill a message that is the value of a field."""
    if field.message_type.full_name == _TIMESTAMP:
        since_epoch = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH
        micros = since_epoch // dt.timedelta(microseconds=1)
        message.seconds, message.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
        return
    fields = {each.name: each for each in field.message_type.fields}
    for name, each in value.items():
        _set(message, fields[name], each)


def _plain(field: Any, value: Any) -> Any:
    if field.type == _Kind.ENUM and isinstance(value, str):
        return field.enum_type.values_by_name[value].number if not value.lstrip("-").isdigit() else int(value)
    return int(value) if isinstance(value, Decimal) else value

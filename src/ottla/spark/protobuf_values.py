"""Converts Protobuf values to typed columns and back, with Google's package `protobuf` (the extra `[protobuf]`).

`value.protobuf.message` is the full name of the message, and `value.protobuf.descriptors` a FileDescriptorSet in base64
that has it (`protoc --include_imports --descriptor_set_out`). A message is a struct, an enum its name, a repeated field
an array, google.protobuf.Timestamp a timestamp, uint32 a BIGINT and uint64 a DECIMAL(20,0). Fields with presence are
null if they are not set; the others have their default. Unknown fields are skipped. Recursive messages are an error.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    MapType,
    ShortType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.clients.arrow_columns import InvalidValue
from ottla.clients.message_columns import MessageColumns
from ottla.serde._builders import Plan
from ottla.serde.protobuf_fields import TIMESTAMP, Kind, is_map
from ottla.spark.avro_values import SQL_TYPES
from ottla.spark.names import OptionError
from ottla.spark.protobuf_messages import decode_error, given_class, message_plan

SMALL: Final[dict[str, DataType]] = {"int8": ByteType(), "int16": ShortType()}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def protobuf_type(part: str, formats: Mapping[str, str]) -> DataType:
    """Return the type of a column of Protobuf values. Raises OptionError."""
    return plan_type(message_plan(given_class(part, formats).DESCRIPTOR))


def plan_type(plan: Plan) -> DataType:
    """Return Spark's type of a layout of columns."""
    if plan[0] == "struct":
        return StructType([StructField(name, plan_type(each)) for name, each in plan[1]])
    if plan[0] == "list":
        return ArrayType(plan_type(plan[1]))
    if plan[0] == "map":
        return MapType(plan_type(plan[1]), plan_type(plan[2]))
    if plan[0] == "decimal128":
        return DecimalType(plan[1], plan[2])
    return SMALL[plan[0]] if plan[0] in SMALL else TimestampType() if plan[0] == "timestamp_us" else SQL_TYPES[plan[0]]


# -- reading ----------------------------------------------------------------------------------------------------------


class ProtobufReader:
    """Reads the values of a column. Raises OptionError for invalid options."""

    def __init__(self, part: str, formats: Mapping[str, str], arrow_type: Any) -> None:
        self._message = given_class(part, formats)
        self._columns = MessageColumns(self._message.DESCRIPTOR, arrow_type)
        self._error = decode_error()

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
        column, refused = self._columns.column(messages)
        bad = sorted([*bad, *refused])
        return (None if bad and only_first else column), bad


# -- writing ---------------------------------------------------------------------------------------------------------


def written_message(part: str, formats: Mapping[str, str], kind: DataType) -> tuple[str, str]:
    """Return message and descriptors for a column of this type. Raises OptionError for columns without a field."""
    check_columns(part, given_class(part, formats), kind)
    return formats[f"{part}.protobuf.message"], formats[f"{part}.protobuf.descriptors"]


def check_columns(part: str, message: Any, kind: DataType) -> None:
    """Raise OptionError if a column of this type has a field that the message does not have."""
    fields = [field.name for field in message.DESCRIPTOR.fields]
    if not isinstance(kind, StructType):
        raise OptionError(f"The {part} is of {kind.simpleString()}; a Protobuf message needs columns or a struct")
    odd = [name for name in kind.fieldNames() if name not in fields]
    if odd:
        raise OptionError(
            f"The message {message.DESCRIPTOR.full_name} of the {part} has no field {odd[0]!r}; it has "
            f"{', '.join(fields)}"
        )


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
    if is_map(field):
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
    if field.message_type.full_name == TIMESTAMP:
        since_epoch = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH
        micros = since_epoch // dt.timedelta(microseconds=1)
        message.seconds, message.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
        return
    fields = {each.name: each for each in field.message_type.fields}
    for name, each in value.items():
        _set(message, fields[name], each)


def _plain(field: Any, value: Any) -> Any:
    if field.type == Kind.ENUM and isinstance(value, str):
        return field.enum_type.values_by_name[value].number if not value.lstrip("-").isdigit() else int(value)
    return int(value) if isinstance(value, Decimal) else value

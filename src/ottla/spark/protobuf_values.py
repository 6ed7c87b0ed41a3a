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
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.serde._builders import Plan
from ottla.spark.avro_values import SQL_TYPES
from ottla.spark.columns import InvalidValue
from ottla.spark.names import OptionError
from ottla.spark.protobuf_messages import (
    TIMESTAMP,
    Kind,
    Lists,
    Structs,
    Values,
    decode_error,
    fields_of,
    given_class,
    is_map,
    message_plan,
)

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def protobuf_type(part: str, formats: Mapping[str, str]) -> DataType:
    """Return the type of a column of Protobuf values. Raises OptionError."""
    return _sql_type(message_plan(given_class(part, formats).DESCRIPTOR))


def _sql_type(plan: Plan) -> DataType:
    if plan[0] == "struct":
        return StructType([StructField(name, _sql_type(each)) for name, each in plan[1]])
    if plan[0] == "list":
        return ArrayType(_sql_type(plan[1]))
    if plan[0] == "map":
        return MapType(_sql_type(plan[1]), _sql_type(plan[2]))
    if plan[0] == "decimal128":
        return DecimalType(plan[1], plan[2])
    return TimestampType() if plan[0] == "timestamp_us" else SQL_TYPES[plan[0]]


# -- reading ----------------------------------------------------------------------------------------------------------


class ProtobufReader:
    """Reads the values of a column. Raises OptionError for invalid options."""

    def __init__(self, part: str, formats: Mapping[str, str], arrow_type: Any) -> None:
        self._message = given_class(part, formats)
        self._type = arrow_type
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
        return _array(fields_of(self._message.DESCRIPTOR, messages), self._type)


def _array(given: Values, kind: Any) -> Any:
    """Return an Arrow array of this type."""
    if isinstance(given, Structs):
        mask = pa.array(given.is_null) if any(given.is_null) else None
        children = [_array(each, kind[index].type) for index, each in enumerate(given.fields.values())]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if isinstance(given, Lists):
        offsets = pa.array(given.offsets, pa.int32())
        if given.keys is None:
            return pa.ListArray.from_arrays(offsets, _array(given.items, kind.value_type), kind)
        keys, items = _array(given.keys, kind.key_type), _array(given.items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, kind)
    return pa.array(given.values, pa.int64()).cast(kind) if given.is_time else pa.array(given.values, kind)


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

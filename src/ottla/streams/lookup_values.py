"""Converts the value of one record to Python's objects, with the decoders of the Spark source, but without Spark.

JSON and Avro need only the base installation, Protobuf the extra `[protobuf]`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.clients import serializers
from ottla.clients.errors import DeserializationFailed
from ottla.schemas.model import SchemaType
from ottla.serde._json import decode
from ottla.serde._views import ByteRows
from ottla.serde.objects import moment, objects_of
from ottla.serde.protobuf_fields import Lists, Structs, Values, fields_of
from ottla.spark.avro_options import avro_decoder
from ottla.spark.format_errors import FormatError, place, what
from ottla.spark.json_schema import CORRUPT, json_columns, plan_of_type
from ottla.spark.protobuf_messages import decode_error, given_class, message_plan

if TYPE_CHECKING:
    from ottla.spark.options import SourceOptions
    from ottla.streams.lookup import Stored

_Read: TypeAlias = Callable[[bytes], Any]
"""Raises _Invalid, and ValueError for a value that Python does not have."""


class _Invalid(Exception):
    """A value does not match its format: the field (empty for the whole value), and the reason."""


def decode_value(record: Stored, source: SourceOptions) -> Any:
    """Return a dictionary, or another object for Avro. Raises FormatError, OptionError."""
    assert record.value is not None
    if source.value_format == "registry":
        read = _registry(source)
    else:
        read = {"json": _json, "avro": _avro, "protobuf": _protobuf}[source.value_format](source.formats)
    where = place(record.place.topic, record.place.partition, record.offset)
    try:
        return read(record.value)
    except _Invalid as error:
        path, problem = error.args
        raise FormatError(f"{where}: {what('value', path)} {problem}") from None
    except ValueError as error:
        raise FormatError(f"{where}: the value has {error}") from None


def _json(formats: Mapping[str, str]) -> _Read:
    _, fields = plan_of_type(json_columns("value", formats))
    names = [name for name, _ in fields]
    plan = ("struct", tuple(field for field in fields if field[0] != CORRUPT))

    def read(value: bytes) -> Any:
        column, bad = decode(plan, _rows(value))
        if bad:
            raise _Invalid(bad[0].field, bad[0].problem)
        (found,) = objects_of(plan, column)
        return None if found is None else {name: found.get(name) for name in names}

    return read


def _avro(formats: Mapping[str, str]) -> _Read:
    decoder = avro_decoder("value", formats)

    def read(value: bytes) -> Any:
        column, bad = decoder.decode(_rows(value), only_first=True)
        if column is None:
            raise _Invalid(*bad[0][1:])
        return objects_of(decoder.plan, column)[0]

    return read


def _registry(source: SourceOptions) -> _Read:
    from ottla.spark.registry import client_of, schema_type

    client = client_of(source.registry)
    kind = schema_type("value", source.formats)
    deserializer: Any
    if kind is SchemaType.PROTOBUF:
        deserializer = serializers.ProtobufDeserializer(None, client)
    elif kind is SchemaType.JSON:
        deserializer = serializers.JsonSchemaDeserializer(None, client, validate=False)
    else:
        deserializer = serializers.AvroDeserializer(None, client)

    def read(value: bytes) -> Any:
        try:
            found = deserializer(value)
        except DeserializationFailed as error:
            if error.retriable:
                raise
            raise _Invalid(error.field, str(error.__cause__)) from error
        return _objects(fields_of(found.DESCRIPTOR, [found]))[0] if kind is SchemaType.PROTOBUF else found

    return read


def _protobuf(formats: Mapping[str, str]) -> _Read:
    message = given_class("value", formats)
    message_plan(message.DESCRIPTOR)  # raises for a message that no column can hold

    def read(value: bytes) -> Any:
        try:
            parsed = message.FromString(value)
        except decode_error():
            raise _Invalid("", f"is not a message {message.DESCRIPTOR.full_name}") from None
        return _objects(fields_of(message.DESCRIPTOR, [parsed]))[0]

    return read


def _objects(given: Values) -> list[Any]:
    """Return the objects of the fields of messages."""
    if isinstance(given, Structs):
        fields = {name: _objects(each) for name, each in given.fields.items()}
        return [
            None if is_null else {name: each[row] for name, each in fields.items()}
            for row, is_null in enumerate(given.is_null)
        ]
    if isinstance(given, Lists):
        items, spans = _objects(given.items), list(zip(given.offsets, given.offsets[1:], strict=False))
        if given.keys is None:
            return [items[start:end] for start, end in spans]
        keys = _objects(given.keys)
        return [dict(zip(keys[start:end], items[start:end], strict=True)) for start, end in spans]
    if given.is_time:
        return [None if value is None else moment(value, True) for value in given.values]
    return list(given.values)


def _rows(value: bytes) -> ByteRows:
    """Return a column with one value."""
    return ByteRows(1, 0, None, struct.pack("=ii", 0, len(value)), value, False)

"""Protobuf messages whose schema is in a registry. The body of a value has the path of its message before the message.

The path is the position of the message in its file, and of each nested message in the one around it: zigzag varints,
first their number. The first message of a file has the path of a single zero byte.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.clients.serializers import late
from ottla.clients.serializers.base import InvalidValue, References, RegistryDeserializer, RegistrySerializer
from ottla.registry_client.model import RegisteredSchema
from ottla.schemas.model import InvalidSchema, Reference, Schema, SchemaType
from ottla.schemas.protobuf.names import Names
from ottla.schemas.protobuf.schema import ProtobufSchema, parse_protobuf, read_file
from ottla.schemas.protobuf.well_known import WELL_KNOWN_FILES

try:
    # This module is imported on first use, and nothing in it works without the library.
    from google.protobuf.message import (  # type: ignore[import-untyped,unused-ignore]
        DecodeError,
        EncodeError,
    )
    from google.protobuf.message import Message as AnyMessage
except ImportError as error:
    raise ImportError("Protobuf serializers need protobuf: pip install 'ottla[registry]'", name="google") from error

if TYPE_CHECKING:
    from ottla.clients.serializers.registry_columns import RegistryColumns
    from ottla.registry_client import RegistryClient

MessageClass: TypeAlias = type[Any]
MAX_PATH: Final = 64
FIRST_MESSAGE: Final = b"\0"


class ProtobufSerializer(RegistrySerializer):
    """Serializes messages, or dictionaries, whose keys are the names of fields.

    `schema` is a generated class, or a text or Schema as for the other formats. The files that a generated class
    imports are registered first, each under its import path (or `reference.subject.name.strategy`, a function of the
    path), except the well-known files. `message` is the full name of the message that a dictionary means, by default
    the generated class or the first message. A message may be of any type in the file of the schema.
    """

    type = SchemaType.PROTOBUF

    def __init__(
        self,
        schema: MessageClass | str | Schema | None = None,
        registry: RegistryClient | None = None,
        *,
        message: str | None = None,
        to_dict: Callable[..., Any] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        self._class: Any = schema if isinstance(schema, type) else None
        self._message = schema.DESCRIPTOR.full_name if isinstance(schema, type) else message
        text = _text(schema.DESCRIPTOR.file) if isinstance(schema, type) else schema
        super().__init__(text, registry, to_dict=to_dict, config=config, **settings)

    def _record_name(self, schema: Schema) -> str | None:
        return self._message or first_message(schema)

    def _registered(self, topic: str) -> RegisteredSchema:
        values = self.settings.values
        finds_schema = values["use_latest_version"] or values["use_latest_with_metadata"] is not None
        if self._class is not None and not finds_schema and values["use_schema_id"] is None:
            self._schema = self.schema_of_file(self._class.DESCRIPTOR.file)
        return super()._registered(topic)

    def schema_of_file(self, file: Any) -> Schema:
        """The schema of a file, after the files that it imports are registered."""
        references = []
        subject_of = self.settings.values["reference_subject_name_strategy"] or str
        for each in file.dependencies:
            if each.name not in WELL_KNOWN_FILES:
                subject = subject_of(each.name)
                version = self._version(subject, self.schema_of_file(each))
                references.append(Reference(each.name, subject, version))
        return Schema(SchemaType.PROTOBUF, _text(file), tuple(references))

    def _version(self, subject: str, schema: Schema) -> int:
        normalize = self.settings.values["normalize_schemas"]
        if self.settings.values["auto_register_schemas"]:
            self._registry.register_schema_full_response(subject, schema, normalize=normalize)
        version = self._registry.lookup_schema(subject, schema, normalize=normalize).version
        if version is None:
            raise ValueError(f"the registry returns no version for the schema of subject {subject}")
        return version

    def _encoder(self, references: References) -> Callable[[Any], bytes]:
        schema = parsed(references)
        # The registry stores a normalized schema without the messages of map fields, which changes positions.
        stored = schema
        if self.settings.values["normalize_schemas"]:
            normalized = replace(references.schema, text=schema.normalized())
            stored = parsed(references._replace(schema=normalized))
        paths: dict[str, bytes] = {}
        made_of: list[Any] = [] if self._class is None else [self._class]

        def encode(value: Any) -> bytes:
            try:
                if not isinstance(value, AnyMessage):
                    if not made_of:
                        made_of.append(schema.message_class(self._message))
                    value = message_of(made_of[0], value)
                name = value.DESCRIPTOR.full_name
                if name not in paths:
                    paths[name] = path_of(stored.message_indexes(name))
                serialized: bytes = value.SerializeToString()
            except (EncodeError, InvalidSchema) as error:
                raise InvalidValue(str(error)) from error
            return paths[name] + serialized

        return encode

    def _path_size(self, body: bytes) -> int:
        return read_path(body, 0)[1]


class ProtobufDeserializer(RegistryDeserializer):
    """Returns messages: of a generated class that is given as `schema`, else of a class made from the schema.

    Without a class and a reader's schema, the writer's schema decides. With `from_dict`, messages become dictionaries
    for that function: all fields without presence, others that are set; enums are names.
    """

    type = SchemaType.PROTOBUF

    def __init__(
        self,
        schema: MessageClass | str | Schema | None = None,
        registry: RegistryClient | None = None,
        *,
        from_dict: Callable[..., Any] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        self._class: Any = schema if isinstance(schema, type) else None
        text = None if isinstance(schema, type) else schema
        super().__init__(text, registry, from_dict=from_dict, config=config, **settings)

    def _record_name(self, schema: Schema) -> str | None:
        return first_message(schema) if self._class is None else self._class.DESCRIPTOR.full_name

    def columns(self) -> RegistryColumns:
        """Return a decoder of whole Arrow columns with these settings, for this part of the records."""
        reader = None if self.reader_schema is None else self._with_references(self.reader_schema)
        made = late.ProtobufColumns(self.settings, reader, message=self._class)
        made.bind(self.part, deferring=self.is_deferring)
        return made

    def _decoder(self, writer: References, reader: References | None) -> Callable[[bytes, int], Any]:
        written = parsed(writer)
        read = written if reader is None else parsed(reader)
        classes: dict[tuple[int, ...], Any] = {}
        made: Callable[[Any], Any] = (lambda message: message) if self._from_dict is None else as_dict

        def decode(data: bytes, position: int) -> Any:
            try:
                path, begin = read_path(data, position)
                if path not in classes:
                    name = written.message_name(path)
                    classes[path] = read.message_class(name) if self._class is None else self._class
                return made(classes[path].FromString(data[begin:]))
            except (DecodeError, InvalidSchema) as error:
                raise InvalidValue(str(error)) from error

        return decode


def message_of(message_class: Any, value: Any) -> Any:
    """A message from a dictionary. Raises InvalidValue with the path of the field that does not fit."""
    try:
        return message_class(**value)
    except (TypeError, ValueError) as error:
        field = _wrong_field(message_class, value)
        raise InvalidValue(f"field {field!r}: {error}" if field else str(error), field) from error


def _wrong_field(message_class: Any, value: Any) -> str:
    """The path of the first field that does not fit its type, empty if no single field is wrong."""
    for name, each in value.items() if isinstance(value, Mapping) else ():
        try:
            message_class(**{str(name): each})
        except (TypeError, ValueError):
            field = message_class.DESCRIPTOR.fields_by_name.get(name)
            nested = None if field is None or field.is_repeated else field.message_type
            inner = "" if nested is None else _wrong_field(type(getattr(message_class(), name)), each)
            return f"{name}.{inner}" if inner else str(name)
    return ""


def first_message(schema: Schema) -> str | None:
    """The full name of the first message of a schema, None if it has no message. Raises InvalidValue."""
    try:
        file = read_file(schema.text)
    except InvalidSchema as error:
        raise InvalidValue(str(error)) from error
    try:
        return ProtobufSchema(file, Names(), {}).message_name([0])
    except InvalidSchema:
        return None


def path_of(indexes: Sequence[int]) -> bytes:
    """The path of a message from its indexes."""
    if list(indexes) == [0]:
        return FIRST_MESSAGE
    return b"".join(_varint(each) for each in (len(indexes), *indexes))


def read_path(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """The indexes of a message, and the position of the message. Raises InvalidValue."""
    count, position = _read_varint(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= MAX_PATH:
        raise InvalidValue(f"the path of its message has {count} parts, which are not between 1 and {MAX_PATH}")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes.append(index)
    return tuple(indexes), position


def _varint(value: int) -> bytes:
    value <<= 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift, byte in zip(range(0, 35, 7), data[position : position + 5], strict=False):
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise InvalidValue("the path of its message ends too early")


def as_dict(message: Any) -> dict[str, Any]:
    """A message as a dictionary of Python's values, with the names of fields as keys."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value, kind = getattr(message, field.name), field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of_entry = kind.fields_by_name["value"]
            found[field.name] = {key: _plain(of_entry, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_plain(field, each) for each in value]
        else:
            found[field.name] = _plain(field, value)
    return found


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_dict(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return value


def _text(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def parsed(references: References) -> ProtobufSchema:
    """The schema with the files that it imports. Raises InvalidValue."""
    try:
        return parse_protobuf(references.schema, references.referenced, is_new=False)
    except InvalidSchema as error:
        raise InvalidValue(f"the Protobuf schema is invalid: {error}") from error

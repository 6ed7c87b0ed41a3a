"""Confluent's ProtobufConverter: protobuf messages whose schemas are in a schema registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.serializers.base import InvalidValue, References
from ottla.clients.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer, parsed, path_of, read_path
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType
from ottla.connect.converters.api import SchemaAndValue
from ottla.connect.converters.protobuf_messages import ProtobufReader, Reading
from ottla.connect.converters.protobuf_resolved import check_fields
from ottla.connect.converters.protobuf_schemas import ProtobufOptions, ProtobufSchemaWriter
from ottla.connect.converters.protobuf_values import ProtobufEncoder
from ottla.connect.converters.registry import REGISTRY_SETTINGS, RegistryConverter, Writing
from ottla.connect.errors import DataError
from ottla.schemas.model import InvalidSchema, SchemaType
from ottla.schemas.model import Schema as RegistrySchema

if TYPE_CHECKING:
    from ottla.connect.data import Schema

_RESOLVING: Final = ("use_latest_with_metadata", "use_schema_id")
_DOCS: Final = {
    "enhanced_protobuf_schema_support": "Whether names have the package.",
    "generalized_sum_type_support": "Whether enums and unions have the parameters that all formats share.",
    "ignore_default_for_nullables": "Whether a null stays null if the field has a default.",
    "scrub_invalid_names": "Whether invalid characters of names are replaced.",
    "int_for_enums": "Whether enums are integers.",
    "optional_for_nullables": "Whether nullable fields have the keyword optional.",
    "optional_for_proto2": "Whether absent fields of proto2 are null.",
    "wrapper_for_nullables": "Whether nullable fields are wrapper messages.",
    "wrapper_for_raw_primitives": "Whether a wrapper message alone is a primitive.",
    "generate_struct_for_nulls": "Whether an absent message is read as an empty one.",
    "generate_index_for_unions": "Whether the names of unions end with an index.",
    "flatten_unions": "Whether the members of unions are fields.",
}


class _ResolvedSerializer(ProtobufSerializer):
    """Writes values of a Connect schema with the schema that `use.latest.version` and similar settings name.

    Field numbers may differ from the converter's own schema, so messages are made of the resolved one, by names.
    """

    def __init__(self, own: type[Any], encoder_of: Callable[[type[Any]], Callable[[Any], Any]], **options: Any) -> None:
        super().__init__(**options)
        self._own, self._encoder_of = own, encoder_of

    def _encoder(self, references: References) -> Callable[[Any], bytes]:
        descriptor = self._own.DESCRIPTOR
        resolved = parsed(references)
        try:
            path = path_of(resolved.message_indexes(descriptor.full_name))
            message_class = resolved.message_class(descriptor.full_name)
        except InvalidSchema as error:
            raise InvalidValue(f"in the schema of the subject: {error}") from error
        check_fields(descriptor, message_class.DESCRIPTOR)
        fill = self._encoder_of(message_class)

        def encode(value: Any) -> bytes:
            try:
                serialized: bytes = fill(value).SerializeToString()
            except (DataError, EncodeError) as error:
                raise InvalidValue(str(error)) from error
            return path + serialized

        return encode


class _Deserializer(ProtobufDeserializer):
    """Reads messages with their Connect schema."""

    def __init__(self, options: ProtobufOptions, registry: Any, config: dict[str, str]) -> None:
        super().__init__(registry=registry, config=config)
        self._options = options

    def _decoder(self, writer: References, reader: References | None) -> Callable[[bytes, int], SchemaAndValue]:
        written = parsed(writer)
        read = written if reader is None else parsed(reader)
        schemas = ProtobufReader(self._options)
        known: dict[tuple[int, ...], tuple[Any, Reading]] = {}

        def decode(found: bytes, position: int) -> SchemaAndValue:
            try:
                path, begin = read_path(found, position)
                if path not in known:
                    message_class = read.message_class(written.message_name(path))
                    known[path] = message_class, schemas.read(message_class.DESCRIPTOR)
                message_class, (schema, convert) = known[path]
                return SchemaAndValue(schema, convert(message_class.FromString(found[begin:])))
            except (DecodeError, InvalidSchema, DataError, UnicodeDecodeError, TypeError) as error:
                raise InvalidValue(str(error)) from error

        return decode


class ProtobufConverter(RegistryConverter):
    """Converts between Connect's data and protobuf messages with schema ids."""

    version = "7.0.16"
    config_def = ConfigDef(
        [
            *REGISTRY_SETTINGS,
            *(
                Setting(name.replace("_", "."), SettingType.BOOLEAN, _DOCS[name], default, Importance.LOW)
                for name, default in ProtobufOptions._field_defaults.items()
            ),
        ]
    )

    def _read_settings(self, settings: Mapping[str, Any]) -> None:
        self._format = ProtobufOptions(*(settings[name.replace("_", ".")] for name in ProtobufOptions._fields))

    def _deserializer(self, options: dict[str, str]) -> _Deserializer:
        return _Deserializer(self._format, self._registry, options)

    def _writing(self, schema: Schema) -> Writing:
        text, name = ProtobufSchemaWriter(self._format).written(schema)
        try:
            message_class = parsed(References(RegistrySchema(SchemaType.PROTOBUF, text), {})).message_class(name)
        except (InvalidSchema, InvalidValue) as error:
            raise DataError(f"The schema {name} cannot be written in protobuf: {error}") from error
        encoder_of = partial(ProtobufEncoder(self._format).encoder, schema)
        options: dict[str, Any] = {"schema": text, "registry": self._registry, "message": name, "config": self._options}
        serializer = ProtobufSerializer(**options)
        values = serializer.settings.values
        if values["use_latest_version"] or any(values[each] is not None for each in _RESOLVING):
            return Writing(None, _ResolvedSerializer(message_class, encoder_of, **options))
        return Writing(encoder_of(message_class), serializer)

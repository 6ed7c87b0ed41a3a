"""Confluent's AvroConverter: Avro values whose schemas are in a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import fastavro

from ottla.clients.serializers.avro import UNREADABLE, AvroDeserializer, AvroSerializer, parsed
from ottla.clients.serializers.base import InvalidValue, References
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType
from ottla.connect.converters.api import SchemaAndValue
from ottla.connect.converters.avro_schemas import AvroSchemaReader, AvroSchemaWriter, typed
from ottla.connect.converters.avro_values import decoder, encoder
from ottla.connect.converters.registry import REGISTRY_SETTINGS, RegistryConverter, Writing
from ottla.connect.errors import DataError
from ottla.schemas.model import Schema as RegistrySchema
from ottla.schemas.model import SchemaType

if TYPE_CHECKING:
    from ottla.connect.data import Schema


def _plain(avro: Any) -> Any:
    """Return an Avro schema without logical types: their values are converted here."""
    if isinstance(avro, list):
        return [_plain(each) for each in avro]
    if isinstance(avro, dict):
        return {name: _plain(each) for name, each in avro.items() if name != "logicalType"}
    return avro


def is_bytes(avro: Any) -> bool:
    """Whether an Avro schema is bytes, of any logical type."""
    kind: str | list[Any] = avro["type"] if isinstance(avro, dict) else avro
    return kind == "bytes"


def plain_references(references: References) -> References:
    """Return schemas without logical types, for fastavro."""

    def plain(schema: RegistrySchema) -> RegistrySchema:
        return RegistrySchema(SchemaType.AVRO, json.dumps(_plain(json.loads(schema.text))), schema.references)

    return References(plain(references.schema), {name: plain(each) for name, each in references.referenced.items()})


class _Serializer(AvroSerializer):
    """Writes numbers and bytes in place of logical types. As by Confluent's, bytes alone have no length before them."""

    def _encoder(self, references: References) -> Callable[[Any], bytes]:
        plain = plain_references(references)
        return bytes if is_bytes(parsed(plain)) else super()._encoder(plain)


class _Deserializer(AvroDeserializer):
    """Reads values with their Connect schema."""

    def _decoder(self, writer: References, reader: References | None) -> Callable[[bytes, int], SchemaAndValue]:
        wanted = writer if reader is None else reader
        schemas = AvroSchemaReader()
        try:
            for each in wanted.referenced.values():
                schemas.read(json.loads(each.text))
            schema = schemas.read(json.loads(wanted.schema.text))
        except DataError as error:
            raise InvalidValue(str(error)) from error
        convert = decoder(schema)
        written = parsed(plain_references(writer))
        read_as = None if reader is None or reader == writer else parsed(plain_references(reader))

        if is_bytes(written):
            return lambda found, position: SchemaAndValue(schema, typed(schema, found[position:]))
        # Values of a union of several records come with their names.
        read = partial(fastavro.schemaless_reader, return_record_name=True, return_record_name_override=True)

        def decode(found: bytes, position: int) -> SchemaAndValue:
            source = io.BytesIO(found)
            source.seek(position)
            try:
                value = read(source, written, read_as)
            except UNREADABLE as error:
                ends = isinstance(error, (EOFError, IndexError))
                raise InvalidValue("it ends before its value does" if ends else str(error)) from error
            return SchemaAndValue(schema, value if convert is None else convert(value))

        return decode


class AvroConverter(RegistryConverter):
    """Converts between Connect's data and Avro with schema ids."""

    version = "7.0.16"
    config_def = ConfigDef(
        [
            *REGISTRY_SETTINGS,
            Setting("enhanced.avro.schema.support", SettingType.BOOLEAN, "Whether enums stay enums.", False),
            Setting("connect.meta.data", SettingType.BOOLEAN, "Whether Avro schemas have Connect's properties.", True,
                    Importance.LOW),
        ]
    )  # fmt: skip

    def _read_settings(self, settings: Mapping[str, Any]) -> None:
        self._with_enums: bool = settings["enhanced.avro.schema.support"]
        self._with_metadata: bool = settings["connect.meta.data"]

    def _deserializer(self, options: dict[str, str]) -> _Deserializer:
        return _Deserializer(registry=self._registry, config=options)

    def _writing(self, schema: Schema) -> Writing:
        written = AvroSchemaWriter(with_metadata=self._with_metadata, with_enums=self._with_enums).written(schema)
        text = json.dumps(written, separators=(",", ":"), ensure_ascii=False)
        return Writing(encoder(schema), _Serializer(text, self._registry, config=self._options))

"""Confluent's AvroConverter: Avro values whose schemas are in a schema registry.

Settings are the registry's and the serializers' (`schema.registry.url`, `auto.register.schemas`, ...), and
`enhanced.avro.schema.support` and `connect.meta.data`; unknown ones are ignored, as by Confluent's.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import fastavro

from ottla.clients.errors import ClientError, ConfigurationError
from ottla.clients.serializers.avro import UNREADABLE, AvroDeserializer, AvroSerializer, parsed
from ottla.clients.serializers.base import InvalidValue, References
from ottla.clients.serializers.settings import DESERIALIZER_OPTIONS, SERIALIZER_OPTIONS
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingError, SettingType
from ottla.connect.converters.api import NULL, Converter, RecordHeaders, SchemaAndValue
from ottla.connect.converters.avro_schemas import AvroSchemaReader, AvroSchemaWriter, typed
from ottla.connect.converters.avro_values import decoder, encoder
from ottla.connect.errors import DataError, RetriableError
from ottla.registry_client import RegistryClient
from ottla.registry_client.settings import has_setting
from ottla.schemas.model import Schema as RegistrySchema
from ottla.schemas.model import SchemaType

if TYPE_CHECKING:
    from ottla.connect.api import Config
    from ottla.connect.data import Schema

T = TypeVar("T")
_MOST_SCHEMAS: Final = 1_000
_STRATEGIES: Final = "io.confluent.kafka.serializers.subject."


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

    def decoder_of(self, writer: References) -> Callable[[bytes, int], SchemaAndValue]:
        """Return the function that reads values of a schema."""
        return self._decoder(writer, None)

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


class _Writing(NamedTuple):
    schema: Schema
    serializer: _Serializer


class AvroConverter(Converter):
    """Converts between Connect's data and Avro with schema ids."""

    version = "7.0.16"
    config_def = ConfigDef(
        [
            Setting("schema.registry.url", SettingType.LIST, "The schema registries, http://HOST:PORT.",
                    importance=Importance.HIGH),
            Setting("auto.register.schemas", SettingType.BOOLEAN, "Whether unknown schemas are registered.", True),
            Setting("use.latest.version", SettingType.BOOLEAN, "Whether the latest schema of the subject is used.",
                    False, Importance.LOW),
            Setting("enhanced.avro.schema.support", SettingType.BOOLEAN, "Whether enums stay enums.", False),
            Setting("connect.meta.data", SettingType.BOOLEAN, "Whether Avro schemas have Connect's properties.", True,
                    Importance.LOW),
        ]
    )  # fmt: skip

    def configure(self, config: Config, *, is_key: bool) -> None:
        """Read the settings. Nothing connects before the first record."""
        settings = self.config_def.parse(config)
        self._part = "key" if is_key else "value"
        self._with_enums: bool = settings["enhanced.avro.schema.support"]
        self._with_metadata: bool = settings["connect.meta.data"]
        given = {name: value.removeprefix(_STRATEGIES) for name, value in config.items() if value is not None}
        try:
            self._registry = RegistryClient({name: value for name, value in given.items() if has_setting(name)})
            self._options = _known(SERIALIZER_OPTIONS, given)
            self._reader = _Deserializer(registry=self._registry, config=_known(DESERIALIZER_OPTIONS, given))
        except (ConfigurationError, ValueError) as error:
            raise SettingError(str(error)) from error
        self._reader.bind(self._part, deferring=False)
        self._writers: dict[int, _Writing] = {}

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: RecordHeaders | None = None
    ) -> bytes | None:
        """Return the schema id and the Avro value."""
        if value is None and (schema is None or not schema.has_default):
            return None
        if schema is None:
            raise DataError(f"AvroConverter needs a schema for the {self._part}, and the record has none")
        writing = self._writers.get(id(schema))
        if writing is None:
            writing = self._add_writer(schema)
        return _guarded(lambda: writing.serializer(value, topic=topic, headers=[] if headers is None else headers))

    def _add_writer(self, schema: Schema) -> _Writing:
        written = AvroSchemaWriter(with_metadata=self._with_metadata, with_enums=self._with_enums).written(schema)
        text = json.dumps(written, separators=(",", ":"), ensure_ascii=False)
        serializer = _Serializer(text, self._registry, to_dict=encoder(schema), config=self._options)
        serializer.bind(self._part, deferring=False)
        if len(self._writers) >= _MOST_SCHEMAS:
            self._writers.clear()
        writing = self._writers[id(schema)] = _Writing(schema, serializer)
        return writing

    def to_connect(self, topic: str, data: bytes | None, headers: RecordHeaders | None = None) -> SchemaAndValue:
        """Return the value and its schema, which is read once for each schema id."""
        if data is None:
            return NULL
        found: SchemaAndValue = _guarded(lambda: self._reader(data, topic=topic, headers=headers or []))
        return found

    def reader_of(self, text: str) -> Callable[[bytes, int], SchemaAndValue]:
        """Return the function that reads values of a schema, from a position of some bytes."""
        return self._reader.decoder_of(References(RegistrySchema(SchemaType.AVRO, text), {}))

    def close(self) -> None:
        """Close the connections to the registry."""
        self._registry.close()


def _known(rows: Any, given: dict[str, str]) -> dict[str, str]:
    names = {name for row in rows for name in (row.name, *row.aliases)}
    return {name: value for name, value in given.items() if name in names}


def _guarded(call: Callable[[], T]) -> T:
    """Call a serializer. Its errors are RetriableError or DataError."""
    try:
        return call()
    except ClientError as error:
        kind = RetriableError if error.retriable else DataError
        raise kind(str(error)) from error

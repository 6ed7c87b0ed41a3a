"""Keys and values of a schema registry as JSON text, for the commands that read and write records.

`JsonText` is a deserializer: from encoded bytes to the bytes of their JSON. `FromJsonText` is a serializer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.clients import serializers
from ottla.clients.errors import DeserializationFailed
from ottla.clients.serializers import wire
from ottla.clients.serializers.avro import parsed_with_names
from ottla.clients.serializers.base import RegistryDeserializer, RegistrySerializer, with_references
from ottla.registry_client import RegistryClient, RegistryClientError, Schema, SchemaType
from ottla.tools.formats.avro_json import FromJson, to_json

_SERIALIZERS: Final = {
    SchemaType.AVRO: "AvroSerializer",
    SchemaType.JSON: "JsonSchemaSerializer",
    SchemaType.PROTOBUF: "ProtobufSerializer",
}
_DESERIALIZERS: Final = {
    SchemaType.AVRO: "AvroDeserializer",
    SchemaType.JSON: "JsonSchemaDeserializer",
    SchemaType.PROTOBUF: "ProtobufDeserializer",
}


class JsonText:
    """Deserializes keys or values (`part`) of all types to JSON text.

    Bytes that cannot be decoded are returned unchanged: `failed` counts them, and `first` is the first reason. An
    unreachable registry raises DeserializationFailed.
    """

    def __init__(self, registry: RegistryClient, part: str) -> None:
        self._registry = registry
        self._part = part
        self._by_type: dict[SchemaType, RegistryDeserializer] = {}
        self.failed = 0
        self.first = ""

    def __call__(self, data: bytes, topic: str = "", headers: Any = ()) -> bytes:
        try:
            found = wire.identify(data, self._part, headers)
            if found.guid is not None:
                schema = self._registry.get_schema_by_guid(found.guid)
            else:
                assert found.id is not None
                schema = self._registry.get_schema(found.id)
            value = self._deserializer(schema.type)(data, topic=topic, headers=headers)
            return to_json(_plain(value)).encode()
        except (DeserializationFailed, RegistryClientError, wire.NotFramed) as error:
            if getattr(error, "retriable", False):
                raise
            self.failed += 1
            self.first = self.first or f"{self._part} of {topic}: {error}"
            return data

    def _deserializer(self, kind: SchemaType) -> RegistryDeserializer:
        if kind not in self._by_type:
            make = getattr(serializers, _DESERIALIZERS[kind])
            self._by_type[kind] = make(None, self._registry, validate=False).for_client(self._part, deferring=False)
        return self._by_type[kind]


def _plain(value: Any) -> Any:
    """Return a Protobuf message as a dictionary; other values unchanged."""
    if not hasattr(value, "DESCRIPTOR"):
        return value
    from google.protobuf import json_format  # type: ignore[import-untyped,unused-ignore]

    return json_format.MessageToDict(value, preserving_proto_field_name=True)


class _Writing(NamedTuple):
    serializer: RegistrySerializer
    convert: Callable[[Any], Any] | None


class FromJsonText:
    """Serializes JSON text with a schema: the given one, the schema of an id, or the latest of the topic's subject.

    A given schema is registered. Raises ValueError for text that does not fit, with the field.
    """

    def __init__(
        self, registry: RegistryClient, part: str, schema: Schema | None = None, schema_id: int | None = None
    ) -> None:
        self._registry = registry
        self._part = part
        self._schema = schema
        self._id = schema_id
        self._by_topic: dict[str, _Writing] = {}

    def __call__(self, data: bytes, topic: str = "", headers: Any = ()) -> bytes | None:
        writing = self._by_topic.get(topic)
        if writing is None:
            writing = self._by_topic[topic] = self._writing(topic)
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON: {error}") from error
        if writing.convert is not None:
            value = writing.convert(value)
        return writing.serializer(value, topic=topic, headers=headers)

    def _writing(self, topic: str) -> _Writing:
        schema, schema_id = self._schema, self._id
        if schema_id is not None:
            schema = self._registry.get_schema(schema_id)
        elif schema is None:
            latest = self._registry.get_latest_version(f"{topic}-{self._part}")
            schema, schema_id = latest.schema, latest.id
        kind = getattr(serializers, _SERIALIZERS[schema.type])
        serializer = kind(schema, self._registry, use_schema_id=schema_id).for_client(self._part, deferring=False)
        convert = None
        if schema.type is SchemaType.AVRO:
            convert = FromJson(*parsed_with_names(with_references(self._registry, schema)))
        return _Writing(serializer, convert)

"""Keys and values of v3 as bytes: BINARY, JSON and STRING, or with a schema of the registry.

A key or value without a `type` has a schema: by `schema_id`, by `schema_version`, or the latest of its subject. With
the type AVRO, JSONSCHEMA or PROTOBUF, `schema` is the text of a schema, which is registered if it is new. The subject
is `subject`, or follows `subject_name_strategy`. A schema is looked up once for each request.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.clients.serializers.subjects import avro_record_name, strategy
from ottla.registry_client import RegistryClientError, Schema, SchemaRegistryError, SchemaType
from ottla.rest.calls import Call, dump_json
from ottla.rest.schemas import registry
from ottla.rest.schemas.registry import KnownSchema, UserSchemas
from ottla.rest.v3.resources import bad_request, checked
from ottla.web.errors import HttpError

_SCHEMA_TYPES: Final = {
    "AVRO": SchemaType.AVRO,
    "JSONSCHEMA": SchemaType.JSON,
    "PROTOBUF": SchemaType.PROTOBUF,
}
_TYPE_NAMES: Final = {kind: name for name, kind in _SCHEMA_TYPES.items()}
_STRATEGIES: Final = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")


class Encoded(NamedTuple):
    """A key or value as bytes, and its row in the answer; `row` is None if the record has none."""

    data: bytes | None
    row: dict[str, Any] | None


NOTHING: Final = Encoded(None, None)


class _Found(NamedTuple):
    """A schema and its place in the registry."""

    schema: KnownSchema
    kind: SchemaType
    subject: str
    version: int | None


class Values:
    """Encodes the keys and values of one request."""

    def __init__(self, call: Call, topic: str) -> None:
        self._call = call
        self._topic = topic
        self._found: dict[tuple[object, ...], _Found] = {}

    async def encode(self, record: Mapping[str, Any], part: str) -> Encoded:
        """Return the key or value (`part`) of a record. Raises HttpError."""
        given = checked(record, part, dict)
        if given is None:
            return NOTHING
        kind = checked(given, "type", str)
        plain = _PLAIN.get(kind.upper()) if kind is not None else None
        data = given.get("data")
        if plain is not None:
            encoded = None if data is None and plain is not dump_json else plain(data)
            return Encoded(encoded, {"type": kind.upper(), "size": len(encoded or b"")})
        if kind is not None and kind.upper() not in _SCHEMA_TYPES:
            raise bad_request(f"type {kind} is not one of {', '.join((*_PLAIN, *_SCHEMA_TYPES))}.")
        found = await self._schema(given, part, None if kind is None else _SCHEMA_TYPES[kind.upper()])
        try:
            encoded = None if data is None else found.schema.encode(data)
        except ValueError as error:
            raise bad_request(f"data={dump_json(data).decode()[:100]}: {error}") from error
        row = {
            "type": _TYPE_NAMES[found.kind],
            "subject": found.subject,
            "schema_id": found.schema.id,
            "schema_version": found.version,
            "size": len(encoded or b""),
        }
        return Encoded(encoded, row)

    async def _schema(self, given: Mapping[str, Any], part: str, kind: SchemaType | None) -> _Found:
        """Return the schema of a key or value. Raises HttpError."""
        schema_id = checked(given, "schema_id", int)
        version = checked(given, "schema_version", int)
        text = checked(given, "schema", str)
        if len([each for each in (schema_id, version, text) if each is not None]) > 1:
            raise bad_request("Unsupported argument: give only one of schema_id, schema_version and schema.")
        if (kind is None) is (text is not None):
            raise bad_request("Unsupported argument: type AVRO, JSONSCHEMA or PROTOBUF belongs to schema.")
        names = checked(given, "subject", str), checked(given, "subject_name_strategy", str)
        key = (part, *names, schema_id, version, kind, text)
        found = self._found.get(key)
        if found is None:
            schemas = self._schemas()
            try:
                if text is not None and kind is not None:
                    found = await self._registered(schemas, Schema(kind, text), part, names)
                elif schema_id is not None:
                    found = await self._by_id(schemas, schema_id, part, names)
                else:
                    found = await self._by_version(schemas, version, part, names)
            except RegistryClientError as error:
                raise _refused(error) from error
            self._found[key] = found
        return found

    def _schemas(self) -> UserSchemas:
        part = self._call.proxy.parts[registry.PART]
        assert isinstance(part, registry.Schemas)
        return part.of(self._call.clients)

    async def _registered(
        self, schemas: UserSchemas, schema: Schema, part: str, names: tuple[str | None, str | None]
    ) -> _Found:
        subject = self._subject(part, names, schema)
        known = await schemas.register(subject, schema)
        return _Found(known, schema.type, subject, await _version(schemas, subject, schema))

    async def _by_id(
        self, schemas: UserSchemas, schema_id: int, part: str, names: tuple[str | None, str | None]
    ) -> _Found:
        schema = await schemas.client.get_schema(schema_id)
        subject = self._subject(part, names, schema)
        known = await schemas.by_id(schema_id, schema.type)
        return _Found(known, schema.type, subject, await _version(schemas, subject, schema))

    async def _by_version(
        self, schemas: UserSchemas, version: int | None, part: str, names: tuple[str | None, str | None]
    ) -> _Found:
        subject = self._subject(part, names, None)
        if version is None:
            stored = await schemas.client.get_latest_version(subject)
        else:
            stored = await schemas.client.get_version(subject, version)
        known = await schemas.by_id(stored.id, stored.schema.type)
        return _Found(known, stored.schema.type, subject, stored.version)

    def _subject(self, part: str, names: tuple[str | None, str | None], schema: Schema | None) -> str:
        """Return the subject of a key or value. Raises HttpError."""
        subject, name = names
        if subject is not None:
            return subject
        if name is not None and name.upper() not in _STRATEGIES:
            raise bad_request(f"subject_name_strategy {name} is not one of {', '.join(_STRATEGIES)}.")
        chosen = (name or _STRATEGIES[0]).upper()
        subject_of = strategy("subject_name_strategy", chosen.replace("_", ""))
        try:
            return subject_of(self._topic, part, None if chosen == _STRATEGIES[0] else _name_of(schema))
        except ValueError as error:
            raise bad_request(str(error)) from error


def _name_of(schema: Schema | None) -> str | None:
    """Return the full name of an Avro record, or the title of a JSON Schema. Raises ValueError."""
    if schema is None:
        return None
    if schema.type is SchemaType.AVRO:
        return avro_record_name(schema)
    if schema.type is SchemaType.JSON:
        found = json.loads(schema.text)
        return found.get("title") if isinstance(found, dict) else None
    return None


async def _version(schemas: UserSchemas, subject: str, schema: Schema) -> int | None:
    """Return the version of a schema under a subject. Raises RegistryClientError."""
    return (await schemas.client.lookup_schema(subject, schema)).version


def _refused(error: RegistryClientError) -> HttpError:
    if isinstance(error, SchemaRegistryError) and error.http_status_code == 404:
        return bad_request(f"The registry does not have the schema: {error.error_message}")
    return registry.of_registry(error)


def from_base64(data: Any) -> bytes:
    """Decode bytes of the type BINARY. Raises HttpError."""
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except (TypeError, ValueError):
        raise bad_request(f"data={dump_json(data).decode()[:100]} is not a base64 string.") from None


def _from_text(data: Any) -> bytes:
    if not isinstance(data, str):
        raise bad_request(f"data={dump_json(data).decode()[:100]} is not a string.")
    return data.encode()


_PLAIN: Final = {"BINARY": from_base64, "JSON": dump_json, "STRING": _from_text}

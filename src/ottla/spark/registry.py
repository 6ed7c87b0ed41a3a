"""Values with schemas in a registry: the options `schema=registry`, `key.format=registry`, `value.format=registry`.

The driver asks the registry for the reader's schema (the latest version of the subject, unless value.avro.readerSchema
is given), and puts it into the options of the format. So all tasks of a query use the same schema. Tasks fetch the
schemas of the values by id, and cache them in their worker. As the settings of SASL, the settings of the registry reach
the tasks in the pickled reader, and are not shown in plans and messages.

The type of the schema decides how values become columns: as in `value.format=avro` or `protobuf`, and for JSON Schema
as `ottla.serde.json_schema` says. `registry_writing` has the sink.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla.registry_client.errors import RegistryClientError
from ottla.schemas.model import Reference, Schema, SchemaType
from ottla.spark.names import OptionError
from ottla.spark.options import SinkOptions, SourceOptions, Subscribe

if TYPE_CHECKING:
    from ottla.clients.serializers.base import References
    from ottla.clients.serializers.registry_columns import RegistryColumns
    from ottla.registry_client import RegistryClient

FORMAT: Final = "registry"
_AVRO_READER: Final = "avro.readerschema"
_MESSAGE: Final = "protobuf.message"
_READER: Final = "registry.reader"
"""The reader's schema with its references, as JSON; the driver adds this option."""


def resolved(options: SourceOptions) -> SourceOptions:
    """Return the options of a read with the reader's schemas. Asks the registry. Raises OptionError."""
    formats = dict(options.formats)
    for part, asked in (("key", options.key_format), ("value", options.value_format)):
        if asked == FORMAT and f"{part}.{_READER}" not in formats:
            formats[f"{part}.{_READER}"] = as_text(_reader(part, formats, options))
    return replace(options, formats=formats)


def reader_of(part: str, formats: Mapping[str, str]) -> References:
    """Return the reader's schema in resolved options."""
    return from_text(formats[f"{part}.{_READER}"])


def as_text(references: References) -> str:
    """Return a schema with its references as JSON."""
    schema = references.schema
    return json.dumps(
        {
            "type": schema.type.value,
            "schema": schema.text,
            "references": [list(each) for each in schema.references],
            "referenced": [[name, _text_of(each)] for name, each in references.referenced.items()],
        }
    )


def from_text(text: str) -> References:
    """Return what `as_text` has written."""
    from ottla.clients.serializers.base import References

    given = json.loads(text)
    kind = SchemaType(given["type"])
    referenced = {name: _schema(kind, each) for name, each in given["referenced"]}
    return References(_schema(kind, given), referenced)


def _text_of(schema: Schema) -> dict[str, Any]:
    return {"schema": schema.text, "references": [list(each) for each in schema.references]}


def _schema(kind: SchemaType, given: Mapping[str, Any]) -> Schema:
    return Schema(kind, given["schema"], tuple(Reference(*each) for each in given["references"]))


def _reader(part: str, formats: Mapping[str, str], options: SourceOptions) -> References:
    from ottla.clients.serializers.base import References, with_references

    wanted = schema_type(part, formats)
    if f"{part}.{_AVRO_READER}" in formats:
        if wanted not in (None, SchemaType.AVRO):
            raise OptionError(f"{part}.avro.readerSchema is given, but {part}.schemaType is {wanted}")
        return References(Schema(SchemaType.AVRO, formats[f"{part}.{_AVRO_READER}"]), {})
    subject = formats.get(f"{part}.subject")
    if subject is None:
        if not isinstance(options.subscription, Subscribe):
            raise OptionError(
                f"{part}.subject is missing: it names the subject of the schema, since topics have patterns"
            )
        subject = f"{options.subscription.topics[0]}-{part}"
    client = client_of(options.registry)
    try:
        latest = client.get_latest_version(subject).schema
        check_type(latest, subject, wanted, part)
        return with_references(client, latest)
    except (RegistryClientError, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"The schema of {subject} cannot be read: {error}") from error


def schema_type(part: str, formats: Mapping[str, str]) -> SchemaType | None:
    """Return the option `schemaType` of a part; None if it is not given. Raises OptionError."""
    given = formats.get(f"{part}.schematype")
    if given is None:
        return None
    try:
        return SchemaType(given.strip().upper())
    except ValueError:
        types = ", ".join(each.value for each in SchemaType)
        raise OptionError(f"{part}.schemaType is {given!r}; it must be one of {types}") from None


def check_type(schema: Schema, subject: str, wanted: SchemaType | None, part: str) -> None:
    """Raise OptionError if a schema is not of the wanted type."""
    if wanted not in (None, schema.type):
        raise OptionError(
            f"The schema of {subject} is of type {schema.type}, but {part}.schemaType is {wanted}: omit that option, "
            "or choose another subject"
        )
    if schema.type is not SchemaType.PROTOBUF:
        return
    try:
        import google.protobuf  # type: ignore[import-untyped,unused-ignore] # noqa: F401 - whether it is installed
    except ImportError:
        raise OptionError("Schemas of type PROTOBUF need a package: pip install 'ottla[protobuf]'") from None


def subject_of(options: SinkOptions, part: str) -> str:
    """Return the subject of a sink. Raises OptionError."""
    subject = options.formats.get(f"{part}.subject") or (f"{options.topic}-{part}" if options.topic else None)
    if subject is None:
        raise OptionError(f"{part}.format=registry needs the option topic, or {part}.subject")
    return subject


def client_of(settings: Mapping[str, str]) -> RegistryClient:
    """Return the client of this process for these settings. Raises OptionError."""
    return _client(frozenset(settings.items()))


@functools.lru_cache(maxsize=8)
def _client(settings: frozenset[tuple[str, str]]) -> RegistryClient:
    from ottla import registry_client

    try:
        return registry_client.RegistryClient(dict(settings))
    except registry_client.RegistrySettingError as error:
        raise OptionError(str(error)) from error


class RegistryReader:
    """Reads the values of a column with the schemas of their ids. JSON values are checked against the column alone."""

    def __init__(self, part: str, options: SourceOptions, arrow_type: Any) -> None:
        self._columns = _columns(part, options, arrow_type)
        self._columns.bind(part, deferring=False)

    def read(self, values: Any, only_first: bool) -> tuple[Any, list[tuple[int, str, str]]]:  # noqa: ARG002 - as AvroReader
        """Return a column with a row for each of the binary `values`; and row, field and reason of each invalid value.

        Raises RegistryClientError if the registry cannot be reached: Spark then runs the task again.
        """
        column, bad = self._columns.decode(values, "")
        return column, bad


def _columns(part: str, options: SourceOptions, arrow_type: Any) -> RegistryColumns:
    from ottla.clients.serializers import late
    from ottla.clients.serializers.settings import DESERIALIZER_OPTIONS, Settings

    reader = reader_of(part, options.formats)
    settings = Settings(DESERIALIZER_OPTIONS, client_of(options.registry), {"validate": False})
    if reader.schema.type is SchemaType.PROTOBUF:
        message = message_name(part, options.formats, reader)
        return late.ProtobufColumns(settings, reader, arrow_type, message=message)
    kind = late.AvroColumns if reader.schema.type is SchemaType.AVRO else late.JsonColumns
    return kind(settings, reader, arrow_type)


def message_name(part: str, formats: Mapping[str, str], reader: References) -> str:
    """Return the full name of the messages of a Protobuf schema: the option, or its first one. Raises OptionError."""
    from ottla.clients.serializers.base import InvalidValue
    from ottla.clients.serializers.protobuf import parsed
    from ottla.schemas.model import InvalidSchema

    try:
        return formats.get(f"{part}.{_MESSAGE}") or parsed(reader).message_name([0])
    except (InvalidSchema, InvalidValue) as error:
        raise OptionError(f"The schema of the {part} in the registry has no message: {error}") from error

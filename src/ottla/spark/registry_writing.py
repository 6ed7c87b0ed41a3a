"""A sink with `value.format=registry`: the schema that values are written with, registered or found by the driver.

With use.latest.version=true the latest version of the subject is used, of any type. Otherwise `value.schemaType` (AVRO)
is the type of the schema: given by value.avro.schema or value.protobuf.descriptors, or derived from the columns
(`derived_schemas`). With auto.register.schemas=false it must be registered.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType

from ottla.registry_client.errors import RegistryClientError
from ottla.schemas.model import InvalidSchema, Schema, SchemaType
from ottla.serde.protobuf_fields import descriptors_of
from ottla.spark.avro_values import written_schema
from ottla.spark.derived_schemas import json_schema, protobuf_file
from ottla.spark.names import OptionError
from ottla.spark.options import SinkOptions
from ottla.spark.protobuf_messages import given_class
from ottla.spark.protobuf_values import check_columns
from ottla.spark.registry import as_text, check_type, client_of, message_name, schema_type, subject_of
from ottla.spark.write_encodings import Encoding

if TYPE_CHECKING:
    from ottla.clients.serializers.base import References
    from ottla.registry_client import RegistryClient


def registry_encoding(options: SinkOptions, part: str, kind: DataType) -> Encoding:
    """Return how the column `part` of this type is written. Blocks while the registry is asked. Raises OptionError."""
    formats, subject, client = options.formats, subject_of(options, part), client_of(options.registry)
    wanted = schema_type(part, formats)
    try:
        if _is_true(formats.get("use.latest.version"), "false"):
            return _latest(options, part, kind, subject, client, wanted)
        schema, message = _given(options, part, kind, client, wanted or SchemaType.AVRO)
        check_type(schema, subject, None, part)
        if _is_true(formats.get("auto.register.schemas"), "true"):
            schema_id = client.register_schema(subject, schema)
        else:
            schema_id = client.lookup_schema(subject, schema).id
        return _encoding(part, kind, schema_id, _with_references(client, schema), message, is_derived=True)
    except (RegistryClientError, InvalidSchema) as error:
        raise OptionError(f"The schema of {subject} cannot be registered or found: {error}") from error


def _is_true(given: str | None, default: str) -> bool:
    return (given or default).strip().lower() == "true"


def _with_references(client: RegistryClient, schema: Schema) -> References:
    from ottla.clients.serializers.base import with_references

    return with_references(client, schema)


def _latest(
    options: SinkOptions, part: str, kind: DataType, subject: str, client: RegistryClient, wanted: SchemaType | None
) -> Encoding:
    latest = client.get_latest_version(subject)
    check_type(latest.schema, subject, wanted, part)
    references = _with_references(client, latest.schema)
    message = ""
    if latest.schema.type is SchemaType.PROTOBUF:
        message = message_name(part, options.formats, references)
    return _encoding(part, kind, latest.id, references, message, is_derived=False)


def _given(
    options: SinkOptions, part: str, kind: DataType, client: RegistryClient, wanted: SchemaType
) -> tuple[Schema, str]:
    """Return the schema that options or columns give, and the full name of its message, if it is Protobuf."""
    formats = options.formats
    if wanted is SchemaType.AVRO:
        return Schema(wanted, written_schema(part, formats, kind, nullable=False)), ""
    if wanted is SchemaType.JSON:
        return Schema(wanted, json_schema(kind)), ""
    if f"{part}.protobuf.descriptors" not in formats:
        text, message = protobuf_file(kind)
        return Schema(wanted, text), message
    from ottla.clients.serializers.protobuf import ProtobufSerializer

    made = given_class(part, formats)
    config = {name: formats[name] for name in ("auto.register.schemas",) if name in formats}
    return ProtobufSerializer(made, client, config=config).schema_of_file(
        made.DESCRIPTOR.file
    ), made.DESCRIPTOR.full_name


def _encoding(
    part: str, kind: DataType, schema_id: int, references: References, message: str, *, is_derived: bool
) -> Encoding:
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    schema = references.schema
    if schema.type is SchemaType.AVRO:
        others = tuple(each.text for each in references.referenced.values())
        written_schema(part, {f"{part}.avro.schema": schema.text}, kind, nullable=False, referenced=others)
        return Encoding(part, "avro", schema=schema.text, referenced=others, prefix=prefix)
    if schema.type is SchemaType.JSON:
        _check_json(part, kind, references)
        return Encoding(part, "json", prefix=prefix, check="" if is_derived else as_text(references))
    from ottla.clients.serializers.protobuf import parsed, path_of

    found = parsed(references)
    message_class = found.message_class(message)
    check_columns(part, message_class, kind)
    path = path_of(found.message_indexes(message))
    return Encoding(part, "protobuf", message=message, descriptors=descriptors_of(message_class), prefix=prefix + path)


def _check_json(part: str, kind: DataType, references: References) -> None:
    """Raise OptionError for columns that a closed JSON Schema does not have."""
    schema = json.loads(references.schema.text)
    if not isinstance(schema, dict) or schema.get("additionalProperties") is not False:
        return
    names: list[str] = getattr(kind, "fieldNames", list)()
    odd = [name for name in names if name not in (schema.get("properties") or {})]
    if odd:
        raise OptionError(f"The schema of the {part} in the registry has no property {odd[0]!r}, and permits no others")

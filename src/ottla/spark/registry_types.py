"""The types of columns whose values have a schema in a registry."""

from __future__ import annotations

from pyspark.sql.types import DataType

from ottla.schemas.model import InvalidSchema, SchemaType
from ottla.serde.avro_schema import AvroSchemaError, parse
from ottla.spark.avro_values import sql_type
from ottla.spark.ddl import data_type, nullable
from ottla.spark.names import OptionError
from ottla.spark.options import SourceOptions
from ottla.spark.protobuf_messages import message_plan
from ottla.spark.protobuf_values import plan_type
from ottla.spark.registry import message_name, reader_of


def registry_type(part: str, options: SourceOptions, *, permissive: bool) -> DataType:
    """Return the type of a column of values with schemas in a registry. Raises OptionError.

    Fields in Avro are nullable as their schema says, or all with `permissive`. The others are always nullable.
    """
    found = reader_of(part, options.formats)
    if found.schema.type is SchemaType.PROTOBUF:
        from ottla.clients.serializers.protobuf import parsed

        name = message_name(part, options.formats, found)
        try:
            return plan_type(message_plan(parsed(found).message_class(name).DESCRIPTOR))
        except InvalidSchema as error:
            raise OptionError(f"The schema of the {part} in the registry: {error}") from error
    if found.schema.type is SchemaType.JSON:
        from ottla.clients.serializers.json_columns import layout
        from ottla.clients.serializers.registry_columns import NoColumnType

        try:
            return plan_type(layout(found))
        except NoColumnType as error:
            raise OptionError(f"The schema of the {part} in the registry: {error}") from None
    try:
        kind, _ = sql_type(parse(found.schema.text, [each.text for each in found.referenced.values()]))
    except AvroSchemaError as error:
        raise OptionError(f"The schema of the {part} in the registry {error}") from None
    return data_type(nullable(kind.jsonValue())) if permissive else kind

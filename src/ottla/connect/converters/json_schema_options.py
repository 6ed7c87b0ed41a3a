"""The settings of JsonSchemaConverter that decide what is read and written, and the names of its schemas."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.connect.data import Schema

NAMESPACE: Final = "io.confluent.connect.json"
ENUM: Final = f"{NAMESPACE}.Enum"
UNION: Final = f"{NAMESPACE}.OneOf"
GENERALIZED_ENUM: Final = "org.apache.kafka.connect.data.Enum"
GENERALIZED_UNION: Final = "org.apache.kafka.connect.data.Union"


class JsonSchemaOptions(NamedTuple):
    """The settings of JsonSchemaConverter by their names, with underscores, and their defaults."""

    decimal_format: str = "BASE64"
    object_additional_properties: bool = True
    use_optional_for_nonrequired: bool = False
    generalized_sum_type_support: bool = False
    ignore_default_for_nullables: bool = False
    flatten_singleton_unions: bool = True
    ignore_modern_dialects: bool = False

    def enum_parameter(self) -> str:
        """The parameter of an enum, and the beginning of those with its values."""
        return GENERALIZED_ENUM if self.generalized_sum_type_support else ENUM


def is_union(schema: Schema) -> bool:
    """Whether a STRUCT is a oneOf."""
    return schema.name == UNION or GENERALIZED_UNION in schema.parameters

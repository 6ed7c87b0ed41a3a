"""Connect's data: schemas, and values in Python's own types.

| schema type | Python value |
|---|---|
| INT8, INT16, INT32, INT64 | int |
| FLOAT32, FLOAT64 | float |
| BOOLEAN, STRING, BYTES | bool, str, bytes |
| ARRAY, MAP | list, dict |
| STRUCT | dict by the name of the field; an absent field is None |
| DECIMAL, DATE, TIME, TIMESTAMP (by name) | Decimal; date; time; datetime in UTC |

A value without a schema is what JSON has: None, bool, int, float, str, list, dict; or bytes. Source: the package
org.apache.kafka.connect.data of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final


class Type(StrEnum):
    """The type of a value; the texts are Connect's."""

    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FLOAT32 = "FLOAT32"
    FLOAT64 = "FLOAT64"
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    BYTES = "BYTES"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"


NO_DEFAULT: Final = object()
"""The default of a schema that has none; None is a default, too."""


@dataclass(frozen=True, eq=False)
class Schema:
    """The type of a value. Compare with `==` by contents; converters cache by identity, so reuse schema objects."""

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Any = NO_DEFAULT
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    """The fields of a STRUCT, in order."""
    key_schema: Schema | None = None
    """The type of a MAP's keys."""
    value_schema: Schema | None = None
    """The type of an ARRAY's or a MAP's values."""

    @cached_property
    def fields_by_name(self) -> Mapping[str, Field]:
        """The fields of a STRUCT."""
        return {each.name: each for each in self.fields}

    @property
    def has_default(self) -> bool:
        """Whether an absent value means the default."""
        return self.default is not NO_DEFAULT

    def as_optional(self) -> Schema:
        """Return this schema for a value that may be None."""
        return self if self.optional else replace(self, optional=True)

    @cached_property
    def _contents(self) -> tuple[object, ...]:
        default = None if self.default is NO_DEFAULT else (self.default,)
        parameters = tuple(sorted(self.parameters.items()))
        return (
            self.type,
            self.optional,
            self.name,
            self.version,
            self.doc,
            repr(default),
            parameters,
            self.fields,
            self.key_schema,
            self.value_schema,
        )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Schema) and self._contents == other._contents)

    @cached_property
    def _hash(self) -> int:
        return hash(self._contents)

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a STRUCT."""

    name: str
    schema: Schema


DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"

INT8, OPTIONAL_INT8 = Schema(Type.INT8), Schema(Type.INT8, optional=True)
INT16, OPTIONAL_INT16 = Schema(Type.INT16), Schema(Type.INT16, optional=True)
INT32, OPTIONAL_INT32 = Schema(Type.INT32), Schema(Type.INT32, optional=True)
INT64, OPTIONAL_INT64 = Schema(Type.INT64), Schema(Type.INT64, optional=True)
FLOAT32, OPTIONAL_FLOAT32 = Schema(Type.FLOAT32), Schema(Type.FLOAT32, optional=True)
FLOAT64, OPTIONAL_FLOAT64 = Schema(Type.FLOAT64), Schema(Type.FLOAT64, optional=True)
BOOLEAN, OPTIONAL_BOOLEAN = Schema(Type.BOOLEAN), Schema(Type.BOOLEAN, optional=True)
STRING, OPTIONAL_STRING = Schema(Type.STRING), Schema(Type.STRING, optional=True)
BYTES, OPTIONAL_BYTES = Schema(Type.BYTES), Schema(Type.BYTES, optional=True)


def struct(
    fields: Mapping[str, Schema] | Sequence[Field], name: str | None = None, *, optional: bool = False
) -> Schema:
    """Return the schema of a STRUCT."""
    if isinstance(fields, Mapping):
        fields = [Field(each, schema) for each, schema in fields.items()]
    return Schema(Type.STRUCT, optional=optional, name=name, fields=tuple(fields))


def array(items: Schema, *, optional: bool = False) -> Schema:
    """Return the schema of an ARRAY."""
    return Schema(Type.ARRAY, optional=optional, value_schema=items)


def mapping(keys: Schema, values: Schema, *, optional: bool = False) -> Schema:
    """Return the schema of a MAP."""
    return Schema(Type.MAP, optional=optional, key_schema=keys, value_schema=values)


def decimal(scale: int, *, optional: bool = False) -> Schema:
    """Return the schema of a Decimal with digits after the point."""
    return Schema(Type.BYTES, optional=optional, name=DECIMAL, version=1, parameters={"scale": str(scale)})


def date(*, optional: bool = False) -> Schema:
    """Return the schema of a date."""
    return Schema(Type.INT32, optional=optional, name=DATE, version=1)


def time_of_day(*, optional: bool = False) -> Schema:
    """Return the schema of a time of the day, in milliseconds."""
    return Schema(Type.INT32, optional=optional, name=TIME, version=1)


def timestamp(*, optional: bool = False) -> Schema:
    """Return the schema of a point in time, in milliseconds."""
    return Schema(Type.INT64, optional=optional, name=TIMESTAMP, version=1)

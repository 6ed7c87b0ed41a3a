"""The parts that most transformations share.

Most transformations exist twice, as `NAME$Key` and `NAME$Value`; `Part` reads and replaces that part of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from ottla.connect.config.definition import Importance, Setting, SettingType
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.records import ConnectRecord
from ottla.connect.transforms.api import R, Transformation

T = TypeVar("T")

_MOST_CACHED: Final = 64

REPLACE_NULL: Final = Setting(
    "replace.null.with.default",
    SettingType.BOOLEAN,
    "Whether a field that is null counts as its default value, if its schema has one.",
    default=True,
    importance=Importance.MEDIUM,
)


class Part(Enum):
    """The part of a record that a transformation works on."""

    KEY = "key"
    VALUE = "value"

    def schema_of(self, record: ConnectRecord) -> Schema | None:
        """Return the schema of this part."""
        return record.key_schema if self is Part.KEY else record.value_schema

    def value_of(self, record: ConnectRecord) -> Any:
        """Return the contents of this part."""
        return record.key if self is Part.KEY else record.value

    def replaced(self, record: R, schema: Schema | None, value: Any) -> R:
        """Return the record with another schema and contents of this part."""
        if self is Part.KEY:
            return replace(record, key_schema=schema, key=value)
        return replace(record, value_schema=schema, value=value)


class PartTransformation(Transformation):
    """A transformation of the key or of the value. Each subclass gets two of its own, `Key` and `Value`."""

    part: ClassVar[Part]
    Key: ClassVar[type[PartTransformation]]
    Value: ClassVar[type[PartTransformation]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "part" not in cls.__dict__:
            cls.Key = type("Key", (cls,), {"part": Part.KEY, "__doc__": cls.__doc__})
            cls.Value = type("Value", (cls,), {"part": Part.VALUE, "__doc__": cls.__doc__})


class SchemaCache(Generic[T]):
    """Remembers what was built from a schema, so that the records of one schema share one object."""

    def __init__(self, build: Callable[[Schema], T]) -> None:
        self._build = build
        self._built: dict[Schema, T] = {}

    def __call__(self, schema: Schema) -> T:
        """Return what was built from a schema."""
        found = self._built.get(schema)
        if found is None:
            if len(self._built) >= _MOST_CACHED:
                self._built.clear()
            found = self._built[schema] = self._build(schema)
        return found


def java_type(value: Any) -> str:
    """Return the name that Java's messages have for the type of a value."""
    names = {bool: "java.lang.Boolean", str: "java.lang.String", dict: "java.util.Map", list: "java.util.List"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def required_map(value: Any, purpose: str) -> Mapping[str, Any]:
    """Return a value without schema that must be a map."""
    if not isinstance(value, dict):
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {java_type(value)}")
    return value


def required_struct(schema: Schema, value: Any, purpose: str) -> Mapping[str, Any]:
    """Return a value with a schema that must be a struct."""
    if schema.type is not Type.STRUCT or not isinstance(value, dict):
        found = java_type(value) if value is None or schema.type is Type.STRUCT else schema.type
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {found}")
    return value


def field_value(schema: Schema, value: Mapping[str, Any], name: str, *, with_default: bool) -> Any:
    """Return a field of a struct, or its default if it is null."""
    found = value.get(name)
    if found is None and with_default and name in schema.fields_by_name:
        field = schema.fields_by_name[name].schema
        if field.has_default:
            return field.default
    return found

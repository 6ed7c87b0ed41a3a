"""The transformation Flatten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ottla.connect.config.definition import ConfigDef, Setting, SettingType
from ottla.connect.data import NO_DEFAULT, Field, Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.transforms.api import R
from ottla.connect.transforms.base import PartTransformation, SchemaCache, required_map, required_struct


class Flatten(PartTransformation):
    """Replace nested structs and maps by fields whose names are joined."""

    config_def: ClassVar = ConfigDef(
        [Setting("delimiter", SettingType.STRING, "The text between the joined names.", ".")]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._delimiter: str = self.config_def.parse(config)["delimiter"]
        self._schema = SchemaCache(self._built)

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        if value is None:
            return record
        flat: dict[str, Any] = {}
        if schema is None:
            self._add_map(required_map(value, "flattening"), "", flat)
            return self.part.replaced(record, None, flat)
        given = required_struct(schema, value, "flattening")
        built = self._schema(schema)
        self._add_struct(schema, given, "", flat)
        return self.part.replaced(record, built, flat)

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _add_map(self, value: Mapping[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for name, each in value.items():
            joined = self._name(prefix, name)
            if isinstance(each, dict):
                self._add_map(each, joined, flat)
            else:
                flat[joined] = each

    def _add_struct(self, schema: Schema, value: Mapping[str, Any] | None, prefix: str, flat: dict[str, Any]) -> None:
        for field in schema.fields:
            joined = self._name(prefix, field.name)
            each = None if value is None else value.get(field.name)
            if each is None and value is not None and field.schema.has_default:
                each = field.schema.default
            if field.schema.type is Type.STRUCT:
                if each is not None:
                    self._add_struct(field.schema, each, joined, flat)
            else:
                flat[joined] = each

    def _built(self, schema: Schema) -> Schema:
        fields: list[Field] = []
        default = schema.default if schema.has_default else None
        self._add_fields(schema, "", fields, optional=schema.optional, default=default)
        return replace(schema, optional=False, default=NO_DEFAULT, fields=tuple(fields))

    def _add_fields(
        self, schema: Schema, prefix: str, fields: list[Field], *, optional: bool, default: Mapping[str, Any] | None
    ) -> None:
        for field in schema.fields:
            joined = self._name(prefix, field.name)
            is_optional = optional or field.schema.optional
            own = field.schema.default if field.schema.has_default else None
            if own is None and default is not None:
                own = default.get(field.name)
            if field.schema.type is Type.STRUCT:
                self._add_fields(field.schema, joined, fields, optional=is_optional, default=own)
            elif field.schema.type is Type.MAP:
                raise DataError(
                    f"Flatten transformation does not support {field.schema.type} for record with schemas "
                    f"(for field {joined})."
                )
            else:
                kept = NO_DEFAULT if own is None else own
                fields.append(Field(joined, replace(field.schema, optional=is_optional, default=kept)))

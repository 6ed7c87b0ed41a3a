"""Transformations of headers: DropHeaders, HeaderFrom, InsertHeader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingError, SettingType, one_of
from ottla.connect.converters.literals import parsed
from ottla.connect.data import Schema
from ottla.connect.errors import DataError
from ottla.connect.records import Header
from ottla.connect.transforms.api import R, Transformation
from ottla.connect.transforms.base import (
    REPLACE_NULL,
    PartTransformation,
    SchemaCache,
    field_value,
    required_map,
    required_struct,
)
from ottla.connect.transforms.fields import non_empty_list, values_of


class DropHeaders(Transformation):
    """Remove headers by name."""

    config_def: ClassVar = ConfigDef(
        [Setting("headers", SettingType.LIST, "The names to remove.", importance=Importance.HIGH,
                 validator=non_empty_list)]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        self._names = frozenset(self.config_def.parse(config)["headers"])

    def apply(self, record: R) -> R | None:
        return replace(record, headers=[each for each in record.headers if each.key not in self._names])


class HeaderFrom(PartTransformation):
    """Move or copy fields to headers."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("fields", SettingType.LIST, "The fields to move or to copy.", importance=Importance.HIGH,
                    validator=non_empty_list),
            Setting("headers", SettingType.LIST, "The names of the headers, in the order of the fields.",
                    importance=Importance.HIGH, validator=non_empty_list),
            Setting("operation", SettingType.STRING, "move: the fields are removed; copy: they stay.",
                    importance=Importance.HIGH, validator=one_of("move", "copy")),
            REPLACE_NULL,
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        if len(settings["fields"]) != len(settings["headers"]):
            raise SettingError("'fields' config must have the same number of elements as 'headers' config.")
        self._pairs: list[tuple[str, str]] = list(zip(settings["fields"], settings["headers"], strict=True))
        self._moves: bool = settings["operation"] == "move"
        self._with_default: bool = settings["replace.null.with.default"]
        self._names = frozenset(settings["fields"])
        self._schema = SchemaCache(self._built)

    def _built(self, schema: Schema) -> Schema:
        return replace(schema, fields=tuple(each for each in schema.fields if each.name not in self._names))

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        purpose = f"header {'MOVE' if self._moves else 'COPY'}"
        headers = list(record.headers)
        if schema is None:
            given = required_map(value, purpose)
            headers += [Header(header, given.get(field)) for field, header in self._pairs]
            kept = {name: each for name, each in given.items() if not self._moves or name not in self._names}
            return self.part.replaced(replace(record, headers=headers), None, kept)
        given = required_struct(schema, value, purpose)
        for field, header in self._pairs:
            if field not in schema.fields_by_name:
                raise DataError(f"Unknown field: {field}")
            found = field_value(schema, given, field, with_default=self._with_default)
            headers.append(Header(header, found, schema.fields_by_name[field].schema))
        record = replace(record, headers=headers)
        if not self._moves:
            return record
        built = self._schema(schema)
        return self.part.replaced(record, built, values_of(built, given, with_default=self._with_default))


class InsertHeader(Transformation):
    """Add a constant as a header."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("header", SettingType.STRING, "The name of the header.", importance=Importance.HIGH),
            Setting("value.literal", SettingType.STRING, "The constant.", importance=Importance.HIGH),
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        schema, value = parsed(settings["value.literal"])
        self._header = Header(settings["header"], value, schema)

    def apply(self, record: R) -> R | None:
        return replace(record, headers=[*record.headers, self._header])

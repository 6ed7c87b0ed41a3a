"""Confluent's JsonSchemaConverter: JSON values whose JSON Schemas are in a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from ottla.clients.serializers.base import InvalidValue, References
from ottla.clients.serializers.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer, checker
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, one_of
from ottla.connect.converters.api import SchemaAndValue
from ottla.connect.converters.json_decoder import has_decimals, loads
from ottla.connect.converters.json_encoder import dumps
from ottla.connect.converters.json_schema_options import JsonSchemaOptions
from ottla.connect.converters.json_schema_schemas import JsonSchemaReader, JsonSchemaWriter
from ottla.connect.converters.json_schema_values import ABSENT, decoder, encoder
from ottla.connect.converters.registry import REGISTRY_SETTINGS, RegistryConverter, Writing
from ottla.connect.errors import DataError

if TYPE_CHECKING:
    from ottla.connect.data import Schema

_VALIDATE: Final = "json.fail.invalid.schema"


class _Serializer(JsonSchemaSerializer):
    """Writes the bytes of values that are encoded already."""

    def __init__(self, text: str, options: JsonSchemaOptions, registry: Any, config: dict[str, str]) -> None:
        super().__init__(text, registry=registry, config=config)
        self._options = options

    def _encoder(self, references: References) -> Callable[[Any], bytes]:
        draft7 = self._options.ignore_modern_dialects
        check = checker(references, draft7=draft7) if self.settings.values["validate"] else None

        def encode(value: Any) -> bytes:
            try:
                text = dumps(value)
            except DataError as error:
                raise InvalidValue(str(error)) from error
            if check is not None:
                check(orjson.loads(text))
            return text

        return encode


class _Deserializer(JsonSchemaDeserializer):
    """Reads values with their Connect schema."""

    def __init__(self, options: JsonSchemaOptions, registry: Any, config: dict[str, str]) -> None:
        super().__init__(registry=registry, config=config)
        self._options = options

    def _decoder(self, writer: References, reader: References | None) -> Callable[[bytes, int], SchemaAndValue]:
        wanted = writer if reader is None else reader
        draft7 = self._options.ignore_modern_dialects
        check = checker(wanted, draft7=draft7) if self.settings.values["validate"] else None
        try:
            others = {name: json.loads(each.text) for name, each in wanted.referenced.items()}
            schema = JsonSchemaReader(json.loads(wanted.schema.text), others, self._options).read()
            convert = decoder(schema)
        except (DataError, ValueError, TypeError, RecursionError) as error:
            raise InvalidValue(f"the JSON Schema cannot be read: {error}") from error
        exact = has_decimals(schema)

        def decode(found: bytes, position: int) -> SchemaAndValue:
            body = found[position:]
            try:
                value = loads(body, exact=exact)
                if check is not None:
                    check(orjson.loads(body))
                return SchemaAndValue(schema, convert(value))
            except DataError as error:
                raise InvalidValue(str(error)) from error

        return decode


class JsonSchemaConverter(RegistryConverter):
    """Converts between Connect's data and JSON with schema ids."""

    version = "7.0.16"
    config_def = ConfigDef(
        [
            *REGISTRY_SETTINGS,
            Setting("decimal.format", SettingType.STRING, "Whether decimals are BASE64 or NUMERIC.", "BASE64",
                    validator=one_of("BASE64", "NUMERIC", ignore_case=True)),
            Setting("object.additional.properties", SettingType.BOOLEAN, "Whether objects may have other properties.",
                    True),
            Setting("use.optional.for.nonrequired", SettingType.BOOLEAN, "Whether other than required fields are null.",
                    False),
            Setting("generalized.sum.type.support", SettingType.BOOLEAN,
                    "Whether enums and unions have the parameters that all formats share.", False),
            Setting("ignore.default.for.nullables", SettingType.BOOLEAN,
                    "Whether a null stays null if the field has a default.", False),
            Setting("flatten.singleton.unions", SettingType.BOOLEAN, "Whether a union of one type is that type.", True,
                    Importance.LOW),
            Setting("ignore.modern.dialects", SettingType.BOOLEAN,
                    "Whether values are validated by draft 7, whatever draft the schema names.", False, Importance.LOW),
        ]
    )  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        "preserve.additional.properties": "properties that the schema does not name are not kept",
        "json.indent.output": "values are written without spaces",
        **RegistryConverter.refused,
    }

    def _read_settings(self, settings: Mapping[str, Any]) -> None:
        made = JsonSchemaOptions(*(settings[name.replace("_", ".")] for name in JsonSchemaOptions._fields))
        self._format = made._replace(decimal_format=made.decimal_format.upper())

    def _deserializer(self, options: dict[str, str]) -> _Deserializer:
        # As by Confluent's, values are validated only if the setting says so.
        return _Deserializer(self._format, self._registry, {_VALIDATE: "false", **options})

    def _writing(self, schema: Schema) -> Writing:
        text = json.dumps(JsonSchemaWriter(self._format).written(schema), separators=(",", ":"), ensure_ascii=False)
        convert = encoder(schema, self._format)

        def encode(value: Any) -> Any:
            found = convert(value)
            return None if found is ABSENT else found

        config = {_VALIDATE: "false", **self._options}
        return Writing(encode, _Serializer(text, self._format, self._registry, config))

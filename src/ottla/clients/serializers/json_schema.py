"""JSON values whose JSON Schema is in a registry, validated by `jsonschema_rs` (`validate=false` omits that).

References are taken from the registry alone: the validator never opens an address.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.clients.serializers import late
from ottla.clients.serializers.base import InvalidValue, References, RegistryDeserializer, RegistrySerializer
from ottla.schemas.model import Schema, SchemaType

if TYPE_CHECKING:
    from ottla.clients.serializers.registry_columns import RegistryColumns

try:
    import jsonschema_rs
except ImportError as error:
    raise ImportError(
        "JSON Schema serializers need jsonschema-rs: pip install 'ottla[registry]'", name="jsonschema_rs"
    ) from error


class JsonSchemaSerializer(RegistrySerializer):
    __doc__ = RegistrySerializer.__doc__

    type = SchemaType.JSON

    def _record_name(self, schema: Schema) -> str | None:
        return title(schema)

    def _encoder(self, references: References) -> Callable[[Any], bytes]:
        check = checker(references) if self.settings.values["validate"] else None

        def encode(value: Any) -> bytes:
            try:
                text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
                if check is not None:
                    check(value)
                return text.encode()
            except (TypeError, RecursionError, jsonschema_rs.ReferencingError) as error:
                raise InvalidValue(str(error)) from error

        return encode


class JsonSchemaDeserializer(RegistryDeserializer):
    __doc__ = RegistryDeserializer.__doc__

    type = SchemaType.JSON

    def _record_name(self, schema: Schema) -> str | None:
        return title(schema)

    def columns(self) -> RegistryColumns:
        """Return a decoder of whole Arrow columns with these settings, for this part of the records."""
        reader = None if self.reader_schema is None else self._with_references(self.reader_schema)
        made = late.JsonColumns(self.settings, reader)
        made.bind(self.part, deferring=self.is_deferring)
        return made

    def _decoder(self, writer: References, reader: References | None) -> Callable[[bytes, int], Any]:
        check = checker(writer if reader is None else reader) if self.settings.values["validate"] else None

        def decode(data: bytes, position: int) -> Any:
            try:
                value = json.loads(data[position:])
            except (ValueError, RecursionError) as error:
                raise InvalidValue(f"it is not JSON: {error}") from error
            if check is not None:
                check(value)
            return value

        return decode


def title(schema: Schema) -> str | None:
    """Return the title of a JSON Schema, which Confluent's record strategies use."""
    found = json.loads(schema.text)
    return found.get("title") if isinstance(found, dict) else None


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not a reference of the schema, and no other address is opened")


def checker(references: References, *, draft7: bool = False) -> Callable[[Any], None]:
    """Return a function that raises InvalidValue for a value that is not valid; `draft7` ignores `$schema`."""
    make = jsonschema_rs.Draft7Validator if draft7 else jsonschema_rs.validator_for
    try:
        others = [(name, json.loads(each.text)) for name, each in references.referenced.items()]
        validator = make(
            json.loads(references.schema.text),
            registry=jsonschema_rs.Registry(others) if others else None,
            retriever=_refuse,
        )
    except (ValueError, TypeError) as error:
        raise InvalidValue(f"the JSON Schema is invalid: {error}") from error

    def check(value: Any) -> None:
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            field = ".".join(str(part) for part in error.instance_path)
            place = f"its field {field!r}" if field else "it"
            raise InvalidValue(f"{place} is not valid: {error.message}", field) from error

    return check

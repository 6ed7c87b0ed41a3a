"""Avro values of a registry. Single values use fastavro, which decodes one about ten times as fast as the column
kernels of `ottla.serde`; those decode whole columns about ten times as fast as fastavro (`consumer.registry_columns`).
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.serializers import late
from ottla.clients.serializers.base import InvalidValue, References, RegistryDeserializer, RegistrySerializer
from ottla.clients.serializers.subjects import avro_record_name
from ottla.schemas.model import Schema, SchemaType

if TYPE_CHECKING:
    from ottla.clients.serializers.registry_columns import RegistryColumns

try:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType
    from fastavro.validation import ValidationError
    from fastavro.validation import validate as find_problem
except ImportError as error:
    raise ImportError("Avro serializers need fastavro: pip install 'ottla[registry]'", name="fastavro") from error

UNREADABLE: Final = (
    EOFError, IndexError, ValueError, KeyError, TypeError, OverflowError, StopIteration, struct.error, MemoryError,
    fastavro.read.SchemaResolutionError,
)  # fmt: skip
_UNWRITABLE: Final = (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, struct.error)


class AvroSerializer(RegistrySerializer):
    __doc__ = RegistrySerializer.__doc__

    type = SchemaType.AVRO

    def _record_name(self, schema: Schema) -> str | None:
        return avro_record_name(schema)

    def _encoder(self, references: References) -> Callable[[Any], bytes]:
        schema = parsed(references)
        write = fastavro.schemaless_writer

        def encode(value: Any) -> bytes:
            out = io.BytesIO()
            try:
                write(out, schema, value)
            except _UNWRITABLE as error:
                raise _unwritable(value, schema, error) from error
            return out.getvalue()

        return encode


class AvroDeserializer(RegistryDeserializer):
    __doc__ = RegistryDeserializer.__doc__

    type = SchemaType.AVRO

    def _record_name(self, schema: Schema) -> str | None:
        return avro_record_name(schema)

    def columns(self) -> RegistryColumns:
        """Return a decoder of whole Arrow columns with these settings, for this part of the records."""
        reader = None if self.reader_schema is None else self._with_references(self.reader_schema)
        made = late.AvroColumns(self.settings, reader)
        made.bind(self.part, deferring=self.is_deferring)
        return made

    def _decoder(self, writer: References, reader: References | None) -> Callable[[bytes, int], Any]:
        written = parsed(writer)
        wanted = None if reader is None or reader == writer else parsed(reader)
        read = fastavro.schemaless_reader

        def decode(data: bytes, position: int) -> Any:
            source = io.BytesIO(data)
            source.seek(position)
            try:
                return read(source, written, wanted)
            except UNREADABLE as error:
                what = "it ends before its value does" if isinstance(error, (EOFError, IndexError)) else str(error)
                raise InvalidValue(what or type(error).__name__) from error

        return decode


def parsed(references: References) -> Any:
    """Parse a schema with fastavro. Raises InvalidValue for an invalid schema."""
    return parsed_with_names(references)[0]


def parsed_with_names(references: References) -> tuple[Any, dict[str, Any]]:
    """Return the parsed schema, and the named types that it defines or refers to. Raises InvalidValue."""
    named: dict[str, Any] = {}
    try:
        for each in references.referenced.values():
            fastavro.parse_schema(json.loads(each.text), named_schemas=named)
        return fastavro.parse_schema(json.loads(references.schema.text), named_schemas=named), named
    except (SchemaParseException, UnknownType, ValueError) as error:
        raise InvalidValue(f"the Avro schema is invalid: {error!r}") from error


def _unwritable(value: Any, schema: Any, error: Exception) -> InvalidValue:
    """Return the error of a value that fastavro does not write, with the field that does not fit."""
    try:
        find_problem(value, schema, raise_errors=True)
    except ValidationError as found:
        first = found.errors[0]
        shown = repr(first.datum)
        shown = shown if len(shown) <= 100 else f"{shown[:100]}..."
        field = str(first.field or "").rpartition(".")[2]
        kind = first.schema if isinstance(first.schema, str) else json.dumps(first.schema, default=str)[:200]
        place = f"its field {field!r}" if field else "it"
        return InvalidValue(f"{place} is {shown}, which is not {kind}", field)
    return InvalidValue(str(error) or type(error).__name__)

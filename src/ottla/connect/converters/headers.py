"""SimpleHeaderConverter (KIP-145): headers as text. Reading infers the type from the text."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, date, datetime, time
from typing import Any

from ottla.connect.converters.api import HeaderConverter, SchemaAndValue
from ottla.connect.converters.java_text import scalar_text
from ottla.connect.converters.literals import parsed
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError


class SimpleHeaderConverter(HeaderConverter):
    """Values of headers as text."""

    def from_header(self, topic: str, name: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text of a value. Raises DataError for a type that has none."""
        del topic
        if value is None:
            return None
        try:
            return value_text(value, schema, is_inner=False).encode()
        except (DataError, UnicodeEncodeError) as error:
            raise DataError(f"The header {name} has no text: {error}") from error

    def to_header(self, topic: str, name: str, data_: bytes | None) -> SchemaAndValue:
        """Return the value of a text."""
        del topic, name
        if data_ is None:
            return SchemaAndValue(None, None)
        return SchemaAndValue(*parsed(data_.decode(errors="replace")))


def value_text(value: Any, schema: Schema | None = None, *, is_inner: bool = True) -> str:
    """Return a value as Values.convertToString writes it: strings in arrays, maps and structs have quotes.

    One difference: a date or a time is written by its type. Java writes all before 1970-01-02 as times, and midnights
    as dates.
    """
    scalar = scalar_text(value, schema)
    if scalar is not None:
        return scalar
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else b64encode(value).decode()
        return _quoted(text) if is_inner else text
    if isinstance(value, (list, tuple)):
        inner = schema.value_schema if schema is not None else None
        return f"[{','.join(value_text(each, inner) for each in value)}]"
    if isinstance(value, dict):
        return _map_text(value, schema)
    return _time_text(value)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _map_text(value: dict[Any, Any], schema: Schema | None) -> str:
    if schema is not None and schema.type is Type.STRUCT:
        rows = [(each.name, value.get(each.name), each.schema) for each in schema.fields]
        return f"{{{','.join(f'{_quoted(name)}:{value_text(item, inner)}' for name, item, inner in rows)}}}"
    keys, values = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
    return f"{{{','.join(f'{value_text(key, keys)}:{value_text(item, values)}' for key, item in value.items())}}}"


def _time_text(value: Any) -> str:
    if isinstance(value, datetime):
        in_utc = value.astimezone(UTC) if value.tzinfo is not None else value
        return f"{in_utc:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time):
        return f"{value:%H:%M:%S}.{value.microsecond // 1000:03}Z"
    raise DataError(f"Failed to serialize unexpected value type {type(value).__name__}")

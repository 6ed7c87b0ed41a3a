"""Avro values as JSON for people, and back.

Bytes are strings whose characters are the bytes, as in Avro's JSON encoding. Times and dates are ISO 8601, decimals
are strings. A union has no tag; in JSON to be encoded, Avro's tagged form `{"string": "x"}` is accepted, too.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any


def to_json(value: Any) -> str:
    """Return a decoded value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("latin-1")
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    return str(value)  # decimals, UUIDs, durations


class FromJson:
    """Converts JSON values to the Python values of a schema as fastavro parsed it; `named` are its named types."""

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._schema = schema
        self._named = named

    def __call__(self, value: Any) -> Any:
        """Raises ValueError with the field for a value that does not fit."""
        return self._convert(self._schema, value, "")

    def _convert(self, schema: Any, value: Any, path: str) -> Any:
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            return self._union(schema, value, path)
        if not isinstance(schema, dict):
            return _primitive(schema, None, value, path)
        kind = schema["type"]
        if kind == "record":
            return self._record(schema, value, path)
        if kind == "array" and isinstance(value, list):
            return [self._convert(schema["items"], each, f"{path}[]") for each in value]
        if kind == "map" and isinstance(value, dict):
            return {key: self._convert(schema["values"], each, f"{path}{{}}") for key, each in value.items()}
        if kind == "enum" and isinstance(value, str) and value in schema["symbols"]:
            return value
        if kind in ("array", "map", "enum"):
            raise _mismatch(kind, value, path)
        return _primitive(kind, schema.get("logicalType"), value, path)

    def _record(self, schema: Any, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(f"record {schema['name']}", value, path)
        fields = {each["name"]: each for each in schema["fields"]}
        unknown = value.keys() - fields.keys()
        if unknown:
            raise ValueError(f"the schema has no field {_below(path, min(unknown))!r}")
        missing = [name for name, each in fields.items() if name not in value and "default" not in each]
        if missing:
            raise ValueError(f"the field {_below(path, missing[0])!r} is missing and has no default")
        return {name: self._convert(fields[name]["type"], each, _below(path, name)) for name, each in value.items()}

    def _union(self, branches: list[Any], value: Any, path: str) -> Any:
        if isinstance(value, dict) and len(value) == 1:
            tag, inner = next(iter(value.items()))
            for each in branches:
                if _tag(each) == tag:
                    return self._convert(each, inner, path)
        for each in branches:
            try:
                return self._convert(each, value, path)
            except ValueError:
                continue
        raise _mismatch(" or ".join(str(_tag(each)) for each in branches), value, path)


def _primitive(kind: str, logical: str | None, value: Any, path: str) -> Any:
    fits = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "int": type(value) is int,
        "long": type(value) is int,
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
        "double": isinstance(value, (int, float)) and not isinstance(value, bool),
    }.get(kind, isinstance(value, str))
    try:
        if logical is not None and isinstance(value, (str, int, float)):
            found = _logical(logical, value)
            if found is not None:
                return found
        if fits:
            return value.encode("latin-1") if kind in ("bytes", "fixed") else value
    except (ValueError, InvalidOperation) as error:
        raise ValueError(f"{_place(path)} is {value!r}, which is not {logical or kind}: {error}") from error
    raise _mismatch(kind, value, path)


def _logical(logical: str, value: Any) -> Any:
    """Return the value of a logical type; None if the underlying type is to be used."""
    if logical == "decimal":
        return Decimal(str(value))
    if not isinstance(value, str):
        return None
    if logical in ("timestamp-millis", "timestamp-micros"):
        found = dt.datetime.fromisoformat(value)
        return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
    if logical in ("local-timestamp-millis", "local-timestamp-micros"):
        return dt.datetime.fromisoformat(value)
    if logical == "date":
        return dt.date.fromisoformat(value)
    if logical in ("time-millis", "time-micros"):
        return dt.time.fromisoformat(value)
    return uuid.UUID(value) if logical == "uuid" else None


def _tag(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return str(schema.get("name", schema["type"])) if isinstance(schema, dict) else "union"


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _place(path: str) -> str:
    return f"the field {path!r}" if path else "the value"


def _mismatch(kind: str, value: Any, path: str) -> ValueError:
    shown = repr(value)
    return ValueError(f"{_place(path)} is {shown[:100]}, which is not {kind}")

"""Checks whole records against their schema: one class for each type of schema.

A check returns what is wrong as the end of a sentence about the field. It checks some rows of a batch at a time, so
that the event loop serves other clients in between.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.schemas.model import InvalidSchema, SchemaType
from ottla.schemas.protobuf.schema import parse_protobuf
from ottla.serde.avro_checks import AvroCheck
from ottla.serde.avro_schema import AvroSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.records.framed_fields import FramedFields
    from ottla.schemas.model import Schema

Problems = list[tuple[int, str]]
References = tuple[tuple[str, "Schema"], ...]

_LONGEST_REASON: Final = 300


class UnreadableSchema(Exception):
    """Records of the schema cannot be checked; the message says why."""


class Check(Protocol):
    """Checks the records of one schema."""

    rows_at_once: int
    """Rows that take about a millisecond."""

    def check(self, fields: FramedFields, schema_id: int, rows: range) -> Problems:
        """Return row and problem of each invalid field with this id among `rows`, whose step is 1."""
        ...


def create_check(schema: Schema, referenced: References) -> Check:
    """Return the check of a schema, whose references are in `referenced`. Raises UnreadableSchema."""
    try:
        if schema.type is SchemaType.AVRO:
            return AvroRecords(schema.text, [each.text for _, each in referenced])
        if schema.type is SchemaType.JSON:
            return JsonRecords(schema.text, [(name, each.text) for name, each in referenced])
        return ProtobufRecords(schema, dict(referenced))
    except ModuleNotFoundError as error:
        raise UnreadableSchema(f"the package {error.name} is missing: pip install 'ottla[registry]'") from error


def record_name(schema: Schema) -> str | None:
    """Return the name of a schema's records, as the subject strategies of Confluent's serializers use it."""
    if schema.type is SchemaType.AVRO:
        return _avro_name(schema.text)
    if schema.type is SchemaType.JSON:
        return _json_title(schema.text)
    return _first_message(schema)


def _avro_name(text: str) -> str | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("type") not in ("record", "error"):
        return None
    name, namespace = str(found.get("name")), found.get("namespace")
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _json_title(text: str) -> str | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    title = found.get("title") if isinstance(found, dict) else None
    return title if isinstance(title, str) else None


def _first_message(schema: Schema) -> str | None:
    try:
        return parse_protobuf(schema, {}, is_new=False).message_name([0])
    except InvalidSchema:
        return None


class AvroRecords:
    """Values in Avro's binary encoding."""

    rows_at_once = 2_000

    def __init__(self, text: str, referenced: Iterable[str]) -> None:
        try:
            self._check = AvroCheck(text, referenced)
        except AvroSchemaError as error:
            raise UnreadableSchema(str(error)) from error

    def check(self, fields: FramedFields, schema_id: int, rows: range) -> Problems:
        """See `Check`."""
        bad = self._check.check(fields.data, fields.places, schema_id, rows)
        return [(row, f"field {path!r} {reason}" if path else reason) for row, path, reason in bad]


class JsonRecords:
    """Values in JSON."""

    rows_at_once = 50

    def __init__(self, text: str, referenced: Sequence[tuple[str, str]]) -> None:
        import jsonschema_rs  # noqa: PLC0415 - few brokers need it, and it is part of an extra

        try:
            resources = [(_URI_BASE + name, json.loads(each)) for name, each in referenced]
            registry = jsonschema_rs.Registry(resources) if resources else None
            # Offline: a schema must not make the broker read other addresses or files.
            self._validator = jsonschema_rs.validator_for(
                json.loads(text), registry=registry, base_uri=_URI_BASE + "value.json", offline=True
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise UnreadableSchema(str(error)) from error

    def check(self, fields: FramedFields, schema_id: int, rows: range) -> Problems:
        """See `Check`."""
        problems = []
        for row in fields.rows_with(schema_id, rows):
            try:
                value = json.loads(bytes(fields.field(row)))
            except (ValueError, RecursionError) as error:
                problems.append((row, f"is not JSON: {error}"))
                continue
            if not self._validator.is_valid(value):
                problems.append((row, self._explain(value)))
        return problems

    def _explain(self, value: Any) -> str:
        error = next(iter(self._validator.iter_errors(value)))
        place = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.instance_path)
        reason = error.message if len(error.message) <= _LONGEST_REASON else f"{error.message[:_LONGEST_REASON]}..."
        return f"field {place.removeprefix('.')!r} is invalid: {reason}" if place else f"is invalid: {reason}"


class ProtobufRecords:
    """Messages after the path of their type: the position in the file, and in each message around it."""

    rows_at_once = 200

    def __init__(self, schema: Schema, referenced: Mapping[str, Schema]) -> None:
        from google.protobuf.message import (  # type: ignore[import-untyped,unused-ignore]
            DecodeError,
        )

        self._error = DecodeError
        self._classes: dict[tuple[int, ...], Any] = {}
        try:
            self._schema = parse_protobuf(schema, referenced, is_new=False)
            self._class_at((0,))
        except InvalidSchema as error:
            raise UnreadableSchema(str(error)) from error

    def check(self, fields: FramedFields, schema_id: int, rows: range) -> Problems:
        """See `Check`."""
        found = ((row, self._problem(bytes(fields.field(row)))) for row in fields.rows_with(schema_id, rows))
        return [(row, problem) for row, problem in found if problem is not None]

    def _problem(self, data: bytes) -> str | None:
        try:
            path, start = _message_path(data)
            message_class = self._class_at(path)
            message = message_class.FromString(data[start:])
        except (InvalidSchema, ValueError) as error:
            return f"has no valid type of message: {error}"
        except self._error as error:
            return f"is not a message {self._schema.message_name(path)}: {error}"
        if not message.IsInitialized():
            return f"lacks required fields: {', '.join(message.FindInitializationErrors())}"
        return None

    def _class_at(self, path: tuple[int, ...]) -> Any:
        found = self._classes.get(path)
        if found is None:
            found = self._classes[path] = self._schema.message_class(self._schema.message_name(path))
        return found


def _message_path(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path of a message's type and the position of the message. Raises ValueError.

    The path is the number of its positions and the positions, as zigzag numbers; 0 alone is the first message.
    """
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _LONGEST_PATH:
        raise ValueError(f"a path of {count} positions")
    path = []
    for _ in range(count):
        position, at = _zigzag(data, at)
        path.append(position)
    return tuple(path), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > _LONGEST_SHIFT:
            raise ValueError("its path is incomplete")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


_LONGEST_PATH: Final = 64
_LONGEST_SHIFT: Final = 28
_URI_BASE: Final = "json-schema:///"

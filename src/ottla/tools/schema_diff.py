"""The differences of two schemas in plain words: fields that are added, removed or changed.

A schema becomes a list of fields, each with a path and a description of its type. Avro and JSON Schema have fields;
schemas of other types, and of different types, are compared line by line.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ottla.schemas.model import Schema, SchemaType

_DEEPEST = 30


class Change(NamedTuple):
    """A difference: kind is added, removed or changed."""

    kind: str
    field: str
    before: str | None
    after: str | None

    def text(self) -> str:
        if self.kind == "changed":
            return f"changed: {self.field} from {self.before} to {self.after}"
        return f"{self.kind}: {self.field} ({self.after if self.before is None else self.before})"


def differences(before: Schema, after: Schema) -> list[Change]:
    """Return the differences, in the order of the newer schema; removed fields are last."""
    walk = {SchemaType.AVRO: _avro, SchemaType.JSON: _json}.get(after.type)
    if before.type is not after.type or walk is None:
        return list(_lines(before.text, after.text))
    old, new = dict(walk(json.loads(before.text))), dict(walk(json.loads(after.text)))
    changes = []
    for field, description in new.items():
        known = old.get(field)
        if known is None:
            changes.append(Change("added", field, None, description))
        elif known != description:
            changes.append(Change("changed", field, known, description))
    removed = [Change("removed", field, description, None) for field, description in old.items() if field not in new]
    return changes + removed


def _lines(before: str, after: str) -> Iterator[Change]:
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        if line.startswith("+ "):
            yield Change("added", "line", None, line[2:].strip())
        elif line.startswith("- "):
            yield Change("removed", "line", line[2:].strip(), None)


# -- Avro ---------------------------------------------------------------------------------------------------------


def _avro(schema: Any) -> Iterator[tuple[str, str]]:
    yield "the value", _avro_type(schema)
    yield from _avro_fields(schema, "", 0)


def _avro_fields(schema: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        return
    if isinstance(schema, list):
        for branch in schema:
            yield from _avro_fields(branch, path, depth + 1)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            yield from _avro_fields(kind, path, depth + 1)
        elif kind in ("record", "error"):
            for each in schema.get("fields", ()):
                name = f"{path}{each['name']}"
                default = f", default {json.dumps(each['default'], ensure_ascii=False)}" if "default" in each else ""
                yield name, _avro_type(each["type"]) + default
                yield from _avro_fields(each["type"], f"{name}.", depth + 1)
        elif kind == "array":
            yield from _avro_fields(schema["items"], f"{path.removesuffix('.')}[].", depth + 1)
        elif kind == "map":
            yield from _avro_fields(schema["values"], f"{path.removesuffix('.')}{{}}.", depth + 1)


def _avro_type(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(map(_avro_type, schema))
    if not isinstance(schema, dict):
        return str(schema)
    kind = schema.get("type")
    if isinstance(kind, (dict, list)):
        return _avro_type(kind)
    if kind == "array":
        return f"array of {_avro_type(schema['items'])}"
    if kind == "map":
        return f"map of {_avro_type(schema['values'])}"
    if kind == "enum":
        return f"enum {schema.get('name')} of {', '.join(map(str, schema.get('symbols', ())))}"
    if kind == "fixed":
        kind = f"fixed {schema.get('name')} of {schema.get('size')} bytes"
    elif kind in ("record", "error"):
        return f"record {schema.get('name')}"
    logical = schema.get("logicalType")
    if logical == "decimal":
        logical = f"decimal({schema.get('precision')}, {schema.get('scale', 0)})"
    return f"{kind} ({logical})" if logical else str(kind)


# -- JSON Schema --------------------------------------------------------------------------------------------------


def _json(schema: Any) -> Iterator[tuple[str, str]]:
    yield "the value", _json_type(schema)
    yield from _json_fields(schema, "", 0)


def _json_fields(schema: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST or not isinstance(schema, Mapping):
        return
    required = schema.get("required")
    for name, each in _mapping(schema.get("properties")).items():
        is_required = isinstance(required, list) and name in required
        yield f"{path}{name}", _json_type(each) + (", required" if is_required else "")
        yield from _json_fields(each, f"{path}{name}.", depth + 1)
    yield from _json_fields(schema.get("items"), f"{path.removesuffix('.')}[].", depth + 1)
    for word in ("definitions", "$defs"):
        for name, each in _mapping(schema.get(word)).items():
            yield f"{path}{word}/{name}", _json_type(each)
            yield from _json_fields(each, f"{path}{word}/{name}.", depth + 1)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _json_type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return json.dumps(schema)
    kind = schema.get("type", "any type")
    words = [" or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)]
    nested = {
        "type",
        "properties",
        "items",
        "required",
        "definitions",
        "$defs",
        "title",
        "description",
        "$schema",
        "$id",
    }
    words += [f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in schema.items() if name not in nested]
    return ", ".join(words)

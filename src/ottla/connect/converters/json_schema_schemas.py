"""Connect's schemas as JSON Schemas and back, by the rules of Confluent's JsonSchemaData.

What JSON Schema does not have is in properties: `connect.type`, `connect.version`, `connect.parameters` and
`connect.index`, the position of a field. An optional type is a oneOf with null, and a oneOf of several types a struct
with one field for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from ottla.connect import data
from ottla.connect.converters.json_encoder import dumps
from ottla.connect.converters.json_schema_options import (
    ENUM,
    GENERALIZED_ENUM,
    GENERALIZED_UNION,
    NAMESPACE,
    UNION,
    JsonSchemaOptions,
    is_union,
)
from ottla.connect.converters.json_schema_values import decoder, encoder
from ottla.connect.data import NO_DEFAULT, Field, Schema, Type
from ottla.connect.errors import DataError

_UNION_PREFIX: Final = "connect_union_"
_NULL: Final = "<NULL>"
_INTEGERS: Final = {Type.INT8: "int8", Type.INT16: "int16", Type.INT32: "int32", Type.INT64: "int64"}
_FLOATS: Final = {Type.FLOAT32: "float32", Type.FLOAT64: "float64"}
_NUMBERS: Final = {name: kind for kind, name in {**_INTEGERS, **_FLOATS, Type.BYTES: "bytes"}.items()}
_DEEPEST: Final = 100
_MOST_PARTS: Final = 50_000
"""How many types a schema may have with all of its references, which may double at each level."""
Json = Any
"""Parsed JSON."""


class JsonSchemaWriter:
    """Writes the JSON Schemas of Connect's schemas."""

    def __init__(self, options: JsonSchemaOptions) -> None:
        self._options = options

    def written(self, schema: Schema, index: int | None = None, *, required: bool = False, depth: int = 0) -> Json:
        """Return a JSON Schema; `required` ignores that the schema is optional. Raises DataError."""
        if depth > _DEEPEST:
            raise DataError(f"The schema is nested more than {_DEEPEST} deep")
        place = {} if index is None else {"connect.index": index}
        if schema.type is Type.STRUCT and is_union(schema):
            nulls = [{"type": "null"}] if schema.optional else []
            members = [
                self.written(replace(each.schema, optional=False), position, required=True, depth=depth + 1)
                for position, each in enumerate(schema.fields)
            ]
            return {"oneOf": [*nulls, *members], **place}
        node = {**self._typed(schema, depth), **self._described(schema)}
        if schema.optional and not required:
            return {"oneOf": [{"type": "null"}, node], **place}
        return {**node, **place}

    def _typed(self, schema: Schema, depth: int) -> dict[str, Json]:
        if schema.type in _INTEGERS:
            return {"type": "integer", "connect.type": _INTEGERS[schema.type]}
        if schema.type in _FLOATS:
            return {"type": "number", "connect.type": _FLOATS[schema.type]}
        if schema.type is Type.BOOLEAN:
            return {"type": "boolean"}
        if schema.type is Type.BYTES:
            numeric = schema.name == data.DECIMAL and self._options.decimal_format == "NUMERIC"
            return {"type": "number" if numeric else "string", "connect.type": "bytes"}
        if schema.type is Type.STRING:
            return self._text(schema)
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            return {"type": "array", "items": self.written(schema.value_schema, depth=depth + 1)}
        if schema.type is Type.MAP:
            return self._map(schema, depth)
        properties = {
            each.name: self.written(each.schema, index, depth=depth + 1) for index, each in enumerate(schema.fields)
        }
        closed = {} if self._options.object_additional_properties else {"additionalProperties": False}
        return {"type": "object", "properties": properties, **closed}

    def _text(self, schema: Schema) -> dict[str, Json]:
        if ENUM not in schema.parameters and GENERALIZED_ENUM not in schema.parameters:
            return {"type": "string"}
        prefix = f"{self._options.enum_parameter()}."
        symbols = [each.removeprefix(prefix) for each in schema.parameters if each.startswith(prefix)]
        return {"enum": [None if each == _NULL else each for each in symbols]}

    def _map(self, schema: Schema, depth: int) -> dict[str, Json]:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        if schema.key_schema.type is Type.STRING and not schema.key_schema.optional:
            values = self.written(schema.value_schema, depth=depth + 1)
            return {"type": "object", "connect.type": "map", "additionalProperties": values}
        parts = {"key": schema.key_schema, "value": schema.value_schema}
        properties = {
            name: self.written(each, index, depth=depth + 1) for index, (name, each) in enumerate(parts.items())
        }
        return {"type": "array", "connect.type": "map", "items": {"type": "object", "properties": properties}}

    def _described(self, schema: Schema) -> dict[str, Json]:
        found: dict[str, Json] = {}
        if schema.name is not None:
            found["title"] = schema.name
        if schema.version is not None:
            found["connect.version"] = schema.version
        if schema.doc is not None:
            found["description"] = schema.doc
        parameters = {name: each for name, each in schema.parameters.items() if not name.startswith(NAMESPACE)}
        if parameters:
            found["connect.parameters"] = parameters
        if schema.default not in (NO_DEFAULT, None):
            found["default"] = orjson.loads(dumps(encoder(schema, self._options)(schema.default)))
        return found


class JsonSchemaReader:
    """Reads JSON Schemas; `referenced` has parsed schemas by the names of references."""

    def __init__(self, root: Json, referenced: Mapping[str, Json], options: JsonSchemaOptions) -> None:
        self._root = root
        self._referenced = referenced
        self._options = options
        self._unions = 0
        self._parts = 0
        self._open: list[int] = []

    def read(self) -> Schema:
        """Return the schema of the root. Raises DataError."""
        return self._read(self._root, self._root)

    def _read(self, node: Json, root: Json, *, optional: bool = False) -> Schema:
        """`root` is the document of the node, in which its references are."""
        if not isinstance(node, dict) or not node:
            raise DataError(f"The JSON Schema {node!r} has no type, and Connect needs one")
        if id(node) in self._open:
            raise DataError(f"JSON Schema {node.get('title', '')} contains itself, and Connect's schemas cannot")
        if len(self._open) >= _DEEPEST:
            raise DataError(f"The JSON Schema is nested more than {_DEEPEST} deep")
        self._count()
        self._open.append(id(node))
        try:
            return self._read_open(node, root, optional)
        finally:
            self._open.pop()

    def _count(self) -> None:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise DataError(f"The JSON Schema has more than {_MOST_PARTS} types with its references")

    def _read_open(self, node: dict[str, Json], root: Json, optional: bool) -> Schema:
        if "$ref" in node:
            target, document = self._resolved(node["$ref"], root)
            return self._read(target, document, optional=optional)
        for keyword in ("oneOf", "anyOf"):
            if isinstance(node.get(keyword), list):
                return self._any_of(node, node[keyword], root, optional)
        if isinstance(node.get("allOf"), list):
            return self._all_of(node, node["allOf"], root, optional)
        if isinstance(node.get("type"), list):
            kinds = [{**node, "type": each} for each in node["type"]]
            if len(kinds) == 1:
                return self._read(kinds[0], root, optional=optional)
            return self._any_of({}, kinds, root, optional)
        return self._described(node, self._typed(node, root), optional)

    def _resolved(self, reference: Json, root: Json) -> tuple[Json, Json]:
        name, _, pointer = str(reference).partition("#")
        document = root if not name else self._referenced.get(name)
        found = document
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise DataError(f"The JSON Schema refers to {reference}, which does not exist")
        return found, document

    def _any_of(self, node: Mapping[str, Json], members: list[Json], root: Json, optional: bool) -> Schema:
        if len(members) == 1 and self._options.flatten_singleton_unions:
            return self._read(members[0], root)
        others = [each for each in members if not (isinstance(each, dict) and each.get("type") == "null")]
        if len(others) == 1 and len(members) == 2:
            return self._read(others[0], root, optional=True)
        name, prefix, parameters = UNION, f"{UNION}.field.", {}
        if self._options.generalized_sum_type_support:
            name, prefix = f"{_UNION_PREFIX}{self._unions}", f"{_UNION_PREFIX}field_"
            self._unions += 1
            parameters = {GENERALIZED_UNION: name}
        fields = [Field(f"{prefix}{index}", self._read(each, root, optional=True)) for index, each in enumerate(others)]
        schema = replace(data.struct(fields, name), parameters=parameters)
        return self._described(node, schema, optional or len(others) < len(members))

    def _all_of(self, node: Mapping[str, Json], members: list[Json], root: Json, optional: bool) -> Schema:
        properties: dict[str, tuple[Json, Json, bool]] = {}
        self._collect(node, root, properties, 0)
        if properties:
            fields = {
                name: self._read(each, document, optional=self._options.use_optional_for_nonrequired and not required)
                for name, (each, document, required) in properties.items()
            }
            return data.struct(fields, optional=optional)
        for keywords in (("oneOf", "anyOf", "allOf"), ("enum",), ("type",), ("$ref",)):
            for each in members:
                if isinstance(each, dict) and any(name in each for name in keywords):
                    return self._read(each, root, optional=optional)
        raise DataError("The allOf of the JSON Schema has no type that Connect has")

    def _collect(self, node: Json, root: Json, found: dict[str, tuple[Json, Json, bool]], depth: int) -> None:
        """Collect the properties of a schema, of its allOf and of their references."""
        if depth > _DEEPEST:
            raise DataError(f"The references of allOf are nested more than {_DEEPEST} deep")
        self._count()
        if not isinstance(node, dict):
            return
        if "$ref" in node:
            self._collect(*self._resolved(node["$ref"], root), found, depth + 1)
            return
        required = _names(node.get("required"))
        for name, each in _object(node.get("properties")).items():
            found[name] = each, root, name in required
        for each in _list(node.get("allOf")):
            self._collect(each, root, found, depth + 1)

    def _typed(self, node: dict[str, Json], root: Json) -> Schema:
        if "enum" in node or "const" in node:
            return self._enum(node["enum"] if isinstance(node.get("enum"), list) else [node.get("const")], node)
        kind, connect_type = _text(node.get("type")), _text(node.get("connect.type"))
        if kind in {"integer", "number"}:
            default = Type.INT64 if kind == "integer" else Type.FLOAT64
            found = default if connect_type is None else _NUMBERS.get(connect_type)
            if found is None:
                raise DataError(f"Unsupported connect.type {connect_type!r} of a number")
            return Schema(found)
        if kind == "string":
            return Schema(Type.BYTES if connect_type == "bytes" else Type.STRING)
        if kind == "boolean":
            return Schema(Type.BOOLEAN)
        if kind == "array":
            return self._array(node, root)
        if kind == "object" or "properties" in node:
            return self._object(node, root)
        raise DataError(f"Unsupported schema type {kind!r} of a JSON Schema")

    def _enum(self, values: list[Json], node: Mapping[str, Json]) -> Schema:
        if _text(node.get("type")) in {"integer", "number", "boolean"}:
            return self._typed({name: each for name, each in node.items() if name not in {"enum", "const"}}, None)
        prefix = self._options.enum_parameter()
        symbols = [_NULL if each is None else str(each) for each in values]
        numbered = self._options.generalized_sum_type_support
        named = {f"{prefix}.{each}": str(index) if numbered else each for index, each in enumerate(symbols)}
        return Schema(Type.STRING, parameters={prefix: "", **named})

    def _array(self, node: Mapping[str, Json], root: Json) -> Schema:
        items = node.get("items")
        if not isinstance(items, dict):
            raise DataError("Array schema did not specify the items type")
        properties = _object(items.get("properties"))
        if node.get("connect.type") == "map" and {"key", "value"} <= properties.keys():
            return data.mapping(*(self._read(properties[name], root) for name in ("key", "value")))
        return data.array(self._read(items, root))

    def _object(self, node: Mapping[str, Json], root: Json) -> Schema:
        if node.get("connect.type") == "map":
            return data.mapping(data.STRING, self._read(node.get("additionalProperties"), root))
        properties = _object(node.get("properties"))
        required = _names(node.get("required"))
        placed = []
        for position, (name, each) in enumerate(properties.items()):
            index = each.get("connect.index") if isinstance(each, dict) else None
            placed.append((index if isinstance(index, int) else position, name, each))
        placed.sort(key=lambda found: found[0])
        fields = {
            name: self._read(each, root, optional=self._options.use_optional_for_nonrequired and name not in required)
            for _, name, each in placed
        }
        return data.struct(fields)

    def _described(self, node: Mapping[str, Json], schema: Schema, optional: bool) -> Schema:
        version, doc = node.get("connect.version"), _text(node.get("description"))
        parameters = {name: str(each) for name, each in _object(node.get("connect.parameters")).items()}
        schema = replace(
            schema,
            optional=optional,
            name=schema.name or _text(node.get("title")),
            version=version if isinstance(version, int) else None,
            doc=doc,
            parameters={**schema.parameters, **parameters},
        )
        if node.get("default") is None:
            return schema
        return replace(schema, default=decoder(schema)(node["default"]))


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _names(value: Json) -> set[str]:
    return {each for each in _list(value) if isinstance(each, str)}


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None

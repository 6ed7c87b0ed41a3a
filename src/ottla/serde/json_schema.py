"""The layout of columns for values of a JSON Schema, of any draft.

| Schema | Column |
|---|---|
| `boolean`, `integer`, `number` | bool, int64, float64; with `connect.type`, the smaller type of that name |
| `string` | string; timestamp and date with the formats `date-time` and `date`; bytes with `contentEncoding: base64` |
| `object` with `properties` | struct |
| `object` with `additionalProperties` alone | map with keys of type string |
| `array` with `items` | list |
| `null` and one other type | that type: every column may be null |
| several types, or none | string with the JSON text |

`$ref` leads to a part of the schema or to a referenced schema, `allOf` unites the properties. A schema that contains
itself has no layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urljoin

from ottla.serde._builders import Plan

TEXT: Final[Plan] = ("string",)
"""The layout of a value without one type: its JSON text."""
_SCALARS: Final[Mapping[str, Plan]] = {
    "boolean": ("bool",), "integer": ("int64",), "number": ("float64",), "string": TEXT,
}  # fmt: skip
_CONNECT: Final[Mapping[str, Plan]] = {
    "int8": ("int8",), "int16": ("int16",), "int32": ("int32",), "int64": ("int64",), "float32": ("float32",),
    "float64": ("float64",),
}  # fmt: skip
_FORMATS: Final[Mapping[str, Plan]] = {"date-time": ("timestamp_us", True), "date": ("date32",)}
_DEEPEST: Final = 100


class JsonSchemaError(ValueError):
    """No column can hold the values of a schema."""


class _Document(NamedTuple):
    """A schema, and the base of its relative references."""

    root: Any
    base: str


def plan_of_schema(schema: Any, referenced: Mapping[str, Any]) -> Plan:
    """Return the layout of values of a schema; `referenced` has other schemas by name. Raises JsonSchemaError."""
    documents = {name: _Document(each, _id(each) or name) for name, each in referenced.items()}
    return _Planner(documents).plan(schema, _Document(schema, _id(schema)), "", ())


class _Planner:
    """Finds layouts; `outer` are the references that lead to a place."""

    def __init__(self, documents: Mapping[str, _Document]) -> None:
        self._documents = documents

    def plan(self, schema: Any, document: _Document, path: str, outer: tuple[str, ...]) -> Plan:
        if len(outer) > _DEEPEST:
            raise JsonSchemaError(f"{path or 'the schema'} is nested too deeply")
        if not isinstance(schema, dict):
            return TEXT  # true, false, or a misspelt schema
        if "$ref" in schema:
            return self._referenced(str(schema["$ref"]), document, path, outer)
        for name in ("oneOf", "anyOf"):
            if isinstance(schema.get(name), list) and "properties" not in schema:
                return self._one_of(schema[name], document, path, outer)
        if isinstance(schema.get("allOf"), list):
            return self._all_of(schema, document, path, outer)
        kinds = _types(schema)
        if len(kinds) != 1:
            return _number(kinds)
        return self._of_type(kinds[0], schema, document, path, outer)

    def _of_type(self, kind: str, schema: Any, document: _Document, path: str, outer: tuple[str, ...]) -> Plan:
        if kind == "object":
            return self._object(schema, document, path, outer)
        if kind == "array":
            items = schema.get("items")
            return ("list", self.plan(items, document, f"{path}[]", outer)) if isinstance(items, dict) else TEXT
        if kind == "string":
            if schema.get("contentEncoding") == "base64":
                return ("binary",)
            return _FORMATS.get(str(schema.get("format")), TEXT)
        if kind in ("integer", "number"):
            return _CONNECT.get(str(schema.get("connect.type")), _SCALARS[kind])
        return _SCALARS.get(kind, TEXT)

    def _object(self, schema: Any, document: _Document, path: str, outer: tuple[str, ...]) -> Plan:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            below = f"{path}." if path else ""
            fields = tuple(
                (name, self.plan(each, document, f"{below}{name}", outer)) for name, each in properties.items()
            )
            return ("struct", fields)
        values = schema.get("additionalProperties")
        return ("map", TEXT, self.plan(values, document, f"{path}{{}}", outer)) if isinstance(values, dict) else TEXT

    def _one_of(self, branches: Sequence[Any], document: _Document, path: str, outer: tuple[str, ...]) -> Plan:
        plans = {self.plan(each, document, path, outer) for each in branches if not _is_null(each)}
        if len(plans) == 1:
            return plans.pop()
        return ("float64",) if plans == {("int64",), ("float64",)} else TEXT

    def _all_of(self, schema: Any, document: _Document, path: str, outer: tuple[str, ...]) -> Plan:
        own = {name: each for name, each in schema.items() if name != "allOf"}
        plans = [self.plan(each, document, path, outer) for each in (*schema["allOf"], own)]
        structs = [each for each in plans if each[0] == "struct"]
        if structs:
            return ("struct", tuple({name: each for struct in structs for name, each in struct[1]}.items()))
        return next((each for each in plans if each != TEXT), TEXT)

    def _referenced(self, reference: str, document: _Document, path: str, outer: tuple[str, ...]) -> Plan:
        name, _, pointer = reference.partition("#")
        target = self._document(name, document) if name else document
        place = f"{target.base}#{pointer}"
        if place in outer:
            raise JsonSchemaError(f"{path or 'the schema'} contains itself ({reference}), which no column can hold")
        return self.plan(_at(target.root, pointer, reference), target, path, (*outer, place))

    def _document(self, name: str, document: _Document) -> _Document:
        whole = urljoin(document.base, name)
        if document.base.partition("#")[0] == whole:
            return document
        for wanted in (name, whole):
            if wanted in self._documents:
                return self._documents[wanted]
        found = next((each for each in self._documents.values() if each.base.partition("#")[0] in (name, whole)), None)
        if found is None:
            raise JsonSchemaError(f"the reference {name!r} is not one of the schema's references")
        return found


def _id(schema: Any) -> str:
    found = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    return found if isinstance(found, str) else ""


def _at(root: Any, pointer: str, reference: str) -> Any:
    """Return the part of a schema at a JSON pointer."""
    found = root
    for part in pointer.split("/")[1:] if pointer else ():
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            raise JsonSchemaError(f"the reference {reference!r} leads nowhere")
    return found


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") == "null" or schema.get("const", "") is None)


def _types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types of values besides null; empty if the schema permits any type."""
    given = schema.get("type")
    if isinstance(given, str):
        return [] if given == "null" else [given]
    if isinstance(given, list):
        return [each for each in given if each != "null"]
    if "properties" in schema:
        return ["object"]
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return sorted({_type_of(each) for each in values if each is not None})
    return []


def _type_of(value: Any) -> str:
    kinds = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _number(kinds: Sequence[str]) -> Plan:
    return _SCALARS["number"] if set(kinds) == {"integer", "number"} else TEXT

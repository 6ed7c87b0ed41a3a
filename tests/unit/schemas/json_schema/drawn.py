"""Random JSON Schemas, changed copies and values, for the comparison with a validator.

The schemas have the keywords whose rules are exact: a compatible verdict has to mean that each valid value stays valid.
Confluent's rules do not promise that for `oneOf`, `if`, `contains`, `propertyNames`, `patternProperties`, for required
properties with a default or an empty schema, and for keywords without a type.
"""

from __future__ import annotations

import copy
import random
from typing import Any

NAMES = ("a", "b", "c", "d")
STRINGS = ("", "x", "xy", "xyz", "aaaa")
VALUES: tuple[Any, ...] = (None, True, False, 0, 1, 2, 5, -3, 1.5, *STRINGS, [], {}, ["x"], {"a": 1})


class Drawer:
    """Draws schemas and values; the same seed gives the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _often(self, probability: float) -> bool:
        return self._random.random() < probability

    def pair(self) -> tuple[Any, Any]:
        """A schema and a changed copy, both with definitions."""
        old: dict[str, Any] = {"$schema": "http://json-schema.org/draft-07/schema#", **self._object(0)}
        old["definitions"] = {"node": self._object(1), "leaf": self._simple()}
        new = copy.deepcopy(old)
        for _ in range(self._random.randrange(1, 4)):
            self._change(new)
        return old, new

    def _schema(self, depth: int) -> Any:
        roll = self._random.random()
        if roll < 0.08:
            return self._random.choice((True, {}, {}, False))
        if roll < 0.16:
            return {"$ref": f"#/definitions/{self._random.choice(('node', 'leaf'))}"} if depth < 4 else {}
        if depth > 2 or roll < 0.5:
            return self._simple()
        if roll < 0.7:
            return self._object(depth)
        if roll < 0.82:
            return self._array(depth)
        if roll < 0.94:
            parts = [self._schema(depth + 1) for _ in range(self._random.randrange(1, 4))]
            return {self._random.choice(("anyOf", "allOf", "anyOf")): parts}
        return {"not": self._schema(depth + 1)}

    def _simple(self) -> dict[str, Any]:
        roll = self._random.random()
        if roll < 0.15:
            return {"enum": self._random.sample(VALUES, self._random.randrange(1, 5))}
        if roll < 0.2:
            return {"const": self._random.choice(VALUES)}
        if roll < 0.35:
            return {"type": self._random.sample(("string", "null", "boolean", "integer"), 2)}
        found: dict[str, Any] = {"type": self._random.choice(("string", "number", "integer", "boolean", "null"))}
        if found["type"] == "string":
            self._limit(found, ("minLength", "maxLength"), (0, 1, 2, 3))
            if self._often(0.2):
                found["pattern"] = self._random.choice(("^x", "a"))
        elif found["type"] in ("number", "integer"):
            self._limit(found, ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (-3, 0, 1, 1.5, 5))
            self._limit(found, ("multipleOf",), (1, 2, 0.5, 1.5))
        return found

    def _limit(self, found: dict[str, Any], keywords: tuple[str, ...], values: tuple[Any, ...]) -> None:
        for keyword in keywords:
            if self._often(0.25):
                found[keyword] = self._random.choice(values)

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._random.sample(NAMES, self._random.randrange(0, 4))
        found: dict[str, Any] = {"type": "object", "properties": {name: self._schema(depth + 1) for name in names}}
        if self._often(0.4):
            self._require(found)
        if self._often(0.6):
            found["additionalProperties"] = False if self._often(0.6) else self._schema(depth + 2)
        self._limit(found, ("minProperties", "maxProperties"), (0, 1, 2))
        if self._often(0.1):
            found["dependencies"] = {"a": self._random.sample(NAMES, 1)}
        if self._often(0.05):
            found["dependencies"] = {"b": self._object(depth + 2)}
        return found

    def _require(self, found: dict[str, Any]) -> None:
        names = sorted(name for name, each in found["properties"].items() if each not in (True, {}))
        found["required"] = self._random.sample(names, min(1, len(names)))

    def _array(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "array"}
        if self._often(0.5):
            found["items"] = self._schema(depth + 1)
        elif self._often(0.8):
            found["items"] = [self._schema(depth + 1) for _ in range(self._random.randrange(1, 3))]
            if self._often(0.5):
                found["additionalItems"] = False if self._often(0.5) else self._schema(depth + 1)
        self._limit(found, ("minItems", "maxItems"), (0, 1, 2))
        if self._often(0.1):
            found["uniqueItems"] = True
        return found

    def _change(self, schema: dict[str, Any]) -> None:
        """Change a schema somewhere below."""
        places = [each for each in _below(schema) if "type" in each or "enum" in each or "anyOf" in each]
        place = self._random.choice(places)
        if place.get("type") == "object" and self._often(0.7):
            self._change_object(place)
        elif "enum" in place:
            place["enum"] = self._random.sample(VALUES, self._random.randrange(1, 5))
        elif "anyOf" in place:
            place["anyOf"].insert(0, self._simple())
        elif place is not schema:
            old = dict(place)
            place.clear()
            place.update(self._widened(old) if self._often(0.7) else self._simple())

    def _widened(self, schema: dict[str, Any]) -> dict[str, Any]:
        limits = [key for key in schema if key not in ("type", "properties", "required", "items", "additionalItems")]
        if limits and self._often(0.7):
            del schema[self._random.choice(limits)]
        elif schema.get("type") == "integer":
            schema["type"] = "number"
        elif self._often(0.5):
            return {"anyOf": [self._simple(), schema]}
        return schema

    def _change_object(self, found: dict[str, Any]) -> None:
        roll = self._random.random()
        properties: dict[str, Any] = found["properties"]
        if roll < 0.35 and properties:
            name = self._random.choice(sorted(properties))
            del properties[name]
            found["required"] = [each for each in found.get("required", []) if each != name]
        elif roll < 0.7:
            properties[self._random.choice(NAMES)] = self._schema(2)
            found.pop("required", None)
            if self._often(0.5):
                self._require(found)
        elif roll < 0.8:
            found.pop("required", None)
        elif roll < 0.9:
            self._require(found)
        else:
            found.pop("additionalProperties", None)
            if self._often(0.5):
                found["additionalProperties"] = self._random.choice((False, {}, {"type": "string"}))

    def value(self, schema: Any, root: dict[str, Any], depth: int = 0) -> Any:
        """A value that is perhaps valid."""
        if not isinstance(schema, dict) or depth > 5 or self._often(0.05):
            return self._random.choice(VALUES)
        if "$ref" in schema:
            return self.value(root["definitions"][schema["$ref"].rpartition("/")[2]], root, depth + 1)
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        for keyword in ("anyOf", "allOf"):
            if keyword in schema:
                return self.value(self._random.choice(schema[keyword]), root, depth + 1)
        kind = schema.get("type")
        kind = self._random.choice(kind) if isinstance(kind, list) else kind
        if kind == "object":
            return self._object_value(schema, root, depth)
        if kind == "array":
            items = schema.get("items", True)
            given = items if isinstance(items, list) else [items] * 2
            values = [self.value(each, root, depth + 1) for each in given]
            return values[: self._random.randrange(len(values) + 1)] + [self._random.choice(VALUES)] * self._often(0.2)
        if kind == "string":
            return self._random.choice(STRINGS)
        if kind in ("number", "integer"):
            return self._random.choice((-3, 0, 1, 2, 3, 5, 6, 1.5, 0.5) if kind == "number" else (-3, 0, 1, 2, 3, 5, 6))
        return self._random.choice(VALUES)

    def _object_value(self, schema: dict[str, Any], root: dict[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", [])
        found = {
            name: self.value(each, root, depth + 1)
            for name, each in schema["properties"].items()
            if name in required or self._often(0.6)
        }
        if self._often(0.3) and schema.get("additionalProperties") is not False:
            found[self._random.choice(NAMES)] = self.value(schema.get("additionalProperties", True), root, depth + 1)
        return found


def _below(schema: Any) -> list[dict[str, Any]]:
    """All schema objects inside of a schema."""
    found: list[dict[str, Any]] = []
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            found.append(each)
            waiting += [value for key in ("properties", "definitions") for value in each.get(key, {}).values()]
            waiting += [each[key] for key in ("items", "additionalItems", "anyOf", "allOf", "not") if key in each]
    return found

"""Random Avro schemas: valid ones, others with one defect, and changed copies.

`Generator(seed)` draws JSON values. A schema uses every feature that a canonical string has to keep: namespaces,
aliases, documentation, attributes, defaults, logical types, recursion and named types in many places.
"""

from __future__ import annotations

import copy
import random
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMES = ("A", "B", "Rec", "Item", "_x", "Z9", "array", "record")
SPACES = ("", "a", "a.b", "com.acme", "z")
FIELDS = ("id", "name", "value", "x", "y", "other", "f1", "_f", "total")
SYMBOLS = ("RED", "GREEN", "BLUE", "a", "_b", "C3")
TEXTS = ("", "x", 'quote " back \\ slash /', "tab\tnew\nline", "\x01\x1f\x7f", "Grüße, 世界", "🎉", "\u2028", "<&>'%s")
# Confluent's normalization fails for integers of more than 64 bits.
NUMBERS: tuple[Any, ...] = (
    0,
    1,
    -1,
    3_000_000_001,
    2**63 - 1,
    0.5,
    -0.0,
    1.0,
    1e7,
    1.5e-7,
    123456.789,
    1e100,
    5e-324,
    0.1,
)
LOGICAL: tuple[dict[str, Any], ...] = (
    {"logicalType": "date"},
    {"logicalType": "timestamp-millis"},
    {"logicalType": "decimal", "precision": 4, "scale": 2},
    {"scale": 0, "precision": 4, "logicalType": "decimal"},
    {"logicalType": "decimal", "precision": 4},
    {"logicalType": "decimal", "precision": "4"},
    {"logicalType": "mine", "b": 1, "a": {"d": 1, "c": [None, True]}},
    {"logicalType": 3},
)


class Generator:
    """Draws schemas; the same seed gives the same schemas."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._defined: list[tuple[str, str, Any]] = []

    def schema(self) -> Any:
        """A schema; it is valid except for rare accidents, such as a default whose number is too large."""
        self._defined = []
        return self._type("", 0)

    def defective(self) -> Any:
        """A schema with a defect somewhere, or with a change that keeps it valid."""
        schema = self.schema()
        places = [each for each in _objects(schema) if isinstance(each, dict)]
        if places:
            self._damage(self._pick(places))
        return schema

    def changed(self, schema: Any) -> Any:
        """A copy with a few changes, as the next version of a schema has them."""
        new = copy.deepcopy(schema)
        for _ in range(self._random.randrange(1, 4)):
            places = list(_objects(new))
            if not places:
                return self.schema() if self._often(0.5) else new
            self._change(self._pick(places))
        return new

    def _pick(self, values: Any) -> Any:
        return self._random.choice(values)

    def _often(self, probability: float) -> bool:
        return self._random.random() < probability

    def _type(self, space: str, depth: int) -> Any:
        roll = self._random.random()
        if depth > 3 or roll < 0.3:
            return self._primitive()
        if roll < 0.4 and self._defined:
            return self._use(space)
        if roll < 0.65:
            return self._record(space, depth)
        if roll < 0.72:
            return self._with_attributes({"type": "array", "items": self._type(space, depth + 1)})
        if roll < 0.79:
            return self._with_attributes({"type": "map", "values": self._type(space, depth + 1)})
        if roll < 0.88:
            return self._union(space, depth)
        return self._enum(space) if roll < 0.95 else self._fixed(space)

    def _primitive(self) -> Any:
        kind = self._pick(PRIMITIVES)
        if self._often(0.7):
            return kind
        logical = self._pick(LOGICAL) if self._often(0.5) else {}
        if kind == "string" and self._often(0.2):
            logical = {"logicalType": "uuid"}
        return self._with_attributes({"type": kind, **logical})

    def _with_attributes(self, found: dict[str, Any]) -> dict[str, Any]:
        if self._often(0.2):
            found[self._pick(("connect.name", "zeta", "alpha", "default", "doc", "Ключ", "a b"))] = self._value()
        if self._often(0.1):
            found |= {"b": self._value(), "a": self._value()}
        return found

    def _value(self, depth: int = 0) -> Any:
        roll = self._random.random()
        if depth < 2 and roll < 0.2:
            return {key: self._value(depth + 1) for key in self._random.sample(("k", "b", "a"), 2)}
        if depth < 2 and roll < 0.3:
            return [self._value(depth + 1) for _ in range(2)]
        return self._pick((None, True, False, *TEXTS, *NUMBERS))

    def _use(self, space: str) -> str:
        name, own, _ = self._pick(self._defined)
        full = f"{own}.{name}" if own else name
        return name if own == space and self._often(0.5) else full

    def _name(self, found: dict[str, Any], space: str) -> str:
        """Put a name that is not defined yet into a definition; returns the namespace for the types inside."""
        name = f"{self._pick(NAMES)}{len(self._defined) if self._often(0.9) else ''}"
        own = space
        roll = self._random.random()
        if roll < 0.25:
            own = self._pick(SPACES)
            found["name"], found["namespace"] = name, own
        elif roll < 0.4:
            own = self._pick(SPACES[1:])
            found["name"] = f"{own}.{name}"
            if self._often(0.3):
                found["namespace"] = "ignored"
        else:
            found["name"] = name
        if any((name, own) == each[:2] for each in self._defined):
            found["name"] = name = f"N{len(self._defined)}"
            found["namespace"] = own
        self._defined.append((name, own, found))
        if self._often(0.2):
            found["doc"] = self._pick(TEXTS)
        if self._often(0.2):
            found["aliases"] = [f"Alias{self._random.randrange(5)}", self._pick(("b.Old", "a.Old", "Old", "Old"))]
        return own

    def _record(self, space: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "record" if self._often(0.95) else "error"}
        own = self._name(found, space)
        names = self._random.sample(FIELDS, self._random.randrange(0, 5))
        found["fields"] = [self._field(name, own, depth) for name in names]
        return self._with_attributes(found)

    def _field(self, name: str, space: str, depth: int) -> dict[str, Any]:
        field: dict[str, Any] = {"name": name}
        kind = field["type"] = self._type(space, depth + 1)
        if self._often(0.4):
            default = self._default(kind)
            if default is not NotImplemented:
                field["default"] = default
        if self._often(0.15):
            field["doc"] = self._pick(TEXTS)
        if self._often(0.1):
            field["order"] = self._pick(("ascending", "descending", "ignore", "IGNORE"))
        if self._often(0.15):
            field["aliases"] = self._random.sample(("old", "older", "id", "a-b"), 2)
        return dict(self._random.sample(list(self._with_attributes(field).items()), len(field)))

    def _default(self, kind: Any) -> Any:
        if isinstance(kind, list):
            return self._default(kind[0]) if kind else NotImplemented
        name = kind["type"] if isinstance(kind, dict) else kind
        simple: dict[str, Any] = {
            "null": (None,),
            "boolean": (True, False),
            "int": (0, -5, 2**31 - 1),
            "long": (0, 2**40, -(2**63)),
            "float": (0, 1.5, 0.1, 16777217, "2.5", 1e-5),
            "double": (0, 1.5, 0.1, 1e10, "1e3", "NaN", 123456789),
            "bytes": ("", "\u00ff\u0000a"),
            "string": TEXTS,
        }
        if name in simple:
            return self._pick(simple[name])
        if not isinstance(kind, dict):
            return NotImplemented
        if name == "enum":
            return self._pick(kind["symbols"]) if kind["symbols"] else NotImplemented
        if name == "fixed":
            return "ab"
        if name in ("array", "map"):
            inner = self._default(kind["items" if name == "array" else "values"])
            values = [] if inner is NotImplemented or self._often(0.5) else [inner]
            return values if name == "array" else dict(zip("ba", values * 2, strict=False))
        if name in ("record", "error"):
            return self._record_default(kind)
        return NotImplemented

    def _record_default(self, kind: dict[str, Any]) -> Any:
        found = {}
        for field in reversed(kind["fields"]):
            if "default" not in field or self._often(0.5):
                found[field["name"]] = self._default(field["type"])
        return NotImplemented if NotImplemented in found.values() else found

    def _union(self, space: str, depth: int) -> list[Any]:
        branches = self._random.sample(PRIMITIVES, self._random.randrange(0, 3))
        union: list[Any] = ["null", *(each for each in branches if each != "null")] if self._often(0.5) else branches
        more = range(self._random.randrange(0, 3))
        union += [self._record(space, depth + 1) if self._often(0.6) else self._enum(space) for _ in more]
        if self._often(0.2):
            union.insert(
                self._random.randrange(len(union) + 1), {"type": "array", "items": self._type(space, depth + 1)}
            )
        return union

    def _enum(self, space: str) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "enum"}
        self._name(found, space)
        found["symbols"] = self._random.sample(SYMBOLS, self._random.randrange(1, 5))
        if self._often(0.3):
            found["default"] = self._pick(found["symbols"])
        return self._without_default_attribute(found)

    def _without_default_attribute(self, found: dict[str, Any]) -> dict[str, Any]:
        default = found.get("default")
        found = self._with_attributes(found)
        if "default" in found and default is None:
            del found["default"]
        elif default is not None:
            found["default"] = default
        return found

    def _fixed(self, space: str) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "fixed"}
        self._name(found, space)
        found["size"] = self._random.randrange(0, 20)
        if self._often(0.3):
            found |= self._pick(LOGICAL)
        return self._with_attributes(found)

    def _damage(self, found: dict[str, Any]) -> None:
        """Remove or replace one attribute of a type or field."""
        key = self._pick(sorted(found))
        if self._often(0.3):
            del found[key]
            return
        if key == "namespace":  # versions of Avro differ in the rules for namespaces
            found[key] = self._pick((None, 1, "x.y", "", []))
            return
        wrong: tuple[Any, ...] = (
            None,
            1,
            1.5,
            True,
            "",
            "no such",
            "1a",
            "a-b",
            "int",
            {},
            [],
            [1],
            ["a", "a"],
            {"type": 1},
        )
        found[key] = self._pick(wrong)

    def _change(self, place: Any) -> None:
        if isinstance(place, list):
            self._change_list(place)
        elif isinstance(place.get("symbols"), list) and self._often(0.8):
            symbols = self._random.sample(SYMBOLS, self._random.randrange(1, 5))
            place["symbols"] = symbols
            if place.get("default") not in symbols:
                place.pop("default", None)
        elif place.get("type") == "fixed" and self._often(0.5):
            place["size"] = self._random.randrange(0, 20)
        elif isinstance(place.get("fields"), list) and self._often(0.7):
            self._change_fields(place["fields"])
        elif "name" in place and "type" in place and self._often(0.5):
            place["aliases"] = [place["name"]]
            place["name"] = f"Renamed{self._random.randrange(3)}"
        elif place.get("type") in PRIMITIVES:
            place["type"] = self._pick(PRIMITIVES)
            place.pop("default", None)
        elif "default" in place:
            del place["default"]

    def _change_list(self, union: list[Any]) -> None:
        if union and self._often(0.5):
            union.pop(self._random.randrange(len(union)))
        else:
            kind = self._pick(PRIMITIVES)
            if kind not in union and all(not isinstance(each, dict) or each.get("type") != kind for each in union):
                union.insert(self._random.randrange(len(union) + 1), kind)

    def _change_fields(self, fields: list[Any]) -> None:
        if fields and self._often(0.4):
            fields.pop(self._random.randrange(len(fields)))
        elif fields and self._often(0.4):
            field = self._pick(fields)
            if not isinstance(field, dict):
                return
            field["type"] = self._primitive() if self._often(0.5) else ["null", self._pick(PRIMITIVES[1:])]
            field.pop("default", None)
        else:
            field = {"name": f"new{self._random.randrange(100)}", "type": self._pick(PRIMITIVES)}
            if self._often(0.5):
                field |= {"default": self._default(field["type"])}
            fields.insert(self._random.randrange(len(fields) + 1), field)


def _objects(schema: Any) -> list[Any]:
    """The types and fields inside a schema, also unions."""
    found: list[Any] = []
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            found.append(each)
            waiting += each
        elif isinstance(each, dict):
            found.append(each)
            waiting += [each[key] for key in ("type", "items", "values") if isinstance(each.get(key), (dict, list))]
            if isinstance(each.get("fields"), list):
                waiting += each["fields"]
    return found

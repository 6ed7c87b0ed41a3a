"""Checks values of Avro's binary encoding against their schema, without decoding them into columns.

A value is valid if it is complete, ends after its last field, and each part has its type: numbers fit, booleans are 0
or 1, text is UTF-8, and indexes are within the symbols of an enum and the branches of a union. Logical types are not
checked. Recursive types may be nested 150 deep.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.serde import _avro as r
from ottla.serde import avro_ops as o
from ottla.serde.avro import CONFLUENT_HEADER, least_size
from ottla.serde.avro_schema import Node, parse_for_check


class AvroCheck:
    """Checks values that were written with one schema. Raises AvroSchemaError if it cannot read the schema.

    `referenced` has the texts of the schemas that this one uses, each of which may use the previous ones.
    """

    def __init__(self, text: str, referenced: Iterable[str] = ()) -> None:
        node = parse_for_check(text, referenced)
        # Confluent's serializers write a value of this schema as it is, without Avro's length.
        self._is_raw = node.kind == "bytes"
        self._program = _Builder().step(node, "")

    def check(self, data: Any, places: Any, schema_id: int, rows: range) -> list[tuple[int, str, str]]:
        """Return row, path and reason of each invalid value among `rows`, whose step is 1.

        `places` has three columns of 64-bit integers: the schema id, the start and the end of each value in `data`.
        Only the values with `schema_id` are checked, after the header of Confluent's wire format.
        """
        if self._is_raw:
            return []
        return r.check(self._program, data, places, schema_id, rows, CONFLUENT_HEADER)


class _Builder:
    """Makes the steps of one schema."""

    def __init__(self) -> None:
        self._records: dict[str, Any] = {}

    def step(self, node: Node, path: str) -> Any:
        kind = node.kind
        if kind == "record":
            return self._record(node, path)
        if kind == "union":
            return r.Step(o.CHOICE, path, None, [self.step(each, path) for each in node.branches])
        if kind == "link":
            return r.Step(o.NESTED, path, None, [self._records[node.name]])
        if kind in ("array", "map"):
            return self._blocks(node, path)
        if kind == "enum":
            step = r.Step(o.CHECK_ENUM, path)
            step.count = len(node.symbols)
            return step
        if kind in _SIZES or kind == "fixed":
            step = r.Step(o.SKIP_FIXED, path)
            step.size = _SIZES.get(kind, node.size)
            return step
        return r.Step(_OPERATIONS[kind], path)

    def _record(self, node: Node, path: str) -> Any:
        step = self._records[node.name] = r.Step(o.RECORD, path)
        steps = [self.step(each.node, f"{path}.{each.name}" if path else each.name) for each in node.fields]
        step.steps = steps
        step.count = len(steps)
        return step

    def _blocks(self, node: Node, path: str) -> Any:
        assert node.items is not None
        keys = [] if node.kind == "array" else [r.Step(o.CHECK_TEXT, f"{path}{{}}")]
        items = self.step(node.items, f"{path}{{}}" if keys else f"{path}[]")
        step = r.Step(o.MAP if keys else o.ARRAY, path, None, [*keys, items])
        step.least = len(keys) + least_size(node.items)
        return step


_SIZES = {"float": 4, "double": 8}
_OPERATIONS = {
    "null": o.NOTHING,
    "boolean": o.CHECK_BOOL,
    "int": o.CHECK_INT,
    "long": o.SKIP_NUMBER,
    "string": o.CHECK_TEXT,
    "bytes": o.SKIP_BYTES,
}

"""Which JSON values are valid as the default of a field, and their form after normalization."""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.schemas.avro.types import MISSING, AvroType
from ottla.schemas.model import InvalidSchema

_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)
_MOST_COMPARISONS: Final = 5_000_000
_TEXTS: Final = frozenset({"string", "bytes", "enum", "fixed"})


class Undecided(Exception):
    """The type is not defined yet."""


class DefaultCheck:
    """Checks the defaults of one schema. The number of comparisons has a limit, since unions multiply them."""

    def __init__(self) -> None:
        self._left = _MOST_COMPARISONS

    def is_valid(self, node: AvroType, value: Any) -> bool:
        """Whether a value is a default of the type; of a union, of any branch. Raises Undecided or InvalidSchema.

        A field that a record's default omits has its own default, which is checked where that field is defined.
        """
        self._left -= 1
        if self._left < 0:
            raise InvalidSchema(f"the defaults need more than {_MOST_COMPARISONS} comparisons")
        kind = node.kind
        if kind in _TEXTS:
            return isinstance(value, str)
        if kind in ("int", "long"):
            return type(value) is int and value in (_INT if kind == "int" else _LONG)
        if kind in ("float", "double"):
            return type(value) in (int, float)
        if kind == "boolean":
            return isinstance(value, bool)
        if kind == "null":
            return value is None
        if kind == "union":
            return any(self.is_valid(branch, value) for branch in node.branches)
        return self._container_is_valid(node, value)

    def _container_is_valid(self, node: AvroType, value: Any) -> bool:
        if not node.kind:
            raise Undecided
        if node.items is not None:
            if not isinstance(value, list if node.kind == "array" else dict):
                return False
            values = value.values() if isinstance(value, dict) else value
            return all(self.is_valid(node.items, each) for each in values)
        # The default of a field cannot have the type of the record around it.
        if not isinstance(value, dict) or node.fields is None:
            return False
        return all(
            self.is_valid(field.type, value[field.name]) if field.name in value else field.has_default
            for field in node.fields
        )


def normalized_default(node: AvroType | None, value: Any) -> Any:
    """A default as a normalized schema has it: a number in the form of its type, the keys of objects in order.

    It has the type of a union's first branch. A value that does not fit is MISSING: normalization drops it.
    """
    if node is not None and node.kind == "union":
        node = node.branches[0] if node.branches else None
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _normalized_number(node, value)
    if isinstance(value, str):
        if node is None or node.kind in ("string", "enum"):
            return value
        return value.encode("latin-1", "replace").decode("latin-1") if node.kind in _TEXTS else MISSING
    if isinstance(value, list):
        return [_inner_default(node and node.items, each) for each in value]
    return {key: _inner_default(_member(node, key), value[key]) for key in sorted(value)}


def _inner_default(node: AvroType | None, value: Any) -> Any:
    found = normalized_default(node, value)
    return value if found is MISSING else found


def _member(node: AvroType | None, key: str) -> AvroType | None:
    if node is None or node.kind == "map":
        return node and node.items
    return next((field.type for field in node.fields or () if field.name == key), None)


def _normalized_number(node: AvroType | None, value: float) -> Any:
    kind = node.kind if node is not None else ""
    if kind == "double":
        return float(value)
    if kind == "float":
        return SinglePrecision(value)
    if not kind or (isinstance(value, int) and kind in ("int", "long")):
        return value
    return MISSING


class SinglePrecision(float):
    """A float of 32 bits, which is written with fewer digits."""

    __slots__ = ()

    def __repr__(self) -> str:
        exact = struct.unpack("f", struct.pack("f", self))[0]
        for digits in range(1, 10):
            text = f"{exact:.{digits}g}"
            if struct.unpack("f", struct.pack("f", float(text)))[0] == exact:
                return repr(float(text))
        return float.__repr__(self)

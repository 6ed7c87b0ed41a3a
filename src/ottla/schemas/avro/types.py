"""The graph of an Avro schema. Types are compared by identity; a recursive record contains itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "enum", "fixed"})
TYPE_NAMES: Final = PRIMITIVES | NAMED | {"array", "map", "union"}
MISSING: Final[Any] = object()
"""The default of a field that has none; None is the default null."""
_WHOLE: Final = (
    ("int", "date", "time-millis"),
    ("long", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
    ("long", "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
)
_LOGICAL: Final = {name: kind for kind, *names in _WHOLE for name in names} | {"big-decimal": "bytes"}


@dataclass(slots=True, eq=False)
class AvroType:
    """A type. Attributes that its kind does not have are empty."""

    kind: str
    """A primitive type, `record`, `enum`, `fixed`, `array`, `map` or `union`; empty before the type is defined."""
    name: str = ""
    """The full name of a named type."""
    space: str = ""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    """Full names."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of the logical type, and all that Avro does not define."""
    fields: tuple[AvroField, ...] | None = None
    """None for a record whose definition is being read."""
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    items: AvroType | None = None
    """The type of an array's items or a map's values."""
    branches: tuple[AvroType, ...] = ()
    size: int = 0
    is_error: bool = False

    @property
    def full_name(self) -> str:
        """The name that distinguishes the branches of a union."""
        return self.name or self.kind

    @property
    def simple_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def logical(self) -> str:
        """The logical type, if it is known and fits the type."""
        name = self.attributes.get("logicalType")
        if not isinstance(name, str):
            return ""
        if name == "decimal":
            return name if _is_decimal(self) else ""
        if name == "uuid":
            return name if self.kind == "string" or (self.kind == "fixed" and self.size == 16) else ""
        if name == "duration":
            return name if self.kind == "fixed" and self.size == 12 else ""
        return name if _LOGICAL.get(name) == self.kind else ""


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None = None
    default: Any = MISSING
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        """Whether the field has a default value; null counts."""
        return self.default is not MISSING


PLAIN: Final = {name: AvroType(name) for name in PRIMITIVES}
"""Primitive types without attributes; all schemas share them."""


def _is_decimal(node: AvroType) -> bool:
    precision, scale = node.attributes.get("precision"), node.attributes.get("scale", 0)
    if node.kind not in ("bytes", "fixed") or type(precision) is not int or type(scale) is not int:
        return False
    if node.kind == "fixed" and precision > math.floor(math.log10(2) * (8 * node.size - 1)):
        return False
    return 0 < precision <= 0x7FFFFFFF and 0 <= scale <= precision

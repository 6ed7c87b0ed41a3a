"""A JSON Schema as values. A schema object with keywords of several types is an `allOf` of one node for each type.

Nodes are compared by identity, since references make cycles. Nodes of the same class are compared keyword by keyword.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from ottla.schemas.json_text import dump

Number = int | Decimal


@dataclass(eq=False)
class Node:
    """A schema without keywords that are compared: `kind` is `empty`, `true`, `false`, `boolean`, `null`, `if`, ..."""

    kind: str
    source: Any
    """The JSON of the schema."""

    @property
    def has_default(self) -> bool:
        """Whether the schema has a default value; null counts."""
        return isinstance(self.source, dict) and "default" in self.source

    @property
    def accepts_all(self) -> bool:
        """Whether the schema is `{}` or `true`."""
        return self.kind in ("empty", "true")

    @property
    def is_connect_bytes(self) -> bool:
        """Whether Kafka Connect's converter wrote the schema for bytes, as strings or as numbers."""
        return isinstance(self.source, dict) and self.source.get("connect.type") == "bytes"

    @cached_property
    def key(self) -> tuple[str, str]:
        """Equal for schemas that say the same."""
        return self.kind, canonical(self.source)


@dataclass(eq=False)
class ReferenceNode(Node):
    """A `$ref`. The loader sets its target."""

    target: Node | None = None


@dataclass(eq=False)
class StringNode(Node):
    min_length: Number | None = None
    max_length: Number | None = None
    pattern: str | None = None


@dataclass(eq=False)
class NumberNode(Node):
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: Number | None = None
    exclusive_maximum: Number | None = None
    multiple_of: Number | None = None
    is_integer: bool = False


@dataclass(eq=False)
class ArrayNode(Node):
    all_items: Node | None = None
    items: tuple[Node, ...] = ()
    """The schemas of the first items."""
    permits_more: bool = True
    """Whether items after `items` are permitted."""
    more: Node | None = None
    unevaluated: Node | None = None
    min_items: Number | None = None
    max_items: Number | None = None
    is_unique: bool = False
    min_contains: Number | None = None
    max_contains: Number | None = None


@dataclass(eq=False)
class ObjectNode(Node):
    properties: dict[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    permits_more: bool = True
    more: Node | None = None
    """The schema of additional properties."""
    patterns: tuple[tuple[str, Node], ...] = ()
    unevaluated: Node | None = None
    property_dependencies: dict[str, frozenset[str]] = field(default_factory=dict)
    schema_dependencies: dict[str, Node] = field(default_factory=dict)
    min_properties: Number | None = None
    max_properties: Number | None = None


@dataclass(eq=False)
class EnumNode(Node):
    values: frozenset[str] = frozenset()
    """The canonical JSON of each value."""


@dataclass(eq=False)
class ConstNode(Node):
    value: str = ""
    """The canonical JSON of the value."""


@dataclass(eq=False)
class NotNode(Node):
    inner: Node | None = None


@dataclass(eq=False)
class CombinedNode(Node):
    """`kind` is `allOf`, `anyOf` or `oneOf`."""

    parts: tuple[Node, ...] = ()


def canonical(value: Any) -> str:
    """The JSON of a value with its keys in order."""
    return dump(in_order(value))


def in_order(value: Any) -> Any:
    """A copy of a JSON value whose objects have their keys in order."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(each) for each in value] if isinstance(value, list) else value

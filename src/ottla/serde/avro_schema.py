"""A parser of Avro schemas, from JSON to nodes. Pure; raises AvroSchemaError for an invalid or unsupported schema.

It follows the specification (1.12). A named type is known after its definition, by its full name or within its
namespace. Unknown attributes are ignored, and so are logical types that do not fit the type they annotate. Recursive
types are rejected, because the depth of a column is fixed; `parse_for_check` accepts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "enum", "fixed"})
LARGEST_PRECISION: Final = 38
_DEEPEST: Final = 64  # protects the stack
_MOST_TYPES: Final = 20_000  # counts each use of a named type: a few lines can use one type 2**60 times
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGICAL: Final[Mapping[str, tuple[str, ...]]] = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "uuid": ("string", "fixed"),
    "decimal": ("bytes", "fixed"),
}


class AvroSchemaError(ValueError):
    """A schema is invalid or unsupported; the message names the place."""


@dataclass(frozen=True)
class Field:
    """A field of a record. `default` is JSON; it is valid only if `has_default`."""

    name: str
    node: Node
    has_default: bool = False
    default: Any = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """A type. Attributes that its kind does not have are empty.

    The kind `link` stands for the type `name`, which contains it; only `parse_for_check` returns it.
    """

    kind: str
    name: str = ""
    """The full name of a record, enum or fixed."""
    aliases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    items: Node | None = None
    """The type of an array's items or a map's values."""
    branches: tuple[Node, ...] = ()
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0

    def non_null(self) -> tuple[Node, ...]:
        """Return the branches of a union except null."""
        return tuple(branch for branch in self.branches if branch.kind != "null")

    def is_nullable(self) -> bool:
        """Return whether a value may be null."""
        return self.kind == "null" or any(branch.kind == "null" for branch in self.branches)


def parse(text: str, referenced: Iterable[str] = ()) -> Node:
    """Parse the text of a schema. Raises AvroSchemaError.

    It may use types that the `referenced` texts define, each of which may use the previous ones.
    """
    return _parsed(text, referenced, _Parser())


def parse_for_check(text: str, referenced: Iterable[str] = ()) -> Node:
    """Parse a schema whose values are checked and not decoded. Raises AvroSchemaError.

    It may be recursive. For `referenced` see `parse`.
    """
    return _parsed(text, referenced, _Parser(for_columns=False))


def _parsed(text: str, referenced: Iterable[str], parser: _Parser) -> Node:
    for each in referenced:
        _parsed(each, (), parser)
    try:
        found = json.loads(text)
    except ValueError as error:
        if _NAME.fullmatch(text.strip()):  # the bare name of a primitive type, which Spark accepts too
            found = text.strip()
        else:
            raise AvroSchemaError(f"is not JSON: {error}") from None
    except RecursionError:
        raise AvroSchemaError("is nested too deeply") from None
    node = parser.node(found, "", "", 0)
    if _type_count(node, {}) > _MOST_TYPES:
        raise AvroSchemaError(f"has more than {_MOST_TYPES} types; each use of a named type counts")
    return node


def _type_count(node: Node, counted: dict[int, int]) -> int:
    if id(node) not in counted:
        below = [*(each.node for each in node.fields), *node.branches, *([node.items] if node.items else [])]
        counted[id(node)] = 1 + sum(_type_count(each, counted) for each in below)
    return counted[id(node)]


@dataclass
class _Parser:
    known: dict[str, Node] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    for_columns: bool = True

    def node(self, found: Any, namespace: str, path: str, depth: int) -> Node:
        if depth > _DEEPEST:
            raise AvroSchemaError(f"{_at(path)}is nested more than {_DEEPEST} deep")
        if isinstance(found, str):
            return self._named(found, namespace, path)
        if isinstance(found, list):
            return self._union(found, namespace, path, depth)
        if not isinstance(found, dict):
            raise AvroSchemaError(f"{_at(path)}has {json.dumps(found)} instead of a type")
        kind = found.get("type")
        if isinstance(kind, (dict, list)):
            return self.node(kind, namespace, path, depth + 1)
        if not isinstance(kind, str):
            raise AvroSchemaError(f"{_at(path)}has a type without the attribute 'type': {_short(found)}")
        if kind in PRIMITIVES:
            return self._annotated(Node(kind), found, path)
        if kind in NAMED:
            return self._define(kind, found, namespace, path, depth)
        if kind == "error":
            return self._define("record", found, namespace, path, depth)
        if kind == "array":
            return Node("array", items=self.node(_attribute(found, "items", path), namespace, f"{path}[]", depth + 1))
        if kind == "map":
            return Node("map", items=self.node(_attribute(found, "values", path), namespace, f"{path}{{}}", depth + 1))
        return self._named(kind, namespace, path)

    def _named(self, name: str, namespace: str, path: str) -> Node:
        if name in PRIMITIVES:
            return Node(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self.open:
                if not self.for_columns:
                    return Node("link", candidate)
                raise AvroSchemaError(f"{_at(path)}uses {candidate!r} recursively; recursive types are not supported")
            if candidate in self.known:
                return self.known[candidate]
        raise AvroSchemaError(f"{_at(path)}is of type {name!r}, which is not defined before its use")

    def _union(self, found: list[Any], namespace: str, path: str, depth: int) -> Node:
        branches = tuple(self.node(each, namespace, path, depth + 1) for each in found)
        seen = set()
        for branch in branches:
            if branch.kind == "union":
                raise AvroSchemaError(f"{_at(path)}is a union with a union in it")
            if (branch.name or branch.kind) in seen:
                raise AvroSchemaError(f"{_at(path)}is a union with {branch.name or branch.kind!r} twice")
            seen.add(branch.name or branch.kind)
        if not branches:
            raise AvroSchemaError(f"{_at(path)}is a union without branches")
        return Node("union", branches=branches)

    def _define(self, kind: str, found: dict[str, Any], namespace: str, path: str, depth: int) -> Node:
        full, inner = _full_name(found, namespace, kind, path)
        if full in self.known or full in self.open or full in PRIMITIVES:
            raise AvroSchemaError(f"{_at(path)}defines {full!r} a second time")
        aliases = tuple(a if "." in a or not inner else f"{inner}.{a}" for a in _texts(found.get("aliases", []), path))
        if kind == "record":
            self.open.add(full)
            node = Node("record", full, aliases, fields=self._fields(found, inner, path, depth))
            self.open.discard(full)
        elif kind == "enum":
            node = _enum(found, full, aliases, path)
        else:
            size = found.get("size")
            if type(size) is not int or not 0 <= size <= 0x7FFFFFFF:
                raise AvroSchemaError(f"{_at(path)}is a fixed without a size: {_short(found)}")
            node = self._annotated(Node("fixed", full, aliases, size=size), found, path)
        self.known[full] = node
        return node

    def _annotated(self, node: Node, found: dict[str, Any], path: str) -> Node:
        return _annotated(node, found, path) if self.for_columns else node

    def _fields(self, found: dict[str, Any], namespace: str, path: str, depth: int) -> tuple[Field, ...]:
        given = found.get("fields")
        if not isinstance(given, list):
            raise AvroSchemaError(f"{_at(path)}is a record without 'fields': {_short(found)}")
        fields: list[Field] = []
        for each in given:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise AvroSchemaError(f"{_at(path)}has a field without a name: {_short(each)}")
            name = each["name"]
            _check_name(name, path)
            below = f"{path}.{name}" if path else name
            if any(before.name == name for before in fields):
                raise AvroSchemaError(f"{below!r} is defined twice")
            node = self.node(_attribute(each, "type", below), namespace, below, depth + 1)
            aliases = tuple(_texts(each.get("aliases", []), below))
            fields.append(Field(name, node, "default" in each, each.get("default"), aliases))
        return tuple(fields)


def _full_name(found: dict[str, Any], namespace: str, kind: str, path: str) -> tuple[str, str]:
    """Return the full name of the defined type, and the namespace for the types inside it."""
    name, own = found.get("name"), found.get("namespace")
    if not isinstance(name, str) or not name:
        raise AvroSchemaError(f"{_at(path)}is a {kind} without a name: {_short(found)}")
    if "." in name:
        namespace = name.rpartition(".")[0]
    else:
        namespace = own if isinstance(own, str) else namespace
        name = f"{namespace}.{name}" if namespace else name
    for part in name.removeprefix(".").split("."):
        _check_name(part, path)
    return name, namespace


def _enum(found: dict[str, Any], full: str, aliases: tuple[str, ...], path: str) -> Node:
    symbols = tuple(_texts(found.get("symbols"), path))
    if not symbols or len(set(symbols)) != len(symbols):
        raise AvroSchemaError(f"{_at(path)}is an enum without symbols or with duplicate symbols: {_short(found)}")
    default = found.get("default")
    if default is not None and default not in symbols:
        raise AvroSchemaError(f"{_at(path)}is an enum whose default {default!r} is not among its symbols")
    return Node("enum", full, aliases, symbols=symbols, default_symbol=default)


def _annotated(node: Node, found: dict[str, Any], path: str) -> Node:
    """Return the node with its logical type, if that fits the type."""
    logical = found.get("logicalType")
    if not isinstance(logical, str) or node.kind not in _LOGICAL.get(logical, ()):
        return node
    if logical == "uuid" and node.kind == "fixed" and node.size != 16:
        return node
    if logical != "decimal":
        return replace(node, logical=logical)
    precision, scale = found.get("precision"), found.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or precision < 1 or not 0 <= scale <= precision:
        return node
    if node.kind == "fixed" and 2 * 10**precision > 256**node.size:
        return node  # the digits do not fit its bytes
    if precision > LARGEST_PRECISION:
        raise AvroSchemaError(f"{_at(path)}is a decimal of {precision} digits; at most {LARGEST_PRECISION} are allowed")
    return replace(node, logical=logical, precision=precision, scale=scale)


def _check_name(name: str, path: str) -> None:
    if not _NAME.fullmatch(name):
        raise AvroSchemaError(
            f"{_at(path)}has the name {name!r}; use letters, digits and underscores, and do not begin with a digit"
        )


def _attribute(found: dict[str, Any], attribute: str, path: str) -> Any:
    if attribute not in found:
        raise AvroSchemaError(f"{_at(path)}has no attribute {attribute!r}: {_short(found)}")
    return found[attribute]


def _texts(found: Any, path: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise AvroSchemaError(f"{_at(path)}has {_short(found)} instead of a list of names")
    return found


def _at(path: str) -> str:
    return f"{path!r} " if path else ""


def _short(found: Any) -> str:
    text = json.dumps(found)
    return text if len(text) <= 100 else f"{text[:100]}..."

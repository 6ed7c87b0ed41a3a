"""From the JSON of an Avro schema to its graph, with the rules of Java's parser.

A `Parser` knows the named types that it has read, so that the texts of references are read first. Also as in Java's
parser: attributes that Avro does not define are kept; a wrong type of `doc`, `namespace` or an enum's `default` is
ignored; comments are allowed; a type can be used before its definition; a second definition is allowed if it is equal.
`{"type": "a.Name"}` is a use of the name, as before version 1.12.

A new schema has to follow the naming rules of the specification, and its defaults have to be valid. A schema that a
registry has stored is read more leniently (`is_new=False`): versions 7 of Confluent's registry accepted letters of all
scripts, and old ones did not check defaults.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from ottla.schemas.avro.canonical import canonical_text
from ottla.schemas.avro.defaults import DefaultCheck, Undecided
from ottla.schemas.avro.types import MISSING, NAMED, PLAIN, PRIMITIVES, AvroField, AvroType
from ottla.schemas.json_text import dump, load
from ottla.schemas.model import InvalidSchema

_NEW_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STORED_NAME: Final = re.compile(r"[^\W\d]\w*")
_NUMBER: Final = re.compile(r"\s*([+-]?)(NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)\s*")
_RESERVED: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_RESERVED_OF_ENUMS: Final = _RESERVED | {"default"}
_RESERVED_OF_FIELDS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_LARGEST_FIXED: Final = 0x7FFFFFFF - 8


class Parser:
    """Reads schemas that can use the named types of the schemas before."""

    def __init__(self, *, is_new: bool) -> None:
        self._is_new = is_new
        self._name_pattern = _NEW_NAME if is_new else _STORED_NAME
        self._known: dict[str, AvroType] = {}
        self._undefined: dict[str, str] = {}
        """Names that are used and not defined yet, with the place of the use."""
        self._unchecked: list[tuple[str, AvroField]] = []
        """Fields whose default cannot be checked before all types are defined, with their record."""
        self._defaults = DefaultCheck()
        self._place: list[str] = []

    def parse(self, text: str) -> AvroType:
        """Read a schema. Raises InvalidSchema."""
        self._place.clear()
        node = self._type(load(text, comments=True), "")
        for name, place in self._undefined.items():
            raise InvalidSchema(f"Undefined name: {name!r}{place}")
        for record, field in self._unchecked:
            self._check_default(record, field)
        self._unchecked.clear()
        return node

    def _fail(self, message: str) -> NoReturn:
        raise InvalidSchema(message + self._where())

    def _where(self) -> str:
        return f" (in {'.'.join(self._place)})" if self._place else ""

    def _type(self, found: Any, space: str) -> AvroType:
        if isinstance(found, str):
            return PLAIN.get(found) or self._named(found, space)
        if isinstance(found, list):
            return self._union(found, space)
        if not isinstance(found, dict):
            self._fail(f"Schema not yet supported: {_short(found)}")
        kind = found.get("type")
        if not isinstance(kind, str):
            self._fail(f"No type: {_short(found)}")
        if kind in PRIMITIVES:
            node = AvroType(kind) if len(found) > 1 else PLAIN[kind]
        elif kind in NAMED or kind == "error":
            return self._define(kind, found, space)
        elif kind == "array":
            node = AvroType(kind, items=self._type(self._attribute(found, "items", "Array has no items type"), space))
        elif kind == "map":
            node = AvroType(kind, items=self._type(self._attribute(found, "values", "Map has no values type"), space))
        else:
            return self._named(kind, space)
        if len(found) > 1:
            node.attributes = {key: value for key, value in found.items() if key not in _RESERVED}
        return node

    def _attribute(self, found: dict[str, Any], name: str, problem: str) -> Any:
        if name not in found:
            self._fail(f"{problem}: {_short(found)}")
        return found[name]

    def _named(self, name: str, space: str) -> AvroType:
        full = f"{space}.{name}" if space and "." not in name else name.removeprefix(".")
        node = self._known.get(full) or self._known.get(name)
        if node is None:
            self._check_name(name.rpartition(".")[2])
            node = self._known[full] = AvroType("", full)
            self._undefined[full] = self._where()
        return node

    def _union(self, found: list[Any], space: str) -> AvroType:
        branches = tuple([self._type(each, space) for each in found])
        names = set()
        for branch in branches:
            if branch.kind == "union":
                self._fail(f"Nested union: {_short(found)}")
            if branch.full_name in names:
                self._fail(f"Duplicate in union:{branch.full_name}")
            names.add(branch.full_name)
        return AvroType("union", branches=branches)

    def _define(self, kind: str, found: dict[str, Any], space: str) -> AvroType:
        node = self._header(kind, found, space)
        previous = self._known.get(node.name)
        if previous is not None and not previous.kind:
            del self._undefined[node.name]
            previous.space, previous.doc = node.space, node.doc
            node, previous = previous, None
        if previous is None:
            self._known[node.name] = node
        self._place.append(node.name)
        node.kind, node.is_error = ("record", True) if kind == "error" else (kind, False)
        if node.kind == "record":
            node.fields = self._fields(found, node)
        elif kind == "enum":
            self._read_symbols(found, node)
        else:
            self._read_size(found, node)
        reserved = _RESERVED_OF_ENUMS if kind == "enum" else _RESERVED
        if not found.keys() <= reserved:
            node.attributes = {key: value for key, value in found.items() if key not in reserved}
        if "aliases" in found:
            node.aliases = tuple(self._full_name(alias, node.space)[0] for alias in self._aliases(found))
        if previous is not None:
            self._check_equal(previous, node)
        self._place.pop()
        return node

    def _header(self, kind: str, found: dict[str, Any], space: str) -> AvroType:
        """A type with a name, a namespace and a doc."""
        name, own, doc = found.get("name"), found.get("namespace"), found.get("doc")
        if not isinstance(name, str):
            self._fail(f"No name in schema: {_short(found)}")
        full, space = self._full_name(name, own if isinstance(own, str) else space)
        if full in PRIMITIVES:
            self._fail(f"Schemas may not be named after primitives: {full}")
        if self._is_new and space:
            for part in space.split("."):
                self._check_name(part)
        return AvroType(kind, full, space, doc if isinstance(doc, str) else None)

    def _full_name(self, name: str, space: str) -> tuple[str, str]:
        """Return the full name and its namespace."""
        if "." in name:
            space, _, name = name.rpartition(".")
        self._check_name(name)
        return (f"{space}.{name}" if space else name), space

    def _check_name(self, name: str) -> None:
        if not self._name_pattern.fullmatch(name):
            self._fail(f"Illegal name {name!r}: use letters, digits and underscores, and do not begin with a digit")

    def _check_equal(self, previous: AvroType, node: AvroType) -> None:
        if previous.kind == "record" and previous.fields is None:
            self._fail(f"Can't redefine: {node.name}")
        if canonical_text(previous, ()) != canonical_text(node, ()):
            self._fail(f"Can't redefine: {node.name}")

    def _fields(self, found: dict[str, Any], record: AvroType) -> tuple[AvroField, ...]:
        given = found.get("fields")
        if not isinstance(given, list):
            self._fail(f"Record has no fields: {_short(found)}")
        fields: dict[str, AvroField] = {}
        for each in given:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str):
                self._fail(f"No field name: {_short(each)}")
            self._place.append(name)
            self._check_name(name)
            if name in fields:
                self._fail(f"Duplicate field {name} in record {record.name}")
            fields[name] = self._field(name, each, record)
            self._place.pop()
        return tuple(fields.values())

    def _field(self, name: str, found: dict[str, Any], record: AvroType) -> AvroField:
        field = AvroField(name, self._type(self._attribute(found, "type", "No field type"), record.space))
        if len(found) == 2:
            return field
        doc, default = found.get("doc"), found.get("default", MISSING)
        field.doc = doc if isinstance(doc, str) else None
        if "order" in found:
            field.order = self._order(found["order"])
        if isinstance(default, str) and field.type.kind in ("float", "double"):
            default = self._number(default)
        field.default = default
        if "aliases" in found:
            field.aliases = tuple(dict.fromkeys(self._aliases(found)))
        if not found.keys() <= _RESERVED_OF_FIELDS:
            field.attributes = {key: value for key, value in found.items() if key not in _RESERVED_OF_FIELDS}
        if self._is_new and default is not MISSING:
            self._check_default(record.name, field)
        return field

    def _check_default(self, record: str, field: AvroField) -> None:
        try:
            is_valid = self._defaults.is_valid(field.type, field.default)
        except Undecided:
            self._unchecked.append((record, field))
            return
        if not is_valid:
            wanted = canonical_text(field.type, ())
            raise InvalidSchema(
                f"Invalid default for field {record}.{field.name}: {_short(field.default)} not a {wanted[:1000]}"
            )

    def _order(self, found: Any) -> str:
        order = found.lower() if isinstance(found, str) else ""
        if order not in ("ascending", "descending", "ignore"):
            self._fail(f"Invalid order: {_short(found)}")
        return order

    def _number(self, text: str) -> float:
        found = _NUMBER.fullmatch(text)
        if not found:
            self._fail(f"Invalid default: {text!r} is not a number")
        return float(found[1] + found[2].rstrip("fFdD"))

    def _aliases(self, found: dict[str, Any]) -> list[str]:
        aliases = found["aliases"]
        if not isinstance(aliases, list):
            self._fail(f"aliases not an array: {_short(found)}")
        for alias in aliases:
            if not isinstance(alias, str):
                self._fail(f"alias not a string: {_short(alias)}")
        return aliases

    def _read_symbols(self, found: dict[str, Any], node: AvroType) -> None:
        symbols = found.get("symbols")
        if not isinstance(symbols, list):
            self._fail(f"Enum has no symbols: {_short(found)}")
        known: set[str] = set()
        for symbol in symbols:
            if not isinstance(symbol, str):
                self._fail(f"Enum symbol is not a string: {_short(symbol)}")
            self._check_name(symbol)
            if symbol in known:
                self._fail(f"Duplicate enum symbol: {symbol}")
            known.add(symbol)
        default = found.get("default")
        node.symbols = tuple(symbols)
        if isinstance(default, str):
            if default not in symbols:
                self._fail(f"The Enum Default: {default} is not in the enum symbol set: {_short(symbols)}")
            node.default_symbol = default

    def _read_size(self, found: dict[str, Any], node: AvroType) -> None:
        size = found.get("size")
        if type(size) is not int or not 0 <= size <= _LARGEST_FIXED:
            self._fail(f"Invalid or no size: {_short(found)}")
        node.size = size


def _short(found: Any) -> str:
    text = dump(found)
    return text if len(text) <= 200 else f"{text[:200]}..."

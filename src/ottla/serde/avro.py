"""Decoding Avro: the column layout of a schema, and the programs with which the kernel decodes its values.

Layouts are the same as in Spark's from_avro. A union of null and one type has the layout of that type, int and long the
layout of long, float and double the layout of double. Any other union is a struct `member0`, `member1`, ... of which
one is not null. Enums and uuids are strings. A type with an unknown logical type has the layout of the underlying type.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from ottla.serde import _avro as r
from ottla.serde import avro_ops as o
from ottla.serde._builders import Column, Plan, builder
from ottla.serde._views import ByteRows
from ottla.serde.avro_schema import AvroSchemaError, Field, Node

CONFLUENT_HEADER: Final = 5
"""The size of the header in Confluent's wire format: a zero byte and four bytes of schema id."""

_PLAIN: Final[dict[str, Plan]] = {
    "boolean": ("bool",), "int": ("int32",), "long": ("int64",), "float": ("float32",), "double": ("float64",),
    "bytes": ("binary",), "string": ("string",), "enum": ("string",), "fixed": ("binary",),
}  # fmt: skip
_TIMES: Final[dict[str, Plan]] = {
    "date": ("date32",),
    "timestamp-millis": ("timestamp_us", True),
    "timestamp-micros": ("timestamp_us", True),
    "local-timestamp-millis": ("timestamp_us", False),
    "local-timestamp-micros": ("timestamp_us", False),
}
_NUMBERS: Final = ("int", "long", "float", "double")
_TEXTS: Final = ("string", "bytes")
_LEAST: Final = {"null": 0, "link": 0, "float": 4, "double": 8}


def plan(node: Node, path: str = "") -> Plan:
    """Return the layout of a schema's values. Raises AvroSchemaError for a type that a column cannot represent."""
    if node.kind == "null":
        raise AvroSchemaError(f"{path or 'the value'!r} is always null, which no column can hold")
    if node.kind == "record":
        return ("struct", tuple((each.name, plan(each.node, _below(path, each.name))) for each in node.fields))
    if node.kind == "array":
        assert node.items is not None
        return ("list", plan(node.items, f"{path}[]"))
    if node.kind == "map":
        assert node.items is not None
        return ("map", ("string",), plan(node.items, f"{path}{{}}"))
    if node.kind == "union":
        branches = node.non_null()
        if len(branches) > 1:
            number = one_number(branches)
            if number is not None:
                return number
            return ("struct", tuple((f"member{i}", plan(each, path)) for i, each in enumerate(branches)))
        return plan((branches or node.branches)[0], path)
    if node.logical == "decimal":
        return ("decimal128", node.precision, node.scale)
    return _TIMES.get(node.logical, _PLAIN[node.kind])


def one_number(branches: tuple[Node, ...]) -> Plan | None:
    """Return the common type of a union of int and long, or of float and double."""
    kinds = sorted(branch.kind for branch in branches)
    return {"int,long": ("int64",), "double,float": ("float64",)}.get(",".join(kinds))


class AvroDecoder:
    """Decodes values that were written with `writer` into columns of `reader`, by default the same schema.

    The schemas are resolved as the Avro specification says: fields that only the writer has are skipped, and fields
    that only the reader has take their default. `header` is the number of bytes before each value (CONFLUENT_HEADER),
    of which the first must be 0. `schema` and `plan` describe the columns. Raises AvroSchemaError if the reader's
    schema cannot read any value of the writer's.
    """

    def __init__(self, writer: Node, reader: Node | None = None, header: int = 0) -> None:
        self.schema = writer if reader is None else reader
        self._writer = writer
        self._header = header
        self.plan = plan(self.schema)
        _resolve(self._writer, self.schema, builder(self.plan), "")

    def decode(self, rows: ByteRows, only_first: bool = False) -> tuple[Column | None, list[tuple[int, str, str]]]:
        """Return a column with a row for each value, and row, field and reason of each value that does not fit.

        Such a value becomes null. With `only_first`, decoding stops at the first such value and returns no column.
        Raises OverflowError if a column exceeds 2 GiB.
        """
        column: Any = builder(self.plan)
        steps = _resolve(self._writer, self.schema, column, "")
        bad = r.decode(steps, column, rows, self._header, only_first)
        return None if bad and only_first else column.finish(), bad


class _Mismatch(AvroSchemaError):
    """Values of the writer's type cannot be read as the reader's type."""


def _mismatch(path: str, writer: Node, reader: Node) -> _Mismatch:
    what = f"{path!r}" if path else "The value"
    return _Mismatch(f"{what} was written as {_named(writer)} and cannot be read as {_named(reader)}")


def _resolve(writer: Node, reader: Node, into: Any, path: str) -> Any:
    """Return the step that reads a value of `writer` into the builder of `reader`. Raises _Mismatch."""
    if writer.kind == "union":
        return r.Step(o.CHOICE, path, into, [_or_refused(each, reader, into, path) for each in writer.branches])
    if reader.kind == "union":
        return _into_union(writer, reader, into, path)
    if writer.kind == "null" and reader.kind == "null":
        return r.Step(o.NOTHING, path, into)
    if writer.kind in _NUMBERS and reader.kind in _NUMBERS:
        return _number(writer, reader, into, path)
    if writer.kind in _TEXTS and reader.kind in _TEXTS:
        op = o.DECIMAL if reader.logical == "decimal" else o.TEXT if reader.kind == "string" else o.BYTES
        return r.Step(op, path, into)
    if writer.kind != reader.kind or not _same_name(writer, reader):
        raise _mismatch(path, writer, reader)
    if writer.kind == "record":
        return _record(writer, reader, into, path)
    if writer.kind == "boolean":
        return r.Step(o.BOOL, path, into)
    if writer.kind == "fixed":
        step = r.Step(o.FIXED_DECIMAL if reader.logical == "decimal" else o.FIXED, path, into)
        step.size = writer.size
        return step
    if writer.kind == "enum":
        step = r.Step(o.ENUM, path, into)
        known = [each if each in reader.symbols else reader.default_symbol for each in writer.symbols]
        step.name([None if each is None else each.encode() for each in known])
        return step
    assert writer.items is not None
    assert reader.items is not None
    if writer.kind == "array":
        step = r.Step(o.ARRAY, path, into, [_resolve(writer.items, reader.items, into.items, f"{path}[]")])
        step.least = least_size(writer.items)
        return step
    key = r.Step(o.TEXT, f"{path}{{}}", into.keys)
    step = r.Step(o.MAP, path, into, [key, _resolve(writer.items, reader.items, into.values, f"{path}{{}}")])
    step.least = 1 + least_size(writer.items)
    return step


def _or_refused(writer: Node, reader: Node, into: Any, path: str) -> Any:
    """As `_resolve`, but a mismatch becomes a step that refuses each value of the branch."""
    try:
        return _resolve(writer, reader, into, path)
    except _Mismatch:
        return r.Step(o.REFUSED, path)


def _number(writer: Node, reader: Node, into: Any, path: str) -> Any:
    if _NUMBERS.index(writer.kind) > _NUMBERS.index(reader.kind):
        raise _mismatch(path, writer, reader)
    if reader.kind in ("int", "long"):
        step = r.Step(o.INT if reader.kind == "int" else o.LONG, path, into)
        step.factor = 1000 if reader.logical in ("timestamp-millis", "local-timestamp-millis") else 1
        return step
    return r.Step(
        {"int": o.INT_FLOAT, "long": o.LONG_FLOAT, "float": o.FLOAT, "double": o.DOUBLE}[writer.kind], path, into
    )


def _into_union(writer: Node, reader: Node, into: Any, path: str) -> Any:
    """Resolve to the reader's branch of the same type, or else to the first branch that can read the writer's type."""
    for each in reader.branches:
        if each.kind == writer.kind and each.name == writer.name:
            return _into_branch(writer, reader, each, into, path)
    for each in reader.non_null():
        try:
            return _into_branch(writer, reader, each, into, path)
        except _Mismatch:
            continue
    raise _mismatch(path, writer, reader)


def _into_branch(writer: Node, reader: Node, chosen: Node, into: Any, path: str) -> Any:
    branches = reader.non_null()
    if chosen.kind == "null":
        return r.Step(o.NOTHING, path, into)
    if len(branches) == 1:
        return _resolve(writer, chosen, into, path)
    if one_number(branches) is not None:
        return _resolve(writer, Node(chosen.kind), into, path)
    member = next(i for i, each in enumerate(branches) if each is chosen)
    steps = [r.Step(o.REFUSED, path) for _ in branches]
    steps[member] = _resolve(writer, chosen, into.children[member], path)
    step = r.Step(o.MEMBER, path, into, steps)
    step.size = member
    return step


def _record(writer: Node, reader: Node, into: Any, path: str) -> Any:
    targets: dict[str, int] = {}
    for i, each in enumerate(reader.fields):
        for name in (each.name, *each.aliases):
            targets.setdefault(name, i)
    steps, filled = [], set()
    for each in writer.fields:
        below = _below(path, each.name)
        at = targets.get(each.name)
        if at is None or at in filled:
            steps.append(_skip(each.node, below))
        else:
            steps.append(_resolve(each.node, reader.fields[at].node, into.children[at], below))
            filled.add(at)
    for i, each in enumerate(reader.fields):
        if i not in filled:
            steps.append(_constant(each, into.children[i], _below(path, each.name)))
    return r.Step(o.RECORD, path, into, steps)


def _constant(missing: Field, into: Any, path: str) -> Any:
    if not missing.has_default:
        raise _Mismatch(f"{path!r} is not in the writer's schema and has no default in the reader's schema")
    step = r.Step(o.CONSTANT, path, None, [_resolve(missing.node, missing.node, into, path)])
    step.hold(encode_default(missing.node, missing.default, path))
    return step


def _skip(node: Node, path: str) -> Any:
    if node.kind in ("int", "long", "enum"):
        return r.Step(o.SKIP_NUMBER, path)
    if node.kind in _TEXTS:
        return r.Step(o.SKIP_BYTES, path)
    if node.kind == "null":
        return r.Step(o.NOTHING, path)
    if node.kind == "union":
        return r.Step(o.CHOICE, path, None, [_skip(each, path) for each in node.branches])
    if node.kind == "record":
        return r.Step(o.RECORD, path, None, [_skip(each.node, _below(path, each.name)) for each in node.fields])
    if node.kind in ("array", "map"):
        assert node.items is not None
        keys = [] if node.kind == "array" else [r.Step(o.SKIP_BYTES, path)]
        step = r.Step(o.MAP if keys else o.ARRAY, path, None, [*keys, _skip(node.items, f"{path}[]")])
        step.least = len(keys) + least_size(node.items)
        return step
    step = r.Step(o.SKIP_FIXED, path)
    step.size = least_size(node)
    return step


def least_size(node: Node) -> int:
    """Return the smallest size of a value in bytes."""
    if node.kind == "record":
        return sum(least_size(each.node) for each in node.fields)
    return node.size if node.kind == "fixed" else _LEAST.get(node.kind, 1)


def _same_name(writer: Node, reader: Node) -> bool:
    """Return whether the names of an enum or fixed agree; other types need no equal names."""
    if writer.kind not in ("enum", "fixed"):
        return True
    known = {name.rpartition(".")[2] for name in (reader.name, *reader.aliases)}
    return writer.name.rpartition(".")[2] in known and writer.size == reader.size


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _named(node: Node) -> str:
    return f"{node.kind} {node.name}" if node.name else node.kind


# -- defaults ----------------------------------------------------------------------------------------------------


def encode_default(node: Node, value: Any, path: str) -> bytes:
    """Encode a field's default, given as JSON, in binary. Raises AvroSchemaError if it does not have the type."""
    encoded = _encoded(node, value)
    if encoded is None:
        raise AvroSchemaError(f"{path!r} has the default {json.dumps(value)}, which is not valid for {_named(node)}")
    return encoded


def _encoded(node: Node, value: Any) -> bytes | None:
    kind = node.kind
    if kind == "union":
        for i, each in enumerate(node.branches):
            found = _encoded(each, value)
            if found is not None:
                return _number_bytes(i) + found
        return None
    if kind in ("array", "map", "record"):
        return _encoded_nested(node, value)
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        return _number_bytes(value) if type(value) is int and -(1 << bits) <= value < 1 << bits else None
    if kind in ("float", "double"):
        return _encoded_float(kind, value)
    if kind == "null":
        return b"" if value is None else None
    if kind == "boolean":
        return bytes([value]) if isinstance(value, bool) else None
    if not isinstance(value, str):
        return None
    if kind == "enum":
        return _number_bytes(node.symbols.index(value)) if value in node.symbols else None
    if kind == "string":
        return _text_bytes(value)
    if any(ord(letter) > 255 for letter in value):
        return None
    raw = value.encode("latin-1")
    if kind == "bytes":
        return _number_bytes(len(raw)) + raw
    return raw if len(raw) == node.size else None


def _encoded_float(kind: str, value: Any) -> bytes | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return struct.pack("<f" if kind == "float" else "<d", value)
    except (OverflowError, struct.error):  # too large for the type, or for any float
        return None


def _text_bytes(value: str) -> bytes | None:
    """Return a string's length and bytes, or None if it has a lone surrogate, which JSON allows and UTF-8 does not."""
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        return None
    return _number_bytes(len(raw)) + raw


def _encoded_nested(node: Node, value: Any) -> bytes | None:
    if node.kind == "array" and isinstance(value, list):
        assert node.items is not None
        parts = [_encoded(node.items, each) for each in value]
    elif node.kind == "map" and isinstance(value, dict):
        assert node.items is not None
        found = [(_text_bytes(key), _encoded(node.items, each)) for key, each in value.items()]
        parts = [None if key is None or each is None else key + each for key, each in found]
    elif node.kind == "record" and isinstance(value, dict):
        parts = [_encoded(each.node, value.get(each.name, each.default)) for each in node.fields]
    else:
        return None
    if any(part is None for part in parts):
        return None
    whole = b"".join(part for part in parts if part is not None)
    if node.kind == "record":
        return whole
    return (_number_bytes(len(parts)) + whole if parts else b"") + b"\0"


def _number_bytes(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)

"""Encoding Avro: the programs with which the kernel encodes columns, checked against the schema before the first row.

The rules are the same as in Spark's to_avro. Fields of a struct are matched by name, without regard to case if the
match is unique. Every field of the schema that is not nullable needs a column, and every column needs a field. Types
must be the types that from_avro returns, or narrower integers.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.serde import _avro_write as w
from ottla.serde import avro_ops as o
from ottla.serde._builders import Column, Plan, builder
from ottla.serde._views import ColumnView
from ottla.serde.avro_schema import AvroSchemaError, Node

_INTEGERS: Final = {"int8": o.PUT_INT8, "int16": o.PUT_INT16, "int32": o.PUT_INT32, "int64": o.PUT_INT64}
_INTO_INT: Final = ("int8", "int16", "int32", "date32")
_INTO_LONG: Final = ("int8", "int16", "int32", "int64")
_SAME: Final = {
    ("boolean", "bool"): o.PUT_BOOL,
    ("float", "float32"): o.PUT_FLOAT,
    ("double", "float64"): o.PUT_DOUBLE,
    ("string", "string"): o.PUT_BYTES,
    ("bytes", "binary"): o.PUT_BYTES,
}


class AvroEncoder:
    """Encodes columns of a layout as values of a schema. Raises AvroSchemaError if the layout does not fit the schema.

    `plan` is the layout of the columns; the second element of a timestamp is False for a local timestamp.
    """

    def __init__(self, schema: Node, plan: Plan) -> None:
        self._schema = schema
        self._plan = plan
        _step(schema, plan, "", -1)

    def encode(self, column: ColumnView) -> tuple[Column | None, tuple[int, str, str] | None]:
        """Return a binary column of values, or else row, field and reason of the first row that does not fit.

        A null row stays null. Raises OverflowError if the column exceeds 2 GiB.
        """
        out: Any = builder(("binary",))
        bad = w.encode(_step(self._schema, self._plan, "", -1), out, column)
        return (None, bad) if bad else (out.finish(), None)


def _step(node: Node, plan: Plan, path: str, child: int) -> Any:
    """Return the step that writes a column of `plan`, which is child number `child` of the parent's column."""
    if plan == ("null",) and node.is_nullable():
        return _null(node, path, child)
    if node.kind != "union":
        return _inner(node, plan, path, child)
    null = _null_branch(node)
    branches = node.non_null()
    if len(branches) > 1 and plan[0] == "struct" and [name for name, _ in plan[1]] == _members(branches):
        steps = []
        for i, (each, (_, below)) in enumerate(zip(branches, plan[1], strict=True)):
            steps.append(_inner(each, below, path, i))
            steps[-1].branch = node.branches.index(each)
        step = w.WriteStep(o.PUT_MEMBERS, path, steps, child)
    else:
        at, step = _first_that_fits(node, branches, plan, path, child)
        step.branch = at
    step.null_branch = null
    return step


def _null(node: Node, path: str, child: int) -> Any:
    step = w.WriteStep(o.PUT_NULL, path, (), child)
    step.null_branch = _null_branch(node)
    return step


def _null_branch(node: Node) -> int:
    return next((i for i, each in enumerate(node.branches) if each.kind == "null"), -1)


def _members(branches: tuple[Node, ...]) -> list[str]:
    return [f"member{i}" for i in range(len(branches))]


def _first_that_fits(node: Node, branches: tuple[Node, ...], plan: Plan, path: str, child: int) -> tuple[int, Any]:
    failed = None
    for each in branches:
        try:
            return next(i for i, branch in enumerate(node.branches) if branch is each), _inner(each, plan, path, child)
        except AvroSchemaError as error:
            failed = error
    if failed is not None and len(branches) == 1:
        raise failed
    raise _mismatch(node, plan, path)


def _inner(node: Node, plan: Plan, path: str, child: int) -> Any:
    """As `_step`, for a type that is not a union."""
    kind, have = node.kind, plan[0]
    if kind == "record" and have == "struct":
        return w.WriteStep(o.PUT_RECORD, path, _fields(node, plan, path), child)
    if kind == "array" and have == "list":
        assert node.items is not None
        return w.WriteStep(o.PUT_ARRAY, path, [_step(node.items, plan[1], f"{path}[]", 0)], child)
    if kind == "map" and have == "map" and plan[1] == ("string",):
        assert node.items is not None
        key = w.WriteStep(o.PUT_BYTES, f"{path}{{}}", (), 0)
        return w.WriteStep(o.PUT_MAP, path, [key, _step(node.items, plan[2], f"{path}{{}}", 1)], child)
    op = _SAME.get((kind, have)) or _number(node, plan) or _named(node, plan)
    if not op:
        raise _mismatch(node, plan, path)
    step = w.WriteStep(op, path, (), child)
    step.size = node.size
    if op == o.PUT_ENUM:
        step.name([symbol.encode() for symbol in node.symbols])
    return step


def _number(node: Node, plan: Plan) -> int:
    if node.kind == "int" and plan[0] in _INTO_INT:
        return o.PUT_INT32 if plan[0] == "date32" else _INTEGERS[plan[0]]
    if node.kind == "long" and plan[0] in _INTO_LONG:
        return _INTEGERS[plan[0]]
    if node.kind == "long" and plan[0] == "timestamp_us":
        prefix = "local-" if plan[1:] == (False,) else ""
        if node.logical == f"{prefix}timestamp-micros":
            return o.PUT_INT64
        # Without a logical type, Spark writes milliseconds.
        return o.PUT_MILLIS if node.logical in ("", f"{prefix}timestamp-millis") else 0
    return 0


def _named(node: Node, plan: Plan) -> int:
    if node.kind == "enum" and plan[0] == "string":
        return o.PUT_ENUM
    if node.kind == "fixed" and plan[0] == "binary" and node.logical != "decimal":
        return o.PUT_FIXED
    if node.logical == "decimal" and plan == ("decimal128", node.precision, node.scale):
        return o.PUT_DECIMAL if node.kind == "bytes" else o.PUT_FIXED_DECIMAL
    return 0


def _fields(node: Node, plan: Plan, path: str) -> list[Any]:
    names = [name for name, _ in plan[1]]
    steps, used = [], set()
    for each in node.fields:
        below = f"{path}.{each.name}" if path else each.name
        at = _find(each.name, names, below)
        if at is not None:
            steps.append(_step(each.node, plan[1][at][1], below, at))
            used.add(at)
        elif each.node.is_nullable():
            steps.append(_null(each.node, below, -1))
        else:
            raise AvroSchemaError(f"There is no column for {below!r}, which is not nullable in the schema")
    for i, name in enumerate(names):
        if i not in used:
            raise AvroSchemaError(f"The column {f'{path}.{name}' if path else name!r} is not in the schema")
    return steps


def _find(name: str, names: list[str], path: str) -> int | None:
    if name in names:
        return names.index(name)
    found = [i for i, each in enumerate(names) if each.lower() == name.lower()]
    if len(found) > 1:
        raise AvroSchemaError(f"{path!r} is ambiguous: it matches the columns {', '.join(names[i] for i in found)}")
    return found[0] if found else None


def _mismatch(node: Node, plan: Plan, path: str) -> AvroSchemaError:
    what = f"The column {path!r}" if path else "The column"
    logical = f" ({node.logical})" if node.logical else ""
    return AvroSchemaError(f"{what} is of type {plan[0]}, which cannot be written as {node.kind}{logical}")

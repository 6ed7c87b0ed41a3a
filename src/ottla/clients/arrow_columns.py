"""Converts between pyarrow's arrays and the columns of `ottla.serde`. They share buffers; nothing is copied."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

from ottla.serde._builders import Column, Plan
from ottla.serde._views import ByteRows, ColumnView

InvalidValue: TypeAlias = tuple[int, str, str]
"""The row of a value that does not match its format, the field (empty for the whole value), and the reason."""

_PLANS = {
    pa.bool_(): ("bool",),
    pa.int8(): ("int8",),
    pa.int16(): ("int16",),
    pa.int32(): ("int32",),
    pa.int64(): ("int64",),
    pa.float32(): ("float32",),
    pa.float64(): ("float64",),
    pa.string(): ("string",),
    pa.large_string(): ("string",),
    pa.binary(): ("binary",),
    pa.large_binary(): ("binary",),
    pa.date32(): ("date32",),
    pa.null(): ("null",),
}


def plan_of(kind: Any) -> Plan:
    """Return the plan of an Arrow type; for timestamps with whether they have a time zone. Raises TypeError."""
    if kind in _PLANS:
        return _PLANS[kind]
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return ("timestamp_us", kind.tz is not None)
    if pa.types.is_decimal128(kind):
        return ("decimal128", kind.precision, kind.scale)
    if pa.types.is_struct(kind):
        return ("struct", tuple((field.name, plan_of(field.type)) for field in kind))
    if pa.types.is_map(kind):
        return ("map", plan_of(kind.key_type), plan_of(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", plan_of(kind.value_type))
    raise TypeError(f"A column of {kind} has no plan")


def arrow_type(plan: Plan) -> Any:
    """Return the Arrow type of a plan: the reverse of `plan_of`."""
    kind = plan[0]
    if kind == "timestamp_us":
        return pa.timestamp("us", tz="UTC" if plan[1] else None)
    if kind == "decimal128":
        return pa.decimal128(plan[1], plan[2])
    if kind == "struct":
        return pa.struct([pa.field(name, arrow_type(child)) for name, child in plan[1]])
    if kind == "list":
        return pa.list_(arrow_type(plan[1]))
    if kind == "map":
        return pa.map_(arrow_type(plan[1]), arrow_type(plan[2]))
    return next(found for found, each in _PLANS.items() if each == plan)


def array_of(kind: Any, column: Column) -> Any:
    """Return an Arrow array of type `kind` from a column of the same plan."""
    if pa.types.is_struct(kind):
        kinds = [field.type for field in kind]
    elif pa.types.is_map(kind):
        kinds = [pa.struct([kind.key_field, kind.item_field])]
    elif pa.types.is_list(kind):
        kinds = [kind.value_type]
    else:
        kinds = []
    children = [array_of(child, part) for child, part in zip(kinds, column.children, strict=True)]
    buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in column.buffers]
    return pa.Array.from_buffers(kind, column.length, buffers, column.null_count, children=children)


def rows_of(array: Any) -> ByteRows:
    """Return the rows of an array of bytes or strings. Raises TypeError for other arrays."""
    kind = array.type
    is_wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (is_wide or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise TypeError(f"A column of {kind} has no rows of bytes")
    validity, offsets, data = array.buffers()
    return ByteRows(len(array), array.offset, validity if array.null_count else None, offsets, data, is_wide)


def view_of(array: Any) -> ColumnView:
    """Return a view of an array whose type, or its non-large variant, has a plan."""
    kind = array.type
    children = []
    if pa.types.is_struct(kind):
        children = [view_of(array.field(i)) for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        children = [view_of(array.keys), view_of(array.items)]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        children = [view_of(array.values)]
    own = array.buffers()[: 1 if pa.types.is_struct(kind) else 2 if children else None]
    if pa.types.is_null(kind):
        own = [bytes((array.offset + len(array) + 7) // 8)]
    elif not array.null_count:
        own[0] = None
    is_wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_large_list(kind)
    return ColumnView(len(array), array.offset, own, children, is_wide)

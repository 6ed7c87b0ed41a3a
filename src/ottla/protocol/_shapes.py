# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""A message's declaration as the codecs walk it: a tree of `Shape`s and `Field`s for one version.

One source for C and Python: Cython compiles this file with the types of `_shapes.pxd`. Compiled codecs read and write
the fields of a message at the offsets of their slots, uncompiled codecs by name.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

from ottla.protocol.declaration import MISSING, DeclaredMessage, DeclaredStruct
from ottla.protocol.plans import WIDTHS, Plan, plans_of

# The kinds of fields.
KINDS = (
    "bool", "Int8", "Int16", "Int32", "Int64", "UInt16", "UInt32", "Float64", "Uuid",
    "str", "bytes", "Records", "struct",
)  # fmt: skip

if not cython.compiled:
    BOOL, INT8, INT16, INT32, INT64, UINT16, UINT32, FLOAT64, UUID, STR, BYTES, RECORDS, STRUCT = range(len(KINDS))
    # The value of a field that is not on the wire: always the same object, a new list, or a new struct.
    CONSTANT, NEW_LIST, NEW_STRUCT = range(3)


class Field:
    """One field in one version.

    `width` is 0 if the size varies, `tag` is -1 without a tag. `least` and `greatest` limit integers. `smallest` is the
    fewest bytes that the field, or an element of its array, has on the wire. Only structs have a `shape`.
    """

    kind: int
    width: int
    tag: int
    default_is: int
    exists: bool
    nullable: bool
    is_list: bool
    least: int
    greatest: int
    # The offset of the field in an object of its class.
    slot: int
    smallest: int
    name: str
    default: Any
    shape: Shape


class Shape:
    """A message or struct in one version.

    `fields` has the fields of all versions, `tagged` the tagged fields of this version in the order of their tags.
    """

    cls: type[DeclaredStruct]
    fields: list[Field]
    tagged: list[Field]
    count: int


def shape_of(cls: type[DeclaredMessage], version: int) -> Shape:
    """The declaration of a message in one of its versions."""
    shape = _shape_of(cls, version, {})
    _measure(shape, version >= cls.FLEXIBLE_FROM)
    return shape


def _shape_of(cls: type[DeclaredStruct], version: int, known: dict[type[DeclaredStruct], Shape]) -> Shape:
    if cls in known:
        return known[cls]
    shape = Shape.__new__(Shape)
    known[cls] = shape
    shape.cls = cls
    shape.fields = []
    tagged = {}
    for plan in plans_of(cls):
        field = _field_of(cls, plan, version, known)
        shape.fields.append(field)
        if field.exists and field.tag >= 0:
            tagged[field.tag] = field
    shape.tagged = [tagged[tag] for tag in sorted(tagged)]
    shape.count = len(shape.fields)
    return shape


def _field_of(cls: type[DeclaredStruct], plan: Plan, version: int, known: dict[type[DeclaredStruct], Shape]) -> Field:
    field = Field.__new__(Field)
    field.name = plan.name
    if cython.compiled:
        descriptor = vars(cls)[plan.name]
        field.slot = cython.cast(DescriptorPointer, descriptor).d_member.offset
    field.kind = KINDS.index(plan.kind)
    field.width = WIDTHS.get(plan.kind, 0)
    field.least, field.greatest = _limits(plan.kind)
    field.is_list = plan.is_list
    field.exists = plan.exists(version)
    field.nullable = plan.may_be_null(version)
    field.tag = -1 if plan.tag is None else plan.tag
    if plan.struct is not None:
        field.shape = _shape_of(plan.struct, version, known)
    field.default = plan.default
    if plan.default is MISSING:
        field.default_is = NEW_STRUCT
    else:
        field.default_is = NEW_LIST if plan.default == [] and plan.is_list else CONSTANT
    return field


def _limits(kind: str) -> tuple[int, int]:
    """The least and the greatest integer of a kind; zeros if it is not an integer."""
    if "Int" not in kind:
        return 0, 0
    bits = 8 * WIDTHS[kind]
    return (0, (1 << bits) - 1) if kind.startswith("U") else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _measure(shape: Shape, is_flexible: bool) -> int:
    """Set `smallest` of all fields; the fewest bytes of the whole."""
    size = 1 if is_flexible else 0
    for field in shape.fields:
        if field.kind == STRUCT:
            field.smallest = _measure(field.shape, is_flexible)
        elif field.width:
            field.smallest = field.width
        elif is_flexible:
            field.smallest = 1
        else:
            field.smallest = 2 if field.kind == STR else 4
        if field.exists and field.tag < 0:
            if field.is_list:
                size += 1 if is_flexible else 4
            elif field.kind == STRUCT and field.nullable:
                size += 1
            else:
                size += field.smallest
    return size

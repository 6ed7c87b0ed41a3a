# mypy: ignore-errors
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A message's declaration as the codecs in C walk it: a tree of `Shape`s and `Field`s, for one version.

For Cython's pure-Python mode; `compiler` imports this and its users only as extension modules. The objects of messages
are read and written by the places of their slots.
"""

import cython
from cython.cimports.ottla.protocol._shapes import _CONSTANT, _NEW_LIST, _NEW_STRUCT, _STR, _STRUCT, PyMemberDescrObject

from ottla.protocol.message import MISSING
from ottla.protocol.plans import FIXED, plans_of

# In the order of the kinds in `_shapes.pxd`.
_KINDS = (
    "bool", "Int8", "Int16", "Int32", "Int64", "UInt16", "UInt32", "Float64", "Uuid",
    "str", "bytes", "Records", "struct",
)  # fmt: skip

_DescriptorPointer = cython.typedef(cython.pointer(PyMemberDescrObject))


@cython.final
@cython.cclass
class Field:
    """One field in one version."""


@cython.final
@cython.cclass
class Shape:
    """A message or struct in one version. `tagged` are the fields of the version that have tags, in their order."""


@cython.cfunc
def shape_of(cls: object, version: object) -> Shape:
    """The declaration of a message in one of its versions."""
    flexible: object = version >= cls.FLEXIBLE_FROM
    shape: Shape = _shape_of(cls, version, flexible, {})
    _measure(shape, flexible)
    return shape


@cython.cfunc
def _shape_of(cls: object, version: object, flexible: object, known: dict) -> Shape:
    if cls in known:
        return known[cls]
    shape: Shape = Shape.__new__(Shape)
    known[cls] = shape
    shape.cls = cls
    shape.fields = []
    for plan in plans_of(cls):
        field: Field = Field.__new__(Field)
        field.name = plan.name
        descriptor: object = vars(cls)[plan.name]
        field.slot = cython.cast(_DescriptorPointer, descriptor).d_member.offset
        field.kind = _KINDS.index(plan.kind)
        field.width = FIXED[plan.kind][1] if plan.kind in FIXED else 0
        field.is_list = plan.is_list
        field.exists = plan.exists(version)
        field.nullable = plan.may_be_null(version)
        field.tag = -1 if plan.tag is None else plan.tag
        field.shape = None if plan.struct is None else _shape_of(plan.struct, version, flexible, known)
        field.default = plan.default
        if plan.default is MISSING:
            field.default_is = _NEW_STRUCT
        else:
            field.default_is = _NEW_LIST if plan.default == [] and plan.is_list else _CONSTANT
        shape.fields.append(field)
    shape.tagged = sorted(
        (field for field in shape.fields if cython.cast(Field, field).exists and cython.cast(Field, field).tag >= 0),
        key=_tag_of,
    )
    shape.count = len(shape.fields)
    return shape


def _tag_of(field: Field) -> object:
    return field.tag


@cython.cfunc
def _measure(shape: Shape, flexible: cython.bint) -> cython.Py_ssize_t:
    """Fill in the fewest bytes that each field, or element of an array, has on the wire; those of the whole."""
    size: cython.Py_ssize_t = flexible
    field: Field
    for field in shape.fields:
        if field.kind == _STRUCT:
            field.smallest = _measure(field.shape, flexible)
        elif field.width:
            field.smallest = field.width
        else:
            field.smallest = 1 if flexible else (2 if field.kind == _STR else 4)
        if field.exists and field.tag < 0:
            if field.is_list:
                size += 1 if flexible else 4
            elif field.kind == _STRUCT and field.nullable:
                size += 1
            else:
                size += field.smallest
    return size

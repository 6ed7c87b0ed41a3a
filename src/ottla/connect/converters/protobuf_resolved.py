"""Whether values of a Connect schema can be written with another protobuf schema: the subject's latest, or a given one.

Fields are found by name. So the numbers, integer types and maps of both schemas may differ; everything that would be
lost, or would be read as something else, is refused before the first record.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.clients.serializers.base import InvalidValue
from ottla.connect.converters import protobuf_names as names

_MESSAGE, _ENUM, _FLOAT, _DOUBLE = 11, 14, 2, 1
# int64, uint64, int32, fixed64, fixed32, uint32, sfixed32, sfixed64, sint32, sint64
_INTEGERS: Final = frozenset({3, 4, 5, 6, 7, 13, 15, 16, 17, 18})
_FIXED_MESSAGES: Final = frozenset({*names.WRAPPED_TYPES, *(name for name, _ in names.LOGICAL_MESSAGES.values())})
"""Messages whose values mean something else in a message with other names."""


def check_fields(own: Any, found: Any) -> None:
    """Check that the fields of a descriptor exist in the resolved one, with types that take the same values.

    Raises InvalidValue with the path of the first field that does not fit.
    """
    _check(own, found, "", set())


def _check(own: Any, found: Any, path: str, checked: set[tuple[str, str]]) -> None:
    pair = own.full_name, found.full_name
    if pair in checked:
        return
    checked.add(pair)
    if own.full_name != found.full_name and own.full_name in _FIXED_MESSAGES:
        raise _refused(path, f"is a {own.full_name}, and in the schema of the subject a {found.full_name}")
    for field in own.fields:
        place = f"{path}.{field.name}" if path else field.name
        other = found.fields_by_name.get(field.name)
        if other is None:
            raise _refused(place, "is not in the schema of the subject")
        _check_field(field, other, place, checked)


def _check_field(own: Any, found: Any, path: str, checked: set[tuple[str, str]]) -> None:
    if own.is_repeated != found.is_repeated:
        raise _refused(path, "is repeated in only one of the schemas of the converter and of the subject")
    union = found.containing_oneof
    if union is not None and len(union.fields) > 1 and _union_name(own) != union.name:
        raise _refused(path, f"is a member of the oneof {union.name} in the schema of the subject")
    if own.type == _MESSAGE == found.type:
        _check(own.message_type, found.message_type, path, checked)
    elif own.type == _ENUM == found.type:
        numbers = {each.name: each.number for each in found.enum_type.values}
        for each in own.enum_type.values:
            if numbers.get(each.name) != each.number:
                raise _refused(path, f"has the value {each.name} = {each.number}, which the subject's enum does not")
    elif not _takes(own.type, found.type):
        raise _refused(path, "has another type in the schema of the subject")


def _takes(own: int, found: int) -> bool:
    """Whether a field of a type takes the values of the other type. Integers are checked when they are written."""
    return own == found or {own, found} <= _INTEGERS or (own, found) == (_FLOAT, _DOUBLE)


def _union_name(field: Any) -> str | None:
    return None if field.containing_oneof is None else field.containing_oneof.name


def _refused(path: str, reason: str) -> InvalidValue:
    place = f"field {path!r}" if path else "it"
    return InvalidValue(f"{place} {reason}", path)

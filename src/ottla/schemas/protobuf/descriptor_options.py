"""Options of a descriptor: the standard options that Confluent's registry knows, and Confluent's metadata.

Other custom options are omitted, and so are values that do not fit the type of their option.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.schemas.protobuf.descriptor_classes import META_OPTIONS, descriptor_classes
from ottla.schemas.protobuf.descriptor_elements import KNOWN_OPTIONS
from ottla.schemas.protobuf.elements import Option, Primitive
from ottla.schemas.protobuf.normalized_options import as_map
from ottla.schemas.protobuf.numbers import normalized_number

_BOOL, _STRING, _MESSAGE, _ENUM, _INT32 = 8, 9, 11, 14, 5
_NUMBER_LIMIT: Final = 1 << 31


def set_options(descriptor: Any, options: Iterable[Option]) -> None:
    """Set the options of a descriptor of any kind."""
    found = list(options)
    if not found:
        return
    kind = descriptor.DESCRIPTOR.fields_by_name["options"].message_type
    for option in found:
        name = option.name.removeprefix(".")
        if option.parenthesized:
            if kind.name in META_OPTIONS and name == f"confluent.{META_OPTIONS[kind.name]}":
                _add_meta(descriptor.options.Extensions[descriptor_classes().meta[kind.name]], as_map(option).value)
        elif name in KNOWN_OPTIONS[kind.name] and name in kind.fields_by_name:
            value = option.value if isinstance(option.value, str | dict) else str(option.value)
            _set(descriptor.options, kind.fields_by_name[name], value)


def _set(message: Any, field: Any, value: object) -> None:
    """Set a field from the value of an option; repeated fields get one more value."""
    if field.type == _MESSAGE:
        if isinstance(value, Mapping):
            target = getattr(message, field.name)
            target = target.add() if field.is_repeated else target
            target.SetInParent()
            for name, each in value.items():
                if name in target.DESCRIPTOR.fields_by_name:
                    _set(target, target.DESCRIPTOR.fields_by_name[name], each)
        return
    text = value.text if isinstance(value, Primitive) else str(value)
    scalar = _scalar(field, text)
    if scalar is not None:
        if field.is_repeated:
            getattr(message, field.name).append(scalar)
        else:
            setattr(message, field.name, scalar)


def _scalar(field: Any, text: str) -> bool | str | int | None:
    if field.type == _BOOL:
        return text == "true"
    if field.type == _STRING:
        return text
    if field.type == _ENUM:
        named = field.enum_type.values_by_name.get(text)
        return None if named is None else int(named.number)
    number = normalized_number(text)
    if field.type == _INT32 and number.removeprefix("-").isdecimal() and abs(int(number)) < _NUMBER_LIMIT:
        return int(number)
    return None


def _add_meta(meta: Any, value: object) -> None:
    """Add the entries of an option to the metadata; a parameter of the same key replaces the previous one."""
    if not isinstance(value, Mapping):
        return
    meta.SetInParent()
    if isinstance(value.get("doc"), str):
        meta.doc = value["doc"]
    for each in _listed(value.get("tags")):
        if isinstance(each, str):
            meta.tags.append(each)
    for each in _listed(value.get("params")):
        if isinstance(each, Mapping):
            key, text = each.get("key"), each.get("value")
            meta.params.add(key=key if isinstance(key, str) else "", value=text if isinstance(text, str) else "")
    for each in _listed(value.get("rules")):
        if isinstance(each, Mapping):
            meta.rules.add(**{name: each[name] for name in ("name", "doc", "expr", "sql") if _is_text(each, name)})


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _is_text(entries: Mapping[str, object], name: str) -> bool:
    return isinstance(entries.get(name), str)

"""Options in normalized form: by name, extensions with their full names, options of one extension merged into one.

An extension whose fields are set one by one, `(a).b = 1, (a).c = 2`, becomes `(a) = {b: 1, c: 2}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from ottla.schemas.protobuf.elements import Field, Message, Option, OptionKind, Primitive
from ottla.schemas.protobuf.names import Resolver
from ottla.schemas.protobuf.numbers import normalized_number

_UNQUOTED = frozenset({OptionKind.BOOLEAN, OptionKind.ENUM, OptionKind.NUMBER})


def normalized_options(options: Iterable[Option], resolver: Resolver) -> list[Option]:
    """The options of one element, in the scope of `resolver`."""
    grouped: dict[str, list[Option]] = {}
    for each in sorted((_qualified(each, resolver) for each in options), key=lambda each: each.name):
        grouped.setdefault(each.name, []).append(each)
    found: list[Option] = []
    for name, same in grouped.items():
        field = resolver.extension(name)
        if field is not None and field.label != "repeated":
            same = [reduce(lambda first, second: _merged(field, first, second, resolver), same)]
        found += [_formatted(each, resolver) for each in same]
    return found


def as_map(option: Option) -> Option:
    """`(a).b = 1` as `(a) = {b: 1}`; another option as it is."""
    if not isinstance(option.value, Option):
        return option
    return option._replace(kind=OptionKind.MAP, value=_entries(option.value))


def _entries(nested: Option) -> dict[str, object]:
    value = nested.value
    if isinstance(value, Option):
        return {nested.name: _entries(value)}
    return {nested.name: Primitive(nested.kind, str(value)) if nested.kind in _UNQUOTED else value}


def _qualified(option: Option, resolver: Resolver) -> Option:
    resolved = resolver.resolve_extension(option.name) if option.parenthesized else None
    return option if resolved is None else as_map(option._replace(name=resolved))


def _merged(field: Field, first: Option, second: Option, resolver: Resolver) -> Option:
    second = as_map(second)
    if isinstance(first.value, dict) and isinstance(second.value, dict):
        return second._replace(value=_merged_maps(field, first.value, second.value, resolver))
    return second


def _merged_maps(
    field: Field | None, first: Mapping[str, object], second: Mapping[str, object], resolver: Resolver
) -> dict[str, object]:
    message = _message_of(field, resolver)
    merged = dict(first)
    for key, value in second.items():
        nested = None if message is None else _field_of(message, key)
        merged[key] = _merged_values(nested, merged[key], value, resolver) if key in merged else value
    return merged


def _merged_values(field: Field | None, first: object, second: object, resolver: Resolver) -> object:
    """Messages are merged, of other values the last counts. The values of a repeated or unknown field become a list."""
    if field is not None and field.label != "repeated":
        if isinstance(first, dict) and isinstance(second, dict) and _message_of(field, resolver) is not None:
            return _merged_maps(field, first, second, resolver)
        return second
    values: dict[str, object] = {}
    for each in (first, second):
        for value in each if isinstance(each, list) else [each]:
            values.setdefault(repr(value), value)
    return list(values.values())


def _message_of(field: Field | None, resolver: Resolver) -> Message | None:
    declared = None if field is None else resolver.type(field.type)
    return declared.element if declared is not None and isinstance(declared.element, Message) else None


def _field_of(message: Message, name: str) -> Field | None:
    fields = [*message.fields, *(each for oneof in message.oneofs for each in oneof.fields)]
    return next((each for each in fields if each.name == name), None)


def _formatted(option: Option, resolver: Resolver) -> Option:
    value = option.value
    if isinstance(value, Option):
        return option._replace(value=_formatted(value, resolver))
    if isinstance(value, dict):
        return option._replace(value=_formatted_map(value, resolver))
    if isinstance(value, list):
        return option._replace(value=[_formatted_value(each, resolver) for each in value])
    return option._replace(value=normalized_number(str(value))) if option.kind is OptionKind.NUMBER else option


def _formatted_map(entries: Mapping[str, object], resolver: Resolver) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in entries.items():
        if value == []:
            continue
        if key.startswith("[") and key.endswith("]"):
            resolved = resolver.resolve_extension(key[1:-1])
            key = key if resolved is None else f"[{resolved}]"
        found.setdefault(key, _formatted_value(value, resolver))
    return dict(sorted(found.items()))


def _formatted_value(value: object, resolver: Resolver) -> object:
    """A list of one value is written as the value."""
    if isinstance(value, Primitive):
        return value._replace(text=normalized_number(value.text)) if value.kind is OptionKind.NUMBER else value
    if isinstance(value, dict):
        return _formatted_map(value, resolver)
    if isinstance(value, list):
        return _formatted_list(value, resolver)
    return value


def _formatted_list(values: Sequence[object], resolver: Resolver) -> object:
    found = [_formatted_value(each, resolver) for each in values]
    return found[0] if len(found) == 1 else found

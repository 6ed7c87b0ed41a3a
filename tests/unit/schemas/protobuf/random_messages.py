"""Messages of a dynamic class with random values in random fields."""

from __future__ import annotations

from random import Random
from typing import Any

_FLOATS, _BOOL, _STRING, _MESSAGES, _BYTES, _ENUM = {1, 2}, 8, 9, {10, 11}, 12, 14
_UNSIGNED, _BITS_64 = {4, 6, 7, 13}, {3, 4, 6, 16, 18}


def random_message(random: Random, message_class: Any, depth: int = 3) -> Any:
    """A message; required fields are always set. Bytes are valid UTF-8, so that they can become strings."""
    message = message_class()
    fill(random, message, depth)
    return message


def fill(random: Random, message: Any, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.is_required or random.random() < 0.7:
            _set(random, message, field, depth)


def _set(random: Random, message: Any, field: Any, depth: int) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _set_entry(random, getattr(message, field.name), field.message_type, depth)
    elif field.type in _MESSAGES:
        if depth > 0 or field.is_required:
            target = getattr(message, field.name)
            target = target.add() if field.is_repeated else target
            target.SetInParent()
            if depth > -20:
                fill(random, target, depth - 1)
    elif field.is_repeated:
        getattr(message, field.name).extend(_scalar(random, field) for _ in range(random.randint(1, 3)))
    else:
        setattr(message, field.name, _scalar(random, field))


def _set_entry(random: Random, entries: Any, entry: Any, depth: int) -> None:
    key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
    if value.type not in _MESSAGES:
        entries[_scalar(random, key)] = _scalar(random, value)
    elif depth > 0:
        fill(random, entries[_scalar(random, key)], depth - 1)


def _scalar(random: Random, field: Any) -> object:
    if field.type in _FLOATS:
        return random.choice([0.0, 1.5, -2.25])
    if field.type == _BOOL:
        return random.random() < 0.5
    if field.type == _STRING:
        return random.choice(["", "text", "é"])
    if field.type == _BYTES:
        return random.choice([b"", b"bytes", "é".encode()])
    if field.type == _ENUM:
        return random.choice(field.enum_type.values).number
    bits = 64 if field.type in _BITS_64 else 32
    return random.getrandbits(bits) if field.type in _UNSIGNED else random.getrandbits(bits) - (1 << (bits - 1))

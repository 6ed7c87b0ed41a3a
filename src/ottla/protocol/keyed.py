"""How coordinators frame what they store: a key is its type and a message, a value its version and a message.

Type and version are 16-bit numbers. A null value (a tombstone) deletes.
"""

from collections.abc import Mapping
from typing import TypeAlias

from ottla.protocol.message import Message
from ottla.protocol.wire import Buffer, DecodeError

RecordTypes: TypeAlias = Mapping[int, tuple[type[Message], type[Message]]]


def encode_key(message: Message) -> bytes:
    """The key of a record: its type, then the message."""
    return message.API_KEY.to_bytes(2, "big") + message.encode(0)


def encode_value(message: Message, version: int) -> bytes:
    """The value of a record: its version, then the message."""
    return version.to_bytes(2, "big") + message.encode(version)


def decode_keyed(types: RecordTypes, key: Buffer, value: Buffer | None) -> tuple[Message, Message | None] | None:
    """Key and value (None for a tombstone) of a record, or None if its type is unknown: skip those.

    Raises DecodeError if they cannot be read, a version from the future included.
    """
    classes = types.get(_prefix(key))
    if classes is None:
        return None
    key_class, value_class = classes
    name = key_class.decode_from(key, 2, 0)[0]
    if value is None:
        return name, None
    version = _prefix(value)
    if not value_class.MIN_VERSION <= version <= value_class.MAX_VERSION:
        raise DecodeError(f"{value_class.__name__} version {version} is unknown")
    return name, value_class.decode_from(value, 2, version)[0]


def _prefix(buffer: Buffer) -> int:
    if len(buffer) < 2:
        raise DecodeError("A record without type or version")
    return int.from_bytes(buffer[:2], "big", signed=True)

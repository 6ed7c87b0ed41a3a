"""Keys and values into bytes: a callable of the user's, or one of ours by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ottla.clients.errors import ConfigurationError, SerializationFailed

Serializer = Callable[[Any], bytes | None]


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _str(value: str) -> bytes:
    return value.encode()


SERIALIZERS: dict[str, Serializer] = {"json": _json, "str": _str}


def serializer_for(setting: str, given: object) -> Serializer | None:
    """The function for a setting's value; None stays None. Raises ConfigurationError."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            return SERIALIZERS[given]
        except KeyError:
            raise ConfigurationError(
                f"{setting} is {given!r}; it must be a callable or one of {', '.join(SERIALIZERS)}"
            ) from None
    if callable(given):
        return given
    raise ConfigurationError(f"{setting} is {given!r}; it must be a callable or a name")


def serialize(serializer: Serializer, what: str, topic: str, given: object) -> bytes | None:
    """The bytes; None stays None (a tombstone). Raises SerializationFailed with the cause."""
    if given is None:
        return None
    try:
        made = serializer(given)
    except Exception as error:
        raise SerializationFailed(f"The serializer refused a {what} for {topic}: {error}") from error
    return made if type(made) is bytes else as_bytes(made, what)


def as_bytes(given: object, what: str) -> bytes | None:
    """None or bytes of anything that is bytes-like; TypeError for all else."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise TypeError(f"A {what} must be bytes or None, not {type(given).__name__}; or give the producer a serializer")

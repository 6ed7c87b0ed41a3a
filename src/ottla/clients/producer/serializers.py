"""Keys and values into bytes: a callable of the user's, or one of ours by name (`ottla.clients.formats`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.clients.errors import SerializationFailed
from ottla.clients.formats import Call, as_call, format_named

Serializer = Callable[[Any], bytes | None] | Call


def serializer_for(setting: str, given: object) -> Serializer | None:
    """The function for a setting's value; None stays None. Raises ConfigurationError."""
    if given is None:
        return None
    return format_named(setting, given).serialize if isinstance(given, str) else as_call(setting, given)


def serialize(serializer: Serializer, what: str, topic: str, given: object, headers: object = ()) -> bytes | None:
    """The bytes; None stays None (a tombstone). Raises SerializationFailed with the cause."""
    if given is None:
        return None
    try:
        made = serializer(given, topic, headers) if type(serializer) is Call else serializer(given)
    except Exception as error:
        raise SerializationFailed(f"The serializer refused a {what} for {topic}: {error}") from error
    return made if type(made) is bytes else as_bytes(made, what)


def as_bytes(given: object, what: str) -> bytes | None:
    """None or bytes of anything that is bytes-like; TypeError for all else."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    advice = "; or give the producer a serializer" if what in ("key", "value") else ""
    raise TypeError(f"A {what} must be bytes or None, not {type(given).__name__}{advice}")

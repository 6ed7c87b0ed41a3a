"""Serializes keys and values with a callable of the program, or with a named format (`ottla.clients.formats`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.clients.deferred import Deferred, bound
from ottla.clients.errors import SerializationFailed
from ottla.clients.formats import Call, as_call, format_named

Serializer = Callable[[Any], bytes | None] | Call


def serializer_for(setting: str, given: object, *, deferring: bool = False) -> Serializer | None:
    """Return the serializer of a setting; `deferring` says that the client handles Deferred."""
    if given is None:
        return None
    given = bound(given, setting.partition(".")[0], deferring=deferring)
    return format_named(setting, given).serialize if isinstance(given, str) else as_call(setting, given)


def serialize(serializer: Serializer, what: str, topic: str, given: object, headers: object = ()) -> bytes | None:
    """The serialized bytes, None for None (a tombstone). Raises SerializationFailed with the cause."""
    if given is None:
        return None
    try:
        made = serializer(given, topic, headers) if type(serializer) is Call else serializer(given)
    except (SerializationFailed, Deferred):
        raise
    except Exception as error:  # the program's function may raise anything
        raise SerializationFailed(f"The serializer refused a {what} for {topic}: {error}") from error
    return made if type(made) is bytes else as_bytes(made, what)


def as_bytes(given: object, what: str) -> bytes | None:
    """Convert a bytes-like object to bytes; None stays None. Raises TypeError for other types."""
    if given is None or type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    advice = "; or give the producer a serializer" if what in ("key", "value") else ""
    raise TypeError(f"A {what} must be bytes or None, not {type(given).__name__}{advice}")

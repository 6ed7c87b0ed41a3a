"""Named formats of keys and values: Kafka's serializers, with the same bytes, and "json".

`format_named` takes "int32", "integer", "IntegerSerializer" and Kafka's full class name alike. `Call`
determines once whether a function of the program has the parameters `topic` and `headers` besides the data.
"""

from __future__ import annotations

import inspect
import json
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.clients.errors import ConfigurationError

# json, uuid and inspect are imported where they are used, because most clients do not need them.


class Format(NamedTuple):
    """A pair of functions, from value to bytes and back. Both raise ValueError, TypeError or struct.error."""

    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]


def _number(code: str) -> Format:
    packed = struct.Struct(code)
    return Format(packed.pack, lambda data: packed.unpack(data)[0])


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _from_json(data: bytes) -> object:
    return json.loads(data)


def _text(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value.encode()


def _uuid(value: uuid.UUID) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise TypeError(f"{value!r} is not a UUID")
    return str(value).encode()


def _from_uuid(data: bytes) -> uuid.UUID:
    return uuid.UUID(data.decode())


def _bytes(value: bytes | bytearray | memoryview) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{value!r} is not bytes")
    return bytes(value)


def _bool(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"{data!r} is neither 0 nor 1 in one byte")
    return data == b"\1"


FORMATS: Final[dict[str, Format]] = {
    "string": Format(_text, bytes.decode),
    "json": Format(_json, _from_json),
    "bytes": Format(_bytes, bytes),
    "int16": _number(">h"),
    "int32": _number(">i"),
    "int64": _number(">q"),
    "float": _number(">f"),
    "double": _number(">d"),
    "uuid": Format(_uuid, _from_uuid),
    "boolean": Format(lambda value: b"\1" if value else b"\0", _bool),
}
_ALIASES: Final = {
    "str": "string", "short": "int16", "int": "int32", "integer": "int32", "long": "int64", "bool": "boolean",
    "bytearray": "bytes", "bytebuffer": "bytes",
}  # fmt: skip


def format_named(setting: str, name: str) -> Format:
    """Return the format with this name. Raises ConfigurationError with the known names."""
    short = name.rpartition(".")[2].lower()
    for suffix in ("deserializer", "serializer"):
        short = short.removesuffix(suffix)
    found = FORMATS.get(_ALIASES.get(short, short))
    if found is None:
        raise ConfigurationError(f"{setting} is {name!r}; it must be a callable or one of {', '.join(FORMATS)}")
    return found


class Call:
    """A function of the program with parameters besides the data: `call(data, topic, headers)`."""

    __slots__ = ("_headers", "_topic", "function")

    def __init__(self, function: Callable[..., Any], *, topic: bool, headers: bool) -> None:
        self.function = function
        self._topic = topic
        self._headers = headers

    def __call__(self, data: Any, topic: str = "", headers: object = ()) -> Any:
        more: dict[str, Any] = {}
        if self._topic:
            more["topic"] = topic
        if self._headers:
            more["headers"] = headers
        return self.function(data, **more)


def as_call(setting: str, given: object) -> Callable[[Any], Any] | Call:
    """Return the function itself if it takes only the data, else a Call. Raises ConfigurationError."""
    if not callable(given):
        raise ConfigurationError(f"{setting} is {given!r}; it must be a callable or one of {', '.join(FORMATS)}")
    try:
        parameters = inspect.signature(given).parameters
    except (TypeError, ValueError):  # a C function without a signature
        return given
    topic, headers = "topic" in parameters, "headers" in parameters
    return Call(given, topic=topic, headers=headers) if topic or headers else given

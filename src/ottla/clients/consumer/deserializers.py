"""Deserializes keys and values with functions of the user's, or with our formats by name. None stays None.

A record that cannot be deserialized does not block the records after it. `apply` returns its error; the caller returns
the records after it in a later poll. With `skip`, such a record is logged and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.clients.consumer.record import Record
from ottla.clients.errors import DeserializationFailed
from ottla.clients.formats import Call, as_call, format_named

logger = logging.getLogger("ottla.clients.consumer")
Deserializer = Callable[[bytes], Any] | Call


def deserializer(value: object, name: str) -> Deserializer | None:
    """Return the function of a setting; None leaves bytes unchanged. Raises ConfigurationError."""
    if value is None or value == "bytes":
        return None
    return format_named(name, value).deserialize if isinstance(value, str) else as_call(name, value)


class Deserializers:
    """The deserializers of keys and values. `skip`: a record that cannot be deserialized is logged and skipped."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None, *, skip: bool = False) -> None:
        self._key = key
        self._value = value
        self._skip = skip
        self.active = key is not None or value is not None

    def apply(self, records: list[Record[Any, Any]]) -> tuple[list[Record[Any, Any]], DeserializationFailed | None]:
        """Return the deserialized records up to the first failure, and the error of that failure."""
        made: list[Record[Any, Any]] = []
        for record in records:
            offset, timestamp, key, value, headers = record
            what = "key"
            try:
                if self._key is not None and key is not None:
                    key = _call(self._key, key, record)
                what = "value"
                if self._value is not None and value is not None:
                    value = _call(self._value, value, record)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything; the user gets it
                if not self._skip:
                    return made, _failed(record, what, error)
                logger.error("Skipped: %s", _text(record, what, error))  # noqa: TRY400 - one line per record
                continue
            made.append(type(record)(offset, timestamp, key, value, headers))
        return made, None


def _call(function: Deserializer, data: bytes, record: Record) -> Any:
    return function(data, record.topic, record.headers) if type(function) is Call else function(data)


def _text(record: Record, what: str, error: Exception) -> str:
    return f"The {what} of {record.topic_partition} at offset {record.offset} cannot be read: {error!r}"


def _failed(record: Record, what: str, error: Exception) -> DeserializationFailed:
    failed = DeserializationFailed(
        f"{_text(record, what, error)}; poll again to continue after it",
        topic=record.topic, partition=record.partition, offset=record.offset,
    )  # fmt: skip
    failed.record = record
    failed.what = what
    failed.__cause__ = error
    return failed

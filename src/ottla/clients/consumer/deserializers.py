"""From bytes to values: functions of the user's, or ours by name. None (a tombstone, no key) stays None.

A record that cannot be read never stands in the way of the next: `apply` says which it is, and what follows it is
handed over by a later call, or at once if such records are left out.
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
    """The function that a setting names; None leaves bytes as they are. Raises ConfigurationError."""
    if value is None or value == "bytes":
        return None
    return format_named(name, value).deserialize if isinstance(value, str) else as_call(name, value)


class Deserializers:
    """The key's and the value's. `skip`: a record that cannot be read is logged and left out."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None, *, skip: bool = False) -> None:
        self._key = key
        self._value = value
        self._skip = skip
        self.active = key is not None or value is not None

    def apply(self, records: list[Record[Any, Any]]) -> tuple[list[Record[Any, Any]], DeserializationFailed | None]:
        """The records with their values made, as far as that goes, and what stopped it."""
        made: list[Record[Any, Any]] = []
        for record in records:
            offset, timestamp, key, value, headers = record
            what = "key"
            try:
                if self._key is not None and key is not None:
                    key = _made(self._key, key, record)
                what = "value"
                if self._value is not None and value is not None:
                    value = _made(self._value, value, record)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises goes to the user
                if not self._skip:
                    return made, _failed(record, what, error)
                logger.error("Skipped: %s", _text(record, what, error))  # noqa: TRY400 - one line each
                continue
            made.append(type(record)(offset, timestamp, key, value, headers))
        return made, None


def _made(function: Deserializer, data: bytes, record: Record) -> Any:
    return function(data, record.topic, record.headers) if type(function) is Call else function(data)


def _text(record: Record, what: str, error: Exception) -> str:
    return f"The {what} of {record.topic_partition} at offset {record.offset} cannot be read: {error!r}"


def _failed(record: Record, what: str, error: Exception) -> DeserializationFailed:
    failed = DeserializationFailed(
        f"{_text(record, what, error)}; polling again goes on after it",
        topic=record.topic, partition=record.partition, offset=record.offset,
    )  # fmt: skip
    failed.record = record
    failed.what = what
    failed.__cause__ = error
    return failed

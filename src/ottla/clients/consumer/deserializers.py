"""From bytes to values: functions of one argument, or "str" and "json". None (a tombstone, no key) stays None."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ottla.clients.consumer.record import Record
from ottla.clients.errors import ConfigurationError, DeserializationFailed

Deserializer = Callable[[bytes], Any]


def deserializer(value: object, name: str) -> Deserializer | None:
    """The function that a setting names; None leaves bytes as they are."""
    if value is None or value == "bytes":
        return None
    if value == "str":
        return bytes.decode
    if value == "json":
        return json.loads
    if callable(value):
        return value
    raise ConfigurationError(f"{name} is {value!r}; it must be a function of bytes, 'str', 'json' or 'bytes'")


class Deserializers:
    """The key's and the value's."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value
        self.active = key is not None or value is not None

    def apply(self, records: list[Record]) -> tuple[list[Record], DeserializationFailed | None]:
        """The records with their values made, as far as that goes, and what stopped it."""
        made: list[Record] = []
        for record in records:
            offset, timestamp, key, value, headers = record
            what = "key"
            try:
                if self._key is not None and key is not None:
                    key = self._key(key)
                what = "value"
                if self._value is not None and value is not None:
                    value = self._value(value)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises goes to the user
                failed = DeserializationFailed(
                    f"The {what} of {record.topic_partition} at offset {offset} cannot be read: {error!r}; polling "
                    "again goes on after it",
                    topic=record.topic, partition=record.partition, offset=offset,
                )  # fmt: skip
                failed.__cause__ = error
                return made, failed
            made.append(type(record)(offset, timestamp, key, value, headers))
        return made, None

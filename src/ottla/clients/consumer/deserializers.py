"""Deserializes keys and values with functions of the user's, or with our formats by name. None stays None.

A record that cannot be deserialized does not block the records after it. `apply` returns its error; the caller returns
the records after it in a later poll. With `skip`, such a record is logged and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ottla.clients import late
from ottla.clients.consumer.record import Record, TimestampType, record_class
from ottla.clients.deferred import Deferred, bound
from ottla.clients.errors import ConfigurationError, DeserializationFailed
from ottla.clients.formats import Call, as_call, format_named
from ottla.registry_client.errors import RegistryClientError

logger = logging.getLogger("ottla.clients.consumer")
Deserializer = Callable[[bytes], Any] | Call


def deserializer(value: object, name: str, *, deferring: bool = False) -> Deserializer | None:
    """Return the function of a setting; None leaves bytes unchanged. Raises ConfigurationError.

    `deferring` says that the client handles Deferred.
    """
    value = bound(value, name.partition(".")[0], deferring=deferring)
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
        makers = {"key": _columns(key), "value": _columns(value)}
        self._makers = {part: make for part, make in makers.items() if make is not None}
        self._columns: dict[str, Any] = {}

    @property
    def has_columns(self) -> bool:
        """Whether a deserializer decodes whole Arrow columns."""
        return bool(self._makers)

    def apply_columns(self, batch: Any) -> tuple[Any, DeserializationFailed | None]:
        """Return a batch with decoded columns, and the error of its first invalid value.

        Rows from that value on are not in the batch. With `skip`, rows with invalid values are logged and removed.
        Raises Deferred as `apply`.
        """
        topic = batch.column("topic")[0].as_py()
        decoded, bad = batch, []
        for part, make in self._makers.items():
            columns = self._columns.get(part) or self._columns.setdefault(part, make())
            index = batch.schema.get_field_index(part)
            try:
                column, found = columns.decode(batch.column(index), topic)
            except (ConfigurationError, RegistryClientError) as error:
                unread = DeserializationFailed(str(error))
                unread.retriable = True  # no row is invalid, so no row may be skipped
                return batch.slice(0, 0), _failed(_place(batch, 0), part, unread)
            decoded = decoded.set_column(index, decoded.schema.field(index).with_type(column.type), column)
            bad += [(row, part, field, reason) for row, field, reason in found]
        if not bad:
            return decoded, None
        if self._skip:
            for row, part, field, reason in sorted(bad):
                logger.error("Skipped: %s", _text(_place(batch, row), part, _invalid(field, reason)))
            return late.arrow.without_rows(decoded, {row for row, *_ in bad}), None
        row, part, field, reason = min(bad)
        return decoded.slice(0, row), _failed(_place(batch, row), part, _invalid(field, reason))

    def apply(self, records: list[Record[Any, Any]]) -> tuple[list[Record[Any, Any]], DeserializationFailed | None]:
        """Return the deserialized records up to the first failure, and the error of that failure.

        Raises Deferred if a deserializer of an asyncio client needs a request first.
        """
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
            except Deferred:
                raise
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything; the user gets it
                if not self._skip or _is_retriable(error):
                    return made, _failed(record, what, error)
                logger.error("Skipped: %s", _text(record, what, error))  # noqa: TRY400 - one line per record
                continue
            made.append(type(record)(offset, timestamp, key, value, headers))
        return made, None


def _columns(function: Deserializer | None) -> Any:
    """Return the function that makes a deserializer's decoder of whole columns; None if it has none."""
    return getattr(function.function if type(function) is Call else function, "columns", None)


def _place(batch: Any, row: int) -> Record[Any, Any]:
    """Return a row as the record that it was, for messages."""
    topic, partition, offset, timestamp, key, value = (
        batch.column(name)[row].as_py() for name in ("topic", "partition", "offset", "timestamp", "key", "value")
    )
    made = record_class(topic, partition, -1, TimestampType.CREATE_TIME)
    headers = [(each["key"], each["value"]) for each in batch.column("headers")[row].as_py()]
    return made(offset, round(timestamp.timestamp() * 1000), key, value, headers)


def _invalid(field: str, reason: str) -> DeserializationFailed:
    error = DeserializationFailed(f"its field {field!r} {reason}" if field else f"it {reason}")
    error.field = field
    return error


def _call(function: Deserializer, data: bytes, record: Record) -> Any:
    return function(data, record.topic, record.headers) if type(function) is Call else function(data)


def _text(record: Record, what: str, error: Exception) -> str:
    reason = str(error) if isinstance(error, DeserializationFailed) else repr(error)
    return f"The {what} of {record.topic_partition} at offset {record.offset} cannot be read: {reason}"


def _is_retriable(error: Exception) -> bool:
    """Whether the same record may be deserialized later, so that it must not be skipped."""
    return isinstance(error, DeserializationFailed) and error.retriable


def _failed(record: Record, what: str, error: Exception) -> DeserializationFailed:
    is_retriable = _is_retriable(error)
    failed = DeserializationFailed(
        f"{_text(record, what, error)}; poll again to {'read it again' if is_retriable else 'continue after it'}",
        topic=record.topic, partition=record.partition, offset=record.offset,
    )  # fmt: skip
    failed.record = record
    failed.what = what
    failed.retriable = is_retriable
    if isinstance(error, DeserializationFailed):
        failed.subject, failed.field = error.subject, error.field
    failed.__cause__ = error
    return failed

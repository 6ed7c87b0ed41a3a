"""Records as connectors and transformations see them: keys and values of Connect's data. See `data`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

if TYPE_CHECKING:
    from ottla.connect.data import Schema

Position: TypeAlias = Mapping[str, Any]
"""A source partition or a source offset: JSON values by name."""


class Header(NamedTuple):
    """A header of a record. A key may occur several times."""

    key: str
    value: Any
    schema: Schema | None = None


@dataclass(slots=True)
class ConnectRecord:
    """The common part of records of both directions. Transformations return another record, or change this one."""

    topic: str
    partition: int | None
    """The partition of the topic; None: the producer's partitioner decides."""
    key_schema: Schema | None
    key: Any
    value_schema: Schema | None
    value: Any
    timestamp: int | None = None
    """Milliseconds since 1970; None: the time of the write."""
    headers: list[Header] = field(default_factory=list)


@dataclass(slots=True)
class SourceRecord(ConnectRecord):
    """A record for a topic, and where its source goes on after it. With an empty topic, just the offset is written."""

    source_partition: Position | None = None
    source_offset: Position | None = None


@dataclass(slots=True)
class EncodedRecord(SourceRecord):
    """A record whose key and value are bytes that the converters of the task would return. See `SourceTaskContext`."""


@dataclass(slots=True)
class EncodedBatch(SourceRecord):
    """Many records with one topic, partition, key and timestamp. `value` is the sequence of their values.

    Key and values are bytes, as in an `EncodedRecord`. The source goes on at the offset after the last of them, so that
    all or none of them are read again.
    """


@dataclass(slots=True)
class SinkRecord(ConnectRecord):
    """A record of a topic. The original place stays when a transformation changes the topic (KIP-793)."""

    offset: int = -1
    timestamp_type: str = "NoTimestampType"
    original_topic: str = ""
    original_partition: int = -1
    original_offset: int = -1


class PlainRecords(Sequence[SinkRecord]):
    """Records of a poll whose values are text or bytes, without headers, and which no transformation changes.

    A sink may use `raw` instead, the records of the topic in bytes. `SinkRecord`s are created by the first access.
    """

    def __init__(self, raw: Sequence[Any], convert: Callable[[Any], SinkRecord], *, is_text: bool) -> None:
        self.raw = raw
        self.is_text = is_text
        """Whether values are UTF-8, in which invalid bytes stand for U+FFFD; else bytes."""
        self._convert = convert
        self._records: list[SinkRecord] | None = None

    def valid_values(self) -> list[bytes | None] | None:
        """Return all values in bytes; None if they are not text, or the text of one is not valid."""
        if not self.is_text:
            return None
        values = [each.value for each in self.raw]
        return values if is_utf8(values) else None

    def by_partition(self) -> Iterator[PlainRecords]:
        """Yield runs of records from one partition."""
        for _, run in groupby(self.raw, type):  # each partition has its own class of records
            yield PlainRecords(list(run), self._convert, is_text=self.is_text)

    @property
    def _converted(self) -> list[SinkRecord]:
        if self._records is None:
            self._records = [self._convert(each) for each in self.raw]
        return self._records

    def __len__(self) -> int:
        return len(self.raw)

    def __iter__(self) -> Iterator[SinkRecord]:
        return iter(self._converted)

    @overload
    def __getitem__(self, index: int) -> SinkRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[SinkRecord]: ...
    def __getitem__(self, index: int | slice) -> SinkRecord | Sequence[SinkRecord]:
        return self._converted[index]


def is_utf8(values: Sequence[bytes | None]) -> bool:
    """Whether each value is valid UTF-8. They are checked together: no sequence of bytes goes on after a line end."""
    try:
        b"\n".join([each for each in values if each is not None]).decode()
    except UnicodeDecodeError:
        return False
    return True


def valid_text(values: list[bytes]) -> list[bytes]:
    """Return values with U+FFFD in place of bytes that are not UTF-8, as the converter for text does."""
    return values if is_utf8(values) else [each.decode(errors="replace").encode() for each in values]

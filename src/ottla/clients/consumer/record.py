"""The consumer's record: a tuple of offset, timestamp, key, value and headers, with a topic and a partition.

Topic and partition are attributes of the record's class, and each partition has its own class. So a record takes no
more memory than a tuple, and the decoding kernel creates it as fast as a tuple.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple

from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:  # typing.TypeVar has defaults since Python 3.13
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class TimestampType(Enum):
    """Whether the producer or the broker set a record's timestamp (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class _Fields(NamedTuple, Generic[K, V]):
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: list[tuple[str, bytes | None]]


class Record(_Fields[K, V]):
    """One record. `timestamp` is in ms since the epoch. Key and value are bytes, None, or a deserializer's result.

    `topic`, `partition`, `leader_epoch` (-1 if unknown) and `timestamp_type` are attributes, but not elements of the
    tuple.
    """

    __slots__ = ()
    topic: ClassVar[str] = ""
    partition: ClassVar[int] = -1
    leader_epoch: ClassVar[int] = -1
    timestamp_type: ClassVar[TimestampType] = TimestampType.CREATE_TIME

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's topic and partition."""
        return TopicPartition(self.topic, self.partition)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record) and (self.topic, self.partition) != (other.topic, other.partition):
            return False
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"Record(topic={self.topic!r}, partition={self.partition}, {fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.topic, self.partition, self.leader_epoch, self.timestamp_type, *self)


_classes: dict[tuple[str, int, int, TimestampType], type[Record[Any, Any]]] = {}
_MAX_CLASSES: Final = 100_000


def record_class(
    topic: str,
    partition: int,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> type[Record[Any, Any]]:
    """Return the class of records with these attributes. Classes are cached."""
    key = topic, partition, leader_epoch, timestamp_type
    found = _classes.get(key)
    if found is None:
        if len(_classes) >= _MAX_CLASSES:
            _classes.clear()
        members = {
            "__slots__": (),
            "topic": topic,
            "partition": partition,
            "leader_epoch": leader_epoch,
            "timestamp_type": timestamp_type,
        }
        found = _classes[key] = type("Record", (Record,), members)
    return found


def _unpickle(
    topic: str, partition: int, leader_epoch: int, timestamp_type: TimestampType, *fields: Any
) -> Record[Any, Any]:
    return record_class(topic, partition, leader_epoch, timestamp_type)(*fields)

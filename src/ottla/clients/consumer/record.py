"""What a consumer hands over: a tuple of offset, timestamp, key, value, headers that knows its topic and partition.

Topic and partition are attributes of the class, one class per partition: a million records of a partition then cost
what a million tuples cost, and the kernel makes them without a detour.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple

from ottla.common.ids import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:  # typing's has defaults from Python 3.13 on
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class TimestampType(Enum):
    """Who set a record's timestamp: its producer, or the broker when it appended the record (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class _Fields(NamedTuple, Generic[K, V]):
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: list[tuple[str, bytes | None]]


class Record(_Fields[K, V]):
    """One record. `timestamp` is in ms since the epoch; key and value are bytes or None, or what a deserializer made.

    `topic` and `partition` say where it is from, `leader_epoch` (-1 if unknown) and `timestamp_type` how it was
    written; they do not count as elements of the tuple.
    """

    __slots__ = ()
    topic: ClassVar[str] = ""
    partition: ClassVar[int] = -1
    leader_epoch: ClassVar[int] = -1
    timestamp_type: ClassVar[TimestampType] = TimestampType.CREATE_TIME

    @property
    def topic_partition(self) -> TopicPartition:
        """Where it is from."""
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
        return _unpickled, (self.topic, self.partition, self.leader_epoch, self.timestamp_type, *self)


_classes: dict[tuple[str, int, int, TimestampType], type[Record[Any, Any]]] = {}
_MOST_CLASSES = 100_000


def record_class(
    topic: str,
    partition: int,
    leader_epoch: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> type[Record[Any, Any]]:
    """The class of the records of one partition that were written in one way."""
    key = topic, partition, leader_epoch, timestamp_type
    found = _classes.get(key)
    if found is None:
        if len(_classes) >= _MOST_CLASSES:
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


def make_record(topic: str, partition: int, *fields: Any) -> Record[Any, Any]:
    """A record of `topic` and `partition`, from the elements of its tuple."""
    return record_class(topic, partition)(*fields)


def _unpickled(
    topic: str, partition: int, leader_epoch: int, timestamp_type: TimestampType, *fields: Any
) -> Record[Any, Any]:
    return record_class(topic, partition, leader_epoch, timestamp_type)(*fields)

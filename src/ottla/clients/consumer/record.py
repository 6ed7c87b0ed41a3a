"""What a consumer hands over: a tuple of offset, timestamp, key, value, headers that knows its topic and partition.

Topic and partition are attributes of the class, one class per partition: a million records of a partition then cost
what a million tuples cost, and the kernel makes them without a detour.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from ottla.common.ids import TopicPartition


class _Fields(NamedTuple):
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]


class Record(_Fields):
    """One record. `timestamp` is in ms since the epoch; key and value are bytes or None, or what a deserializer made.

    `topic` and `partition` say where it is from; they do not count as elements of the tuple.
    """

    __slots__ = ()
    topic: ClassVar[str] = ""
    partition: ClassVar[int] = -1

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
        return make_record, (self.topic, self.partition, *self)


_classes: dict[tuple[str, int], type[Record]] = {}
_MOST_CLASSES = 100_000


def record_class(topic: str, partition: int) -> type[Record]:
    """The class of the records of one partition."""
    found = _classes.get((topic, partition))
    if found is None:
        if len(_classes) >= _MOST_CLASSES:
            _classes.clear()
        found = type("Record", (Record,), {"__slots__": (), "topic": topic, "partition": partition})
        _classes[topic, partition] = found
    return found


def make_record(topic: str, partition: int, *fields: Any) -> Record:
    """A record of `topic` and `partition`, from the elements of its tuple."""
    return record_class(topic, partition)(*fields)

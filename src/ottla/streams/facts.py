"""The facts and findings of a diagnosis. Without I/O, clock or Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.streams.status import Input, Partition, Status


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction in an input that holds the last stable offset back."""

    partition: TopicPartition
    start_offset: int
    producer_id: int
    transactional_id: str | None
    last_record_ms: int
    waiting: int
    """The records from its start to the end of the log."""
    mirror: str | None = None
    """The mirror that copies the topic: the transaction belongs to its source."""


@dataclass(frozen=True)
class KeySample:
    """The most frequent key among the newest records of a partition."""

    partition: TopicPartition
    records: int
    """How many records were read."""
    key: bytes | None
    """None: records without a key are the most."""
    count: int
    """How many of the records have this key."""


@dataclass(frozen=True)
class Facts:
    """The state of the inputs in the brokers."""

    now_ms: int
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The ends of the inputs, as the query can read them."""
    transactions: Sequence[OpenTransaction] = ()
    missing: Sequence[str] = ()
    """The inputs that do not exist any more."""
    keys: KeySample | None = None
    """Of the skewed partition, if there is one."""


@dataclass(frozen=True)
class Finding:
    """One reason, and what to do about it. `is_problem` is false for a state that needs no action."""

    cause: str
    text: str
    advice: Sequence[str] = ()
    is_problem: bool = True


def lag_of(status: Status, facts: Facts) -> int:
    """Return how many offsets of all inputs are not processed yet."""
    return sum(
        each.lag if each.omitted else sum(partition_lag(each, one, facts) for one in each.partitions)
        for each in status.inputs
    )


def partition_lag(given: Input, each: Partition, facts: Facts) -> int:
    """Return how many offsets of a partition are not processed yet."""
    end = facts.ends.get(TopicPartition(given.topic, each.partition), each.end)
    return max(0, end - each.offset)


def records(number: int) -> str:
    """Return `1 record` or `2 records`."""
    return units.plural(number, "record")

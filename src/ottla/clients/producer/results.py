"""What a delivery that went well tells: where records are."""

from __future__ import annotations

from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """Where a record is: `offset` is -1 if nobody knows (acks=0, or a duplicate that the broker had long ago).

    `timestamp` in ms since the epoch: the broker's if the topic stamps records itself, otherwise the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class AppendedRange(NamedTuple):
    """Where `records` consecutive records are: `first_offset` and those that follow; -1 if nobody knows."""

    topic: str
    partition: int
    first_offset: int
    records: int

"""The results of deliveries: the positions of records."""

from __future__ import annotations

from typing import NamedTuple


class RecordMetadata(NamedTuple):
    """The position of a record. `offset` is -1 if it is unknown (acks=0, or a duplicate of an old record).

    `timestamp` in ms since the epoch: the broker's if the topic uses log append time, otherwise the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class AppendedRange(NamedTuple):
    """The positions of `records` consecutive records from `first_offset` on; -1 if it is unknown."""

    topic: str
    partition: int
    first_offset: int
    records: int

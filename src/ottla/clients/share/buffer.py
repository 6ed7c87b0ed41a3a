"""Acquired records that no poll has returned yet. They are decoded when a poll needs them.

The lock of an acquired record is limited in time, and ends with the share session. After that the broker gives the
record to any member, so it is dropped here: not returned and not acknowledged.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.heartbeat_requests import TopicIdPartition
from ottla.clients.consumer.record import Record
from ottla.clients.errors import CorruptRecords
from ottla.clients.share.acknowledgements import GAP, AcknowledgeType
from ottla.common.ids import TopicPartition

logger = logging.getLogger("ottla.clients.share")


class Source(NamedTuple):
    """Where acquired records came from: one partition's part of one response."""

    node: int
    key: TopicIdPartition
    tp: TopicPartition
    locked_until_ms: float


class Acquired(NamedTuple):
    """Where an acquired record came from, and how often it was delivered."""

    source: Source
    delivery_count: int


class Parcel(NamedTuple):
    """The acquired records of one source: (first offset, last offset, delivery count)."""

    source: Source
    fetched: Fetched
    acquired: tuple[tuple[int, int, int], ...]


class Unreadable(NamedTuple):
    """Acquired offsets of one source without a readable record, and their acknowledgement types."""

    source: Source
    types: dict[int, int]


class Dropped(NamedTuple):
    """How many records were dropped, and how many of them an earlier poll had decoded and not returned."""

    total: int
    decoded: int


class AcquiredRecords:
    """The records between a fetch and the poll that returns them."""

    def __init__(self) -> None:
        self._parcels: deque[Parcel] = deque()
        self._ready: deque[tuple[Record[Any, Any], Acquired]] = deque()
        self.unreadable: list[Unreadable] = []
        """The records that `take` could not decode; the caller acknowledges and removes them."""
        self.error: CorruptRecords | None = None
        """The last error of `take`; the caller raises and removes it."""

    def __bool__(self) -> bool:
        return bool(self._parcels or self._ready)

    @property
    def decoded(self) -> set[tuple[TopicPartition, int]]:
        return {(record.topic_partition, record.offset) for record, _ in self._ready}

    def add(self, parcel: Parcel) -> None:
        self._parcels.append(parcel)

    def give_back(self, record: Record[Any, Any], acquired: Acquired) -> None:
        """Return this record again, before all others."""
        self._ready.appendleft((record, acquired))

    def take(self, limit: int) -> list[tuple[Record[Any, Any], Acquired]]:
        while len(self._ready) < limit and self._parcels:
            self._open(self._parcels.popleft())
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def _open(self, parcel: Parcel) -> None:
        """Decode a parcel. An acquired offset without a record is a gap; one that cannot be read is released."""
        found: dict[int, Record[Any, Any]] = {}
        released: list[range] = []
        while not parcel.fetched.exhausted:
            try:
                found.update((record.offset, record) for record in parcel.fetched.take(1 << 30))
            except CorruptRecords as error:
                self.error = error
                released.append(range(error.offset, max(error.next_offset, error.offset + 1)))
        missing: dict[int, int] = {}
        for first, last, delivery_count in parcel.acquired:
            acquired = Acquired(parcel.source, delivery_count)
            for offset in range(first, last + 1):
                record = found.get(offset)
                if record is not None:
                    self._ready.append((record, acquired))
                else:
                    is_corrupt = any(offset in each for each in released)
                    missing[offset] = AcknowledgeType.RELEASE if is_corrupt else GAP
        if missing:
            self.unreadable.append(Unreadable(parcel.source, missing))

    def drop_expired(self, now_ms: float) -> Dropped:
        return self._drop(lambda source: source.locked_until_ms <= now_ms, "their locks ended before a poll took them")

    def drop_node(self, node: int) -> Dropped:
        """Drop the records of a broker whose share session ended: it releases them."""
        return self._drop(lambda source: source.node == node, "the share session with their broker ended")

    def _drop(self, is_lost: Callable[[Source], bool], reason: str) -> Dropped:
        lost: Counter[TopicPartition] = Counter()
        for _, acquired in self._ready:
            if is_lost(acquired.source):
                lost[acquired.source.tp] += 1
        decoded = lost.total()
        for parcel in self._parcels:
            if is_lost(parcel.source):
                lost[parcel.source.tp] += sum(last - first + 1 for first, last, _ in parcel.acquired)
        if lost:
            self._parcels = deque(parcel for parcel in self._parcels if not is_lost(parcel.source))
            self._ready = deque(row for row in self._ready if not is_lost(row[1].source))
        for tp, count in lost.items():
            logger.info("Dropped %d acquired records of %s: %s", count, tp, reason)
        return Dropped(lost.total(), decoded)

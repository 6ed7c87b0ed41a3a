"""Compares the logs of a partition in two clusters, batch by batch, as consumers read them.

Both logs are read at the same time, a few MiB of each. Batches with equal bytes are equal. Other batches are decoded,
to find the first and the last record that differs. Where the topic is compacted, a record may be missing in one of the
logs: compaction runs in each cluster at its own time. Such records are counted, and all others must still be equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ottla.clients.admin import FetchedBatches
from ottla.clients.errors import OffsetOutOfRange
from ottla.common.errors import KafkaError
from ottla.common.failure import Failure
from ottla.records import BatchHeader, Record, check_crc, decode_batch, iter_batches

MOST_DIFFERENCES: Final = 100
"""Ranges of one partition that are listed; the number of differing batches counts all."""
_RETRIES: Final = 50
_RETRY_S: Final = 0.2


class Batch(NamedTuple):
    """One batch with its bytes."""

    header: BatchHeader
    data: bytes


class Difference(NamedTuple):
    """A range of offsets in which the logs differ, both ends included."""

    first_offset: int
    last_offset: int
    text: str


class LogSide:
    """The log of a partition in one cluster."""

    def __init__(self, name: str, fetch: Callable[[int], FetchedBatches], log_start: Callable[[], int]) -> None:
        """`fetch` returns the batches from an offset on, `log_start` the log start offset now; both may raise."""
        self.name = name
        self.log_start = log_start
        self._fetch = fetch

    def batches(self, offset: int, end: int) -> Iterator[Batch]:
        """Yield the batches with offsets from `offset` to `end`. Raises OffsetOutOfRange, and Failure without data."""
        retries = 0
        while offset < end:
            found = self._fetch(offset)
            first = offset
            for position, header in iter_batches(found.records):
                if header.base_offset >= end:
                    return
                offset = header.next_offset
                yield Batch(header, found.records[position : position + header.size])
            if offset != first:
                retries = 0
                continue
            # An empty answer has several causes: a quota, or a leader that does not know its high watermark yet.
            retries += 1
            if retries > _RETRIES:
                if found.high_watermark >= end:
                    return  # compaction has removed the last batches
                raise Failure(f"the {self.name} has no records from offset {offset} on any more", "Run it again.")
            time.sleep(_RETRY_S if found.high_watermark < end else _RETRY_S / 10)


class Comparison:
    """The result for one partition."""

    def __init__(self, source: LogSide, target: LogSide, *, is_compacted: bool) -> None:
        """`is_compacted`: the topic's cleanup policy permits that records are missing in one of the logs."""
        self.differences: list[Difference] = []
        self.differing = 0
        """Batches that differ."""
        self.compacted = 0
        """Records of only one side, in a compacted topic."""
        self.deleted = 0
        """Offsets that one cluster deleted while they were compared."""
        self.size = 0
        """Bytes that are equal."""
        self._source, self._target, self._is_compacted = source, target, is_compacted

    def run(self, start: int, end: int, advance: Callable[[int, int], object]) -> None:
        """Compare the offsets from `start` to `end`; `advance` receives the finished offsets and their bytes."""
        position = start
        while position < end:
            try:
                for reached, size in self._steps(position, end):
                    advance(max(0, reached - position), size)
                    position = max(position, reached)
            except OffsetOutOfRange:
                later = max(self._source.log_start(), self._target.log_start())
                if later <= position:
                    raise
                self.deleted += min(later, end) - position
                advance(min(later, end) - position, 0)
                position = later
            else:
                advance(end - position, 0)
                return

    def _steps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Compare; yield the next offset and the bytes after each batch."""
        ours, theirs = self._source.batches(start, end), self._target.batches(start, end)
        one, other = next(ours, None), next(theirs, None)
        while one is not None or other is not None:
            if other is None or (one is not None and one.header.base_offset < other.header.base_offset):
                assert one is not None
                yield self._missing(one, self._source.name)
                one = next(ours, None)
            elif one is None or other.header.base_offset < one.header.base_offset:
                yield self._missing(other, self._target.name)
                other = next(theirs, None)
            else:
                yield self._pair(one, other)
                one, other = next(ours, None), next(theirs, None)

    def _pair(self, one: Batch, other: Batch) -> tuple[int, int]:
        """Compare two batches with the same base offset."""
        if one.data == other.data:
            self.size += one.header.size
        else:
            self._note(self._difference(one, other))
        return max(one.header.next_offset, other.header.next_offset), one.header.size

    def _missing(self, batch: Batch, name: str) -> tuple[int, int]:
        header = batch.header
        if self._is_compacted:
            self.compacted += header.record_count
        else:
            self._note(Difference(header.base_offset, header.last_offset, f"only the {name} has a batch there"))
        return header.next_offset, header.size

    def _difference(self, one: Batch, other: Batch) -> Difference | None:
        first, last = one.header.base_offset, max(one.header.last_offset, other.header.last_offset)
        for batch, side in ((one, self._source), (other, self._target)):
            if not check_crc(batch.data, 0, batch.header.size):
                return Difference(first, last, f"the batch of the {side.name} is corrupt: its CRC is wrong")
        try:
            mine, yours = _records(one), _records(other)
        except KafkaError as error:
            return Difference(first, last, f"the bytes differ, and a batch cannot be decoded: {error}")
        # Missing records come first: the records that both sides have are the smaller part of such a range.
        alone = sorted(mine.keys() ^ yours.keys())
        changed = [offset for offset in sorted(mine.keys() & yours.keys()) if mine[offset] != yours[offset]]
        if self._is_compacted:
            self.compacted += len(alone)
            alone = []
        if differing := sorted(changed + alone):
            return Difference(differing[0], differing[-1], "the records differ")
        if _origin(one.header) != _origin(other.header):
            return Difference(first, last, "the leader epochs or producers differ; the records are equal")
        return None if self._is_compacted else Difference(first, last, "the batches differ; their records are equal")

    def _note(self, found: Difference | None) -> None:
        """Add a difference; one that continues the last one extends it."""
        if found is None:
            return
        self.differing += 1
        last = self.differences[-1] if self.differences else None
        if last is not None and found.text == last.text and found.first_offset <= last.last_offset + 1:
            self.differences[-1] = last._replace(last_offset=max(found.last_offset, last.last_offset))
        elif len(self.differences) < MOST_DIFFERENCES:
            self.differences.append(found)


def _records(batch: Batch) -> dict[int, Record]:
    return {record.offset: record for record in decode_batch(batch.data)}


def _origin(header: BatchHeader) -> tuple[int, int, int]:
    return header.partition_leader_epoch, header.producer_id, header.producer_epoch

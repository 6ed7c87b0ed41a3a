"""A share partition at its leader: reads the log for the core, and stores what the core decides.

`acknowledge` and `release` complete when the share coordinator has stored the new states, and so does an elapsed lock.
If the coordinator refuses a write for good (another leader, or a reset of the offsets through another node, has fenced
it, or the group or topic was deleted), the share partition is closed: the next fetch loads it again. Not thread safe.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.unread import Unread
from ottla.coordinators.share.acknowledgement import AcknowledgementBatch, Refusal
from ottla.coordinators.share.acquisition import AcquiredRange, Acquisition, OffsetRange
from ottla.coordinators.share.events import Result, ShareKey, WriteState
from ottla.coordinators.share.partition import SharePartition, StateWrite
from ottla.partitions.reading import READ_COMMITTED
from ottla.records import BatchHeader, Buffer, iter_batches

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.common.timers import CallLater, TimerHandle
    from ottla.partitions.partition import Partition

logger = logging.getLogger(__name__)

# A fetch reads the batches into memory, because their boundaries limit what is acquired.
LEAST_BYTES_AT_ONCE, MOST_BYTES_AT_ONCE = 16 << 10, 1 << 20
# Records that are larger than the previous ones should still be read at once.
SPARE_BYTES = 2
# The errors of the share coordinator, as members get them; other errors mean UNKNOWN_SERVER_ERROR.
_WRITE_ERRORS = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
DONE = Refusal(ErrorCode.NONE, "")


class Delivery(NamedTuple):
    """Records for a member: whole batches, and the ranges of offsets that it has acquired in them."""

    records: Buffer
    acquired: list[AcquiredRange]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The broker as a share partition uses it. `store` passes a write to the share coordinator and never fails."""

    store: Callable[[WriteState], Completion[Result]]
    clock: Clock
    call_later: CallLater
    closed: Callable[[SharedPartition], None]


def error_of(result: Result) -> ErrorCode:
    """The error for a member whose request needed this result of the share coordinator."""
    return _WRITE_ERRORS.get(result.error, ErrorCode.UNKNOWN_SERVER_ERROR)


class SharedPartition:
    """One topic partition for one share group, on the node that leads it."""

    __slots__ = (
        "_around",
        "_bytes_per_offset",
        "_timer",
        "_timer_ms",
        "closed",
        "key",
        "leader_epoch",
        "partition",
        "share",
        "watchers",
    )

    def __init__(self, key: ShareKey, partition: Partition, share: SharePartition, around: Surroundings) -> None:
        self.key = key
        self.partition = partition
        self.share = share
        self.leader_epoch = partition.leader_epoch
        self.closed = False
        self.watchers: dict[Callable[[], None], None] = {}
        """Called when records may have become available again; they must only schedule their work."""
        self._around = around
        # Of the previous fetch; it determines how much the next one reads.
        self._bytes_per_offset = float(MOST_BYTES_AT_ONCE)
        self._timer: TimerHandle | None = None
        self._timer_ms = 0

    def close(self) -> None:
        """Stop: the records that are acquired now can no longer be acknowledged. Writes in progress go on."""
        if self.closed:
            return
        self.closed = True
        self._cancel_timer()
        self._around.closed(self)
        self._notify()

    # -- delivery --------------------------------------------------------------------------------------------------

    def peek(self, max_bytes: int, isolation_level: int) -> int:
        """About how many bytes `acquire` would find, without acquiring them. Raises the same errors."""
        share, partition = self.share, self.partition
        partition.check_open()
        share.advance_log_start(partition.log.log_start_offset)
        offset = share.next_fetch_offset()
        if self.closed or not share.can_acquire() or offset >= partition.visible_end(isolation_level):
            return 0
        return len(partition.look_up(offset, max(1, max_bytes), isolation_level, min_one_batch=True))

    def acquire(self, request: Acquisition, max_bytes: int, isolation_level: int) -> Delivery | None:
        """Acquire records from the log; None if there are none now. Raises KafkaError if the log cannot be read."""
        share, partition = self.share, self.partition
        partition.check_open()
        share.advance_log_start(partition.log.log_start_offset)
        offset = share.next_fetch_offset()
        if self.closed or not share.can_acquire() or offset >= partition.visible_end(isolation_level):
            return None
        last_useful = share.last_useful_offset(request.max_records)
        wanted = max(LEAST_BYTES_AT_ONCE, int(SPARE_BYTES * self._bytes_per_offset * (last_useful - offset + 1)))
        budget = max(1, min(max_bytes, wanted, MOST_BYTES_AT_ONCE))
        data = partition.look_up(offset, budget, isolation_level, min_one_batch=True)
        records = data.take(len(data)) if isinstance(data, Unread) else data
        headers = _headers_until(records, last_useful)
        if headers:
            (first_position, first), (last_position, last) = headers[0], headers[-1]
            size = last_position + last.size - first_position
            self._bytes_per_offset = size / (last.last_offset - first.base_offset + 1)
        aborted = self._aborted(offset, headers) if isolation_level == READ_COMMITTED else []
        fetched = [OffsetRange(header.base_offset, header.last_offset) for _, header in headers]
        acquired = share.acquire(request, offset, fetched, self._around.clock.monotonic_ms(), aborted)
        self._arm()
        if not acquired:
            return None
        return Delivery(_overlapping(records, headers, acquired), acquired)

    def _aborted(self, offset: int, headers: Sequence[tuple[int, BatchHeader]]) -> list[OffsetRange]:
        """The ranges of the batches whose transaction was aborted."""
        if not headers:
            return []
        found = self.partition.log.aborted_transactions(offset, headers[-1][1].next_offset)
        by_producer: dict[int, list[OffsetRange]] = {}
        for entry in found:
            by_producer.setdefault(entry.producer_id, []).append(OffsetRange(entry.first_offset, entry.last_offset))
        return [
            OffsetRange(header.base_offset, header.last_offset)
            for _, header in headers
            if header.is_transactional
            and not header.is_control
            and _contains(by_producer.get(header.producer_id, ()), header.base_offset)
        ]

    # -- acknowledgement -------------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch]) -> Completion[Refusal]:
        """Acknowledge records, all or none. Completes with DONE or the reason, once the states are stored."""
        outcome = self.share.acknowledge(member_id, batches, self._around.clock.monotonic_ms())
        self._arm()
        if isinstance(outcome, Refusal):
            self._notify()
            return Completion.of(outcome)
        return Completion.of(DONE) if outcome is None else self._store(outcome)

    def release(self, member_id: str) -> Completion[Refusal]:
        """Release the records that a member has acquired."""
        write = self.share.release(member_id)
        return Completion.of(DONE) if write is None else self._store(write)

    def _store(self, write: StateWrite) -> Completion[Refusal]:
        answer: Completion[Refusal] = Completion()
        request = WriteState(
            self.key,
            self.share.state_epoch,
            self.leader_epoch,
            write.start_offset,
            write.delivery_complete_count,
            write.batches,
        )
        self._around.store(request).on_done(partial(self._stored, write.id, answer))
        return answer

    def _stored(self, write_id: int, answer: Completion[Refusal], done: Completion[Result]) -> None:
        result = done.result()
        error = error_of(result)
        self.share.written(write_id, succeeded=error is ErrorCode.NONE, now_ms=self._around.clock.monotonic_ms())
        if error is not ErrorCode.NONE:
            logger.warning("Failed to write the state of share partition %s: %s", self, result.message or error.name)
        if error not in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.close()
        self._arm()
        self._notify()
        answer.complete(DONE if error is ErrorCode.NONE else Refusal(error, result.message or ""))

    # -- time ------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        deadline_ms = self.share.next_deadline_ms()
        if self.closed or deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        self._cancel_timer()
        self._timer_ms = deadline_ms
        # At least a millisecond, because the event loop's clock may be slightly ahead of ours.
        delay_ms = max(1, deadline_ms - self._around.clock.monotonic_ms())
        self._timer = self._around.call_later(delay_ms / 1000, self._lock_elapsed)

    def _lock_elapsed(self) -> None:
        self._timer = None
        write = self.share.expire(self._around.clock.monotonic_ms())
        if write is not None:
            self._store(write)
            self._notify()
        self._arm()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _notify(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    def __str__(self) -> str:
        return f"{self.key.group_id}:{self.partition.topic_partition}"


def _headers_until(records: Buffer, last_offset: int) -> list[tuple[int, BatchHeader]]:
    """Positions and headers of the batches, up to the one with `last_offset`."""
    headers: list[tuple[int, BatchHeader]] = []
    for position, header in iter_batches(records):
        headers.append((position, header))
        if header.last_offset >= last_offset:
            break
    return headers


def _contains(transactions: Sequence[OffsetRange], offset: int) -> bool:
    """Whether one of the transactions of a producer, which do not overlap, contains the offset."""
    index = bisect_right(transactions, offset, key=itemgetter(0)) - 1
    return index >= 0 and offset <= transactions[index].last


def _overlapping(
    records: Buffer, headers: Sequence[tuple[int, BatchHeader]], acquired: Sequence[AcquiredRange]
) -> Buffer:
    """The batches from the first to the last acquired record; those between may have records of other members."""
    needed = list(_needed(headers, acquired[0].first, acquired[-1].last))
    start, (last_position, last_header) = needed[0][0], needed[-1]
    return memoryview(records)[start : last_position + last_header.size]


def _needed(headers: Sequence[tuple[int, BatchHeader]], first: int, last: int) -> Iterator[tuple[int, BatchHeader]]:
    return (
        (position, header) for position, header in headers if header.last_offset >= first and header.base_offset <= last
    )

"""Removes the producers of the source from the log of a copied partition, before clients may write. Decision 35.

Both clusters allocate producer ids from 0 on. A leader that knows a producer of the source would take the first batches
of its namesake in this cluster for duplicates. So it accepts no records of clients before it has written a marker for
each producer of its log, whatever the state of the topic is: its metadata may be ahead of its log, e.g. after an
unclean election.

The log shows which case it is. Copied records have leader epochs below the generation of the leader. The first records
of the generation are the markers, and records of clients follow only when each producer was removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.common.errors import ErrorCode
from ottla.log.transaction_marker import FORGET_PRODUCER, TransactionEnd, read_marker
from ottla.metadata.mirrors import generation_start
from ottla.partitions.topic_settings import Refusal
from ottla.records import iter_batches

if TYPE_CHECKING:
    from ottla.common.completion import Completion
    from ottla.common.slices import Slices
    from ottla.common.work import Worker
    from ottla.log import Log
    from ottla.partitions.partition import Partition

logger = logging.getLogger(__name__)

# Every client retries it. This cluster's transactions have no records in the log yet.
PROMOTING: Final = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leader removes the producers of the mirror's source first", is_copy=True
)
_READ_BYTES: Final = 1 << 16
# The markers are in the log below each record of a client, so that only together they can be lost.
_LEADER_ONLY: Final = 1


def admit_clients(partition: Partition, refusal: Refusal | None, worker: Worker) -> None:
    """Let clients write to a led partition, unless its topic has a `refusal`, or it knows producers of the source.

    They are removed then, and clients may write as soon as the log has no other producer. An error of the log leaves
    the partition read-only until the next leader.
    """
    partition.refusal = refusal
    if refusal is not None or not _may_know_source(partition):
        return
    partition.refusal = PROMOTING

    def is_refusing() -> bool:
        return partition.refusal is PROMOTING and not partition.closed

    def ended(done: Completion[None]) -> None:
        if done.error is not None:
            logger.error("Partition %s stays read-only: %s", partition.topic_partition, done.error)
        elif is_refusing():
            partition.refusal = None

    worker.submit(_remove_source(partition, is_refusing)).on_done(ended)


def _remove_source(partition: Partition, is_refusing: Callable[[], bool]) -> Slices[None]:
    if not _have_clients_written(partition.log, own_start(partition)):
        yield from forget_producers(partition, is_refusing)


def _may_know_source(partition: Partition) -> bool:
    """Whether the log may have producers of the source; it reads no file."""
    entries = partition.log.producers.entries.values()
    if not entries or not generation_start(partition.leader_epoch):
        return False
    start = own_start(partition)
    return all(entry.last_offset < start for entry in entries)


def own_start(partition: Partition) -> int:
    """Where the copied records end and this cluster's begin: copied ones have leader epochs below the generation."""
    first, log = generation_start(partition.leader_epoch), partition.log
    return next((each.start_offset for each in log.epochs.entries if each.epoch >= first), log.log_end_offset)


def _have_clients_written(log: Log, start: int) -> bool:
    """Whether the log has more than the markers of a promotion from `start` on."""
    offset, end = max(start, log.log_start_offset), log.log_end_offset
    # Compaction may have removed the last batches.
    while data := log.read(offset, _READ_BYTES, end):
        for position, header in iter_batches(data):
            marker = read_marker(data[position : position + header.size], 0) if header.is_control else None
            if marker is None or marker.coordinator_epoch != FORGET_PRODUCER:
                return True
            offset = header.next_offset
    return False


def forget_producers(partition: Partition, is_refusing: Callable[[], bool]) -> Slices[None]:
    """Write a marker that removes each producer from the log; it aborts open transactions. Raises KafkaError.

    Only for a copy that has ended and is not open to clients yet: then each producer is one of the source. It ends
    early when `is_refusing` is false. A log may have many thousands of producers, so other work runs in between.
    """
    for entry in list(partition.log.producers.entries.values()):
        yield
        if not is_refusing():
            return
        if entry.producer_id not in partition.log.producers.entries:
            continue
        end = TransactionEnd(entry.producer_id, max(entry.epoch, 0), FORGET_PRODUCER, commit=False)
        batch, header = end.encode(partition.log.context.clock.wall_ms())
        partition.append(memoryview(batch), header=header, origin="coordinator", required_acks=_LEADER_ONLY)

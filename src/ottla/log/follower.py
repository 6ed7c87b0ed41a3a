"""Appends to the log of a follower: batches as they are in the leader's log.

Offsets, leader epochs, timestamps and control batches are the leader's and stay as they are. The leader has decided
what is valid, so only the bytes are checked: the CRC of each batch, and that its offsets follow the log's end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.transaction_marker import read_marker
from ottla.records import BatchHeader, Buffer, iter_batches
from ottla.records.batch import CONTROL, CRC_START, LOG_OVERHEAD
from ottla.records.checksum import crc32c

if TYPE_CHECKING:
    from ottla.log.log import Log

logger = logging.getLogger(__name__)


def append_as_follower(log: Log, records: Buffer, leader_epoch: int, now_ms: int) -> int:
    """Append the complete batches in `records`, which were fetched in `leader_epoch`; return their size in bytes.

    An incomplete batch at the end is skipped, and so are batches of a later epoch than `leader_epoch`: the follower
    must not mix the answers of two leaders. A batch that is already in the log is skipped, too.

    Raises KafkaError: CORRUPT_MESSAGE or OFFSET_OUT_OF_RANGE (a batch begins before the log's end) at the first wrong
    batch, KAFKA_STORAGE_ERROR if the disk fails. The batches before it are appended then.
    """
    if not log.log_directory.online:
        log.context.raise_offline()
    view = memoryview(records)
    appended = 0
    for position, header in iter_batches(view):
        if header.partition_leader_epoch > leader_epoch:
            logger.info(
                "Skipping fetched records of %s from offset %d on: their leader epoch %d is later than %d",
                log.topic_partition, header.base_offset, header.partition_leader_epoch, leader_epoch,
            )  # fmt: skip
            break
        end = log.log_end_offset
        base = header.base_offset
        last = base + header.last_offset_delta
        if last < end:
            continue
        batch = view[position : position + LOG_OVERHEAD + header.batch_length]
        if last < base or crc32c(batch[CRC_START:]) != header.crc:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The fetched batch of {log.topic_partition} at offset {base} does not match its CRC",
            )
        start = log.log_start_offset
        is_cut = base < end == start
        if is_cut:
            # The leader's log starts inside of this batch, and so must this one.
            restart_at(log, base)
        elif base < end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The fetched batch of {log.topic_partition} begins at {base}, before the log end {end}",
            )
        _append(log, batch, header, last, now_ms)
        if is_cut:
            log.advance_start(start, "the leader's log start")
        appended += len(batch)
    return appended


def restart_at(log: Log, offset: int) -> None:
    """Drop all records and continue at `offset`. Raises KafkaError(KAFKA_STORAGE_ERROR), with the directory offline."""
    log.context.check_online()
    try:
        log.truncate_fully(offset)
    except OSError as error:
        log.log_directory.take_offline(error)
        log.context.fail(error, "truncate")


def _append(log: Log, batch: memoryview, header: BatchHeader, last: int, now_ms: int) -> None:
    segments = log.segments
    timestamp = header.max_timestamp
    has_producer = header.producer_id >= 0
    marker = read_marker(batch, 0) if has_producer and header.attributes & CONTROL else None
    if segments.must_roll(len(batch), last, timestamp, now_ms):
        # As in Kafka, at the batch: after a huge gap its offset would not fit the index of a segment before it.
        log.roll(now_ms, header.base_offset)
    try:
        segments.append(batch, last, timestamp)
        # Not before the write: without the record, the follower must not claim to know its epoch.
        if header.partition_leader_epoch > log.epochs.latest:
            log.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if has_producer:
            log.producers.record(header, marker, header.base_offset, segments.active.indices.transactions)
    except OSError as error:
        log.context.fail(error, "append to")

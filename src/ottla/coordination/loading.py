"""Loads a partition of a coordinator's topic into its shard, a slice at a time.

A batch with a wrong checksum is skipped and logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from ottla.records import Buffer, ControlType, check_crc, decode_batch, decode_control_key, iter_batches

if TYPE_CHECKING:
    from ottla.log import Log
    from ottla.partitions.partition import Partition

logger = logging.getLogger(__name__)

SLICE_BYTES = 64 * 1024


class Replayer(Protocol):
    """The part of a shard that loading uses."""

    def replay(self, key: bytes, value: bytes | None, offset: int, *, producer_id: int = -1) -> None:
        """Apply one record; `producer_id` is -1 unless its batch is part of a transaction. Raises ValueError."""
        ...

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a transaction marker."""
        ...


class Loading:
    """The progress of loading one shard from its log."""

    __slots__ = ("_partition", "_shard", "bytes", "offset", "records")

    def __init__(self, partition: Partition, shard: Replayer) -> None:
        self._partition = partition
        self._shard = shard
        self.offset = partition.log.log_start_offset
        self.records = self.bytes = 0
        """Records and bytes that were replayed so far."""

    @property
    def _log(self) -> Log:
        # It may move to another directory meanwhile.
        return self._partition.log

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left to read."""
        return self.offset >= self._log.log_end_offset

    def step(self) -> bool:
        """Replay some batches; True when the log's end is reached. Raises KafkaError or ValueError."""
        if self.is_at_end:
            return True
        end, before = self._log.log_end_offset, self.offset
        data = self._log.read(before, SLICE_BYTES, end)
        for position, header in iter_batches(data):
            if header.next_offset <= self.offset:
                continue
            if not check_crc(data, position, header.size):
                logger.error(
                    "Skipping a corrupt batch of %s: the coordinator's records at offsets %d to %d are lost",
                    self._log.topic_partition,
                    header.base_offset,
                    header.last_offset,
                )
            elif header.is_control:
                _replay_marker(self._shard, data, position, header.producer_id)
            else:
                _replay_records(self._shard, data, position, header.producer_id if header.is_transactional else -1)
            self.offset = header.next_offset
            self.records += header.record_count
            self.bytes += header.size
        # No batches are left below the end: the rest was removed by compaction.
        return self.offset in {before, end}


def _replay_records(shard: Replayer, data: Buffer, position: int, producer_id: int) -> None:
    for record in decode_batch(data, position):
        if record.key is not None:
            shard.replay(record.key, record.value, record.offset, producer_id=producer_id)


def _replay_marker(shard: Replayer, data: Buffer, position: int, producer_id: int) -> None:
    for record in decode_batch(data, position):
        kind = decode_control_key(record.key or b"")
        if kind in {ControlType.ABORT, ControlType.COMMIT}:
            shard.end_transaction(producer_id, commit=kind == ControlType.COMMIT)

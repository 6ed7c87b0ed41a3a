"""Fetched bytes to records, batch by batch and only as far as a poll needs.

`Fetched` is one partition's part of one fetch. `take` never hands over a record twice nor one that is not wanted: those
before the wanted offset, control records, and with read_committed what was aborted. Bytes that are no batch, or whose
checksum is wrong, raise CorruptRecords once; after that the batch counts as read. KIP-98, KIP-101.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ottla.clients.consumer.record import Record
from ottla.clients.errors import CorruptRecords
from ottla.common.errors import KafkaError
from ottla.common.ids import TopicPartition
from ottla.records import BatchHeader, check_crc, kernels, read_header
from ottla.records.reader import payload

_START = struct.Struct(">qi")
_DELTA = struct.Struct(">i")
_DELTA_POSITION = 23
_HEADER_SIZE = 61
_LOG_OVERHEAD = 12
_ABORT = 0


@contextmanager
def without_collection() -> Iterator[None]:
    """Do not look for cycles meanwhile: records are in none, and looking at them again and again costs more than
    making them. For short work that waits for nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def span(buffer: memoryview) -> tuple[int, int]:
    """(offset after the last whole batch, position after it); (-1, 0) if there is no whole batch."""
    position, next_offset, size = 0, -1, len(buffer)
    while size - position >= _HEADER_SIZE:
        base, length = _START.unpack_from(buffer, position)
        end = position + _LOG_OVERHEAD + length
        if end > size or length < _HEADER_SIZE - _LOG_OVERHEAD:
            break
        next_offset = base + _DELTA.unpack_from(buffer, position + _DELTA_POSITION)[0] + 1
        position = end
    return next_offset, position


class Fetched:
    """What one fetch brought of one partition."""

    __slots__ = ("_aborted", "_aborted_now", "_batch_next", "_buffer", "_check", "_index", "_make", "_position",
                 "_rows", "epoch", "exhausted", "next_offset", "size", "tp")  # fmt: skip

    def __init__(
        self,
        tp: TopicPartition,
        make: type[Record],
        buffer: memoryview,
        offset: int,
        *,
        aborted: Sequence[tuple[int, int]] = (),
        check_crcs: bool = True,
    ) -> None:
        """`buffer` holds whole batches; `aborted` are (producer id, first offset), empty unless read_committed."""
        self.tp = tp
        self.size = len(buffer)
        self.next_offset = offset
        """The offset that follows what was taken."""
        self.epoch = -1
        """The leader epoch of the batch that was taken from last."""
        self.exhausted = not buffer
        self._make = make
        self._buffer = buffer
        self._position = 0
        self._check = check_crcs
        self._rows: list[Record] = []
        self._index = 0
        self._batch_next = offset
        self._aborted = sorted(aborted, key=lambda row: -row[1])  # the next one last
        self._aborted_now: set[int] = set()

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` records, all of one batch; none if there are no more. Raises CorruptRecords."""
        while self._index >= len(self._rows):
            if self._position >= len(self._buffer):
                self.exhausted = True
                return []
            self._rows, self._index = self._decode_next(), 0
            if not self._rows:
                self.next_offset = max(self.next_offset, self._batch_next)
        end = self._index + limit
        taken = self._rows if self._index == 0 and end >= len(self._rows) else self._rows[self._index : end]
        self._index += len(taken)
        if self._index < len(self._rows):
            self.next_offset = taken[-1].offset + 1
        else:
            self.next_offset = self._batch_next
            self._rows, self._index = [], 0
            self.exhausted = self._position >= len(self._buffer)
        return taken

    def _decode_next(self) -> list[Record]:
        wanted = self.next_offset
        try:
            header = read_header(self._buffer, self._position)
        except KafkaError as error:
            # Without a header nobody knows where the next batch is.
            self._position = len(self._buffer)
            raise self._corrupt(wanted, str(error)) from error
        position = self._position
        self._position += header.size
        self._batch_next = header.next_offset
        if header.next_offset <= wanted:
            return []
        self.epoch = header.partition_leader_epoch
        if self._check and not check_crc(self._buffer, position, header.size):
            self._skip()
            raise self._corrupt(max(wanted, header.base_offset), "its checksum is wrong")
        try:
            if self._is_left_out(header, position):
                return []
            rows = self._decode(header, position)
        except KafkaError as error:
            self._skip()
            raise self._corrupt(max(wanted, header.base_offset), str(error)) from error
        if rows and rows[0].offset < wanted:
            rows = [row for row in rows if row.offset >= wanted]
        return rows

    def _decode(self, header: BatchHeader, position: int) -> list[Record]:
        data, start, end = payload(self._buffer, position, header)
        append_time = header.max_timestamp if header.is_log_append_time else None
        rows: list[Record] = kernels.decode_records(
            data, start, end, header.record_count, header.base_offset, header.base_timestamp, append_time, self._make
        )
        return rows

    def _is_left_out(self, header: BatchHeader, position: int) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborted_now.add(self._aborted.pop()[0])
        if header.is_control:
            if header.producer_id in self._aborted_now and self._is_abort_marker(header, position):
                self._aborted_now.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_now

    def _is_abort_marker(self, header: BatchHeader, position: int) -> bool:
        rows = self._decode(header, position)
        key = rows[0].key if rows else None
        return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT

    def _skip(self) -> None:
        self.next_offset = max(self.next_offset, self._batch_next)
        self.exhausted = self._position >= len(self._buffer)

    def _corrupt(self, offset: int, why: str) -> CorruptRecords:
        return CorruptRecords(
            f"{self.tp} at offset {offset}: {why}; polling again goes on after the batch",
            topic=self.tp.topic, partition=self.tp.partition, offset=offset,
        )  # fmt: skip

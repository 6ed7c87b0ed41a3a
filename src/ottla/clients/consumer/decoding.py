"""Fetched bytes to records or columns, batch by batch and only as far as a poll needs.

`Fetched` is one partition's part of one fetch. Taking never hands over a record twice nor one that is not wanted: those
before the wanted offset, control records, and with read_committed what was aborted. Bytes that are no batch, or whose
checksum is wrong, raise CorruptRecords once; after that the batch counts as read. KIP-98, KIP-101.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ottla.clients.consumer.record import Record, TimestampType, record_class
from ottla.clients.errors import CorruptRecords
from ottla.common.errors import KafkaError
from ottla.common.ids import TopicPartition
from ottla.records import BatchHeader, Buffer, check_crc, kernels, read_header
from ottla.records.column_kernels import Columns
from ottla.records.reader import payload

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


class _Opened(NamedTuple):
    """A batch that has something for the user: its checksum is right and it is decompressed."""

    header: BatchHeader
    data: Buffer
    start: int
    end: int

    def arguments(self) -> tuple[Buffer, int, int, int, int, int, int | None]:
        """What a kernel asks to decode it."""
        header = self.header
        append_time = header.max_timestamp if header.is_log_append_time else None
        return (
            self.data, self.start, self.end, header.record_count, header.base_offset, header.base_timestamp, append_time
        )  # fmt: skip


class Fetched:
    """What one fetch brought of one partition.

    Where it stands is `_position`, of the batch that is next or has been taken in part, and `next_offset`; `_opened`
    and `_rows` only save doing what was done already. So records and columns may be taken in turn.
    """

    __slots__ = ("_aborted", "_aborted_now", "_buffer", "_check", "_index", "_opened", "_position",
                 "_rows", "epoch", "exhausted", "next_offset", "size", "tp")  # fmt: skip

    def __init__(
        self,
        tp: TopicPartition,
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
        self._buffer = buffer
        self._position = 0
        self._check = check_crcs
        self._opened: _Opened | None = None
        self._rows: list[Record[Any, Any]] = []
        self._index = 0
        self._aborted = sorted(aborted, key=lambda row: -row[1])  # the next one last
        self._aborted_now: set[int] = set()

    def take(self, limit: int) -> list[Record[Any, Any]]:
        """Up to `limit` records, all of one batch; none if there are no more. Raises CorruptRecords."""
        while self._index >= len(self._rows):
            opened = self._open()
            if opened is None:
                return []
            self._rows, self._index = self._decoded(opened), 0
            if not self._rows:
                self._pass(opened.header)
        end = self._index + limit
        taken = self._rows if self._index == 0 and end >= len(self._rows) else self._rows[self._index : end]
        self._index += len(taken)
        if self._index < len(self._rows):
            self.next_offset = taken[-1].offset + 1
        else:
            self._rows, self._index = [], 0
            assert self._opened is not None
            self._pass(self._opened.header)
        return taken

    def take_columns(self, columns: Columns) -> None:
        """As much as fits into `columns` of one batch, or of a run of plain ones; nothing if there are no more.

        Raises CorruptRecords, but never for a batch that it has taken from.
        """
        self._rows, self._index = [], 0
        if self._opened is None and not self._aborted and not self._aborted_now:
            position, next_offset, epoch = columns.add_batches(
                self._buffer, self._position, self.next_offset, self._check
            )
            if (position, next_offset) != (self._position, self.next_offset):
                self._position, self.next_offset = position, next_offset
                self.epoch = epoch if epoch >= 0 else self.epoch
                self.exhausted = position >= len(self._buffer)
                return
        opened = self._open()
        if opened is None:
            return
        try:
            next_offset_or_none = columns.add_records(*opened.arguments(), self.next_offset)
        except KafkaError as error:
            raise self._given_up(opened.header, error) from error
        if next_offset_or_none is None:
            self._pass(opened.header)
        else:
            self.next_offset = next_offset_or_none

    def _open(self) -> _Opened | None:
        """The batch at the position, or the first after it that has something for the user; None at the end."""
        if self._opened is not None:
            return self._opened
        while self._position < len(self._buffer):
            position = self._position
            try:
                header = read_header(self._buffer, position)
            except KafkaError as error:
                # Without a header nobody knows where the next batch is.
                self._position = len(self._buffer)
                self.exhausted = True
                raise self._corrupt(self.next_offset, str(error)) from error
            # One that begins at the position or after it has something, whatever it says of its last offset.
            if header.next_offset > self.next_offset or header.base_offset >= self.next_offset:
                self.epoch = header.partition_leader_epoch
                if self._check and not check_crc(self._buffer, position, header.size):
                    raise self._given_up(header, "its checksum is wrong", is_header_sound=False)
                if header.last_offset_delta < 0:
                    raise self._given_up(header, "it ends before it begins", is_header_sound=False)
                try:
                    if not self._is_left_out(header, position):
                        self._opened = _Opened(header, *payload(self._buffer, position, header))
                        return self._opened
                except KafkaError as error:
                    raise self._given_up(header, error) from error
            self._pass(header)
        self.exhausted = True
        return None

    def _pass(self, header: BatchHeader) -> None:
        """Go to the next batch."""
        self._opened = None
        self._position += header.size
        self.next_offset = max(self.next_offset, header.next_offset)
        self.exhausted = self._position >= len(self._buffer)

    def _decoded(self, opened: _Opened) -> list[Record[Any, Any]]:
        wanted = self.next_offset
        try:
            rows: list[Record[Any, Any]] = kernels.decode_records(*opened.arguments(), self._class_of(opened.header))
        except KafkaError as error:
            raise self._given_up(opened.header, error) from error
        if rows and rows[0].offset < wanted:
            rows = [row for row in rows if row.offset >= wanted]
        return rows

    def _class_of(self, header: BatchHeader) -> type[Record[Any, Any]]:
        kind = TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME
        return record_class(self.tp.topic, self.tp.partition, header.partition_leader_epoch, kind)

    def _is_left_out(self, header: BatchHeader, position: int) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborted_now.add(self._aborted.pop()[0])
        if header.is_control:
            if header.producer_id in self._aborted_now and self._is_abort_marker(header, position):
                self._aborted_now.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_now

    def _is_abort_marker(self, header: BatchHeader, position: int) -> bool:
        rows = kernels.decode_records(*_Opened(header, *payload(self._buffer, position, header)).arguments(), Record)
        key = rows[0].key if rows else None
        return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT

    def _given_up(self, header: BatchHeader, why: object, is_header_sound: bool = True) -> CorruptRecords:
        """The error of the batch at the position, which counts as read.

        Where it ends a harmed header may not know: the batch behind it does, if there is one.
        """
        offset = max(self.next_offset, header.base_offset)
        self._pass(header)
        if not is_header_sound and not self.exhausted:
            follows = int.from_bytes(self._buffer[self._position : self._position + 8], "big", signed=True)
            self.next_offset = max(offset + 1, follows)
        elif self.next_offset <= offset:
            self.next_offset = offset + 1
        error = self._corrupt(offset, str(why))
        error.next_offset = self.next_offset
        return error

    def _corrupt(self, offset: int, why: str) -> CorruptRecords:
        return CorruptRecords(
            f"{self.tp} at offset {offset}: {why}; polling again goes on after the batch",
            topic=self.tp.topic, partition=self.tp.partition, offset=offset,
        )  # fmt: skip

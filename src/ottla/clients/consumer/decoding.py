"""Decodes fetched bytes to records or columns, batch by batch and only as far as a poll needs.

`Fetched` is one partition's part of one fetch response. It returns each record once, and skips records before the
wanted offset, control records and, with read_committed, records of aborted transactions. A batch that cannot be read or
whose checksum is wrong raises CorruptRecords once; after that the batch counts as read. KIP-98, KIP-101.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ottla.clients.consumer.record import Record, TimestampType, record_class
from ottla.clients.errors import CorruptRecords
from ottla.common.errors import KafkaError
from ottla.common.ids import TopicPartition
from ottla.records import BatchHeader, check_crc, kernels, read_header
from ottla.records.batch import EncodedRecords
from ottla.records.column_kernels import Columns
from ottla.records.reader import encoded_records

POLL_AGAIN: Final = "; poll again to continue after the batch"
"""The end of the text of CorruptRecords."""
_ABORT: Final = 0


class _Opened(NamedTuple):
    """A batch with records for the user. Its checksum was verified, and it is decompressed."""

    header: BatchHeader
    records: EncodedRecords


class Fetched:
    """The records of one partition in one fetch response.

    The state is `next_offset` and `_position`, the position of the next batch, or of the batch that was taken in part.
    `_opened` and `_rows` cache work on that batch. So calls of `take` and `take_columns` may alternate.
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
        """`buffer` contains whole batches; `aborted` are (producer id, first offset), empty unless read_committed."""
        self.tp = tp
        self.size = len(buffer)
        self.next_offset = offset
        """The offset after the records that were taken."""
        self.epoch = -1
        """The leader epoch of the last batch that records were taken from."""
        self.exhausted = not buffer
        self._buffer = buffer
        self._position = 0
        self._check = check_crcs
        self._opened: _Opened | None = None
        self._rows: list[Record[Any, Any]] = []
        self._index = 0
        self._aborted = sorted(aborted, key=lambda row: -row[1])  # in reverse order: the next one is last
        self._aborted_now: set[int] = set()

    def take(self, limit: int) -> list[Record[Any, Any]]:
        """Return up to `limit` records of one batch; none if there are no more. Raises CorruptRecords."""
        while self._index >= len(self._rows):
            opened = self._open()
            if opened is None:
                return []
            self._rows, self._index = self._decoded(opened), 0
            if not self._rows:
                self._skip(opened.header)
        end = self._index + limit
        taken = self._rows if self._index == 0 and end >= len(self._rows) else self._rows[self._index : end]
        self._index += len(taken)
        if self._index < len(self._rows):
            self.next_offset = taken[-1].offset + 1
        else:
            self._rows, self._index = [], 0
            assert self._opened is not None
            self._skip(self._opened.header)
        return taken

    def take_columns(self, columns: Columns) -> None:
        """Append records of one batch to `columns`, or of a run of batches that need no special treatment.

        Appends nothing if there are no more. Raises CorruptRecords, but never after appending records of the batch.
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
            next_offset_or_none = columns.add_records(opened.records, self.next_offset)
        except KafkaError as error:
            raise self._skip_corrupt(opened.header, error) from error
        if next_offset_or_none is None:
            self._skip(opened.header)
        else:
            self.next_offset = next_offset_or_none

    def _open(self) -> _Opened | None:
        """Return the next batch with records for the user, from the position on; None at the end."""
        if self._opened is not None:
            return self._opened
        while self._position < len(self._buffer):
            position = self._position
            try:
                header = read_header(self._buffer, position)
            except KafkaError as error:
                # Without a header, the position of the next batch is unknown.
                self._position = len(self._buffer)
                self.exhausted = True
                raise self._corrupt(self.next_offset, str(error)) from error
            # A batch that begins at the wanted offset or later has wanted records, even if its last offset is corrupt.
            if header.next_offset > self.next_offset or header.base_offset >= self.next_offset:
                self.epoch = header.partition_leader_epoch
                if self._check and not check_crc(self._buffer, position, header.size):
                    raise self._skip_corrupt(header, "its checksum is wrong", is_header_sound=False)
                if header.last_offset_delta < 0:
                    raise self._skip_corrupt(header, "its last offset is before its first", is_header_sound=False)
                try:
                    if not self._is_excluded(header, position):
                        self._opened = _Opened(header, encoded_records(self._buffer, position, header))
                        return self._opened
                except KafkaError as error:
                    raise self._skip_corrupt(header, error) from error
            self._skip(header)
        self.exhausted = True
        return None

    def _skip(self, header: BatchHeader) -> None:
        self._opened = None
        self._position += header.size
        self.next_offset = max(self.next_offset, header.next_offset)
        self.exhausted = self._position >= len(self._buffer)

    def _decoded(self, opened: _Opened) -> list[Record[Any, Any]]:
        wanted = self.next_offset
        try:
            rows: list[Record[Any, Any]] = kernels.decode_records(opened.records, self._class_of(opened.header))
        except KafkaError as error:
            raise self._skip_corrupt(opened.header, error) from error
        if rows and rows[0].offset < wanted:
            rows = [row for row in rows if row.offset >= wanted]
        return rows

    def _class_of(self, header: BatchHeader) -> type[Record[Any, Any]]:
        kind = TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME
        return record_class(self.tp.topic, self.tp.partition, header.partition_leader_epoch, kind)

    def _is_excluded(self, header: BatchHeader, position: int) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborted_now.add(self._aborted.pop()[0])
        if header.is_control:
            if header.producer_id in self._aborted_now and self._is_abort_marker(header, position):
                self._aborted_now.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborted_now

    def _is_abort_marker(self, header: BatchHeader, position: int) -> bool:
        rows: list[Record] = kernels.decode_records(encoded_records(self._buffer, position, header), Record)
        key = rows[0].key if rows else None
        return key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT

    def _skip_corrupt(self, header: BatchHeader, why: object, is_header_sound: bool = True) -> CorruptRecords:
        """Skip the corrupt batch at the position, and return its error.

        A corrupt header may contain a wrong last offset. The base offset of the following batch, if there is one, shows
        where the corrupt batch ends.
        """
        offset = max(self.next_offset, header.base_offset)
        self._skip(header)
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
            f"{self.tp} at offset {offset}: {why}{POLL_AGAIN}",
            topic=self.tp.topic, partition=self.tp.partition, offset=offset,
        )  # fmt: skip

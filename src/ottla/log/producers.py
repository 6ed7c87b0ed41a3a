"""What a partition knows of its idempotent and transactional producers. KIP-98, KIP-360, KIP-890.

For each producer id: epoch, the last five batches (so that a batch sent again is answered with its first offset and
not written twice), and the offset at which an open transaction began. Written as `<offset>.snapshot` when a segment
is rolled and at close; rebuilt from the newest snapshot and the batches after it.

A producer that is not known (it expired, or its records were deleted) may begin with any sequence number. Not here:
the verification of transactions with their coordinator (KIP-890), which belongs to the one who asks it.
"""

import struct
from bisect import bisect_left
from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.files import Files
from ottla.records import BatchHeader, Buffer, ControlType, decode_batch
from ottla.records.batch import CONTROL
from ottla.records.checksum import crc32c

KEPT_BATCHES = 5
_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1
_CRC_START = 6
_INT32_MAX = 0x7FFFFFFF


class CorruptSnapshotError(Exception):
    """A producer snapshot that cannot be believed; an older one and the log serve instead."""


class WrittenBatch(NamedTuple):
    """One of a producer's last batches."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record; numbers wrap from 2^31-1 to 0."""
        return (self.last_sequence - self.offset_delta) & _INT32_MAX

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


_NO_BATCH = WrittenBatch(-1, -1, 0, -1)


class CompletedTransaction(NamedTuple):
    """A transaction that its marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """One producer id in one partition. `transaction_start` is -1 outside of a transaction."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_start")

    def __init__(self, producer_id: int, epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start = -1
        self.batches: list[WrittenBatch] = []

    @property
    def last_sequence(self) -> int:
        """Of the newest batch, -1 without one."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Of the newest batch, -1 without one."""
        return self.batches[-1].last_offset if self.batches else -1

    def move_to(self, epoch: int) -> None:
        """A new epoch starts its sequences afresh."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class Producers:
    """`end_offset` is the offset up to which the state is known; snapshots live in `directory`."""

    def __init__(self, files: Files, directory: str, expiration_ms: int) -> None:
        self.files = files
        self.directory = directory
        self.expiration_ms = expiration_ms
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self.snapshot_offset = 0
        # They rise.
        self.snapshots: list[int] = []
        # First offset -> producer id, and, once ended, first -> last offset until the high watermark passes the marker.
        self._ongoing: dict[int, int] = {}
        self.undecided: dict[int, int] = {}

    # Checks and changes, batch by batch

    def is_next(self, header: BatchHeader) -> bool:
        """Whether the batch plainly follows its producer's last one, outside of any transaction: nothing to check."""
        entry = self.entries.get(header.producer_id)
        return (
            entry is not None
            and entry.epoch == header.producer_epoch
            and entry.transaction_start < 0
            and bool(entry.batches)
            and header.base_sequence == entry.batches[-1].last_sequence + 1
            and not header.attributes & CONTROL
        )

    def duplicate_of(self, header: BatchHeader) -> WrittenBatch | None:
        """The batch already written that `header` repeats."""
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def check(self, header: BatchHeader, partition: object, *, sequences: bool) -> None:
        """Raise INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE unless it may be written."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of producer {header.producer_id} in {partition} is older than {entry.epoch}",
            )
        if sequences:
            _check_sequence(entry, header, partition)
        if entry.transaction_start >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has an open transaction in {partition} and wrote outside of it",
            )

    def check_marker(self, header: BatchHeader, coordinator_epoch: int, partition: object) -> None:
        """Raise INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED unless the marker may be written."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {header.producer_epoch} of producer {header.producer_id} in {partition} is older than"
                f" {entry.epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {coordinator_epoch} for producer {header.producer_id} in {partition} is older"
                f" than {entry.coordinator_epoch}",
            )

    def wrote(self, header: BatchHeader, first_offset: int) -> None:
        """A data batch of a producer is in the log at `first_offset`."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        else:
            entry.move_to(header.producer_epoch)
        delta = header.last_offset_delta
        batches = entry.batches
        if len(batches) >= KEPT_BATCHES:
            del batches[0]
        batches.append(WrittenBatch(header.last_sequence, first_offset + delta, delta, header.max_timestamp))
        entry.last_timestamp = header.max_timestamp
        if entry.transaction_start < 0 and header.is_transactional:
            entry.transaction_start = first_offset
            self._ongoing[first_offset] = header.producer_id

    def ended(self, header: BatchHeader, marker: "Marker", offset: int) -> CompletedTransaction | None:
        """A transaction marker is in the log at `offset`; what it completed, if there was an open transaction."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        entry.move_to(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        start = entry.transaction_start
        if start < 0:
            return None
        entry.transaction_start = -1
        return CompletedTransaction(header.producer_id, start, offset, marker.aborted)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Where readers of committed records may read to once `completed` is out of the way."""
        return next(
            (start for start, producer in self._ongoing.items() if producer != completed.producer_id),
            completed.last_offset + 1,
        )

    def complete(self, completed: CompletedTransaction) -> None:
        """Take it from the open ones; it holds the last stable offset until the high watermark has passed."""
        self._ongoing.pop(completed.first_offset, None)
        self.undecided[completed.first_offset] = completed.last_offset

    def on_high_watermark(self, offset: int) -> None:
        """Forget transactions whose marker is replicated."""
        if self.undecided:
            self.undecided = {first: last for first, last in self.undecided.items() if last >= offset}

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction began that is open, or whose marker is not replicated."""
        if not self._ongoing and not self.undecided:
            return None
        return min((*self._ongoing, *self.undecided))

    def replay(self, buffer: Buffer, position: int, header: BatchHeader) -> CompletedTransaction | None:
        """Take in a batch that is in the log, without the checks made when it was written."""
        completed = None
        if header.producer_id >= 0:
            if not header.is_control:
                self.wrote(header, header.base_offset)
            elif (marker := read_marker(buffer, position)) is not None:
                completed = self.ended(header, marker, header.base_offset)
        self.end_offset = header.base_offset + header.last_offset_delta + 1
        return completed

    def expire(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for `expiration_ms` and have no open transaction."""
        gone = [e.producer_id for e in self.entries.values() if self._expired(e, now_ms)]
        for producer_id in gone:
            del self.entries[producer_id]

    def _expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.transaction_start < 0 and now_ms - entry.last_timestamp >= self.expiration_ms

    def reset(self, end_offset: int) -> None:
        """Know nothing, as of `end_offset`."""
        self.entries.clear()
        self._ongoing.clear()
        self.undecided.clear()
        self.end_offset = end_offset

    # Snapshots

    def path_of(self, offset: int) -> str:
        """Where the snapshot at `offset` lies."""
        return f"{self.directory}/{offset:020d}.snapshot"

    def take_snapshot(self) -> str | None:
        """Write the state as of `end_offset`; the path, or None if the newest snapshot says the same already."""
        if self.end_offset <= self.snapshot_offset:
            return None
        path = self.path_of(self.end_offset)
        self.files.write(path, encode_snapshot(self.entries))
        i = bisect_left(self.snapshots, self.end_offset)
        if self.snapshots[i : i + 1] != [self.end_offset]:
            self.snapshots.insert(i, self.end_offset)
        self.snapshot_offset = self.end_offset
        return path

    def load_newest(self, log_start_offset: int, now_ms: int) -> None:
        """Start from the newest readable snapshot, or from nothing at `log_start_offset`. Bad ones are removed."""
        self.reset(log_start_offset)
        while self.snapshots:
            offset = self.snapshots[-1]
            try:
                entries = decode_snapshot(self.files.read(self.path_of(offset)))
            except (CorruptSnapshotError, FileNotFoundError):
                self.drop_snapshot(offset)
                continue
            for entry in entries:
                if not self._expired(entry, now_ms):
                    self.entries[entry.producer_id] = entry
            starts = sorted((e.transaction_start, e.producer_id) for e in entries if e.transaction_start >= 0)
            self._ongoing = dict(starts)
            self.end_offset = self.snapshot_offset = offset
            return
        self.snapshot_offset = log_start_offset

    def drop_snapshot(self, offset: int) -> None:
        """Remove the snapshot at `offset`, if there is one."""
        if offset in self.snapshots:
            self.snapshots.remove(offset)
            self.files.unlink(self.path_of(offset))

    def drop_snapshots_above(self, offset: int) -> None:
        """Remove those that tell of batches from `offset` on."""
        while self.snapshots and self.snapshots[-1] > offset:
            self.files.unlink(self.path_of(self.snapshots.pop()))

    def keep_snapshots(self, segment_offsets: set[int]) -> None:
        """Remove snapshots that belong to no segment, but the newest if it lies after the last segment's base."""
        stray = [offset for offset in self.snapshots if offset not in segment_offsets]
        last_base = max(segment_offsets, default=-1)
        for offset in stray[:-1] if stray and stray[-1] > last_base else stray:
            self.drop_snapshot(offset)


def _check_sequence(entry: ProducerEntry, header: BatchHeader, partition: object) -> None:
    sequence = header.base_sequence
    if header.producer_epoch != entry.epoch:
        if sequence == 0 or entry.epoch < 0:
            return
        problem = f"{sequence} is the first of epoch {header.producer_epoch} (was {entry.epoch}), which must be 0"
    else:
        last = entry.last_sequence
        if sequence == last + 1 or (sequence == 0 and last == _INT32_MAX):
            return
        problem = f"{sequence} follows {last}"
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number of producer {header.producer_id} in {partition}: {problem}",
    )


class Marker(NamedTuple):
    """What the control record of a transaction says."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


def read_marker(buffer: Buffer, position: int) -> Marker | None:
    """The transaction marker in a control batch; None if the cleaner emptied it or it is another control record."""
    records = decode_batch(buffer, position)
    if not records:
        return None
    record = records[0]
    try:
        _, kind = _MARKER_KEY.unpack_from(record.key or b"")
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    except struct.error as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, "A transaction marker is too short") from error
    return Marker(kind == ControlType.ABORT, coordinator_epoch, record.timestamp)


def encode_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """A snapshot file's content: version, CRC-32C of what follows it, count, entries.

    Kafka writes the newest batch of each producer. Here the ones before it come first, as entries of their own, of
    which Kafka believes the last: whoever sends several again after a crash is to be known by all of them.
    """
    rows = []
    for e in entries.values():
        rows += [_row(e, batch, batch.timestamp, -1) for batch in e.batches[:-1]]
        rows.append(_row(e, e.batches[-1] if e.batches else _NO_BATCH, e.last_timestamp, e.transaction_start))
    body = len(rows).to_bytes(4, "big") + b"".join(rows)
    return _SNAPSHOT_VERSION.to_bytes(2, "big") + int(crc32c(body)).to_bytes(4, "big") + body


def _row(entry: ProducerEntry, batch: WrittenBatch, timestamp: int, transaction_start: int) -> bytes:
    return _SNAPSHOT_ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        timestamp,
        entry.coordinator_epoch,
        transaction_start,
    )


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot file; raises CorruptSnapshotError."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are no producer snapshot")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    rows = data[_SNAPSHOT_HEAD.size :]
    if version != _SNAPSHOT_VERSION or count < 0 or len(rows) != count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshotError(f"Version {version} with {count} entries in {len(data)} bytes")
    if crc != crc32c(data[_CRC_START:]):
        raise CorruptSnapshotError("The checksum of the snapshot is wrong")
    entries: dict[int, ProducerEntry] = {}
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start in _SNAPSHOT_ENTRY.iter_unpack(rows):
        entry = entries.setdefault(producer_id, ProducerEntry(producer_id, epoch))
        entry.move_to(epoch)
        entry.last_timestamp = timestamp
        entry.coordinator_epoch = coordinator
        entry.transaction_start = start
        if offset >= 0:
            entry.batches.append(WrittenBatch(sequence, offset, delta, timestamp))
    return list(entries.values())

"""The idempotent and transactional producers of a partition. KIP-98, KIP-360, KIP-890.

For each producer id: the epoch, the last five batches (so that a resent batch is answered with its first offset and
not written again), and the offset at which an open transaction began. The state is written as `<offset>.snapshot` at
each roll and at close; it is rebuilt from the newest snapshot and the batches after it.

`Log` calls `admit` before it writes a batch and `record` after it. A producer id that is unknown (it expired, or its
records were deleted) may begin with any sequence number. Transactions are not verified with their coordinator here
(KIP-890): the caller does that.
"""

from bisect import bisect_left
from typing import Literal, Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.files import Files
from ottla.log.producer_entry import RETAINED_BATCHES, ProducerEntry, WrittenBatch
from ottla.log.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from ottla.log.transaction_marker import FORGET_PRODUCER, Marker, TransactionEnd, read_marker
from ottla.log.txn_index import AbortedTransaction
from ottla.records import BatchHeader, Buffer
from ottla.records.batch import CONTROL, TRANSACTIONAL

Origin = Literal["client", "coordinator", "raft", "replication"]
_INT32_MAX = 0x7FFFFFFF
_BUMPS_EPOCH_SINCE = 2


class AbortedTransactions(Protocol):
    """Receives aborted transactions in the order of their markers: a list, or a segment's `TxnIndex`."""

    def append(self, transaction: AbortedTransaction, /) -> None:
        """Add an aborted transaction."""


class ProducerState:
    """The producers of one partition. The state covers all batches below `end_offset`; snapshots are in `directory`."""

    def __init__(self, files: Files, directory: str, expiration_ms: int) -> None:
        self.files = files
        self.directory = directory
        self.expiration_ms = expiration_ms
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self.snapshot_offset = 0
        self.snapshots: list[int] = []
        """Offsets of the snapshot files, rising."""
        self.markers = 0
        """How many transaction markers were recorded since the log was opened."""
        self.undecided: dict[int, int] = {}
        """Ended transactions whose marker is not below the high watermark yet: first offset -> last offset."""
        # Open transactions: first offset -> producer id.
        self._ongoing: dict[int, int] = {}

    # Appending

    def admit(
        self, buffer: Buffer, header: BatchHeader, origin: Origin, partition: object
    ) -> WrittenBatch | Marker | None:
        """Check a batch with a producer id before it is written.

        Returns the retained batch that it repeats, which must not be written again, or else the transaction marker in
        it for `record`. Only batches of clients are checked for repetitions and gaps in their sequence numbers.
        Raises KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.entries.get(header.producer_id)
        # Nearly every batch follows the previous one of its producer, and is not outside of an open transaction.
        if (
            entry is not None
            and entry.epoch == header.producer_epoch
            and (entry.transaction_start < 0 or header.attributes & TRANSACTIONAL)
            and entry.batches
            and header.base_sequence == entry.batches[-1].last_sequence + 1
            and not header.attributes & CONTROL
        ):
            return None
        if header.is_control:
            marker = read_marker(buffer, 0)
            if marker is not None and entry is not None:
                _check_marker(entry, header, marker, partition)
            return marker
        if entry is not None:
            if origin == "client":
                duplicate = _find_duplicate(entry, header)
                if duplicate is not None:
                    return duplicate
            _check_batch(entry, header, partition, sequences=origin == "client")
        return None

    def check_end(self, end: TransactionEnd, partition: object) -> None:
        """Reject a late marker of an earlier transaction, which would end the open one. KIP-1228.

        Such a marker has the epoch of the open transaction; its own marker has a later epoch. A marker that is
        repeated after the transaction ended is written again: the coordinator may not know of the first one.
        Raises INVALID_PRODUCER_EPOCH.
        """
        entry = self.entries.get(end.producer_id)
        if entry is None or end.transaction_version < _BUMPS_EPOCH_SINCE:
            return
        if end.producer_epoch == entry.epoch and entry.transaction_start >= 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The marker of producer {end.producer_id} in {partition} has the epoch {entry.epoch} of the open"
                " transaction: it belongs to an earlier one",
            )

    def record(
        self, header: BatchHeader, marker: Marker | None, offset: int, aborted: AbortedTransactions | None
    ) -> None:
        """Take in a batch with a producer id that was written at `offset`.

        A marker that aborts a transaction adds it to `aborted`. That comes before the last stable offset may move: a
        reader must never see the records of a transaction that no index lists.
        """
        if header.attributes & CONTROL:
            if marker is not None:
                self._end_transaction(header, marker, offset, aborted)
            return
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        else:
            entry.move_to(header.producer_epoch)
        delta = header.last_offset_delta
        batches = entry.batches
        if len(batches) >= RETAINED_BATCHES:
            del batches[0]
        batches.append(WrittenBatch(header.last_sequence, offset + delta, delta, header.max_timestamp))
        entry.last_timestamp = header.max_timestamp
        if entry.transaction_start < 0 and header.is_transactional:
            entry.transaction_start = offset
            self._ongoing[offset] = header.producer_id

    def _end_transaction(
        self, header: BatchHeader, marker: Marker, offset: int, aborted: AbortedTransactions | None
    ) -> None:
        self.markers += 1
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        entry.move_to(header.producer_epoch)
        if marker.coordinator_epoch == FORGET_PRODUCER:
            # Another cluster gave this id to another producer, whose batches must not be compared with these.
            del self.entries[producer_id]
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        start = entry.transaction_start
        if start < 0:
            return
        entry.transaction_start = -1
        if marker.aborted and aborted is not None:
            stable = self._last_stable_offset_without(producer_id, offset + 1)
            aborted.append(AbortedTransaction(producer_id, start, offset, stable))
        self._ongoing.pop(start, None)
        self.undecided[start] = offset

    def _last_stable_offset_without(self, producer_id: int, end_offset: int) -> int:
        """Where committed readers may read to when `producer_id` has no open transaction any more."""
        return next((start for start, producer in self._ongoing.items() if producer != producer_id), end_offset)

    def replay(
        self, buffer: Buffer, position: int, header: BatchHeader, aborted: AbortedTransactions | None = None
    ) -> None:
        """Take in a batch that is in the log already, without the checks of `admit`."""
        if header.producer_id >= 0:
            marker = read_marker(buffer, position) if header.is_control else None
            self.record(header, marker, header.base_offset, aborted)
        self.end_offset = header.base_offset + header.last_offset_delta + 1

    # The last stable offset

    def on_high_watermark(self, offset: int) -> None:
        """Forget ended transactions whose marker is below the high watermark."""
        undecided = self.undecided
        if not undecided:
            return
        if max(undecided.values()) < offset:  # nearly always
            self.undecided = {}
        else:
            self.undecided = {first: last for first, last in undecided.items() if last >= offset}

    @property
    def first_unstable_offset(self) -> int | None:
        """Start of the oldest transaction that is open or whose marker is not below the high watermark."""
        if not self._ongoing and not self.undecided:
            return None
        return min((*self._ongoing, *self.undecided))

    @property
    def first_open_offset(self) -> int | None:
        """Start of the oldest transaction that is open."""
        return next(iter(self._ongoing), None)  # offsets rise

    # Expiry

    def expire(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for `expiration_ms` and have no open transaction."""
        expired = [e.producer_id for e in self.entries.values() if self._is_expired(e, now_ms)]
        for producer_id in expired:
            del self.entries[producer_id]

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return entry.transaction_start < 0 and now_ms - entry.last_timestamp >= self.expiration_ms

    def reset(self, end_offset: int) -> None:
        """Forget all producers; the state covers the log up to `end_offset`."""
        self.entries.clear()
        self._ongoing.clear()
        self.undecided.clear()
        self.end_offset = end_offset

    def take_over(self, other: "ProducerState") -> None:
        """Continue with the state of another log with the same records: it may know producers of deleted ones."""
        self.entries, self.undecided, self.markers = other.entries, other.undecided, other.markers
        starts = sorted((each.transaction_start, each.producer_id) for each in self.entries.values())
        self._ongoing = {start: producer_id for start, producer_id in starts if start >= 0}

    # Snapshots

    def path_of(self, offset: int) -> str:
        """Path of the snapshot at `offset`."""
        return f"{self.directory}/{offset:020d}.snapshot"

    def take_snapshot(self, end_offset: int) -> str | None:
        """Write the state, which covers the log up to `end_offset`; the path, or None if a snapshot is as recent."""
        self.end_offset = end_offset
        if end_offset <= self.snapshot_offset:
            return None
        path = self.path_of(self.end_offset)
        self.files.write(path, encode_snapshot(self.entries))
        i = bisect_left(self.snapshots, self.end_offset)
        if self.snapshots[i : i + 1] != [self.end_offset]:
            self.snapshots.insert(i, self.end_offset)
        self.snapshot_offset = self.end_offset
        return path

    def load_newest(self, base_offset: int, now_ms: int) -> None:
        """Load the newest readable snapshot, or start empty at `base_offset`. Unreadable ones are deleted.

        `base_offset` is the first segment's. The log start may be inside of a batch, and a transaction that began with
        that batch would be missed.
        """
        self.reset(base_offset)
        while self.snapshots:
            offset = self.snapshots[-1]
            try:
                entries = decode_snapshot(self.files.read(self.path_of(offset)))
            except (CorruptSnapshotError, FileNotFoundError):
                self.drop_snapshot(offset)
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self.entries[entry.producer_id] = entry
            starts = sorted((e.transaction_start, e.producer_id) for e in entries if e.transaction_start >= 0)
            self._ongoing = dict(starts)
            self.end_offset = self.snapshot_offset = offset
            return
        self.snapshot_offset = base_offset

    def drop_snapshot(self, offset: int) -> None:
        """Delete the snapshot at `offset` if it exists."""
        if offset in self.snapshots:
            self.snapshots.remove(offset)
            self.files.unlink(self.path_of(offset))

    def drop_snapshots_above(self, offset: int) -> None:
        """Delete snapshots that cover batches from `offset` on."""
        while self.snapshots and self.snapshots[-1] > offset:
            self.files.unlink(self.path_of(self.snapshots.pop()))

    def retain_snapshots(self, segment_offsets: set[int]) -> None:
        """Delete snapshots that belong to no segment, except the newest if it is above the last base offset."""
        stray = [offset for offset in self.snapshots if offset not in segment_offsets]
        last_base = max(segment_offsets, default=-1)
        for offset in stray[:-1] if stray and stray[-1] > last_base else stray:
            self.drop_snapshot(offset)

    def restart_at(self, offset: int) -> None:
        """Forget all producers and delete all snapshots: the log was emptied and starts at `offset`."""
        for snapshot in list(self.snapshots):
            self.drop_snapshot(snapshot)
        self.reset(offset)
        self.snapshot_offset = offset


def _find_duplicate(entry: ProducerEntry, header: BatchHeader) -> WrittenBatch | None:
    if entry.epoch != header.producer_epoch:
        return None
    last_sequence = header.last_sequence
    for batch in entry.batches:
        if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
            return batch
    return None


def _check_batch(entry: ProducerEntry, header: BatchHeader, partition: object, *, sequences: bool) -> None:
    _check_epoch(entry, header, partition)
    if sequences:
        _check_sequence(entry, header, partition)
    if entry.transaction_start >= 0 and not header.is_transactional:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"Producer {header.producer_id} has an open transaction in {partition} and wrote outside of it",
        )


def _check_epoch(entry: ProducerEntry, header: BatchHeader, partition: object) -> None:
    if header.producer_epoch < entry.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch {header.producer_epoch} of producer {header.producer_id} in {partition} is older than"
            f" {entry.epoch}",
        )


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


def _check_marker(entry: ProducerEntry, header: BatchHeader, marker: Marker, partition: object) -> None:
    _check_epoch(entry, header, partition)
    if marker.coordinator_epoch < entry.coordinator_epoch and marker.coordinator_epoch != FORGET_PRODUCER:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Coordinator epoch {marker.coordinator_epoch} for producer {header.producer_id} in {partition} is older"
            f" than {entry.coordinator_epoch}",
        )

"""Compaction of sealed segments: only the last record of each key is retained. Runs in the cleaner's worker process.

Algorithm: a first read of the dirty segments maps the digest of each key to its last offset, until the map is full.
A second read, of the clean and dirty segments below that offset, drops each record whose key has a later offset in the
map, and writes the rest to new, synced segments beside the old ones, with the suffix `.cleaned`. Existing files are not
changed; the broker swaps the new segments in. Cost: the dirty part is read twice, the clean part once,
`BYTES_PER_KEY` of memory for each distinct dirty key.

Kafka's rules: offsets never change. A tombstone is dropped delete.retention.ms after the pass that first saw it
(KIP-534). Records of aborted transactions are dropped at once, their marker when no record is left and the delete
horizon has passed. The last batch of each active producer is retained, empty if necessary, and so is the last batch of
the cleaned range. Markers that remove producers (`FORGET_PRODUCER`) are retained: batches of these producers may be.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import md5

from ottla.common.clock import SystemClock
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.files import Files
from ottla.log.open_files import OpenFiles
from ottla.log.segment import CLEANED, INT32_MAX, Segment
from ottla.log.segment_file import SUFFIXES, file_name
from ottla.log.transaction_marker import FORGET_PRODUCER, read_marker
from ottla.log.txn_index import AbortedTransaction
from ottla.records import BatchHeader, Buffer, check_crc, decode_keys, encode_empty_batch, read_header
from ottla.records.compaction import retain

# Memory of a key in the map: a 16-byte digest, an int, their objects and the dictionary's slot.
BYTES_PER_KEY = 150


@dataclass(frozen=True)
class CleanJob:
    """The segments at `bases` may be cleaned; `next_base` is the base offset of the segment after them.

    `producers` are (producer id, offset of its last record or -1, epoch).
    """

    directory: str
    bases: list[int]
    next_base: int
    first_dirty: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_keys: int
    aborted: list[AbortedTransaction] = field(default_factory=list)
    producers: list[tuple[int, int, int]] = field(default_factory=list)

    def to_json(self) -> str:
        """Encode for the worker's standard input."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "CleanJob":
        """Decode the output of `to_json`."""
        fields = json.loads(text)
        fields["aborted"] = [AbortedTransaction(*entry) for entry in fields["aborted"]]
        fields["producers"] = [tuple(entry) for entry in fields["producers"]]
        return cls(**fields)


@dataclass(frozen=True)
class CleanResult:
    """`groups` has the base offsets of the sources of each new segment; the first is also the new segment's.

    Everything below `end_offset` is clean now.
    """

    groups: list[list[int]]
    end_offset: int
    bytes_before: int
    bytes_after: int
    messages_before: int
    messages_after: int
    took_ms: int

    def to_json(self) -> str:
        """Encode for the worker's standard output."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "CleanResult":
        """Decode the output of `to_json`. Raises ValueError or TypeError for other input."""
        return cls(**json.loads(text))


@dataclass
class Counts:
    """How much was read and written."""

    messages_before: int = 0
    messages_after: int = 0
    bytes_after: int = 0


class KeyMap:
    """Digest of a key -> its last offset; `latest` is the last offset that was read."""

    def __init__(self, max_keys: int) -> None:
        self.max_keys = max_keys
        self.latest = -1
        self._offsets: dict[bytes, int] = {}

    def put(self, key: bytes, offset: int) -> bool:
        """Set the last offset of a key; False if the map is full."""
        digest = md5(key, usedforsecurity=False).digest()
        if digest not in self._offsets and len(self._offsets) >= self.max_keys:
            return False
        self._offsets[digest] = offset
        return True

    def is_last(self, key: bytes, offset: int) -> bool:
        """Whether the map has no later record of the key."""
        return offset >= self._offsets.get(md5(key, usedforsecurity=False).digest(), -1)


class Transactions:
    """Decides, batch by batch in log order, which records were aborted and which markers are not needed any more."""

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self._pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        # Producer id -> the aborted transaction it is in, and whether a record of it was seen.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (known[0], True)
        return True

    def is_idle_marker(self, data: Buffer, header: BatchHeader) -> bool:
        """Whether the log has no record left of the transaction that a marker ends."""
        self._advance(header.last_offset)
        if header.producer_id < 0:
            return False
        if header.record_count == 0:
            return True
        marker = read_marker(data, 0)
        if marker is None:
            return False
        if not marker.aborted:
            was_seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_seen
        known = self._aborted.pop(header.producer_id, None)
        if known is not None and known[1]:
            self.kept.append(known[0])
            return False
        # It still removes the producer's state, which its batches create again in a recovery.
        return marker.coordinator_epoch != FORGET_PRODUCER

    def _advance(self, offset: int) -> None:
        while self._pending and self._pending[-1].first_offset <= offset:
            transaction = self._pending.pop()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))


def clean(job: CleanJob, files: Files) -> CleanResult:
    """Run a job. Raises OSError or KafkaError; the files written so far are then unusable."""
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    open_files = OpenFiles()
    files.release_descriptor = open_files.release_descriptor
    segments = [
        Segment.of_files(files, job.directory, base, open_files, size=files.size(f"{job.directory}/{file_name(base)}"))
        for base in job.bases
    ]
    keys = _read_keys(job, segments)
    end_offset = keys.latest + 1
    touched = [segment for segment in segments if segment.base_offset < end_offset]
    groups = list(_groups(job, touched, files))
    transactions = Transactions(job.aborted)
    counts = Counts()
    for group in groups:
        new = Segment.create(files, job.directory, group[0].base_offset, open_files, job.now_ms, suffix=CLEANED)
        _clean_group(job, group, new, keys, transactions, counts)
    files.fsync_directory(job.directory)
    for segment in segments:
        segment.file.close_file()
    return CleanResult(
        [[s.base_offset for s in group] for group in groups],
        end_offset,
        bytes_before=sum(segment.file.size for segment in touched),
        bytes_after=counts.bytes_after,
        messages_before=counts.messages_before,
        messages_after=counts.messages_after,
        took_ms=clock.monotonic_ms() - started_ms,
    )


def _read_keys(job: CleanJob, segments: list[Segment]) -> KeyMap:
    keys = KeyMap(job.max_keys)
    keys.latest = job.first_dirty - 1
    # A transaction whose marker is before the first segment read would never end.
    start = max((base for base in job.bases if base <= job.first_dirty), default=0)
    transactions = Transactions([transaction for transaction in job.aborted if transaction.last_offset >= start])
    for i, segment in enumerate(segments):
        end = segments[i + 1].base_offset if i + 1 < len(segments) else job.next_base
        if end <= job.first_dirty:
            continue
        for _, data, header in _sound_batches(segment):
            if header.is_control:
                transactions.is_idle_marker(data, header)
            elif (
                not transactions.is_aborted(header)
                and header.last_offset >= job.first_dirty
                and not _put_keys(keys, data, job.first_dirty)
            ):
                return keys
            keys.latest = max(keys.latest, header.last_offset)
        keys.latest = max(keys.latest, end - 1)
    return keys


def _put_keys(keys: KeyMap, data: memoryview, first_dirty: int) -> bool:
    """Add the keys of a batch from `first_dirty` on; False if the map is full."""
    return all(
        keys.put(key, offset) for offset, key, _ in decode_keys(data) if key is not None and offset >= first_dirty
    )


def _sound_batches(segment: Segment) -> Iterator[tuple[int, memoryview, BatchHeader]]:
    """The segment's batches. Rewritten batches get a new CRC, so corruption must be detected before."""
    for position, data, header in segment.file.batches():
        if not check_crc(data, 0, len(data)):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{segment.file.path()}: the batch at byte {position}, offset {header.base_offset}, has a wrong CRC",
            )
        yield position, data, header


def _groups(job: CleanJob, segments: list[Segment], files: Files) -> Iterator[list[Segment]]:
    """Group adjacent segments that together fit into one segment, so that small ones are merged."""
    group: list[Segment] = []
    sizes = [0, 0, 0]
    for i, segment in enumerate(segments):
        file = segment.file
        own = [file.size, *(_size_if_there(files, file.path(kind)) for kind in (".index", ".timeindex"))]
        end = segments[i + 1].base_offset if i + 1 < len(segments) else job.next_base
        fits = (
            group
            and sizes[0] + own[0] <= job.segment_bytes
            and max(sizes[1] + own[1], sizes[2] + own[2]) <= job.segment_index_bytes
            and (segment.file.size == 0 or end - 1 - group[0].base_offset <= INT32_MAX)
        )
        if group and not fits:
            yield group
            group, sizes = [], [0, 0, 0]
        group.append(segment)
        sizes = [a + b for a, b in zip(sizes, own, strict=True)]
    if group:
        yield group


def _size_if_there(files: Files, path: str) -> int:
    # The broker rebuilds a missing index when it needs it.
    return files.size(path) if files.exists(path) else 0


def _clean_group(
    job: CleanJob, group: list[Segment], new: Segment, keys: KeyMap, transactions: Transactions, counts: Counts
) -> None:
    """Write the retained records of a group of segments into a new one, and sync it."""
    transactions.kept = []
    last_of = {producer: (offset, epoch) for producer, offset, epoch in job.producers}
    for segment in group:
        for _, data, header in _sound_batches(segment):
            counts.messages_before += header.record_count
            kept = _filter(job, data, header, keys, transactions, last_of)
            if kept is not None:
                now = read_header(kept)
                counts.messages_after += now.record_count
                new.append(kept, now.last_offset, now.max_timestamp, job.index_interval_bytes)
    new.indices.transactions.rewrite(transactions.kept)
    fd = new.file.fd
    new.seal()
    new.file.files.fsync(fd)
    new.file.close_file()
    for kind in SUFFIXES[1:]:
        new.file.files.fsync_if_there(new.file.path(kind))
    counts.bytes_after += new.file.size


def _filter(
    job: CleanJob,
    data: memoryview,
    header: BatchHeader,
    keys: KeyMap,
    transactions: Transactions,
    last_of: dict[int, tuple[int, int]],
) -> Buffer | None:
    """The retained part of a batch: all of it, a part, an empty batch, or nothing (None)."""
    horizon = header.delete_horizon_ms
    horizon_passed = horizon is not None and horizon <= job.now_ms
    if header.is_control:
        idle = transactions.is_idle_marker(data, header)
        dropped = idle and horizon_passed
    else:
        idle = False
        dropped = transactions.is_aborted(header)
    if not dropped and header.record_count > 0:
        kept, has_tombstones = _kept_offsets(data, header, keys, horizon_passed=horizon_passed)
        if kept:
            new_horizon = job.now_ms + job.delete_retention_ms if (has_tombstones or idle) else None
            return retain(data, 0, kept, new_horizon)
    if _must_stay(job, header, last_of):
        return encode_empty_batch(header)
    return None


def _kept_offsets(
    data: memoryview, header: BatchHeader, keys: KeyMap, *, horizon_passed: bool
) -> tuple[set[int], bool]:
    if header.is_control:
        return {offset for offset, _, _ in decode_keys(data)}, False
    kept = set()
    has_tombstones = False
    for offset, key, has_value in decode_keys(data):
        if offset <= keys.latest and (
            key is None or not keys.is_last(key, offset) or (horizon_passed and not has_value)
        ):
            continue
        kept.add(offset)
        has_tombstones = has_tombstones or not has_value
    return kept, has_tombstones


def _must_stay(job: CleanJob, header: BatchHeader, last_of: dict[int, tuple[int, int]]) -> bool:
    if header.next_offset == job.next_base:
        return True
    if header.producer_id < 0 or header.producer_id not in last_of:
        return False
    last_offset, epoch = last_of[header.producer_id]
    if last_offset >= 0:
        return header.last_offset == last_offset
    return header.is_control and header.producer_epoch == epoch

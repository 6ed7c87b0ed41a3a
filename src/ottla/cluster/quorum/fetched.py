"""The data that a follower fetches from the leader: batches for its log, or a snapshot in parts. KIP-595, KIP-630."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cluster.metadata import snapshots
from ottla.cluster.metadata.loading import controls_in
from ottla.cluster.metadata.snapshots import PARTIAL_SUFFIX, SUFFIX, DamagedSnapshotError, Snapshot
from ottla.cluster.metadata.snapshots import SnapshotId as SnapshotFileId
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.values import value
from ottla.records import BatchHeader, check_crc, iter_batches

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.raft import Controls
    from ottla.raft.values import SnapshotId


@value
class FetchedBatch:
    """One batch, with the control records that matter for the quorum."""

    data: bytearray
    header: BatchHeader
    controls: Controls


def fetched_batches(records: bytes, offset: int, epoch: int) -> Iterator[FetchedBatch]:
    """The whole batches of a response of the leader of `epoch` that begins at `offset`. Raises CORRUPT_MESSAGE.

    A batch that is cut off at the end is fetched again.
    """
    for position, header in iter_batches(records):
        is_next = header.base_offset == offset and header.last_offset_delta >= 0
        if not is_next or not 0 <= header.partition_leader_epoch <= epoch:
            where = f"offset {header.base_offset} of epoch {header.partition_leader_epoch}"
            text = f"The leader of epoch {epoch} sent {where} of the metadata, expected {offset}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
        if not check_crc(records, position, header.size):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"The leader sent a corrupt batch of the metadata at {offset}")
        controls = controls_in(records, position) if header.is_control else ()
        yield FetchedBatch(bytearray(records[position : position + header.size]), header, controls)
        offset = header.next_offset


def append_fetched(log: Log, batch: FetchedBatch, now_ms: int) -> None:
    """Append a batch, which keeps its offsets and its epoch. Raises KafkaError."""
    header = batch.header
    assert header.base_offset == log.log_end_offset, "the log has changed since the fetch"
    log.append_as_leader(batch.data, header, header.partition_leader_epoch, now_ms, origin="raft")


class FetchedSnapshot:
    """The file of a snapshot while it is fetched: `.checkpoint.part`, which the next start deletes."""

    def __init__(self, log: Log, snapshot: SnapshotId) -> None:
        """Create the file. Raises OSError."""
        self._files = log.files
        self._directory = log.directory
        self._id = SnapshotFileId(*snapshot)
        self._name = self._id.file_name.removesuffix(SUFFIX) + PARTIAL_SUFFIX
        self._files.write(self._path, b"")
        self._size = 0

    @property
    def _path(self) -> str:
        return f"{self._directory}/{self._name}"

    def append(self, position: int, data: bytes) -> None:
        """Write the bytes at `position`. Raises OSError."""
        assert position == self._size, f"a part of {self._name} is missing"
        fd = self._files.open(self._path)
        try:
            self._files.pwrite(fd, data, position)
        finally:
            self._files.close(fd)
        self._size += len(data)

    def complete(self) -> tuple[SnapshotFileId, Snapshot, int]:
        """Check the snapshot, sync it and give it its name; returns it with its size in bytes.

        Raises OSError; DamagedSnapshotError if the leader's snapshot cannot be read, and removes the file.
        """
        data = self._files.read(self._path)
        try:
            snapshot = snapshots.parse(data, self._id.file_name)
        except DamagedSnapshotError:
            self.discard()
            raise
        fd = self._files.open(self._path)
        try:
            self._files.fsync(fd)
        finally:
            self._files.close(fd)
        self._files.rename(self._path, f"{self._directory}/{self._id.file_name}")
        self._files.fsync_directory(self._directory)
        return self._id, snapshot, len(data)

    def discard(self) -> None:
        """Delete the incomplete file. Raises OSError."""
        if self._files.exists(self._path):
            self._files.unlink(self._path)

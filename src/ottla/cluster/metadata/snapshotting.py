"""Creates snapshots of the metadata step by step, and deletes old snapshots and the log before them.

`tick` takes milliseconds: a snapshot is encoded in slices, so that it does not delay requests, and its file is synced
in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.cluster.metadata import snapshots
from ottla.cluster.metadata.loading import Loaded
from ottla.cluster.metadata.snapshots import SnapshotId, SnapshotWriter
from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.shortage import ShortageError
from ottla.common.values import value
from ottla.log.log import Log
from ottla.metadata.features import record_version
from ottla.metadata.image import MetadataImage
from ottla.metadata.snapshot import snapshot_records

if TYPE_CHECKING:
    from ottla.common.control_types import ControlType
    from ottla.config import BrokerConfig

logger = logging.getLogger(__name__)

_RETRY_MS = 60_000

RunInThread = Callable[[Callable[[], None]], Completion[None]]


@value
class MetadataLogSettings:
    """Kafka's `metadata.log.*` and `metadata.max.*`; sizes in bytes, times in milliseconds, 0 for no interval."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    bytes_between_snapshots: int = 20 << 20
    max_snapshot_interval_ms: int = 3600 * 1000
    retention_bytes: int = 100 << 20
    retention_ms: int = 7 * 24 * 3600 * 1000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> MetadataLogSettings:
        """The settings of a node's configuration."""
        return cls(
            segment_bytes=config.int("metadata.log.segment.bytes"),
            segment_ms=config.int("metadata.log.segment.ms"),
            bytes_between_snapshots=config.int("metadata.log.max.record.bytes.between.snapshots"),
            max_snapshot_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
            retention_bytes=config.int("metadata.max.retention.bytes"),
            retention_ms=config.int("metadata.max.retention.ms"),
        )


class SnapshotQuorum(Protocol):
    """The control records of a snapshot, and the quorum that sends snapshots to other nodes."""

    def controls_at(self, end_offset: int) -> Mapping[ControlType, bytes]:
        """The kraft.version and the voters below `end_offset`, as far as a snapshot names them."""
        ...

    def snapshots_changed(self) -> None:
        """A snapshot was written, and older ones may have been deleted."""
        ...


class Snapshotter:
    """Creates and deletes the snapshots of one metadata log."""

    def __init__(
        self,
        log: Log,
        loaded: Loaded,
        settings: MetadataLogSettings,
        clock: Clock,
        run_in_thread: RunInThread | None,
        quorum: SnapshotQuorum,
    ) -> None:
        self._log = log
        self._settings = settings
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._quorum = quorum
        self._end = loaded.snapshot_end
        self._bytes = loaded.bytes_since_snapshot
        self._last_timestamp_ms = loaded.last_timestamp_ms
        self._began_ms = clock.wall_ms()
        # When a snapshot that could not be written is retried, on the monotonic clock; None after a success.
        self._retry_ms: int | None = None
        self._writer: SnapshotWriter | None = None
        self._saving = False

    def appended(self, size: int, timestamp_ms: int) -> None:
        """Count a batch of the log."""
        self._bytes += size
        self._last_timestamp_ms = timestamp_ms

    def loaded(self, end_offset: int) -> None:
        """The log was replaced by a snapshot of the leader that ends at `end_offset`."""
        self._writer = None
        self._bytes = 0
        self._end = end_offset

    def tick(self, image: MetadataImage) -> None:
        """Begin a snapshot of the committed image if one is due, or continue a begun snapshot."""
        if self._writer is not None:
            self._continue(self._writer)
        elif not self._saving and self._is_due(image):
            self.begin(image)
        due = self._log.segments.take_due_deletions(self._clock.wall_ms())
        if due:
            self._remove(due)

    def _is_due(self, image: MetadataImage) -> bool:
        if self._retry_ms is not None:
            return self._clock.monotonic_ms() >= self._retry_ms
        if image.offset < self._end:
            return False
        interval_ms = self._settings.max_snapshot_interval_ms
        return self._bytes >= self._settings.bytes_between_snapshots or (
            interval_ms > 0 and not 0 <= self._clock.wall_ms() - self._began_ms < interval_ms
        )

    def begin(self, image: MetadataImage) -> None:
        """Begin a snapshot of the committed image; `tick` continues it."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        logger.info("Creating new KRaft snapshot file snapshot %s", snapshot_id.file_name)
        level = image.metadata_version
        self._began_ms = self._clock.wall_ms()
        self._writer = SnapshotWriter(
            snapshot_id,
            ((record, record_version(record, level)) for record in snapshot_records(image)),
            self._quorum.controls_at(snapshot_id.end_offset),
            self._began_ms,
            self._last_timestamp_ms,
        )
        self._bytes = 0
        self._end = snapshot_id.end_offset

    def _continue(self, writer: SnapshotWriter) -> None:
        if writer.step():
            return
        self._writer = None
        self._saving = True

        def save() -> None:
            snapshots.write(self._log.files, self._log.directory, writer.snapshot_id.file_name, writer.data)

        def saved(done: Completion[None]) -> None:
            self._saving = False
            try:
                done.result()
            except OSError as error:
                logger.warning("Failed to write a metadata snapshot; it will be retried: %s", error)
                self._retry_ms = self._clock.monotonic_ms() + _RETRY_MS
                return
            logger.info("Successfully wrote snapshot %s", writer.snapshot_id.file_name)
            self._retry_ms = None
            if not self._log.closed:
                self._clean()
                self._quorum.snapshots_changed()

        self._run(save).on_done(saved)

    def _remove(self, paths: list[str]) -> None:
        def remove() -> None:
            for path in paths:
                self._log.files.unlink(path)

        def removed(done: Completion[None]) -> None:
            try:
                done.result()
            except OSError as error:
                logger.warning("Failed to delete old files of the metadata log; the next start retries: %s", error)

        self._run(remove).on_done(removed)

    def _run(self, work: Callable[[], None]) -> Completion[None]:
        if self._run_in_thread is not None:
            return self._run_in_thread(work)
        try:
            work()
        except OSError as error:
            return Completion.failed(error)
        return Completion.of(None)

    def _clean(self) -> None:
        """Delete the oldest snapshots while all are too large or they are too old, and the log before the rest."""
        try:
            self._delete_old()
        except (OSError, ShortageError) as error:
            logger.warning("Failed to delete old metadata snapshots; the next snapshot retries: %s", error)

    def _delete_old(self) -> None:
        directory, settings, files = self._log.directory, self._settings, self._log.files
        ids = snapshots.list_ids(files, directory)
        now_ms = self._clock.wall_ms()
        sizes = {i: files.size(f"{directory}/{i.file_name}") for i in ids}
        total = self._log.size + sum(sizes.values())
        while len(ids) > 1:
            path = f"{directory}/{ids[0].file_name}"
            too_much = 0 <= settings.retention_bytes < total
            too_old = 0 <= settings.retention_ms < now_ms - files.modified_ms(path)
            if not (too_much or too_old):
                break
            files.unlink(path)
            total -= sizes[ids.pop(0)]
            self._shorten_log(ids[0].end_offset, now_ms)
        if ids and 0 <= settings.retention_bytes < total:
            self._shorten_log(ids[0].end_offset, now_ms)

    def _shorten_log(self, offset: int, now_ms: int) -> None:
        if offset <= self._log.high_watermark:
            self._log.delete_records_before(offset, "snapshot generated")
            self._log.delete_old_segments(now_ms)

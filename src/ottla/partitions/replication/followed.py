"""A partition that this node follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.log.follower import append_as_follower, restart_at
from ottla.partitions.flush import FlushInThread
from ottla.partitions.reading import READ_COMMITTED, READ_UNCOMMITTED, check_leader_epoch, end_of_epoch, look_up
from ottla.partitions.traffic import TopicTraffic
from ottla.replication.follower import Step, on_leader_end, on_leader_start

if TYPE_CHECKING:
    from ottla.common.errors import ErrorCode
    from ottla.common.unread import Unread
    from ottla.log import Log
    from ottla.metadata.image import PartitionImage
    from ottla.partitions.partition import FollowerWatcher, Partition, Watcher
    from ottla.records import Buffer


LATEST, EARLIEST = -1, -2
"""The timestamps of ListOffsets for the end and the start of a log."""


class RoleListener(Protocol):
    """Is notified when this node becomes the leader or a follower of a partition, with its log open."""

    def leading(self, partition: Partition) -> None:
        """This node leads the partition from now on, in the epoch `partition.leader_epoch`."""
        ...

    def resigned(self, partition: Partition) -> None:
        """This node no longer leads it; the partition is closed already."""
        ...

    def following(self, partition: FollowedPartition) -> None:
        """This node follows the partition, or its leader or leader epoch changed."""
        ...

    def unfollowed(self, partition: FollowedPartition) -> None:
        """This node no longer follows it: it leads it, has no replica any more, or cannot use the log."""
        ...


class FollowingPartition(Protocol):
    """A partition in a `ReplicaFetcher`: the fetcher decides, the partition changes its log. See FollowedPartition."""

    topic_id: bytes
    closed: bool
    leader_id: int
    leader_epoch: int

    @property
    def log(self) -> Log: ...
    @property
    def is_truncation_synced(self) -> bool: ...
    @property
    def first_lookup(self) -> int: ...
    @property
    def needs_end(self) -> bool: ...
    def take_end(self, offset: int, asked_ms: int) -> None: ...
    def append(self, records: Buffer, now_ms: int) -> None: ...
    def take_offsets(self, high_watermark: int, log_start_offset: int, appended_bytes: int, asked_ms: int) -> None: ...
    def truncate(self, offset: int) -> bool: ...
    def restart(self, offset: int) -> None: ...
    def on_lookup(self, timestamp: int, offset: int) -> Step: ...
    def note_error(self, error: ErrorCode) -> None: ...
    def note_failure(self, problem: str) -> None: ...
    def flush_if_due(self, now_ms: int) -> Completion[None] | None: ...
    def truncated(self) -> Completion[None]: ...


class FollowedPartition:
    """The log of a partition whose leader is another node, `leader_id` (-1: none), in `leader_epoch`."""

    __slots__ = (
        "_flush_in_thread",
        "_flushing",
        "closed",
        "followers",
        "is_truncation_synced",
        "leader_epoch",
        "leader_id",
        "log",
        "topic_id",
        "traffic",
        "watchers",
    )

    def __init__(
        self,
        log: Log,
        image: PartitionImage,
        flush_in_thread: FlushInThread,
    ) -> None:
        self.log = log
        self.topic_id = log.topic_id
        self.leader_id, self.leader_epoch = image.leader, image.leader_epoch
        self.closed = False
        self.traffic = TopicTraffic()
        """The counters of the topic."""
        self.watchers: dict[Watcher, None] = {}
        """The fetches of consumers that read from this replica (KIP-392)."""
        self.followers: dict[FollowerWatcher, None] = {}
        """Stays empty: followers fetch from the leader."""
        self.is_truncation_synced = True
        """False from a truncation until it is on disk. Nothing may be appended meanwhile: see `truncated`."""
        self._flush_in_thread = flush_in_thread
        self._flushing: Completion[None] | None = None

    def __repr__(self) -> str:
        return f"<FollowedPartition {self.log.topic_partition} of node {self.leader_id}>"

    def follow(self, image: PartitionImage) -> bool:
        """Take in newer metadata; whether the leader or its epoch changed."""
        known = self.leader_id, self.leader_epoch
        self.leader_id, self.leader_epoch = image.leader, image.leader_epoch
        return known != (image.leader, image.leader_epoch)

    def close(self) -> None:
        """Stop following; consumers that wait look for the partition again."""
        self.closed = True
        self.notify(0)

    def notify(self, appended_bytes: int) -> None:
        """Notify waiting consumers that the high watermark advanced, or that the state changed (0)."""
        for watcher in tuple(self.watchers):
            watcher.partition_changed(appended_bytes)

    # -- reading, as in `Partition` ------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The leader's high watermark, as far as this log reaches."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark."""
        return self.log.last_stable_offset

    def visible_end(self, isolation_level: int) -> int:
        """The first offset that a reader of this isolation level may not see yet."""
        if isolation_level == READ_UNCOMMITTED:
            return self.high_watermark
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.log.log_end_offset

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        check_leader_epoch(self.leader_epoch, current_leader_epoch)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    def look_up(self, offset: int, max_bytes: int, isolation_level: int, *, min_one_batch: bool) -> Buffer | Unread:
        return look_up(self.log, offset, max_bytes, self.visible_end(isolation_level), min_one_batch=min_one_batch)

    # -- fetching, as `ReplicaFetcher` requires -------------------------------------------------------------------

    first_lookup = LATEST
    needs_end = False

    def take_end(self, offset: int, asked_ms: int) -> None:
        """Not needed: a follower has records above the high watermark, too."""

    def append(self, records: Buffer, now_ms: int) -> None:
        """Append fetched batches; raises KafkaError as `append_as_follower`."""
        append_as_follower(self.log, records, self.leader_epoch, now_ms)
        self.traffic.replication_bytes_in += len(records)

    def take_offsets(self, high_watermark: int, log_start_offset: int, appended_bytes: int, asked_ms: int) -> None:  # noqa: ARG002 - the signature of FollowingPartition
        """Follow the leader's high watermark and log start, as far as this log reaches."""
        log = self.log
        high_watermark = min(high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.high_watermark = high_watermark
            if self.watchers:
                self.notify(appended_bytes)
        start = min(log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            log.advance_start(start, "leader offset increment")

    def truncate(self, offset: int) -> bool:
        """Drop records that the leader does not have; whether there were any. Call `truncated` before an append."""
        # Not synced here: after an election, hundreds of partitions may be truncated at the same time.
        return self.log.truncate_to(offset, sync=False)

    def restart(self, offset: int) -> None:
        """Drop all records and continue at `offset`. Call `truncated` before an append."""
        restart_at(self.log, offset)

    def on_lookup(self, timestamp: int, offset: int) -> Step:
        """Decide the next step when the leader's last or first offset is known."""
        return on_leader_end(offset, self.log) if timestamp == LATEST else on_leader_start(offset, self.log)

    def note_error(self, error: ErrorCode) -> None:
        """Nothing is reported: the fetcher logs it."""

    def note_failure(self, problem: str) -> None:
        """Nothing is reported: the fetcher logs it."""

    # -- durability ----------------------------------------------------------------------------------------------

    def flush_if_due(self, now_ms: int) -> Completion[None] | None:
        """Start a flush if the topic's flush policy requires one, or if a rolled segment was never synced.

        Returns a completion if the flush policy requires that the follower does not acknowledge before it is done.
        """
        log = self.log
        must_wait = log.needs_flush(now_ms)
        flushing = self._flushing
        if flushing is None or flushing.done:
            if not must_wait and not log.durability.has_unsynced_segments:
                return None
            flushing = self._flushing = self._flush_in_thread(log.flush)
            flushing.on_done(_log_failure)
        return flushing if must_wait else None

    def truncated(self) -> Completion[None]:
        """Sync a truncation; the completion fails with KafkaError or OSError.

        If new records were appended before, a power cut could retain them without the truncation: a dropped batch would
        stand between records of the leader, as valid as they are.
        """
        self.is_truncation_synced = False
        synced: Completion[None] = Completion()

        def flush(_: object) -> None:
            # A flush that began before the truncation does not cover it.
            self._flushing = self._flush_in_thread(self.log.flush)
            self._flushing.on_done(finished)

        def finished(done: Completion[None]) -> None:
            self.is_truncation_synced = done.error is None
            synced.follow(done)

        if self._flushing is None or self._flushing.done:
            flush(None)
        else:
            self._flushing.on_done(flush)
        return synced


def _log_failure(done: Completion[None]) -> None:
    try:
        done.result()
    except (KafkaError, OSError):
        # `Log.flush` has taken the directory offline and logged why; its partitions are closed then.
        return

"""The leader of one partition: its log, its high watermark, and the requests that wait for it.

A record below the high watermark is committed and visible to consumers. With one replica the high watermark is the
local end: the log end offset, or with `flush.messages`/`flush.ms` the flushed offset: one fsync in a worker thread
covers every append that arrived during the previous fsync (group commit). With several replicas
`ottla.replication.leader` computes the high watermark from the local end and the fetches of the followers.

Watchers are notified of each advance, and followers of each append, on the appender's stack; they must only take note
and schedule their work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition, Uuid
from ottla.common.unread import Unread
from ottla.log.follower import append_as_follower, restart_at
from ottla.partitions.flush import Flush, FlushInThread
from ottla.partitions.reading import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    check_leader_epoch,
    end_of_epoch,
    look_up,
    out_of_range,
)
from ottla.partitions.traffic import TopicTraffic
from ottla.partitions.waits import Waits, complete_up_to
from ottla.records import BatchHeader, Buffer, read_header, validate_produced
from ottla.records.batch import TRANSACTIONAL
from ottla.replication.replica import ReplicaFetch, not_a_replica

if TYPE_CHECKING:
    from ottla.log import AppendInfo, Log
    from ottla.log.producer_state import Origin
    from ottla.log.transaction_marker import TransactionEnd
    from ottla.metadata.image import PartitionImage
    from ottla.partitions.topic_settings import TopicSettings
    from ottla.replication.leader import IsrDecision, IsrProposal, Leader, Next

ACKS_ALL = -1


class Watcher(Protocol):
    """A fetch session or long poll that is notified when a partition changes."""

    def partition_changed(self, appended_bytes: int) -> None:
        """The high watermark advanced by batches of about this size, or the partition's state changed (0)."""
        ...


class FollowerWatcher(Protocol):
    """The fetch of a follower."""

    def partition_changed(self, appended_bytes: int) -> None:
        """Batches of this size were appended, or the partition's state changed (0)."""
        ...

    def high_watermark_moved(self) -> None:
        """The high watermark advanced; the follower learns it with its next response."""
        ...


class Replication(NamedTuple):
    """The followers of a partition, and the function that sends a change of its ISR to the controller."""

    leader: Leader
    propose: Callable[[Partition, IsrProposal], None]


class Partition:
    """Leader of one partition on this node."""

    __slots__ = (
        "_flush",
        "_local_end",
        "_replication",
        "_unreported_bytes",
        "_waits",
        "closed",
        "followers",
        "high_watermark",
        "is_truncation_synced",
        "leader_epoch",
        "log",
        "refusal",
        "settings",
        "traffic",
        "watchers",
    )

    def __init__(
        self,
        log: Log,
        *,
        leader_epoch: int,
        settings: TopicSettings,
        flush_in_thread: FlushInThread,
        replication: Replication | None = None,
    ) -> None:
        """Without `replication` there is one replica."""
        self.log = log
        self.settings = settings
        self.refusal = settings.refusal
        """The error for clients that write; as in the settings, or that the leader removes a source's producers."""
        self.leader_epoch = leader_epoch
        # Not used with one replica: its local end is the high watermark.
        self._local_end: int = log.log_end_offset
        # After a start, only a single replica may take all of its log as committed.
        self.high_watermark: int = self._local_end if replication is None else log.high_watermark
        log.high_watermark = self.high_watermark
        self._replication = replication
        self.closed = False
        self.is_truncation_synced = True
        self.traffic = TopicTraffic()
        """The counters of the topic; its partitions on this node share them."""
        # A dict for its order: the watcher that waited longest is notified first.
        self.watchers: dict[Watcher, None] = {}
        self.followers: dict[FollowerWatcher, None] = {}
        """The waiting fetches of followers."""
        self._waits = Waits()
        self._flush = Flush(flush_in_thread)
        # Appended since the watchers were last notified.
        self._unreported_bytes = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The name of the topic, and the partition's index."""
        return self.log.topic_partition

    @property
    def topic_id(self) -> Uuid:
        """The id of the topic."""
        return self.log.topic_id

    @property
    def isr_size(self) -> int:
        """How many replicas are in sync."""
        return 1 if self._replication is None else len(self._replication.leader.isr)

    @property
    def replica_count(self) -> int:
        """How many replicas the partition has."""
        return 1 if self._replication is None else len(self._replication.leader.followers) + 1

    # -- writing -----------------------------------------------------------------------------------------------

    def check_acks(self, required_acks: int) -> None:
        """Raise NOT_ENOUGH_REPLICAS if acks=all is impossible now; at most all replicas are required."""
        if required_acks != ACKS_ALL or self._replication is None:
            return
        least = self.settings.min_insync_replicas
        if self.isr_size < min(least, self.replica_count):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR of {self.topic_partition} is {self.isr_size}, "
                f"less than min.insync.replicas {least}",
            )

    def append(
        self,
        batch: memoryview,
        *,
        header: BatchHeader | None = None,
        origin: Origin = "client",
        required_acks: int = ACKS_ALL,
    ) -> AppendInfo:
        """Append one validated batch in the writable buffer `batch`; base offset and epoch are patched in place.

        It ignores `refusal`, which the caller checks for batches of clients.
        Raises KafkaError; nothing was appended then. `when_durable` reports when the batch is committed.
        """
        self.check_open()
        self.check_acks(required_acks)
        return self._append(batch, header or read_header(batch), self.log.context.clock.wall_ms(), origin)

    def append_marker(self, end: TransactionEnd) -> AppendInfo:
        """Append the end of a transaction (see `append`). Raises KafkaError: INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, NOT_ENOUGH_REPLICAS, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR."""
        self.check_open()
        self.check_acks(ACKS_ALL)
        self.log.producers.check_end(end, self.topic_partition)
        now_ms = self.log.context.clock.wall_ms()
        batch, header = end.encode(now_ms)
        return self._append(memoryview(batch), header, now_ms, "coordinator")

    def append_produced(
        self,
        records: memoryview,
        required_acks: int,
        now_ms: int,
        *,
        allow_zstd: bool = True,
        is_verified: bool = False,
    ) -> AppendInfo:
        """Validate a client's batch and append it (see `append`). Raises KafkaError, RecordError.

        Pass `is_verified` if the partition is part of the producer's transaction; otherwise a transactional batch is
        rejected.
        """
        if self.refusal is not None:
            raise KafkaError(self.refusal.code, self.refusal.text)
        self.check_open()
        if required_acks == ACKS_ALL:
            self.check_acks(required_acks)
        header, batch = validate_produced(records, self.settings.rules, now_ms, allow_zstd=allow_zstd)
        if header.attributes & TRANSACTIONAL and not is_verified:
            raise not_verified()
        return self._append(batch, header, now_ms, "client")

    def _append(self, batch: memoryview, header: BatchHeader, now_ms: int, origin: Origin) -> AppendInfo:
        info = self.log.append_as_leader(batch, header, self.leader_epoch, now_ms, origin)
        if not info.duplicate:
            size, traffic = len(batch), self.traffic
            traffic.batches += 1
            traffic.bytes_in += size
            traffic.messages_in += header.last_offset_delta + 1
            self._grown(size, now_ms)
        return info

    def _grown(self, size: int, now_ms: int) -> None:
        """Notify followers and consumers of appended batches, or begin the flush that they wait for."""
        self._unreported_bytes += size
        if self.followers:
            for watcher in tuple(self.followers):
                watcher.partition_changed(size)
        durability = self.log.durability
        if not (durability.needs_flush(now_ms) or durability.is_ahead_of_disk):
            # A flush that runs now syncs a rolled segment, and no request has to wait for it.
            self._advance(self.log.log_end_offset)
        elif not self._flush.is_running:
            self._start_flush()

    # -- a copy of another cluster's partition -------------------------------------------------------------------

    def append_copied(self, records: Buffer, source_epoch: int, now_ms: int) -> None:
        """Append the batches that were fetched from the source in its leader epoch, as they are.

        Raises KafkaError as `append_as_follower`; the batches before the wrong one are appended then.
        """
        self.check_open()
        log = self.log
        before = log.log_end_offset
        try:
            append_as_follower(log, records, source_epoch, now_ms)
        finally:
            if log.log_end_offset > before:
                self._grown(len(records), now_ms)

    def cut(self, offset: int, *, restart: bool = False) -> None:
        """Drop the records from `offset` on, or with `restart` all records, to continue there; also committed ones.

        The caller syncs it before the next append and sets `is_truncation_synced`. Raises KafkaError.
        """
        self.check_open()
        # Records of the source get the offsets that requests wait for.
        self._waits.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is truncated"))
        if restart:
            restart_at(self.log, offset)
        else:
            self.log.truncate_to(offset, sync=False)
        self.is_truncation_synced = False
        self._local_end = self.log.log_end_offset
        self.high_watermark = self.log.high_watermark
        if self._replication is not None:
            self._replication.leader.cut(self._local_end)
        self._notify()

    def when_durable(self, offset: int) -> Completion[None] | None:
        """None if all records below `offset` are committed; otherwise a completion that waits for it."""
        if offset <= self.high_watermark:
            return None
        return self._waits.add(self._waits.committed, offset)

    def when_flushed(self, offset: int) -> Completion[None] | None:
        """None if all records below `offset` are as durable here as the flush policy demands (acks=1)."""
        if self._replication is None:
            return self.when_durable(offset)
        if offset <= self._local_end:
            return None
        return self._waits.add(self._waits.flushed, offset)

    def flush_if_due(self, now_ms: int) -> None:
        """Start a flush if `flush.ms` has passed, or a rolled segment was never synced; called by housekeeping."""
        log = self.log
        if not (self._flush.is_running or self.closed) and (
            log.durability.has_unsynced_segments or log.needs_flush(now_ms)
        ):
            self._start_flush()

    def _start_flush(self) -> None:
        self._flush.start(self.log, self._flushed)

    def _flushed(self, done: Completion[None]) -> None:
        try:
            done.result()
        except (KafkaError, OSError) as error:
            self._waits.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition}: {error}"))
            return
        if self.closed:
            return
        if self.log.needs_flush(self.log.context.clock.wall_ms()):
            self._advance(self.log.flushed_offset)
            self._start_flush()
        else:
            self._advance(self.log.log_end_offset)

    def _advance(self, local_end: int) -> None:
        """Take in that the log is durable here up to `local_end`."""
        high_watermark = local_end if self._replication is None else self._replicated(local_end)
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = self.log.high_watermark = high_watermark
        if self._waits.committed:
            complete_up_to(self._waits.committed, high_watermark)
        size, self._unreported_bytes = self._unreported_bytes, 0
        if self.watchers:
            for watcher in tuple(self.watchers):
                watcher.partition_changed(size)
        if self.followers:
            for follower in self.followers:
                follower.high_watermark_moved()

    def _replicated(self, local_end: int) -> int:
        """Return the high watermark that the followers allow."""
        assert self._replication is not None
        leader, now_ms = self._replication.leader, self.log.context.clock.monotonic_ms()
        if local_end > self._local_end:
            self._local_end = local_end
            complete_up_to(self._waits.flushed, local_end)
        return leader.high_watermark(self.high_watermark, local_end, now_ms)

    def _notify(self) -> None:
        """Notify every watcher that the state changed."""
        for watcher in (*self.watchers, *self.followers):
            watcher.partition_changed(0)

    # -- replication -------------------------------------------------------------------------------------------

    @property
    def isr(self) -> tuple[int, ...] | None:
        """The committed in-sync replicas; None with one replica."""
        return None if self._replication is None else self._replication.leader.isr

    def follow(self, replication: Replication | None, image: PartitionImage) -> None:
        """Follow newer metadata, in which this node leads; `replication` as for the constructor."""
        self.leader_epoch = image.leader_epoch
        if self._replication is None:
            self._local_end = self.high_watermark
        self._replication = replication
        if replication is not None:
            replication.leader.follow(image, self.log.log_end_offset, self.log.context.clock.monotonic_ms())
        self._advance(self._local_end)
        self.check_joining()

    @property
    def replication(self) -> Leader | None:
        """The state of the followers; None with one replica."""
        return None if self._replication is None else self._replication.leader

    def configure(self, settings: TopicSettings) -> None:
        """Apply changed settings of the topic, but for its log and its `refusal`."""
        self.settings = settings
        if self._replication is not None:
            self._replication.leader.min_insync_replicas = settings.min_insync_replicas
            self._advance(self._local_end)

    def on_follower_fetch(self, fetch: ReplicaFetch) -> None:
        """Take in the position of a follower whose log does not diverge from this one.

        Raises OFFSET_OUT_OF_RANGE, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        leader, log = self.replication, self.log
        if leader is None:
            raise not_a_replica(fetch)
        leader.check_replica(fetch)
        if not log.log_start_offset <= fetch.fetch_offset <= log.log_end_offset:
            raise out_of_range(self.log, fetch.fetch_offset, log.log_end_offset)
        proposal = leader.on_fetch(
            fetch,
            log_end_offset=log.log_end_offset,
            high_watermark=self.high_watermark,
            now_ms=self.log.context.clock.monotonic_ms(),
        )
        self._advance(self._local_end)
        if self._waits.deleted:
            complete_up_to(self._waits.deleted, self.low_watermark)
        self._send(proposal)

    def check_lag(self) -> None:
        """Propose an ISR without followers that lag; called by housekeeping."""
        if self._replication is None or self.closed:
            return
        proposal = self._replication.leader.check_lag(self.log.log_end_offset, self.log.context.clock.monotonic_ms())
        # A follower that is not caught up any more does not hold the high watermark either.
        self._advance(self._local_end)
        self._send(proposal)

    def check_joining(self) -> None:
        """Propose a follower that can join the ISR; called when the metadata has changed."""
        if self._waits.deleted:
            complete_up_to(self._waits.deleted, self.low_watermark)
        self._join(is_answered=False)

    def _join(self, *, is_answered: bool) -> None:
        if self._replication is not None and self.isr_size < self.replica_count and not self.closed:
            self._send(self._replication.leader.check_joining(self.high_watermark, is_answered=is_answered))

    def _send(self, proposal: IsrProposal | None) -> None:
        if proposal is not None and self._replication is not None:
            self._replication.propose(self, proposal)

    def on_isr_answer(self, proposal: IsrProposal, error: ErrorCode, decision: IsrDecision | None) -> Next | None:
        """Take in the controller's answer to a proposal; None if this node leads no followers any more."""
        if self.closed or self._replication is None:
            return None
        leader = self._replication.leader
        following = leader.on_answer(proposal, error, decision)
        self._advance(self._local_end)
        if leader.pending is None:
            self._join(is_answered=True)
        return following

    # -- reading -----------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise the error that a client should see if this node no longer serves the partition."""
        if self.closed:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} is not served here")

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client with an older or unknown leader epoch (KIP-320). -1 is not checked."""
        if current_leader_epoch not in (-1, self.leader_epoch):
            check_leader_epoch(self.leader_epoch, current_leader_epoch)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    def visible_end(self, isolation_level: int) -> int:
        """The first offset that a reader of this isolation level may not see yet."""
        if isolation_level == READ_UNCOMMITTED:
            return self.high_watermark
        return self.last_stable_offset if isolation_level == READ_COMMITTED else self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, or the high watermark."""
        return min(self.log.last_stable_offset, self.high_watermark)

    def look_up(self, offset: int, max_bytes: int, isolation_level: int, *, min_one_batch: bool) -> Buffer | Unread:
        return look_up(self.log, offset, max_bytes, self.visible_end(isolation_level), min_one_batch=min_one_batch)

    # -- changes -----------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset` (-1: the high watermark); returns the new log start."""
        self.check_open()
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete records of {self.topic_partition} up to {offset}: its high watermark is"
                f" {self.high_watermark}",
            )
        self.log.delete_records_before(target)
        self._notify()
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all replicas on live brokers: records below it are deleted everywhere. KIP-107."""
        start = self.log.log_start_offset
        return start if self._replication is None else self._replication.leader.low_watermark(start)

    def when_deleted(self, offset: int) -> Completion[None] | None:
        """None if all live replicas have deleted the records below `offset`; otherwise a completion that waits."""
        if offset <= self.low_watermark:
            return None
        return self._waits.add(self._waits.deleted, offset)

    def close(self, reason: KafkaError | None = None) -> None:
        """Stop serving the partition; waiting requests fail with `reason` (default: it was deleted)."""
        self.closed = True
        self._waits.fail(
            reason or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted")
        )
        self._notify()


def not_verified() -> KafkaError:
    """The error for a transactional batch of a producer whose transaction does not include the partition."""
    text = "A transactional batch needs a transactional id"
    return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)

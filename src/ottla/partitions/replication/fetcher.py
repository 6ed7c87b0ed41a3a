"""One fetcher: a connection to one leader, on which this node fetches some of the partitions that it follows.

One fetch is in flight. The leader answers it when one of the partitions has new records, so that no timer is involved
between an append at the leader and the append here. The records are appended as they arrived, before the next fetch
reports the new log end to the leader.

A partition with an error leaves the session, and returns after a backoff that starts at a few milliseconds: after an
election, leader and followers learn of it at slightly different times. After a lost connection, all partitions wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.common.ids import TopicPartition
from ottla.common.slices import Slices
from ottla.metadata.mirrors import UNHANDLED
from ottla.network.errors import ConnectionClosed, NetworkError
from ottla.partitions.replication import lookup
from ottla.partitions.replication.context import Channel, FetcherContext
from ottla.partitions.replication.delays import Delays
from ottla.partitions.replication.followed import EARLIEST, LATEST
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.replication.follower import (
    Action,
    EpochEnd,
    FetchAnswer,
    Step,
    on_fetched,
    position_of,
)
from ottla.replication.session import ANY_SIZE, Key, ReplicaSession

if TYPE_CHECKING:
    from ottla.log import Log
    from ottla.partitions.replication.followed import FollowingPartition
    from ottla.partitions.replication.quotas import ReplicationQuota
    from ottla.protocol.message import Message

logger = logging.getLogger(__name__)

# The backoff after an error doubles from this to replica.fetch.backoff.ms.
FIRST_BACKOFF_MS = 10
# The longest pause that a leader can demand.
LONGEST_THROTTLE_S = 600
# A response with more partitions is taken in by slices of as many.
SLICE_PARTITIONS = 32


class _Followed:
    """A partition in this fetcher."""

    __slots__ = ("failures", "partition")

    def __init__(self, partition: FollowingPartition) -> None:
        self.partition = partition
        self.failures = 0


class ReplicaFetcher:
    """Fetches partitions from one leader. `is_busy` while a fetch is in flight."""

    def __init__(self, context: FetcherContext, leader_id: int, index: int) -> None:
        self.leader_id = leader_id
        self.is_busy = False
        self.before_fetch: Callable[[ReplicaFetcher], None] | None = None
        """Called when a fetch is about to be sent; it may call `follow`."""
        self._context = context
        self._index = index
        self._session = ReplicaSession(context.cluster.node_id, context.settings)
        self._partitions: dict[Key, _Followed] = {}
        # Fetched partitions whose leader must still say where its log ends.
        self._without_end: dict[Key, None] = {}
        self._delays: Delays[Key] = Delays(context.clock, context.call_later, self._return_delayed)
        self._channel: Channel | None = None
        self._failures = 0
        # When the last request was sent, and the last request with an answer since the last failure; -1: none.
        self._asked_ms = self._as_of_ms = -1
        self._is_scheduled = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def _name(self) -> str:
        node_id = self._context.cluster.node_id
        return f"[ReplicaFetcher replicaId={node_id}, leaderId={self.leader_id}, fetcherId={self._index}]"

    def partitions(self, limit: int) -> list[FollowingPartition]:
        """The first partitions that this fetcher follows."""
        return [followed.partition for followed in islice(self._partitions.values(), limit)]

    def as_of_ms(self, partition: FollowingPartition) -> int:
        """When the last fetch was sent in whose answer nothing was new of the partition, by the monotonic clock.

        Such an answer does not name the partition (KIP-227). It may have been on the way for long: nothing is known
        of records that the leader has got since the request. -1 if the partition is not fetched now.
        """
        return -1 if self._session.requested(_key(partition)) is None else self._as_of_ms

    def follow(self, partition: FollowingPartition) -> None:
        """Fetch a partition in its leader epoch, from its log's end on."""
        key = _key(partition)
        followed = self._partitions[key] = _Followed(partition)
        self._delays.drop(key)
        self._want_flushed(key, followed, self._context.clock.wall_ms())
        self._schedule()

    def unfollow(self, partition: FollowingPartition) -> None:
        """Fetch the partition no longer; an answer that arrives later is ignored."""
        key = _key(partition)
        self._partitions.pop(key, None)
        self._delays.drop(key)
        self._session.drop(key)
        if not self._partitions:
            self._disconnect()

    def close(self) -> None:
        """Stop."""
        self._closed = True
        self._partitions.clear()
        self._delays.close()
        self._disconnect()

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        self._session.start_over()
        if self._context.limit is not None:
            self._context.limit.leave(self)
        if channel is not None:
            channel.close()

    def _want(self, key: Key, partition: FollowingPartition) -> None:
        self._session.want(key, position_of(partition.log, partition.leader_epoch))
        if partition.needs_end:
            self._without_end[key] = None

    # -- fetching ------------------------------------------------------------------------------------------------

    def _schedule(self, delay_s: float = 0) -> None:
        """Fetch later in this event loop iteration, with all partitions that are added until then."""
        if not (self._is_scheduled or self.is_busy or self._closed):
            self._is_scheduled = True
            self._context.call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._is_scheduled = False
        self._fetch()

    def _fetch(self) -> None:
        if self._closed or self.is_busy or not len(self._session):
            return
        limit = self._context.limit
        if limit is not None and (wait_ms := limit.wait_ms()):
            self._schedule(wait_ms / 1000)
            return
        if self.before_fetch is not None:
            self.before_fetch(self)
        channel = self._connected()
        if channel is None:
            self._retry(f"the address of node {self.leader_id} is unknown")
            return
        self.is_busy = True
        most_bytes = ANY_SIZE if limit is None else limit.fetch_bytes(self)
        request = self._session.build(self._context.cluster.broker_epoch, most_bytes)
        self._asked_ms = self._context.clock.monotonic_ms()
        channel.send(request, timeout_s=self._context.request_timeout_s, least_version=13).on_done(
            lambda done: self._answered(channel, done)
        )

    def _connected(self) -> Channel | None:
        if self._channel is None:
            client_id = f"broker-{self._context.cluster.node_id}-fetcher-{self._index}"
            self._channel = self._context.connect(self.leader_id, client_id)
        return self._channel

    def _retry(self, problem: object) -> None:
        """Fetch again after a backoff: all partitions of this leader are affected."""
        delay_ms = self._backoff_ms(self._failures)
        if self._failures == 0 and not self._closed:
            logger.info("%s Fetch failed and is retried: %s", self._name, problem)
        self._failures += 1
        if self._context.on_failure is not None:
            self._context.on_failure(self.leader_id, str(problem))
        self._as_of_ms = -1
        self._session.start_over()
        self._schedule(delay_ms / 1000)

    def _backoff_ms(self, failures: int) -> int:
        return min(self._context.settings.backoff_ms, FIRST_BACKOFF_MS << min(failures, 10))

    def _answered(self, channel: Channel, done: Completion[Message]) -> None:
        self.is_busy = False
        if self._closed:
            return
        try:
            response = done.result()
        except NetworkError as error:
            if self._channel is not channel:  # closed by this node, when it had nothing to fetch
                self._schedule()
                return
            if isinstance(error, ConnectionClosed):
                self._context.on_lost(self.leader_id)
            # The node may have another address when it is connected again.
            self._channel = None
            channel.close()
            self._retry(error)
            return
        assert isinstance(response, FetchResponse)
        if not self._session.on_response(response):
            self._retry(f"error {response.error_code} of the session")
            return
        self._failures = 0
        if self._as_of_ms < 0:
            self._context.on_answer(self.leader_id)
        throttle_ms = response.throttle_time_ms
        rows = [(topic.topic_id, data) for topic in response.responses for data in topic.partitions]
        limit = self._context.limit
        if limit is not None and limit.is_set:
            limit.record(sum(len(data.records or b"") for _, data in rows))
        if len(rows) <= SLICE_PARTITIONS:
            self._take_all(rows)
            self._fetch_after(throttle_ms)
            return
        self.is_busy = True
        work = self._context.worker.submit(self._take_in_slices(rows))
        work.on_done(lambda done: self._taken(throttle_ms, done))

    def _take_in_slices(self, rows: list[tuple[bytes, PartitionData]]) -> Slices[None]:
        for start in range(0, len(rows), SLICE_PARTITIONS):
            yield
            self._take_all(rows[start : start + SLICE_PARTITIONS])

    def _taken(self, throttle_ms: int, done: Completion[None]) -> None:
        self.is_busy = False
        done.result()
        # Not before: the answer may have news of a partition whose row is taken last.
        self._fetch_after(throttle_ms)

    def _fetch_after(self, throttle_ms: int) -> None:
        """Fetch again when the leader reads from the connection, which may be later than the timeout of a request."""
        if not throttle_ms:
            self._as_of_ms = self._asked_ms
            self._look_up_ends()
            if self._context.fetches_last:
                self._schedule()
            else:
                self._fetch()
            return
        # Kafka omits the records from such an answer, so that it does not show that there are none. KIP-219.
        self._as_of_ms = -1
        if self._context.on_throttled is not None:
            self._context.on_throttled(self.leader_id, throttle_ms)
        self._schedule(min(throttle_ms / 1000, LONGEST_THROTTLE_S))

    # -- answers -------------------------------------------------------------------------------------------------

    def _take_all(self, rows: list[tuple[bytes, PartitionData]]) -> None:
        now_ms = self._context.clock.wall_ms()
        for topic_id, data in rows:
            self._take(topic_id, data, now_ms)

    def _take(self, topic_id: bytes, data: PartitionData, now_ms: int) -> None:
        """Act on the answer for one partition. Errors of its log, or of its data, delay only this partition."""
        key = topic_id, data.partition_index
        followed = self._partitions.get(key)
        requested = self._session.requested(key)
        if followed is None or requested is None or followed.partition.closed:
            return
        partition = followed.partition
        log = partition.log
        error = error_code(data.error_code) if data.error_code else ErrorCode.NONE
        try:
            step = on_fetched(requested, FetchAnswer(error, diverging=_diverging(data)), log, partition.leader_epoch)
            if step.action is Action.APPEND:
                self._append(key, followed, data, now_ms)
            else:
                self._execute(key, followed, step, error)
        except KafkaError as error:
            logger.warning("%s Error while replicating %s: %s", self._name, log.topic_partition, error)
            partition.note_failure(str(error))
            self._delay(key, followed)
        except Exception as error:  # an unhandled error of one partition must not stop the others of this leader
            if followed.failures == 0:
                logger.exception("%s Unhandled error while replicating %s", self._name, log.topic_partition)
            partition.note_failure(f"{UNHANDLED}, and is retried: {error!r}")
            self._delay(key, followed)

    def _append(self, key: Key, followed: _Followed, data: PartitionData, now_ms: int) -> None:
        partition, records = followed.partition, data.records or b""
        if records:
            partition.append(records, now_ms)
        partition.take_offsets(data.high_watermark, data.log_start_offset, len(records), self._asked_ms)
        if partition.needs_end:
            self._look_up(key, followed, LATEST)
            return
        followed.failures = 0
        quota = self._context.quota
        if quota is not None and quota.topics and (wait_ms := _throttled_ms(quota, partition.log, data)):
            self._session.drop(key)
            self._delays.add(key, wait_ms)
        else:
            self._want_flushed(key, followed, now_ms)

    def _want_flushed(self, key: Key, followed: _Followed, now_ms: int) -> None:
        """Fetch on when the flush policy is satisfied: the fetch of an offset acknowledges the records before it."""
        partition = followed.partition
        if not partition.is_truncation_synced:
            self._sync_truncation(key, followed)
            return
        flushing = partition.flush_if_due(now_ms)
        if flushing is None:
            self._want(key, partition)
        else:
            self._session.drop(key)
            flushing.on_done(lambda done: self._flushed(key, followed, done))

    def _flushed(self, key: Key, followed: _Followed, done: Completion[None]) -> None:
        if self._partitions.get(key) is not followed:
            return
        if done.error is not None:
            self._delay(key, followed)
        else:
            self._want_flushed(key, followed, self._context.clock.wall_ms())
            self._schedule()

    def _execute(self, key: Key, followed: _Followed, step: Step, error: ErrorCode) -> None:
        partition = followed.partition
        log = partition.log
        if error is not ErrorCode.NONE:
            partition.note_error(error)
        match step.action:
            case Action.TRUNCATE:
                self._warn_of_truncation(log, step.offset)
                if partition.truncate(step.offset):
                    self._sync_truncation(key, followed)
                else:
                    self._want(key, partition)
            case Action.RESTART:
                partition.restart(step.offset)
                self._sync_truncation(key, followed)
            case Action.LOOK_UP:
                self._look_up(key, followed, partition.first_lookup)
            case Action.WAIT:
                self._session.drop(key)
            case Action.BACK_OFF:
                if followed.failures == 0:
                    logger.info("%s %s of %s is retried", self._name, error.name, log.topic_partition)
                self._delay(key, followed)
            case _:
                self._want(key, partition)
                self._session.repeat(key)

    def _warn_of_truncation(self, log: Log, offset: int) -> None:
        if offset < log.high_watermark:
            logger.warning(
                "%s Truncating %s to offset %d below high watermark %d",
                self._name, log.topic_partition, offset, log.high_watermark,
            )  # fmt: skip

    def _sync_truncation(self, key: Key, followed: _Followed) -> None:
        """Fetch on when the truncation is on disk, and the recovery point in the checkpoint is not above it."""
        self._session.drop(key)
        self._context.logs.checkpoint_recovery_points([followed.partition.log.log_directory])
        followed.partition.truncated().on_done(lambda done: self._flushed(key, followed, done))

    # -- backoff -------------------------------------------------------------------------------------------------

    def _delay(self, key: Key, followed: _Followed) -> None:
        self._session.drop(key)
        if self._partitions.get(key) is not followed:
            return
        self._delays.add(key, self._backoff_ms(followed.failures))
        followed.failures += 1

    def _return_delayed(self, keys: list[Key]) -> None:
        now_ms = self._context.clock.wall_ms()
        for key in keys:
            self._want_flushed(key, self._partitions[key], now_ms)
        self._schedule()

    # -- a log outside of its leader's ---------------------------------------------------------------------------

    def _look_up(self, key: Key, followed: _Followed, timestamp: int) -> None:
        """Ask the leader where its log ends, or starts, for a partition that leaves the session meanwhile."""
        self._session.drop(key)
        partition = followed.partition
        request = lookup.request(
            self._context.cluster.node_id, self._at_leader(partition), partition.leader_epoch, timestamp
        )
        channel = self._connected()
        if channel is None:
            self._delay(key, followed)
            return
        asked_ms = self._context.clock.monotonic_ms()
        channel.send(request, timeout_s=self._context.request_timeout_s).on_done(
            lambda done: self._looked_up(key, followed, (timestamp, asked_ms), done)
        )

    def _look_up_ends(self) -> None:
        """Ask for the ends of the partitions that the last answer has not named, since nothing was new.

        The leader had named its high watermark before, e.g. in the answer before a truncation: it omits a partition of
        the session without a change (KIP-227).
        """
        for key in list(self._without_end):
            followed = self._partitions.get(key)
            if followed is None or not followed.partition.needs_end:
                del self._without_end[key]
            elif self._session.requested(key) is not None:
                self._look_up(key, followed, LATEST)

    def _at_leader(self, partition: FollowingPartition) -> TopicPartition:
        topic, index = partition.log.topic_partition
        return TopicPartition(self._context.name_at_leader(topic), index)

    def _looked_up(self, key: Key, followed: _Followed, asked: tuple[int, int], done: Completion[Message]) -> None:
        partition, (timestamp, asked_ms) = followed.partition, asked
        if self._partitions.get(key) is not followed or partition.closed:
            return
        log = partition.log
        try:
            offset = lookup.offset_of(done, self._at_leader(partition))
            if timestamp == LATEST and partition.needs_end:
                partition.take_end(offset, asked_ms)
                self._want_flushed(key, followed, self._context.clock.wall_ms())
                self._schedule()
                return
            step = partition.on_lookup(timestamp, offset)
            if timestamp == LATEST and step.action is Action.LOOK_UP:
                self._look_up(key, followed, EARLIEST)
                return
            logger.info(
                "%s Fetch offset %d of %s is out of range; the leader's log %s at %d",
                self._name, log.log_end_offset, log.topic_partition,
                "ends" if timestamp == LATEST else "starts", offset,
            )  # fmt: skip
            self._execute(key, followed, step, ErrorCode.OFFSET_OUT_OF_RANGE)
        except (KafkaError, NetworkError) as error:
            logger.info("%s No offset of the leader for %s: %s", self._name, log.topic_partition, error)
            partition.note_failure(f"The source does not name the limits of its log: {error}")
            self._delay(key, followed)
            return
        self._schedule()


def _key(partition: FollowingPartition) -> Key:
    return partition.topic_id, partition.log.topic_partition.partition


def _throttled_ms(quota: ReplicationQuota, log: Log, data: PartitionData) -> int:
    """How long to wait with the next fetch of a partition, because of the quota for followers. KIP-73."""
    if not quota.is_throttled(log.topic_partition):
        return 0
    quota.record(len(data.records or b""))
    # A follower in sync must not wait: it would leave the in-sync replicas.
    return quota.wait_ms() if data.high_watermark > log.log_end_offset else 0


def _diverging(data: PartitionData) -> EpochEnd | None:
    diverging = data.diverging_epoch
    if diverging.epoch == -1 and diverging.end_offset == -1:
        return None
    return EpochEnd(diverging.epoch, diverging.end_offset)

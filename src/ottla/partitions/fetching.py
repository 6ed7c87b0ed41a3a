"""Handles one fetch: reads the changed partitions of its session, and waits if they have too few bytes.

The caller creates or resumes the session, adds the requested partitions and calls `Fetch.start`. Limits follow KIP-74:
the first partition with data returns at least one batch whatever its size, the others stay within `max_bytes`.

Waiting costs no polling. `start` looks once at the partitions that changed since the previous fetch of the session. If
they have fewer than `min_bytes`, it notes how many bytes are missing and returns a completion. Each append to a watched
partition subtracts its size (`_changed`, on the producer's stack). When no bytes are missing any more, one look is
scheduled for later in the same event loop iteration: the producer is answered first, and its other appends join. The
timer of `max_wait_ms` answers with the data that is available by then. A waiting fetch therefore costs nothing until a
partition of its session changes, and a response costs as much as the changed partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.common.unread import Unread
from ottla.partitions.partition import Partition
from ottla.partitions.reading import READ_COMMITTED
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from ottla.records import Buffer, iter_batches
from ottla.replication.replica import ReplicaFetch

if TYPE_CHECKING:
    from ottla.common.work import Worker
    from ottla.partitions.fetch_session import FetchPartitionState, FetchSession, PartitionKey
    from ottla.partitions.partitions import Partitions
    from ottla.partitions.replication.followed import FollowedPartition
    from ottla.partitions.replication.quotas import ReplicationQuota

# A client may request a wait of weeks; no response needs to be delayed for longer than this.
LONGEST_WAIT_MS = 300_000
TOPIC_IDS_SINCE_VERSION = 13
# A session with more changed partitions is read in slices of `SLICE_PARTITIONS`.
MOST_AT_ONCE = 200
SLICE_PARTITIONS = 100
_REFUSED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# Fields of most responses, created once; they must not be changed.
_NONE = int(ErrorCode.NONE)
_NO_DIVERGENCE = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()


_Topics: TypeAlias = dict[str | bytes, FetchableTopicResponse]


class FetchLimits(NamedTuple):
    """The limits of one fetch request."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    reads_followers: bool = False
    """Whether a replica that this node follows may be read (KIP-392)."""
    hidden: frozenset[str | bytes] = frozenset()
    """The topics, by name or id, that the client may not read."""
    quota: ReplicationQuota | None = None
    """Limits what a follower receives."""


class Look:
    """The result of one look at the changed partitions."""

    __slots__ = ("failed", "found", "size")

    def __init__(self) -> None:
        self.found: list[tuple[FetchPartitionState, PartitionData]] = []
        self.size = 0
        self.failed = False


class Fetch:
    """One fetch request until its response."""

    __slots__ = (
        "_is_answering",
        "_leaders",
        "_limits",
        "_locate",
        "_missing_bytes",
        "_partitions",
        "_quota",
        "_response",
        "_scheduled",
        "_session",
        "_timer",
        "_worker",
        "select",
    )

    def __init__(
        self,
        partitions: Partitions,
        session: FetchSession,
        limits: FetchLimits,
        worker: Worker,
        locate: Callable[[int], NodeEndpoint | None],
    ) -> None:
        """`locate` returns the address of a node for this client."""
        quota = limits.quota
        self._quota = quota if session.replica_id >= 0 and quota is not None and quota.topics else None
        self.select: Callable[[Partition, int], int] | None = None
        """Returns the replica from which the client should read, or -1 (KIP-392)."""
        self._partitions = partitions
        self._locate = locate
        # Leaders of partitions that moved away.
        self._leaders: set[int] = set()
        self._worker = worker
        self._session = session
        self._limits = limits
        self._response: Completion[FetchResponse] = Completion()
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        # True while the response is built in slices.
        self._is_answering = False
        self._missing_bytes = 0

    def start(self) -> FetchResponse | Completion[FetchResponse]:
        """Return the response if there are enough bytes, or a completion that waits for more bytes or the deadline."""
        seen = self._session.changes
        look = self._look()
        return self._answer(look) if self._is_enough(look) else self._wait(look, seen)

    def start_in_slices(self) -> Slices[FetchResponse | Completion[FetchResponse]]:
        """Do the same in slices, for a session with many changed partitions."""
        seen = self._session.changes
        look = yield from self._look_in_slices()
        return (yield from self._answer_in_slices(look)) if self._is_enough(look) else self._wait(look, seen)

    def _is_enough(self, look: Look) -> bool:
        limits = self._limits
        return look.failed or look.size >= limits.min_bytes or limits.max_wait_ms <= 0 or not self._session.partitions

    def _wait(self, look: Look, seen: int) -> Completion[FetchResponse]:
        """Wait for more than the look found; it began when the session's partitions had changed `seen` times."""
        limits = self._limits
        self._missing_bytes = limits.min_bytes - look.size
        self._session.on_change = self._changed
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(limits.max_wait_ms, LONGEST_WAIT_MS) / 1000, self._finish)
        if self._session.changes != seen:
            # During the look, a follower's position committed records, whose waiters appended further ones.
            self._changed(0)
        return self._response

    def cancel(self) -> None:
        """Stop waiting: the client disconnected."""
        self._stop_waiting()
        self._response.done = True
        if self._session.id == 0:
            self._session.close()

    # -- waiting -----------------------------------------------------------------------------------------------

    def _changed(self, appended_bytes: int) -> None:
        self._missing_bytes -= appended_bytes
        if (self._missing_bytes <= 0 or appended_bytes == 0) and not self._scheduled:
            # Later in this event loop iteration: the producer is answered first, and its other appends join.
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        self._scheduled = False
        if self._response.done or self._is_answering:
            return
        if self._is_long:
            self._answer_later()
            return
        look = self._look()
        if look.failed or look.size >= self._limits.min_bytes:
            self._complete(look)
        else:
            self._missing_bytes = self._limits.min_bytes - look.size

    def _finish(self) -> None:
        if self._response.done or self._is_answering:
            return
        if self._is_long:
            self._answer_later()
        else:
            self._complete(self._look())

    def _complete(self, look: Look) -> None:
        self._stop_waiting()
        self._response.complete(self._answer(look))

    @property
    def _is_long(self) -> bool:
        """Whether the response takes long: the first response of a session contains all its partitions."""
        return len(self._session.dirty) + len(self._session.unreported) > MOST_AT_ONCE

    def _answer_later(self) -> None:
        """Respond with the available data, in slices."""
        self._stop_waiting()
        self._is_answering = True
        response = self._worker.submit(self._look_and_answer())
        self._response.follow(response.otherwise(lambda error: FetchResponse(error_code=error.code)))

    def _look_and_answer(self) -> Slices[FetchResponse]:
        look = yield from self._look_in_slices()
        return (yield from self._answer_in_slices(look))

    def _stop_waiting(self) -> None:
        # A client that lost its connection may already wait on a new connection.
        if self._session.on_change == self._changed:
            self._session.on_change = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- reading -----------------------------------------------------------------------------------------------

    def _look(self) -> Look:
        look = Look()
        self._examine(look, tuple(self._session.dirty.items()))
        return look

    def _look_in_slices(self) -> Slices[Look]:
        look = Look()
        changed = tuple(self._session.dirty.items())
        for start in range(0, len(changed), SLICE_PARTITIONS):
            yield
            self._session.check_open()
            self._examine(look, changed[start : start + SLICE_PARTITIONS])
        return look

    def _examine(self, look: Look, changed: Iterable[tuple[PartitionKey, FetchPartitionState]]) -> None:
        """Read the changed partitions into the look."""
        session = self._session
        most = self._limits.max_bytes
        for key, state in changed:
            try:
                data = self._read(state, most - look.size, min_one_batch=look.size == 0)
            except KafkaError as error:
                data = PartitionData(
                    partition_index=key[1],
                    error_code=error.code,
                    high_watermark=-1,
                    records=b"",
                    # As in Kafka: null for a partition that exists but cannot be read.
                    aborted_transactions=[] if error.code in _REFUSED else None,
                )
                if error.code in _MOVED:
                    leader, epoch = self._partitions.leader_of(*key)
                    data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                    self._leaders.add(leader)
                look.failed = True
                look.found.append((state, data))
                continue
            if data is None:
                del session.dirty[key]
                if self._has_new_offsets(state):
                    session.unreported[key] = state
                continue
            size = len(data.records or b"")
            if size or data.diverging_epoch.epoch != -1 or data.preferred_read_replica != -1:
                look.found.append((state, data))
                look.size += size
                look.failed |= not size
                continue
            if self._is_exhausted(state):
                del session.dirty[key]
            if self._has_new_offsets(state):
                session.unreported[key] = state

    def _is_exhausted(self, state: FetchPartitionState) -> bool:
        """Whether an empty read means that there is no data, not that the byte budget was used up."""
        partition = state.partition
        return partition is not None and state.fetch_offset >= partition.visible_end(self._limits.isolation_level)

    @staticmethod
    def _has_new_offsets(state: FetchPartitionState) -> bool:
        partition = state.partition
        return partition is not None and (
            state.high_watermark != partition.high_watermark
            or state.log_start_offset != partition.log.log_start_offset
            or state.last_stable_offset != partition.last_stable_offset
        )

    def _read(self, state: FetchPartitionState, remaining: int, *, min_one_batch: bool) -> PartitionData | None:
        """The data of a partition; None if the client has all of it, as is usual for most partitions of a fetch."""
        partition = state.partition
        if partition is None or partition.closed:
            partition = self._find(state)
            state.watch(partition)
        limits = self._limits
        if state.current_leader_epoch >= 0:
            partition.check_leader_epoch(state.current_leader_epoch)
        if state.last_fetched_epoch >= 0:
            diverging = self._divergence(partition, state)
            if diverging is not None:
                return self._data(partition, state, b"", diverging)
        if isinstance(partition, Partition):
            if state.is_repositioned:
                self._note_follower(partition, state)
            if self.select is not None and (selected := self.select(partition, state.fetch_offset)) != -1:
                data = self._data(partition, state, b"")
                data.preferred_read_replica = selected
                return data
            if self._quota is not None and self._must_wait(partition, self._quota):
                return self._data(partition, state, b"")
        if state.fetch_offset == partition.visible_end(limits.isolation_level):
            return None
        budget = max(min(state.max_bytes, remaining), 0)
        if budget <= 0 and not min_one_batch:
            return self._data(partition, state, b"")
        records = partition.look_up(state.fetch_offset, budget, limits.isolation_level, min_one_batch=min_one_batch)
        return self._data(partition, state, records)

    def _must_wait(self, partition: Partition, quota: ReplicationQuota) -> bool:
        """Whether the quota has no room for a throttled follower. One in sync would leave the ISR. KIP-73."""
        is_in_sync = self._session.replica_id in (partition.isr or ())
        return not is_in_sync and quota.is_throttled(partition.topic_partition) and quota.wait_ms() > 0

    @staticmethod
    def _count(quota: ReplicationQuota, state: FetchPartitionState, size: int) -> None:
        if state.partition is not None and quota.is_throttled(state.partition.log.topic_partition):
            quota.record(size)

    def _note_follower(self, partition: Partition, state: FetchPartitionState) -> None:
        """Report the position of a follower, once for each request that names it; its epochs were compared before."""
        session = self._session
        partition.on_follower_fetch(
            ReplicaFetch(
                session.replica_id,
                state.fetch_offset,
                state.follower_log_start,
                session.replica_epoch,
                state.current_leader_epoch,
            )
        )
        state.is_repositioned = False

    def _find(self, state: FetchPartitionState) -> Partition | FollowedPartition:
        topic, index = state.key
        if topic in self._limits.hidden:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._limits.reads_followers:
            return self._partitions.readable(topic, index)
        if isinstance(topic, str):
            return self._partitions.get(topic, index)
        return self._partitions.get_by_id(topic, index)

    @staticmethod
    def _divergence(partition: Partition | FollowedPartition, state: FetchPartitionState) -> EpochEndOffset | None:
        epoch, end_offset = partition.end_of_epoch(state.last_fetched_epoch)
        if epoch == -1 or end_offset == -1:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < state.last_fetched_epoch or end_offset < state.fetch_offset:
            return EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return None

    def _data(
        self,
        partition: Partition | FollowedPartition,
        state: FetchPartitionState,
        records: Buffer | Unread,
        diverging: EpochEndOffset | None = None,
    ) -> PartitionData:
        # In the order of the fields, because arguments with names cost more than the object.
        data = PartitionData(
            state.key[1],
            _NONE,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
            _NO_DIVERGENCE,
            _NO_LEADER,
            _NO_SNAPSHOT,
            None,
            -1,
            records,  # type: ignore[arg-type]  # until the connection sends them, only the length is used
        )
        if self._limits.isolation_level == READ_COMMITTED:
            data.aborted_transactions = []
            if records:
                data.aborted_transactions = _aborted_in(partition, state.fetch_offset, data)
        if diverging is not None:
            data.diverging_epoch = diverging
            data.current_leader = LeaderIdAndEpoch(leader_id=-1, leader_epoch=partition.leader_epoch)
        return data

    # -- answering ---------------------------------------------------------------------------------------------

    def _answer(self, look: Look) -> FetchResponse:
        topics: _Topics = {}
        self._add_found(topics, look.found)
        unreported = self._session.unreported
        if unreported:
            self._add_unreported(topics, unreported.values())
            unreported.clear()
        return self._respond(topics)

    def _answer_in_slices(self, look: Look) -> Slices[FetchResponse]:
        session = self._session
        topics: _Topics = {}
        for start in range(0, len(look.found), SLICE_PARTITIONS):
            yield
            session.check_open()
            self._add_found(topics, look.found[start : start + SLICE_PARTITIONS])
        unreported = tuple(session.unreported.values())
        for start in range(0, len(unreported), SLICE_PARTITIONS):
            yield
            session.check_open()
            self._add_unreported(topics, unreported[start : start + SLICE_PARTITIONS])
        session.unreported.clear()
        return self._respond(topics)

    def _add_found(self, topics: _Topics, found: Iterable[tuple[FetchPartitionState, PartitionData]]) -> None:
        session = self._session
        for state, data in found:
            session.unreported.pop(state.key, None)
            session.move_to_end(state)
            self._add(topics, state, data)
            size = len(data.records) if data.records else 0
            if self._quota is not None and size:
                self._count(self._quota, state, size)
            if state.partition is None:
                continue
            traffic = state.partition.traffic
            if session.replica_id >= 0:
                traffic.replication_bytes_out += size
            else:
                traffic.fetches += 1
                traffic.bytes_out += size
                traffic.failed_fetches += data.error_code != _NONE

    def _add_unreported(self, topics: _Topics, states: Iterable[FetchPartitionState]) -> None:
        for state in states:
            if state.partition is not None:
                self._add(topics, state, self._data(state.partition, state, b""))

    def _respond(self, topics: _Topics) -> FetchResponse:
        session = self._session
        if session.id == 0:
            session.close()
        response = FetchResponse(0, _NONE, session.id, list(topics.values()))
        if self._leaders:
            found = map(self._locate, sorted(self._leaders))
            response.node_endpoints = [endpoint for endpoint in found if endpoint is not None]
        return response

    @staticmethod
    def _add(topics: _Topics, state: FetchPartitionState, data: PartitionData) -> None:
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        topic = state.key[0]
        response = topics.get(topic)
        if response is None:
            response = FetchableTopicResponse(topic) if isinstance(topic, str) else FetchableTopicResponse("", topic)
            topics[topic] = response
        response.partitions.append(data)


def _aborted_in(
    partition: Partition | FollowedPartition, fetch_offset: int, data: PartitionData
) -> list[AbortedTransaction]:
    found = partition.log.aborted_transactions(fetch_offset, partition.last_stable_offset)
    if not found:
        return []
    records: Buffer | Unread = data.records or b""
    if isinstance(records, Unread):
        records = data.records = records.take(len(records))
    end = max(header.next_offset for _, header in iter_batches(records))
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in found
        if aborted.first_offset < end
    ]

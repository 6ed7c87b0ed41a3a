"""Fetch sessions (KIP-227): a client names its partitions once, responses contain only changed partitions.

A session watches its partitions. A partition is clean if its last read found no data and the client knows its offsets.
It turns dirty when its log or an offset changes, or when the client requests another offset. A poll of a thousand idle
partitions therefore costs nothing, and a response costs as much as the changed partitions.

A fetch without a session (old clients, or a full cache) is a session that is used once: the same code serves it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid

if TYPE_CHECKING:
    from ottla.partitions.partition import Partition
    from ottla.partitions.replication.followed import FollowedPartition
    from ottla.protocol.messages.fetch import FetchResponse

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1
NO_SESSION = 0
# No partition has such an offset, so that the next response contains the partition.
NOT_REPORTED = -2
_EVICTIONS = 2
"""How many idle sessions a new one evicts at most: more than one, so that they become fewer."""

PartitionKey = tuple[str | Uuid, int]
"""A topic, by name (versions up to 12) or id, and a partition index."""


class FetchPartitionState:
    """The position of one session in one partition, and the offsets that its client received last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start",
        "high_watermark",
        "is_repositioned",
        "key",
        "last_fetched_epoch",
        "last_stable_offset",
        "log_start_offset",
        "max_bytes",
        "partition",
        "session",
    )

    def __init__(self, session: FetchSession, key: PartitionKey) -> None:
        self.session = session
        self.key = key
        self.partition: Partition | FollowedPartition | None = None
        # True from a request that names the position of a follower until the partition has taken it in.
        self.is_repositioned = False
        self.follower_log_start = -1
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.high_watermark = self.last_stable_offset = self.log_start_offset = NOT_REPORTED

    def partition_changed(self, appended_bytes: int) -> None:
        """Called by the partition: mark it dirty."""
        session = self.session
        session.dirty[self.key] = self
        session.changes += 1
        if session.on_change is not None:
            session.on_change(appended_bytes)

    def high_watermark_moved(self) -> None:
        """Called by the partition for a follower: its next response reports the high watermark."""
        self.session.unreported[self.key] = self

    def watch(self, partition: Partition | FollowedPartition) -> None:
        """Follow `partition` from now on."""
        if self.partition is not partition:
            self.unwatch()
            self.partition = partition
            if self.session.replica_id >= 0:
                partition.followers[self] = None
            else:
                partition.watchers[self] = None

    def unwatch(self) -> None:
        """Stop following the partition."""
        if self.partition is not None:
            self.partition.watchers.pop(self, None)
            self.partition.followers.pop(self, None)
            self.partition = None


class FetchSession:
    """The partitions of one fetching client, in the order in which they are served."""

    __slots__ = (
        "_topics",
        "changes",
        "closed",
        "dirty",
        "epoch",
        "id",
        "is_busy",
        "last_used_ms",
        "on_change",
        "partitions",
        "replica_epoch",
        "replica_id",
        "unreported",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, *, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.closed = False
        # Set while a fetch reads or changes the session in slices: no other request may use the session.
        self.is_busy = False
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.replica_id = -1
        """The fetching follower and its broker epoch; -1 for a consumer."""
        self.replica_epoch = -1
        self.partitions: dict[PartitionKey, FetchPartitionState] = {}
        # The topics of the partitions; None if a partition was added or removed since they were collected.
        self._topics: frozenset[str | Uuid] | None = None
        # Partitions to read at the next look. A partition with data stays until the client requests a later offset.
        self.dirty: dict[PartitionKey, FetchPartitionState] = {}
        # Partitions without data whose offsets the client does not know yet.
        self.unreported: dict[PartitionKey, FetchPartitionState] = {}
        self.last_used_ms = 0
        self.changes = 0
        """How often a partition has changed."""
        # Set while a long poll waits; called with the number of appended bytes.
        self.on_change: Callable[[int], None] | None = None

    @property
    def topics(self) -> frozenset[str | Uuid]:
        """The topics of the partitions, by name or id."""
        if self._topics is None:
            self._topics = frozenset([topic for topic, _ in self.partitions])
        return self._topics

    def has_only(self, topics: set[str | Uuid]) -> bool:
        """Whether all partitions are of these topics."""
        if self.id != NO_SESSION:
            return topics.issuperset(self.topics)
        # The session is used once: its topics need not be collected. A generator would cost more than all of it.
        for topic, _ in self.partitions:  # noqa: SIM110
            if topic not in topics:
                return False
        return True

    def state(self, key: PartitionKey) -> FetchPartitionState:
        """The state of a partition, added if it is new; it counts as changed."""
        state = self.partitions.get(key)
        if state is None:
            self._topics = None
            state = self.partitions[key] = FetchPartitionState(self, key)
        self.dirty[key] = state
        return state

    def forget(self, key: PartitionKey) -> None:
        """Remove a partition that the client no longer fetches."""
        self.dirty.pop(key, None)
        self.unreported.pop(key, None)
        state = self.partitions.pop(key, None)
        self._topics = None
        if state is not None:
            state.unwatch()

    def hide(self, topics: frozenset[str | Uuid]) -> None:
        """Look for the partitions of these topics again at the next look, which refuses them to the client."""
        for key, state in self.partitions.items():
            if key[0] in topics:
                state.unwatch()
                state.high_watermark = NOT_REPORTED
                self.dirty[key] = state

    def follow_replica(self, replica_id: int, replica_epoch: int) -> None:
        """Note which follower fetches. With a new broker epoch it reports all its positions again (KIP-903)."""
        if replica_id >= 0 and replica_epoch != self.replica_epoch:
            for key, state in self.partitions.items():
                state.is_repositioned = True
                self.dirty[key] = state
        self.replica_id, self.replica_epoch = replica_id, replica_epoch

    def not_sent(self, response: FetchResponse) -> None:
        """Note that the client did not get a response: the next one reports its partitions again."""
        for topic in response.responses:
            name = topic.topic_id if self.uses_topic_ids else topic.topic
            for partition in topic.partitions:
                state = self.partitions.get((name, partition.partition_index))
                if state is not None:
                    state.high_watermark = NOT_REPORTED
                    self.dirty[state.key] = state

    def check_open(self) -> None:
        """Raise FETCH_SESSION_ID_NOT_FOUND if the session was evicted."""
        if self.closed:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def move_to_end(self, state: FetchPartitionState) -> None:
        """Serve this partition last in the next response: it was served in this one."""
        self.dirty.pop(state.key, None)
        self.dirty[state.key] = state

    def close(self) -> None:
        """Stop watching all partitions; the session cannot be used any more."""
        self.closed = True
        self.on_change = None
        for state in self.partitions.values():
            state.unwatch()
        self.partitions.clear()
        self._topics = None
        self.dirty.clear()
        self.unreported.clear()


class FetchSessionCache:
    """The sessions of all clients, at most `slots`. A new session evicts sessions without a request for two minutes.

    Kafka evicts only when the cache is full. But many clients go without closing their session, and each session that
    is left costs memory, and time at each append to its partitions. A client that comes back opens a new session.
    """

    def __init__(self, slots: int, new_id: Callable[[], int], *, min_eviction_ms: int = 120_000) -> None:
        self._slots = slots
        self._new_id = new_id
        self._min_eviction_ms = min_eviction_ms
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, now_ms: int, *, uses_topic_ids: bool) -> FetchSession:
        """Create a session. If all cached sessions were used recently, it has no id and serves only this fetch."""
        self._evict_idle(now_ms)
        if len(self._sessions) >= self._slots:
            return FetchSession(NO_SESSION, uses_topic_ids=uses_topic_ids)
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids=uses_topic_ids)
        session.last_used_ms = now_ms
        self._sessions[session_id] = session
        return session

    def _evict_idle(self, now_ms: int) -> None:
        """Remove idle sessions, the oldest first; a few at a time, since each costs as much as it has partitions.

        A session with a waiting fetch (`fetch.max.wait.ms` may be minutes) is in use.
        """
        for oldest in list(islice(self._sessions.values(), _EVICTIONS)):
            if oldest.on_change is None and now_ms - oldest.last_used_ms >= self._min_eviction_ms:
                self.remove(oldest.id)

    def resume(self, session_id: int, epoch: int, now_ms: int, *, uses_topic_ids: bool) -> FetchSession:
        """Return the session with this id and advance its epoch.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR; the client
        then opens a new session.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch or session.is_busy:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def peek(self, session_id: int) -> FetchSession | None:
        """The session with this id; does not count as a use of the session."""
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        """Close the session with this id, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

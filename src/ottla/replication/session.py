"""The follower's side of a fetch session with one leader (KIP-227).

The first fetch of a session names every partition; each later one only those whose position changed. A fetch therefore
costs as much as the changed partitions, also with ten thousand idle ones. One fetch is in flight at a time. After a
failure it is unknown what the leader knows, and the next fetch names every partition again.
"""

from __future__ import annotations

from typing import Final

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.common.values import value
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.replication.follower import Position

LAST_EPOCH: Final = 2**31 - 1
ANY_SIZE: Final = 2**31 - 1
Key = tuple[Uuid, int]
"""Topic id and partition index."""


@value
class FetchSettings:
    """The settings of a fetcher, named as Kafka's `replica.fetch.*`, in milliseconds and bytes."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    """For each partition."""
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000


class ReplicaSession:
    """The partitions that one fetcher follows at one leader, and what the leader knows of them."""

    def __init__(self, node_id: int, settings: FetchSettings) -> None:
        self._node_id = node_id
        self._settings = settings
        self._id = self._epoch = 0
        self._wanted: dict[Key, Position] = {}
        # Differences from what the leader knows.
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        # Partitions that moved or were dropped since the last request: its answer to them is outdated.
        self._outdated: set[Key] = set()

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: Key, position: Position) -> None:
        """Fetch a partition from this position."""
        if self._wanted.get(key) != position:
            self._wanted[key] = position
            self._changed[key] = None
            self._outdated.add(key)
            self._forgotten.pop(key, None)

    def drop(self, key: Key) -> None:
        """Fetch the partition no longer, or not for now."""
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._outdated.add(key)
            self._forgotten[key] = None

    def requested(self, key: Key) -> Position | None:
        """The position that the last request named; None if the partition has moved or was dropped since."""
        return None if key in self._outdated else self._wanted.get(key)

    def repeat(self, key: Key) -> None:
        """Name a partition in the next request although its position is the same: the answer was not used."""
        if key in self._wanted:
            self._changed[key] = None

    def build(self, broker_epoch: int, most_bytes: int = ANY_SIZE) -> FetchRequest:
        """The request that makes the leader's session equal to the wanted positions.

        The answer has at most `most_bytes`, if that is below the limit of the settings, or one batch.
        """
        settings = self._settings
        if not self._epoch:
            self._changed = dict.fromkeys(self._wanted)
            self._forgotten = {}
        request = FetchRequest(
            replica_id=self._node_id,
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=min(settings.response_max_bytes, most_bytes),
            session_id=self._id,
            session_epoch=self._epoch,
            topics=self._topics(),
            forgotten_topics_data=self._forgotten_topics(),
        )
        self._changed, self._forgotten = {}, {}
        self._outdated.clear()
        return request

    def _topics(self) -> list[FetchTopic]:
        topics: dict[Uuid, FetchTopic] = {}
        most = self._settings.max_bytes
        for key in self._changed:
            topic_id, index = key
            position = self._wanted[key]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
            fetch_offset, last_fetched_epoch, leader_epoch, log_start_offset = position
            # In the order of the fields, because arguments with names cost more than the object.
            topic.partitions.append(
                FetchPartition(index, leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, most)
            )
        return list(topics.values())

    def _forgotten_topics(self) -> list[ForgottenTopic]:
        topics: dict[Uuid, ForgottenTopic] = {}
        for topic_id, index in self._forgotten:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(index)
        return list(topics.values())

    def on_response(self, response: FetchResponse) -> bool:
        """Continue the session. False for an error of the session, which then starts over."""
        if response.error_code:
            self.start_over()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = 0
            return False
        if response.session_id == 0:  # The leader has created no session.
            self._id = self._epoch = 0
            return True
        self._id = response.session_id
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True

    def start_over(self) -> None:
        """Name every partition in the next request, which replaces the leader's session of the same id."""
        self._epoch = 0

"""The client's side of a fetch session with one broker (KIP-227).

The first fetch of a session names every partition. Each later fetch names only the partitions that changed since and
those to forget. `build` computes that difference between the wanted partitions and those that the broker knows. The
broker's knowledge is certain only after a response, so one fetch per broker is in flight at a time, and after a failure
the next fetch is a full one. A fetch costs O(wanted partitions) on the client and O(changed partitions) on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.clients.consumer.settings import FetchSettings
from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

LAST_EPOCH: Final = 2**31 - 1
NEWEST_WITH_NAMES: Final = 12
"""The newest version of Fetch that names topics; newer versions have topic ids only."""


class WantedPartition(NamedTuple):
    """Where to fetch one partition, and how much of it."""

    topic_id: Uuid
    offset: int
    max_bytes: int
    leader_epoch: int


class FetchSession:
    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._session_id = 0
        self._epoch = 0
        self._known: dict[TopicPartition, WantedPartition] = {}
        self._by_id = True
        self.in_flight = False
        self.not_before_ms = 0.0

    def build(
        self, wanted: Mapping[TopicPartition, WantedPartition], max_bytes: int
    ) -> tuple[FetchRequest, int | None]:
        """Return the request that makes the session equal to `wanted`, and its maximum version (None: any)."""
        by_id = all(row.topic_id != ZERO_UUID for row in wanted.values())
        if by_id != self._by_id:
            self.fail()
            self._by_id = by_id
        known = self._known if self._epoch else {}
        changed = {tp: row for tp, row in wanted.items() if known.get(tp) != row}
        forgotten = [
            (tp, row)
            for tp, row in known.items()
            if tp not in wanted or (wanted[tp].topic_id != row.topic_id and row.topic_id != ZERO_UUID)
        ]
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=max_bytes,
            isolation_level=settings.isolation_level,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_topics(changed),
            forgotten_topics_data=_forgotten_topics(forgotten),
            rack_id=settings.rack,
        )
        self._known = dict(wanted)
        self.in_flight = True
        return request, None if by_id else NEWEST_WITH_NAMES

    def apply(self, response: FetchResponse) -> bool:
        """Update the session from a response. Returns False for an error of the session, which then starts over."""
        self.in_flight = False
        if response.error_code:
            self.fail()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = 0
            return False
        if response.session_id == 0:  # the broker has created no session
            self._session_id = self._epoch = 0
            return True
        self._session_id = response.session_id
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True

    def fail(self) -> None:
        """Start over with a full fetch, which replaces the broker's session of the same id."""
        self.in_flight = False
        self._epoch = 0
        self._known = {}


def _topics(rows: Mapping[TopicPartition, WantedPartition]) -> list[FetchTopic]:
    topics: dict[tuple[str, Uuid], FetchTopic] = {}
    for (name, partition), row in rows.items():
        topic = topics.get((name, row.topic_id))
        if topic is None:
            topic = topics[name, row.topic_id] = FetchTopic(topic=name, topic_id=row.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=row.leader_epoch,
                fetch_offset=row.offset,
                partition_max_bytes=row.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten_topics(rows: list[tuple[TopicPartition, WantedPartition]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
    for (name, partition), row in rows:
        topic = topics.get((name, row.topic_id))
        if topic is None:
            topic = topics[name, row.topic_id] = ForgottenTopic(topic=name, topic_id=row.topic_id, partitions=[])
        topic.partitions.append(partition)
    return list(topics.values())

"""What to ask which broker for: fetch sessions from the client's side, as a merge of what is wanted and what is known.

A session saves naming every partition in every fetch (KIP-227): after a full request only what changed is sent. One
fetch per broker is in flight at a time. `failed` starts over with a full request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

LAST_EPOCH = 2**31 - 1
NEWEST_WITH_NAMES = 12


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to ask for of one partition."""

    topic_id: Uuid
    offset: int
    max_bytes: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What is the same for every fetch; times in ms."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    isolation_level: int = 0
    rack: str = ""


class FetchSession:
    """The session with one broker."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._session_id = 0
        self._epoch = 0
        self._known: dict[TopicPartition, Wanted] = {}
        self._by_id = True
        self.in_flight = False
        self.not_before_ms = 0.0

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that the broker knows of."""
        return frozenset(self._known)

    def build(self, wanted: Mapping[TopicPartition, Wanted], max_bytes: int) -> tuple[FetchRequest, int | None]:
        """The request that makes the session equal `wanted`, and the newest version it may go in (None: any)."""
        by_id = all(row.topic_id != ZERO_UUID for row in wanted.values())
        if by_id != self._by_id:
            self.failed()
            self._by_id = by_id
        known = self._known if self._epoch else {}
        changed = {tp: row for tp, row in wanted.items() if known.get(tp) != row}
        gone = [
            (tp, row)
            for tp, row in known.items()
            if tp not in wanted or (wanted[tp].topic_id != row.topic_id and row.topic_id != ZERO_UUID)
        ]
        limits = self._limits
        request = FetchRequest(
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=max_bytes,
            isolation_level=limits.isolation_level,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_topics(changed),
            forgotten_topics_data=_forgotten(gone),
            rack_id=limits.rack,
        )
        self._known = dict(wanted)
        self.in_flight = True
        return request, None if by_id else NEWEST_WITH_NAMES

    def answered(self, response: FetchResponse) -> bool:
        """Take note of an answer; False if it is an error of the session, which then starts over."""
        self.in_flight = False
        if response.error_code:
            self.failed()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = 0
            return False
        if response.session_id == 0:  # the broker keeps no session for us
            self._session_id = self._epoch = 0
            return True
        self._session_id = response.session_id
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True

    def failed(self) -> None:
        """The broker may not know what was asked last: begin anew, in the place of the old session."""
        self.in_flight = False
        self._epoch = 0
        self._known = {}


def _topics(rows: Mapping[TopicPartition, Wanted]) -> list[FetchTopic]:
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


def _forgotten(rows: list[tuple[TopicPartition, Wanted]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
    for (name, partition), row in rows:
        topic = topics.get((name, row.topic_id))
        if topic is None:
            topic = topics[name, row.topic_id] = ForgottenTopic(topic=name, topic_id=row.topic_id, partitions=[])
        topic.partitions.append(partition)
    return list(topics.values())

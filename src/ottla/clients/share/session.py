"""A share session with one broker: what it fetches, and the epoch that orders its requests (KIP-932).

One request is in flight at a time. Epoch 0 opens the session and -1 closes it, and the broker then releases the records
that are acquired and not acknowledged. After a lost connection another session is opened: acknowledgements of
records of the previous one cannot be sent any more.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.clients.consumer.heartbeat_requests import TopicIdPartition
from ottla.clients.share.acknowledgements import AcknowledgeType, batches
from ottla.clients.share.settings import AcquireSettings
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.protocol.messages import share_acknowledge, share_fetch

OPENS: Final = 0
CLOSES: Final = -1
_LARGEST_EPOCH: Final = 2**31 - 1
_LOST: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
Types = Mapping[TopicIdPartition, Mapping[int, int]]
"""The acknowledged offsets and their types, by partition."""


class How(NamedTuple):
    """How many records a fetch may acquire, and whether it may exceed that for whole batches."""

    max_records: int
    limits_records: bool


class ShareSession:
    def __init__(self, group_id: str, settings: AcquireSettings) -> None:
        self._group_id = group_id
        self._settings = settings
        self._epoch = OPENS
        self._partitions: frozenset[TopicIdPartition] = frozenset()
        self.is_busy = False
        """Whether a request is in flight."""
        self.not_before_ms = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the broker has the session, so that it can take acknowledgements."""
        return self._epoch != OPENS

    def is_free(self, now_ms: float) -> bool:
        return not self.is_busy and now_ms >= self.not_before_ms

    def fetch(
        self, member_id: str, wanted: frozenset[TopicIdPartition], types: Types, how: How
    ) -> share_fetch.ShareFetchRequest:
        """Build the request that fetches `wanted` from now on and carries acknowledgements."""
        settings = self._settings
        known = self._partitions if self.is_open else frozenset()
        request = share_fetch.ShareFetchRequest(
            group_id=self._group_id,
            member_id=member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            max_records=how.max_records,
            batch_size=how.max_records,
            share_acquire_mode=int(how.limits_records),
        )
        rows: dict[Uuid, list[share_fetch.FetchPartition]] = {}
        for key in sorted((wanted - known) | types.keys()):
            made = [share_fetch.AcknowledgementBatch(*row) for row in batches(types.get(key, {}))]
            rows.setdefault(key.topic_id, []).append(share_fetch.FetchPartition(key.partition, made))
        request.topics = [share_fetch.FetchTopic(topic_id, partitions) for topic_id, partitions in rows.items()]
        request.forgotten_topics_data = [
            share_fetch.ForgottenTopic(topic_id, numbers) for topic_id, numbers in _by_id(known - wanted).items()
        ]
        self._partitions = wanted
        self.is_busy = True
        return request

    def acknowledge(
        self, member_id: str, types: Types, *, closes: bool = False
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        """Build the request that only acknowledges, and with `closes` ends the session."""
        rows: dict[Uuid, list[share_acknowledge.AcknowledgePartition]] = {}
        for key in sorted(types):
            made = [share_acknowledge.AcknowledgementBatch(*row) for row in batches(types[key])]
            rows.setdefault(key.topic_id, []).append(share_acknowledge.AcknowledgePartition(key.partition, made))
        self.is_busy = True
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=member_id,
            share_session_epoch=CLOSES if closes else self._epoch,
            is_renew_ack=has_renewal(types),
            topics=[share_acknowledge.AcknowledgeTopic(topic_id, partitions) for topic_id, partitions in rows.items()],
        )

    def apply(self, error_code: int) -> None:
        self.is_busy = False
        if error_code in _LOST:
            self._epoch = OPENS
        else:
            self._epoch = 1 if self._epoch == _LARGEST_EPOCH else self._epoch + 1

    def fail(self) -> None:
        """Take note that there was no response: the broker may have closed the session."""
        self.is_busy = False
        self._epoch = OPENS


class ShareSessions:
    """The sessions with all brokers, by node id."""

    def __init__(self, group_id: str, settings: AcquireSettings) -> None:
        self._group_id = group_id
        self._settings = settings
        self._sessions: dict[int, ShareSession] = {}
        self.fetched_from = -1
        """The node that was asked for records last."""

    def of(self, node: int) -> ShareSession:
        if node not in self._sessions:
            self._sessions[node] = ShareSession(self._group_id, self._settings)
        return self._sessions[node]

    def items(self) -> ItemsView[int, ShareSession]:
        return self._sessions.items()

    def in_turn(self, nodes: Iterable[int]) -> list[int]:
        """Return the node among `nodes` that has its turn, if any."""
        return sorted(nodes, key=lambda node: (node <= self.fetched_from, node))[:1]

    def next_timer_ms(self) -> float | None:
        """When the first pause after an error ends."""
        waiting = [s.not_before_ms for s in self._sessions.values() if s.not_before_ms and not s.is_busy]
        return min(waiting, default=None)


def has_renewal(types: Types) -> bool:
    """Whether an acknowledgement extends a lock."""
    return any(AcknowledgeType.RENEW in offsets.values() for offsets in types.values())


def _by_id(partitions: Iterable[TopicIdPartition]) -> dict[Uuid, list[int]]:
    rows: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        rows.setdefault(topic_id, []).append(partition)
    return rows

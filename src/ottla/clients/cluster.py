"""A client's view of the cluster: brokers, topics, leaders. Without I/O; the time is an argument.

The caller passes each MetadataResponse (`apply`) and each failure to get one (`failed`). It asks when the next refresh
is due (`refresh_due_at_ms`), and reports a response that disproves the view (`invalidate`). A leader never replaces one
with a newer epoch (KIP-320), unless the topic was recreated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.clients.errors import InvalidTopic
from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_NODE: Final = -1
JITTER: Final = 0.2
MOST_PARTITIONS: Final = 1_000_000
"""Of a topic. A metadata response with a larger partition is corrupt."""


def check_topics(names: Iterable[str]) -> None:
    """Raise InvalidTopic for a name that does not fit into a request; the brokers check the rest."""
    for name in names:
        if not name:
            raise InvalidTopic("The name of the topic is empty")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidTopic(f"{name!a} is not a topic name: {error}") from error


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition: `leader` is a node id, or -1 while the partition has no leader."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class PartitionInfo(NamedTuple):
    """One partition as the brokers describe it: `leader` is a node id, or None while the partition has no leader."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic; its partitions are sorted by index."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: Mapping[int, PartitionView]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff from `initial_ms` to `max_ms`, with a jitter of a fifth."""

    initial_ms: float
    max_ms: float

    def delay_ms(self, failures: int, chance: float) -> float:
        """Return the delay after this number of consecutive failures; `chance` is a random number in [0, 1)."""
        if failures <= 0:
            return 0.0
        base = min(self.initial_ms * 2.0 ** min(failures - 1, 30), max(self.initial_ms, self.max_ms))
        return base * (1 - JITTER + 2 * JITTER * chance)


_BACKOFF: Final = Backoff(100, 1000)


class ClusterView:
    """The latest known state of the cluster. `version` counts the changes."""

    def __init__(self, *, max_age_ms: int = 300_000, backoff: Backoff = _BACKOFF) -> None:
        self.max_age_ms = max_age_ms
        self.backoff = backoff
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicView] = {}
        # The error code of each requested topic that is not in `topics`.
        self.topic_errors: dict[str, int] = {}
        self.version = 0
        self._names: dict[Uuid, str] = {}
        self._updated_ms: float | None = None
        self._invalid = False
        self._failures = 0
        self._tried_ms: float = 0.0
        self._chance = 0.5

    # -- events ------------------------------------------------------------------------------------------------

    def apply(self, response: MetadataResponse, now_ms: float, *, is_complete: bool = False) -> None:
        """Apply a response. With `is_complete` it covers every topic, and topics that it lacks are deleted."""
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        if response.brokers:
            self.nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        if is_complete:
            given = {topic.name for topic in response.topics}
            for name in [name for name in self.topics if name not in given]:
                self._drop(name)
            self.topic_errors.clear()
        for topic in response.topics:
            self._apply_topic(topic)
        self.version += 1
        self._updated_ms = self._tried_ms = now_ms
        views = [self.topics[topic.name] for topic in response.topics if topic.name in self.topics]
        lacks_leaders = any(partition.leader == NO_NODE for view in views for partition in view.partitions.values())
        # A partition without a leader gets one soon: refresh with exponential backoff.
        self._invalid = lacks_leaders
        self._failures = self._failures + 1 if lacks_leaders else 0

    def _apply_topic(self, topic: MetadataResponseTopic) -> None:
        name = topic.name or self._names.get(topic.topic_id)
        if name is None:
            return
        topic.name = name
        if topic.error_code:
            self.topic_errors[name] = topic.error_code
            if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                self._drop(name)
            return
        self.topic_errors.pop(name, None)
        known = self.topics.get(name)
        old = known.partitions if known is not None and known.topic_id == topic.topic_id else {}
        partitions = {}
        for row in sorted(topic.partitions, key=lambda row: row.partition_index):
            if not 0 <= row.partition_index < MOST_PARTITIONS:  # clients allocate all partitions up to the last one
                continue
            # With an error in a row (a missing replica or listener) its leader is still correct.
            new = PartitionView(
                row.leader_id, row.leader_epoch, tuple(row.replica_nodes), tuple(row.isr_nodes),
                tuple(row.offline_replicas),
            )  # fmt: skip
            before = old.get(row.partition_index)
            if before is not None and -1 < new.leader_epoch < before.leader_epoch:
                new = before
            partitions[row.partition_index] = new
        if known is not None and known.topic_id != topic.topic_id:
            self._names.pop(known.topic_id, None)
        self.topics[name] = TopicView(name, topic.topic_id, topic.is_internal, partitions)
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = name

    def _drop(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self._names.pop(topic.topic_id, None)

    def set_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> bool:
        """Apply a broker's hint of a newer leader (KIP-951); returns False if the known leader is newer."""
        known = self.topics.get(topic)
        before = known.partitions.get(partition) if known is not None else None
        if known is None or before is None or leader_epoch <= before.leader_epoch or leader not in self.nodes:
            return False
        new = PartitionView(leader, leader_epoch, before.replicas, before.isr, before.offline)
        partitions = {**known.partitions, partition: new}
        self.topics[topic] = TopicView(topic, known.topic_id, known.is_internal, partitions)
        self.version += 1
        return True

    def add_node(self, node: Node) -> None:
        self.nodes[node.node_id] = node

    def invalidate(self) -> None:
        """Note that a response disproved this view, so that a refresh is due."""
        self._invalid = True

    def failed(self, now_ms: float, chance: float = 0.5) -> None:
        """Note a failed metadata request; `chance` in [0, 1) spreads the retries of many clients."""
        self._failures += 1
        self._tried_ms = now_ms
        self._chance = chance
        self._invalid = True

    # -- questions ---------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> int | None:
        view = self.topics.get(topic)  # without a call of `partition`, because this runs for every request
        known = None if view is None else view.partitions.get(partition)
        return None if known is None or known.leader == NO_NODE else known.leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the epoch of the leader, -1 if it is unknown."""
        known = self.partition(topic, partition)
        return -1 if known is None else known.leader_epoch

    def partition(self, topic: str, partition: int) -> PartitionView | None:
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(partition)

    def partition_infos(self, topic: str) -> list[PartitionInfo]:
        known = self.topics.get(topic)
        return [
            PartitionInfo(topic, index, self.leader(topic, index), view.replicas, view.isr, view.offline)
            for index, view in (known.partitions.items() if known else ())
        ]

    def partitions(self, topic: str) -> list[int] | None:
        """Return the partitions of a topic in order; None if the topic is unknown."""
        known = self.topics.get(topic)
        return None if known is None else list(known.partitions)

    def topic_id(self, topic: str) -> Uuid:
        """Return the topic's id; zero if it is unknown or the broker is too old for ids."""
        known = self.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def stale(self, now_ms: float) -> bool:
        return now_ms >= self.refresh_due_at_ms()

    def refresh_due_at_ms(self) -> float:
        """Return when to refresh: at once the first time, soon (with backoff) if invalid, else at the maximum age."""
        if self._invalid or self._updated_ms is None:
            if self._updated_ms is None and not self._failures:
                return 0.0
            return self._tried_ms + self.backoff.delay_ms(max(self._failures, 1), self._chance)
        return self._updated_ms + self.max_age_ms

    def validate(self) -> None:
        for topic_id, name in self._names.items():
            assert self.topics[name].topic_id == topic_id, f"{name} has another id"
        for name, topic in self.topics.items():
            assert name == topic.name
            assert list(topic.partitions) == sorted(topic.partitions), f"the partitions of {name} are out of order"

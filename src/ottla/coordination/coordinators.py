"""The coordinators of one node.

Each is created at first use, or when this node leads a partition of its topic: a node without groups needs no group
coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.common.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from ottla.coordination import late
from ottla.coordination.internal_topic import InternalTopic
from ottla.coordination.transactions.producer_ids import ProducerIds
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.records import Codec

if TYPE_CHECKING:
    from ottla.common.ids import Uuid
    from ottla.coordination.group_runtime import GroupRuntime
    from ottla.coordination.peers.requests import PeerConnections, PeerRequests
    from ottla.coordination.ports import CoordinatorPorts
    from ottla.coordination.shares.groups import ShareGroups
    from ottla.coordination.transactions.runtime import TransactionRuntime
    from ottla.metadata.image import MetadataImage, PartitionImage

_TOPICS = (OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC)
_NO_PARTITIONS: Mapping[int, Any] = MappingProxyType({})


class _Running(Protocol):
    """The shards of a coordinator of any type."""

    topic: InternalTopic

    def start(self) -> None: ...

    def partitions_changed(self) -> None: ...

    def clock_moved(self) -> None: ...

    def close(self) -> None: ...


class Created(NamedTuple):
    """The coordinators that exist."""

    groups: GroupRuntime | None
    shares: ShareGroups | None
    transactions: TransactionRuntime | None


class Coordinators:
    """The coordinators of one node, and the requests that they send to other brokers."""

    def __init__(self, ports: CoordinatorPorts) -> None:
        self._ports = ports
        self.node_id = ports.node_id
        self.metadata = ports.metadata
        self.partitions = ports.partitions
        self.producer_ids = ProducerIds(ports.allocate_producer_ids)
        self._running: dict[str, _Running] = {}
        """The shards of the coordinators that were created, by the names of their topics."""
        self._groups: GroupRuntime | None = None
        self._shares: ShareGroups | None = None
        self._transactions: TransactionRuntime | None = None
        self._connections: PeerConnections | None = None

    @property
    def created(self) -> Created:
        """The coordinators that exist: each is created when a client needs it, or when this node leads its topic."""
        return Created(self._groups, self._shares, self._transactions)

    @cached_property
    def groups(self) -> GroupRuntime:
        """The group coordinator."""
        ports = self._ports
        config = ports.settings.static
        groups = self._groups = late.GroupRuntime(
            late.GroupConfig.from_settings(config.__getitem__),
            self._internal_topic(OFFSETS_TOPIC),
            late.GroupPorts(self._topic_id, late.ShareEffects(lambda: self.shares, ports.schedulers.worker.submit)),
            clock=ports.clock,
            call_later=self._ports.schedulers.call_later,
            options=late.CoordinatorOptions(
                codec=Codec(config.int("offsets.topic.compression.codec")),
                commit_timeout_ms=config.int("offsets.commit.timeout.ms"),
                node_id=ports.node_id,
            ),
        )
        groups.publish(self.metadata.image)
        self._running[OFFSETS_TOPIC] = groups.shards
        return groups

    @cached_property
    def shares(self) -> ShareGroups:
        """The share groups of this node."""
        shares = self._shares = late.ShareGroups(
            self._ports, self._internal_topic(SHARE_STATE_TOPIC), lambda: self.peers
        )
        self._running[SHARE_STATE_TOPIC] = shares.coordinator.shards
        return shares

    @cached_property
    def transactions(self) -> TransactionRuntime:
        """The transaction coordinator."""
        ports = self._ports
        transactions = self._transactions = late.TransactionRuntime(
            late.TransactionConfig.from_settings(ports.settings.static.__getitem__),
            self._internal_topic(TRANSACTIONS_TOPIC),
            late.TransactionPorts(
                next_producer_id=self.producer_ids.next_id,
                write_markers=lambda end, partitions: ports.schedulers.worker.submit(
                    late.write_everywhere(self, end, partitions)
                ),
                add_at=lambda node_id, request: self.peers.transactions.ask(node_id, request),
                transaction_version=lambda: ports.settings.feature_level(TRANSACTION_VERSION),
            ),
            clock=ports.clock,
            call_later=self._ports.schedulers.call_later,
            options=late.CoordinatorOptions(node_id=ports.node_id),
        )
        self._running[TRANSACTIONS_TOPIC] = transactions.shards
        return transactions

    @cached_property
    def peers(self) -> PeerRequests:
        """The requests of this broker to other brokers. A broker that is alone sends none."""
        ports = self._ports
        listener = ports.settings.static.inter_broker_listener
        connections = self._connections = late.PeerConnections(
            ports.node_id, lambda node_id: ports.endpoints.live(node_id, listener), ports.settings.peers.brokers
        )
        return late.PeerRequests(connections.connect, ports.settings.static.int("request.timeout.ms") / 1000)

    def _internal_topic(self, name: str) -> InternalTopic:
        return InternalTopic(
            name,
            self.node_id,
            # From the metadata, not from the partitions served here: a failed log directory must not move groups
            # to other partitions.
            partitions=lambda: self._partitions(name),
            find_partition=lambda index: self.partitions.get(name, index),
            create=lambda: self._ports.create_topic(name),
            call_later=self._ports.schedulers.call_later,
        )

    def _topic_id(self, name: str) -> Uuid | None:
        topic = self.metadata.image.topics_by_name.get(name)
        return None if topic is None else topic.topic_id

    def _partitions(self, topic: str) -> Mapping[int, PartitionImage]:
        image = self.metadata.image.topics_by_name.get(topic)
        return _NO_PARTITIONS if image is None else image.partitions

    def _shards(self, topic: str) -> _Running:
        """The shards of a coordinator, which is created if necessary."""
        if topic == OFFSETS_TOPIC:
            return self.groups.shards
        if topic == SHARE_STATE_TOPIC:
            return self.shares.coordinator.shards
        return self.transactions.shards

    def start(self) -> None:
        """Load the coordinators whose topics exist, so that timeouts elapse that began before the broker stopped."""
        for topic in _TOPICS:
            if self._leads(topic):
                self._shards(topic).start()

    def _leads(self, topic: str) -> bool:
        return any(partition.leader == self.node_id for partition in self._partitions(topic).values())

    def publish(self, old: MetadataImage, new: MetadataImage) -> None:
        """Follow a new image, after the partitions: load and unload shards, and pass the metadata on."""
        if self._connections is not None and old.brokers is not new.brokers:
            self._connections.publish(new)
        if old.topics_by_name is new.topics_by_name:
            if self._groups is not None and old.configs is not new.configs:
                self._groups.publish(new, has_new_topics=False)
            return
        for topic in _TOPICS:
            if old.topics_by_name.get(topic) is not new.topics_by_name.get(topic):
                self._leaders_changed(topic)
        # Compare ids: a recreated topic is another topic.
        before, after = old.topics_by_id, new.topics_by_id
        deleted = before.keys() - after.keys()
        if self._groups is not None:
            self._groups.publish(new, has_new_topics=not after.keys() <= before.keys())
            if deleted:
                names = {before[topic_id].name for topic_id in deleted}
                self._ports.schedulers.worker.submit(self._groups.topics_deleted(names))
        if self._shares is not None and deleted:
            self._ports.schedulers.worker.submit(self._shares.coordinator.topics_deleted(deleted))

    def _leaders_changed(self, topic: str) -> None:
        if topic in self._running or self._leads(topic):
            shards = self._shards(topic)
            shards.partitions_changed()
            shards.topic.changed()

    def clock_moved(self) -> None:
        """Handle the timers that are due after the clock jumped."""
        for coordinator in self._running.values():
            coordinator.clock_moved()

    def close(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR and stop."""
        if self._shares is not None:
            self._shares.partitions.close()
        if self._connections is not None:
            self._connections.close()
        for coordinator in self._running.values():
            coordinator.close()

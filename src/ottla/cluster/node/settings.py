"""The settings of one node: static ones, dynamic ones of the metadata, and the levels of features."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.cluster.node.peer_security import PeerSecurity
from ottla.config import TopicResolver
from ottla.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, served_level
from ottla.metadata.image import BROKER, TOPIC

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.config import BrokerConfig
    from ottla.log.directory import LogDirectory
    from ottla.metadata.image import MetadataImage

PRODUCER_EXPIRATION = "producer.id.expiration.ms"


class NodeSettings:
    """`static` has the properties of the node's start, `current` also the dynamic settings of the followed image."""

    def __init__(self, static: BrokerConfig, metadata: MetadataShell) -> None:
        self.static = static
        self.current = static
        self.peers = PeerSecurity(static, lambda: self.current)
        """How this node connects to other nodes."""
        self._metadata = metadata
        self._topic_resolver: TopicResolver | None = None

    def topic_values(self, topic: str) -> dict[str, object]:
        """The effective settings of a topic: its own, the broker's dynamic and static ones, Kafka's defaults."""
        image = self._metadata.image
        resolved = self.topic_resolver(image).resolve(image.config(TOPIC, topic))
        values: dict[str, object] = {name: entry.value for name, entry in resolved.items()}
        values[PRODUCER_EXPIRATION] = self.current.int(PRODUCER_EXPIRATION)
        return values

    def topic_resolver(self, image: MetadataImage) -> TopicResolver:
        """Return the resolver for topic settings; cached until the broker's settings in the image change."""
        own, cluster = self._dynamic(image)
        if self._topic_resolver is None or not self._topic_resolver.is_of(own, cluster):
            self._topic_resolver = TopicResolver(own, cluster, self.static)
        return self._topic_resolver

    def follow(self, image: MetadataImage, directories: Iterable[LogDirectory]) -> None:
        """Apply the dynamic settings of an image, also to the log directories (`cordoned.log.dirs`)."""
        self.current = self.static.with_dynamic(*self._dynamic(image))
        cordoned = {os.path.normpath(path) for path in self.current.cordoned_log_dirs}
        for directory in directories:
            directory.is_cordoned = os.path.normpath(directory.path) in cordoned

    def _dynamic(self, image: MetadataImage) -> tuple[Mapping[str, str], Mapping[str, str]]:
        return image.config(BROKER, str(self.static.node_id)), image.config(BROKER, "")

    def feature_level(self, name: str) -> int:
        """The level of a feature that is in effect."""
        return served_level(name, self._metadata.image.features.get(name, 0))

    def serves_consumer_groups(self) -> bool:
        """Whether groups of the consumer protocol (KIP-848) are enabled."""
        level = self._metadata.image.features.get(GROUP_VERSION, 0)
        return level >= 1 and "consumer" in self.static.items("group.coordinator.rebalance.protocols")

    def serves_share_groups(self) -> bool:
        """Whether share groups (KIP-932) are enabled."""
        return self.feature_level(SHARE_VERSION) >= 1

    def serves_streams_groups(self) -> bool:
        """Whether streams groups (KIP-1071) are enabled."""
        protocols = self.static.items("group.coordinator.rebalance.protocols")
        return self.feature_level(STREAMS_VERSION) >= 1 and "streams" in protocols

"""The cluster's metadata at one offset of the metadata log: an immutable value that can be shared freely.

No part changes in place, including dictionaries: a `MetadataDelta` copies what it changes. Unchanged parts are the same
objects in both images, so `old.topics_by_name is new.topics_by_name` means that no topic changed. A comparison of two
images therefore costs one `is` per part, however many topics there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from ottla.common.values import value

if TYPE_CHECKING:
    from ottla.protocol.metadata_records import (
        AccessControlEntryRecord,
        DelegationTokenRecord,
        RegisterControllerRecord,
        UserScramCredentialRecord,
    )

NO_LEADER = -1
NO_OFFSET = -1

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""The types of resources with configs, by Kafka's numbers."""
MIRROR = 96
"""The type of mirrors, which is not one of Kafka's: a source cluster and the topics that are copied from it."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The types of entities with client quotas."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name or None for the default), sorted by type."""


class PartitionImage(NamedTuple):
    """One partition. `directories` has one id per replica, in the order of `replicas`."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory_of(self, replica: int) -> Uuid:
        """The log directory of a replica, as far as it is known. KIP-858."""
        position = self.replicas.index(replica) if replica in self.replicas else len(self.directories)
        return self.directories[position] if position < len(self.directories) else DIRECTORY_UNASSIGNED

    def problems(self) -> list[str]:
        """Return violated invariants; empty if there are none."""
        found = []
        if len(set(self.replicas)) != len(self.replicas):
            found.append(f"replicas {self.replicas} name a broker twice")
        if not set(self.isr) <= set(self.replicas):
            found.append(f"isr {self.isr} is not within replicas {self.replicas}")
        if self.leader != NO_LEADER and self.leader not in self.replicas:
            found.append(f"leader {self.leader} is not among replicas {self.replicas}")
        if self.directories and len(self.directories) != len(self.replicas):
            found.append(f"{len(self.directories)} directories for {len(self.replicas)} replicas")
        if not {*self.adding_replicas, *self.removing_replicas} <= set(self.replicas):
            found.append("an adding or removing replica is not among the replicas")
        return found


class TopicImage(NamedTuple):
    """One topic; partitions by index, ascending."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionImage]


class Endpoint(NamedTuple):
    """A broker's listener: name, host, port, security protocol (0 PLAINTEXT, 1 SSL, 2 and 3 SASL)."""

    name: str
    host: str
    port: int
    security_protocol: int


class BrokerImage(NamedTuple):
    """One registered broker; `fenced` if it is not available."""

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...]
    """(name, lowest, highest level that the broker supports)."""
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None = None
    """Directories that take no new replicas (KIP-1066)."""

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and be in their ISR."""
        return not (self.fenced or self.in_controlled_shutdown)

    @property
    def is_cordoned(self) -> bool:
        """Whether none of the broker's directories takes new replicas; unknown directories do. KIP-1066."""
        return bool(self.directories) and set(self.directories) <= set(self.cordoned_directories or ())

    def has_online_directory(self, directory: Uuid) -> bool:
        """Whether a replica in this directory can be served, or may be in any directory of the broker. KIP-858."""
        if directory == DIRECTORY_LOST:
            return False
        if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) or not self.directories:
            return True
        return directory in self.directories

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@value
class MetadataImage:
    """The metadata after the record at `offset`, which was written in `epoch` (both -1 before the first record)."""

    offset: int = NO_OFFSET
    epoch: int = -1
    features: Mapping[str, int] = _NOTHING
    brokers: Mapping[int, BrokerImage] = _NOTHING
    controllers: Mapping[int, RegisterControllerRecord] = _NOTHING
    topics_by_name: Mapping[str, TopicImage] = _NOTHING
    topics_by_id: Mapping[Uuid, TopicImage] = _NOTHING
    colliding_names: Mapping[str, str] = _NOTHING
    """Topic names with '.' or '_', by their name in metrics (all '_'), where two topics must not collide."""
    configs: Mapping[tuple[int, str], Mapping[str, str]] = _NOTHING
    """Settings by (type, name); never an empty dict. The name "" of type BROKER has the defaults of all brokers."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = _NOTHING
    producer_ids_next: int = 0
    """The first producer id that is not allocated."""
    acls: Mapping[Uuid, AccessControlEntryRecord] = _NOTHING
    scram_credentials: Mapping[tuple[str, int], UserScramCredentialRecord] = _NOTHING
    delegation_tokens: Mapping[str, DelegationTokenRecord] = _NOTHING

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version; 0 before the bootstrap records."""
        return self.features.get("metadata.version", 0)

    def offline_replicas(self, partition: PartitionImage, available: Collection[int]) -> list[int]:
        """The replicas whose brokers are not `available`, or whose log directories failed."""
        return [
            replica
            for replica in partition.replicas
            if replica not in available
            or not self.brokers[replica].has_online_directory(partition.directory_of(replica))
        ]

    def config(self, kind: int, name: str) -> Mapping[str, str]:
        """The dynamic settings of one resource; empty if it has none."""
        return self.configs.get((kind, name), _NOTHING)

    def validate(self) -> None:
        """Raise AssertionError if parts of the image contradict each other."""
        problems = [f"{name} is filed under another name" for name, t in self.topics_by_name.items() if t.name != name]
        by_id = {topic.topic_id: topic for topic in self.topics_by_name.values()}
        if by_id != self.topics_by_id:
            problems.append("topics by name and by id differ")
        for topic in self.topics_by_name.values():
            if list(topic.partitions) != list(range(len(topic.partitions))):
                problems.append(f"{topic.name} has partitions {list(topic.partitions)}")
            for index, partition in topic.partitions.items():
                problems += [f"{topic.name}-{index}: {problem}" for problem in partition.problems()]
        problems += [f"empty configs of {resource}" for resource, values in self.configs.items() if not values]
        problems += [f"config {key}" for key in self.configs if key[0] == TOPIC and key[1] not in self.topics_by_name]
        problems += [f"collision {name}" for name in self.colliding_names.values() if name not in self.topics_by_name]
        problems += [f"broker {key}" for key, broker in self.brokers.items() if broker.broker_id != key]
        if problems:
            raise AssertionError("; ".join(problems[:10]))


EMPTY_IMAGE = MetadataImage()


def collision_name(topic: str) -> str | None:
    """The topic's name in metrics if it has '.' or '_'; otherwise None."""
    return topic.replace(".", "_") if "." in topic or "_" in topic else None

"""Arguments and results of the admin client's calls: frozen values, and enums for Kafka's numbers.

Topic ids are UUIDs in Kafka's text form. A number that this client does not know becomes `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Self

from ottla.clients.errors import BrokerError
from ottla.common.ids import TopicPartition


class _Known(IntEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003 - enum's signature
        return cls["UNKNOWN"]


class ResourceType(_Known):
    """The type of a resource with a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
    MIRROR = 96


class ConfigSource(_Known):
    """The source of a setting's value, the strongest first."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    CLUSTER_DEFAULT = 3
    BROKER_FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(_Known):
    """The type of a setting's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class OffsetSpec(IntEnum):
    """A position in a partition. Any other requested number is a timestamp in ms since the epoch."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class GroupState(Enum):
    """The state of a group."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def _missing_(cls, value: object) -> GroupState:  # noqa: ARG003 - enum's signature
        return cls.UNKNOWN


class GroupType(Enum):
    """The protocol of a group's members."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        # Kafka 4's brokers use capital letters, older ones do not.
        lower = value.lower() if isinstance(value, str) else ""
        return next((member for member in cls if member.value == lower), cls.UNKNOWN)


# -- topics ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 is the broker's default; `assignments` places the replicas: node ids per partition."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, object] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A created topic. Old brokers do not report `topic_id` ("") and the numbers (-1)."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class TopicListing:
    """One topic of the cluster."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition: `leader` is None while it has no leader; the other fields are node ids.

    `eligible_leader_replicas` are not in sync and hold everything committed; `last_known_elr` has the last leader of a
    partition without any such replica (KIP-966). Both are empty if all replicas are in sync.
    """

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic with its partitions in order."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that is moving to other brokers."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


# -- configuration ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource with a configuration: a topic or group by name, a broker by id ("": the default of all brokers)."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Return a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """Return a broker; None is the default of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """Return a group."""
        return cls(ResourceType.GROUP, group_id)

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(default)'}"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the settings that may supply a value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. `value` is text, None if sensitive or not set. `synonyms` (if asked for): the strongest first."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class Append:
    """Append to a list setting: `{"cleanup.policy": Append("compact")}`."""

    value: str


@dataclass(frozen=True, slots=True)
class Subtract:
    """Remove from a list setting."""

    value: str


# -- offsets ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """An offset in a partition: -1 if no such record exists; the timestamp (ms) may be -1."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Record batches as they are in the log; the last one may be incomplete. Empty at the end of the log."""

    records: bytes
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The largest leader epoch in a log that is not above the requested one, and its end; -1 and -1 if unknown."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The committed offset of a group in a partition: the next offset to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """Where a share group starts in a partition: all earlier records are done. `lag` is None with an old broker."""

    start_offset: int
    leader_epoch: int = -1
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in a partition: `end` - `committed`."""

    committed: int
    end: int

    @property
    def lag(self) -> int:
        """The number of offsets that are not read yet."""
        return max(0, self.end - self.committed)


# -- groups ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group of the cluster. With an old broker, state and type are UNKNOWN."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member. `topics` are its subscription, if the broker reports it; `assignment` are its partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    """The member's epoch in a group whose partitions the broker assigns; behind the group's while it reconciles."""
    target: tuple[TopicPartition, ...] | None = None
    """The partitions that it will have after reconciling (KIP-848)."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group and its members; `assignor` is "" before it is chosen.

    The broker increases `epoch` with each change of members, subscriptions or topics, and `assignment_epoch` follows
    when the target assignment is computed. Both are None for a classic group.
    """

    group_id: str
    state: GroupState
    type: GroupType
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


# -- the cluster -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """One broker and its address for clients."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster; `controller` is the node id for controller requests, None if there is no controller now."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica in a log directory: its bytes, and its lag in offsets."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """One log directory of a broker. `total_bytes`, `usable_bytes` are -1 with an old broker.

    `error` says why the broker cannot use it, for example KAFKA_STORAGE_ERROR; then nothing else is known of it.
    """

    path: str
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaDescription]
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Lowest and highest level of a feature."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Features:
    """The cluster's features: `finalized` since `epoch`, `supported` by the asked broker."""

    epoch: int
    finalized: Mapping[str, VersionRange]
    supported: Mapping[str, VersionRange]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One replica of the metadata log; times are in ms since the epoch, -1 if unknown."""

    node_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """The metadata quorum."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """An active producer of a partition; `transaction_start_offset` is None outside a transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None
    coordinator_epoch: int = -1

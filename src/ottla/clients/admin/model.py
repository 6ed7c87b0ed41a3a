"""What goes into the admin client's calls and what comes out: frozen values, enums for what Kafka has as numbers.

Ids of topics are Kafka's text form of UUIDs. What a newer broker invents and this client lacks becomes `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Self

from ottla.common.ids import TopicPartition


class _Known(IntEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003 - enum's signature
        return cls["UNKNOWN"]


class ResourceType(_Known):
    """What has a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(_Known):
    """Where a setting's value comes from, the strongest first."""

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
    """A place in a partition; any other number asked for is a timestamp in ms since the epoch."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class GroupState(Enum):
    """What a group is doing."""

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
    """Which protocol a group's members speak."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        # Kafka 4's brokers write it large, older ones small.
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
    """A topic as it was created; `topic_id` is "" and the numbers -1 where the broker is too old to tell."""

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
    """One partition: `leader` is None while there is none; the others are node ids."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic with its partitions in order."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition."""
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
    """What has a configuration: a topic or group by name, a broker by its id ("" for the default of all brokers)."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """A broker; None is the default of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """A group."""
        return cls(ResourceType.GROUP, group_id)

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(default)'}"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the settings that a value may come from."""

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
        """Whether nobody set it."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class Append:
    """Add to a setting that is a list: `{"cleanup.policy": Append("compact")}`."""

    value: str


@dataclass(frozen=True, slots=True)
class Subtract:
    """Take from a setting that is a list."""

    value: str


# -- offsets ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """An answer to where in a partition: offset -1 if there is no such record; the timestamp (ms) may be -1."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a group committed for a partition: the next offset to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in a partition: `lag` is `end` - `committed`."""

    committed: int
    end: int

    @property
    def lag(self) -> int:
        """Records (offsets) that are not read yet."""
        return max(0, self.end - self.committed)


# -- groups ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group of the cluster. A broker too old to tell has state and type UNKNOWN."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member. `topics` is what it subscribes to where that is told, `assignment` what it reads."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group and its members; `assignor` is "" while it is not chosen."""

    group_id: str
    state: GroupState
    type: GroupType
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]


# -- the cluster -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """One broker and where clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster; `controller` is the node id that clients may ask, None if there is none now."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """One replica in a log directory: its bytes, and how far (in offsets) it is behind."""

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """One log directory of a broker. `total_bytes`, `usable_bytes` are -1 where the broker is too old to tell."""

    path: str
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, ReplicaDescription]


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Lowest and highest level of a feature."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class Features:
    """The cluster's features: `finalized` are in force (since `epoch`), `supported` what the asked broker could do."""

    epoch: int
    finalized: Mapping[str, VersionRange]
    supported: Mapping[str, VersionRange]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One replica of the metadata log; the times are ms since the epoch, -1 where not known."""

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
    """A producer that wrote to a partition lately; `transaction_start_offset` is None outside a transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None

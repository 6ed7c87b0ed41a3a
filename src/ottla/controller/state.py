"""The state that the controller's operations read, their outcome, and their common checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeAlias, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid, uuid_to_text
from ottla.common.values import value
from ottla.controller import late
from ottla.controller.rules import ConfigRules
from ottla.controller.sessions import Sessions
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.protocol.message import Message

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.metadata.image import TopicImage
    from ottla.protocol.metadata_records import DelegationTokenRecord
    from ottla.security.delegation_token import SecretKey, TokensByHmac

R = TypeVar("R")

Permit: TypeAlias = Callable[[int], None]
"""Called before partitions are created or deleted, with their number; raises THROTTLING_QUOTA_EXCEEDED."""


def unlimited(_partitions: int) -> None:
    """Permit any number of partitions."""


SECRET_KEY = "delegation.token.secret.key"  # noqa: S105 - the name of the setting
# Kafka's limits for one request to the controller.
MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_RECORDS_PER_REQUEST = 10_000


class RandomSource(Protocol):
    """The source of random ids and positions, e.g. `random.Random`."""

    def randbytes(self, n: int, /) -> bytes:
        """Return `n` random bytes."""
        ...

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to `stop` - 1."""
        ...


@value
class TokenSettings:
    """The settings of delegation tokens, which are disabled without a key."""

    key: SecretKey | None = None
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> TokenSettings:
        """Read the settings of this node."""
        return cls(
            secret_key(config),
            config.int("delegation.token.max.lifetime.ms"),
            config.int("delegation.token.expiry.time.ms"),
        )


def secret_key(config: BrokerConfig) -> SecretKey | None:
    """The key that signs delegation tokens; None if they are disabled."""
    text = config.text(SECRET_KEY)
    return late.SecretKey(text) if text else None


@value
class ControllerSettings:
    """The node's own settings. `topic_policy` may raise POLICY_VIOLATION."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    broker_session_timeout_ms: int = 9_000
    topic_policy: Callable[[str, int, int, dict[str, str]], None] | None = None
    tokens: TokenSettings = TokenSettings()

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ControllerSettings:
        """Read the settings of this node."""
        return cls(
            num_partitions=config.int("num.partitions"),
            default_replication_factor=config.int("default.replication.factor"),
            delete_topic_enable=config.bool("delete.topic.enable"),
            broker_session_timeout_ms=config.int("broker.session.timeout.ms"),
            tokens=TokenSettings.from_config(config),
        )


class State:
    """The latest image, which includes records that are not committed yet, and the controller's identity."""

    __slots__ = ("cluster_id", "image", "next_offset", "node_id", "random", "rules", "sessions", "settings", "tokens")

    def __init__(
        self,
        image: MetadataImage,
        node_id: int,
        cluster_id: str,
        rules: ConfigRules,
        random: RandomSource,
        settings: ControllerSettings,
    ) -> None:
        self.image = image
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.rules = rules
        self.random = random
        self.settings = settings
        self.sessions = Sessions(settings.broker_session_timeout_ms)
        key = settings.tokens.key
        self.tokens: TokensByHmac[DelegationTokenRecord] | None = None if key is None else late.TokensByHmac(key)
        # The offset of the next record, which becomes the epoch of a broker's registration.
        self.next_offset = 0

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker may lead partitions and be in their ISR."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def directory_of(self, broker_id: int) -> bytes:
        """The directory of a new replica: the broker's only directory, or unassigned if the broker has several."""
        broker = self.image.brokers.get(broker_id)
        return broker.directories[0] if broker is not None and len(broker.directories) == 1 else bytes(16)

    def topic(self, name: str) -> TopicImage:
        """Find a topic by name; raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.image.topics_by_name.get(name)
        if topic is None:
            refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return topic


def random_uuid(random: RandomSource) -> Uuid:
    """Return a random id that is not reserved and whose text does not begin with '-', like a command-line option."""
    while True:
        raw = bytearray(random.randbytes(16))
        raw[6] = (raw[6] & 0x0F) | 0x40  # version 4, variant 2, as in java.util.UUID
        raw[8] = (raw[8] & 0x3F) | 0x80
        uuid = bytes(raw)
        if not uuid_to_text(uuid).startswith("-"):
            return uuid


@value
class Outcome(Generic[R]):
    """The records of an operation, appended atomically, and the response once they are committed."""

    records: list[Message]
    response: R


def refuse(code: ErrorCode, message: str) -> NoReturn:
    """Raise KafkaError."""
    raise KafkaError(code, message)


def check_size(records: Sized) -> None:
    """Raise POLICY_VIOLATION if a request creates too many records."""
    if len(records) > MAX_RECORDS_PER_REQUEST:
        refuse(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def check_assignment(state: State, replicas: Iterable[int], replication_factor: int | None) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless the replicas are different registered brokers that take new replicas."""
    ordered = sorted(replicas)
    prefix = "The manual partition assignment includes"
    if not ordered:
        refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix} an empty replica list.")
    for position, broker_id in enumerate(ordered):
        if broker_id not in state.image.brokers:
            refuse(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{prefix} broker {broker_id}, but no such broker is registered.",
            )
        if state.image.brokers[broker_id].is_cordoned:
            refuse(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{prefix} broker {broker_id}, but all its log directories are cordoned.",
            )
        if position and ordered[position - 1] == broker_id:
            refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix} the broker {broker_id} more than once.")
    if replication_factor is not None and len(ordered) != replication_factor:
        refuse(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{prefix} a partition with {len(ordered)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s).",
        )


def new_partition(state: State, replicas: Iterable[int]) -> PartitionImage | None:
    """Create a partition, led by its first active replica; None if no replica is active."""
    chosen = tuple(replicas)
    isr = tuple(broker_id for broker_id in chosen if state.is_active(broker_id))
    if not isr:
        return None
    return PartitionImage(
        replicas=chosen,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(state.directory_of(broker_id) for broker_id in chosen),
    )

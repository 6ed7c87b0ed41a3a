"""What every operation of the controller looks at, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.rules import ConfigRules
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.protocol.message import Message

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage

R = TypeVar("R")

# Kafka's limits for one request to the controller.
MAX_PARTITIONS_PER_REQUEST = 10_000
MAX_RECORDS_PER_REQUEST = 10_000


class RandomSource(Protocol):
    """Where ids and starting points come from; `random.Random` and `random.SystemRandom` fit."""

    def randbytes(self, n: int, /) -> bytes:
        """So many random bytes."""
        ...

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to below `stop`."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the node's own configuration says. `topic_policy` may raise POLICY_VIOLATION."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    topic_policy: Callable[[str, int, int, dict[str, str]], None] | None = None


class State:
    """The latest image, appended but perhaps not committed records included, and who the controller is."""

    __slots__ = ("cluster_id", "image", "next_offset", "node_id", "random", "rules", "settings")

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
        # Where the next record will be: it numbers a broker's registration.
        self.next_offset = 0

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker may lead and be in sync."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def directory_of(self, broker_id: int) -> bytes:
        """Where a new replica goes: the broker's only directory, or unassigned for the broker to choose."""
        broker = self.image.brokers.get(broker_id)
        return broker.directories[0] if broker is not None and len(broker.directories) == 1 else bytes(16)

    def topic(self, name: str) -> TopicImage:
        """The topic; raises UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self.image.topics_by_name.get(name)
        if topic is None:
            refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        return topic


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """What an operation wants appended, all or nothing, and what it answers once that is committed."""

    records: list[Message]
    response: R


def refuse(code: ErrorCode, message: str) -> NoReturn:
    """Raise the error."""
    raise KafkaError(code, message)


def check_size(records: Sized) -> None:
    """Raise POLICY_VIOLATION if a request makes more records than the controller takes at once."""
    if len(records) > MAX_RECORDS_PER_REQUEST:
        refuse(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def check_assignment(state: State, replicas: Iterable[int], replication_factor: int | None) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless each replica is on a registered broker of its own."""
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
        if position and ordered[position - 1] == broker_id:
            refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix} the broker {broker_id} more than once.")
    if replication_factor is not None and len(ordered) != replication_factor:
        refuse(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{prefix} a partition with {len(ordered)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s).",
        )


def new_partition(state: State, replicas: Iterable[int]) -> PartitionImage | None:
    """A partition as it begins: led by its first active replica; None if no replica is active."""
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

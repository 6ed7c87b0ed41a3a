"""Leaders and in-sync replicas when brokers become available or unavailable, and elections on request. KIP-460.

Each change goes through `partition_change`; this module supplies what it needs from the image.

Eligible leader replicas outside the ISR (KIP-966) are created only if their feature level is served. Those in the
metadata of a stock cluster are elected at any level, because its partitions have an empty ISR after a shutdown.
Cost: the records for one broker read every partition once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import DIRECTORY_UNASSIGNED
from ottla.common.slices import Slices
from ottla.controller.partition_change import ChangeRules, Election, Target, partition_change, without
from ottla.controller.state import Outcome, State, check_size, refuse
from ottla.metadata.features import DIRECTORIES_FROM, ELIGIBLE_LEADER_REPLICAS_VERSION, served_level
from ottla.metadata.image import BROKER, NO_LEADER, TOPIC, PartitionImage, TopicImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message

if TYPE_CHECKING:
    from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

PREFERRED, UNCLEAN = 0, 1
UNCLEAN_SETTING = "unclean.leader.election.enable"
MIN_ISR_SETTING = "min.insync.replicas"
# Brokers of metadata.version 3.6-IV0 and later retain their leader epoch when the ISR shrinks.
_SHRINK_RETAINS_EPOCH_FROM = 12


class Availability(NamedTuple):
    """Brokers whose state the records being decided change: the image does not show it yet."""

    arrived: int | None = None
    departed: int | None = None
    any_directory: bool = False
    """Whether `arrived` may lead from a directory that it did not register: a single node recreates its logs."""


UNCHANGED = Availability()


def partitions_of(state: State, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """Yield every partition with a replica on the broker."""
    for topic in state.image.topics_by_name.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                yield topic, index, partition


def change(
    state: State,
    topic: TopicImage,
    index: int,
    target: Target,
    election: Election | None = None,
    availability: Availability = UNCHANGED,
) -> list[m.PartitionChangeRecord]:
    """Return the record that brings a partition to the target; none if it is there.

    Without `election`, the topic's `unclean.leader.election.enable` decides.
    """
    partition = topic.partitions[index]
    if election is None:
        election = Election.UNCLEAN if unclean_allowed(state, topic.name) else Election.ONLINE
    replicas = partition.replicas if target.replicas is None else target.replicas
    added = {replica: state.directory_of(replica) for replica in replicas if replica not in partition.replicas}
    version = state.image.metadata_version
    rules = ChangeRules(
        acceptable=frozenset(r for r in replicas if _may_lead(state, partition, r, availability)),
        min_isr=effective_min_isr(state, topic),
        election=election,
        eligible_enabled=_eligible_enabled(state),
        shrink_starts_epoch=version < _SHRINK_RETAINS_EPOCH_FROM,
        names_directories=version >= DIRECTORIES_FROM,
    )
    target = target._replace(directories={**added, **target.directories})
    record = partition_change(topic.topic_id, index, partition, target, rules)
    return [] if record is None else [record]


def _may_lead(state: State, partition: PartitionImage, replica: int, availability: Availability) -> bool:
    if replica == availability.departed:
        return False
    if replica == availability.arrived:
        return availability.any_directory or _directory_online(state, partition, replica)
    return state.is_active(replica) and _directory_online(state, partition, replica)


def _directory_online(state: State, partition: PartitionImage, replica: int) -> bool:
    broker = state.image.brokers.get(replica)
    directory = dict(zip(partition.replicas, partition.directories, strict=False)).get(replica, DIRECTORY_UNASSIGNED)
    return broker is not None and broker.has_online_directory(directory)


def _eligible_enabled(state: State) -> bool:
    name = ELIGIBLE_LEADER_REPLICAS_VERSION
    return served_level(name, state.image.features.get(name, 0)) > 0


def records_for_departure(state: State, broker_id: int, *, unclean: bool = False) -> list[Message]:
    """Remove an unavailable broker from leadership and the ISR; after an unclean stop it is not eligible, either."""
    records: list[Message] = []
    lost = broker_id if unclean and _eligible_enabled(state) else None
    for topic, index, partition in partitions_of(state, broker_id):
        if broker_id in partition.isr or (lost is not None and broker_id in partition.eligible_leader_replicas):
            target = Target(isr=without(partition.isr, (broker_id,)), unclean_shutdown=lost)
            records += change(state, topic, index, target, availability=Availability(departed=broker_id))
    return records


def records_for_arrival(state: State, broker_id: int, *, any_directory: bool = False) -> list[Message]:
    """Elect leaders of partitions without one, now that the broker is available."""
    records: list[Message] = []
    availability = Availability(arrived=broker_id, any_directory=any_directory)
    for topic, index, partition in partitions_of(state, broker_id):
        if partition.leader == NO_LEADER:
            records += change(state, topic, index, Target(), availability=availability)
    return records


def records_for_offline_directories(state: State, broker_id: int, directories: Iterable[bytes]) -> list[Message]:
    """Remove the broker from leadership and ISR of the partitions in directories that failed. KIP-858."""
    lost = set(directories)
    records: list[Message] = []
    for topic, index, partition in partitions_of(state, broker_id):
        directory = dict(zip(partition.replicas, partition.directories, strict=False)).get(broker_id)
        if directory in lost and broker_id in partition.isr:
            target = Target(isr=without(partition.isr, (broker_id,)))
            records += change(state, topic, index, target, availability=Availability(departed=broker_id))
    return records


def records_for_restart(state: State, broker_id: int) -> list[Message]:
    """Start a new leader epoch in the partitions that a crashed broker led, because their last records may be lost."""
    return [
        m.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=broker_id)
        for topic, index, partition in partitions_of(state, broker_id)
        if partition.leader == broker_id
    ]


def leads_any(state: State, broker_id: int) -> bool:
    """Whether the broker leads a partition."""
    return any(partition.leader == broker_id for _, _, partition in partitions_of(state, broker_id))


def unclean_allowed(state: State, topic: str) -> bool:
    """Return the effective `unclean.leader.election.enable` of the topic."""
    return (_effective(state, topic, UNCLEAN_SETTING) or "").lower() == "true"


def effective_min_isr(state: State, topic: TopicImage) -> int:
    """Return the effective `min.insync.replicas` of the topic, at most its replication factor."""
    value = int(_effective(state, topic.name, MIN_ISR_SETTING) or 1)
    return min(value, len(topic.partitions[0].replicas))


def _effective(state: State, topic: str, setting: str) -> str | None:
    image = state.image
    for configs in (image.config(TOPIC, topic), image.config(BROKER, str(state.node_id)), image.config(BROKER, "")):
        if setting in configs:
            return configs[setting]
    return state.rules.default(TOPIC, setting)


def elect_leaders(state: State, request: ElectLeadersRequest) -> Slices[Outcome[ElectLeadersResponse]]:
    """Elect preferred or unclean leaders. A request for all partitions omits those that need no election."""
    from ottla.protocol.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult

    if request.election_type not in (PREFERRED, UNCLEAN):
        refuse(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    everything = request.topic_partitions is None
    asked = (
        [(topic.name, list(topic.partitions)) for topic in state.image.topics_by_name.values()]
        if request.topic_partitions is None
        else [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    )
    records: list[Message] = []
    results = []
    for name, indexes in asked:
        result = ReplicaElectionResult(topic=name, partition_result=[])
        check_size(records)
        for index in indexes:
            yield
            answer = PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
            try:
                records += _elect(state, name, index, request.election_type)
            except KafkaError as error:
                if everything and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                answer.error_code, answer.error_message = error.code, error.message
            result.partition_result.append(answer)
        results.append(result)
    check_size(records)
    return Outcome(records, ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=results))


def _elect(state: State, name: str, index: int, election_type: int) -> list[m.PartitionChangeRecord]:
    topic = state.image.topics_by_name.get(name)
    if topic is None:
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    preferred = election_type == PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        refuse(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    records = change(state, topic, index, Target(), Election.PREFERRED if preferred else Election.UNCLEAN)
    if not records and preferred:
        refuse(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    if not records:
        refuse(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return records

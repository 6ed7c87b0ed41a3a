"""Leaders and in-sync replicas when brokers become available or unavailable, and elections on request. KIP-460.

Each change goes through `partition_change`; this module supplies what it needs from the image.

Eligible leader replicas outside the ISR (KIP-966) are created only if their feature level is served. Those in the
metadata of a stock cluster are elected at any level, because its partitions have an empty ISR after a shutdown.
Cost: the records for one broker read every partition once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import DIRECTORY_UNASSIGNED, Uuid
from ottla.common.slices import Slices
from ottla.controller.partition_change import ChangeRules, Election, Target, partition_change, without
from ottla.controller.state import Outcome, State, check_size, refuse
from ottla.metadata.features import DIRECTORIES_FROM, ELIGIBLE_LEADER_REPLICAS_VERSION, served_level
from ottla.metadata.image import BROKER, NO_LEADER, TOPIC, PartitionImage, TopicImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult

if TYPE_CHECKING:
    from ottla.protocol.messages.elect_leaders import ElectLeadersRequest

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


class TopicChanges:
    """Builds the records that change partitions of one topic, whose settings are looked up once.

    Without `election`, the topic's `unclean.leader.election.enable` decides.
    """

    __slots__ = ("_availability", "_rules", "_state", "_topic")

    def __init__(
        self, state: State, topic: TopicImage, election: Election | None = None, availability: Availability = UNCHANGED
    ) -> None:
        if election is None:
            election = Election.UNCLEAN if unclean_allowed(state, topic.name) else Election.ONLINE
        version = state.image.metadata_version
        self._state = state
        self._topic = topic
        self._availability = availability
        self._rules = ChangeRules(
            acceptable=frozenset(),
            min_isr=effective_min_isr(state, topic),
            election=election,
            eligible_enabled=_eligible_enabled(state),
            shrink_starts_epoch=version < _SHRINK_RETAINS_EPOCH_FROM,
            names_directories=version >= DIRECTORIES_FROM,
        )

    def records(self, index: int, target: Target) -> list[m.PartitionChangeRecord]:
        """Return the record that brings a partition to the target; none if it is there."""
        partition = self._topic.partitions[index]
        replicas = partition.replicas if target.replicas is None else target.replicas
        directories = partition.directories
        if target.replicas is not None or target.directories or len(directories) != len(replicas):
            added = {each: self._state.directory_of(each) for each in replicas if each not in partition.replicas}
            target = target._replace(directories={**added, **target.directories})
            known = {**dict(zip(partition.replicas, directories, strict=False)), **target.directories}
            directories = tuple(known.get(replica, DIRECTORY_UNASSIGNED) for replica in replicas)
        in_directories = zip(replicas, directories, strict=True)
        acceptable = frozenset([replica for replica, where in in_directories if self._may_lead(replica, where)])
        rules = self._rules._replace(acceptable=acceptable)
        record = partition_change(self._topic.topic_id, index, partition, target, rules)
        return [] if record is None else [record]

    def _may_lead(self, replica: int, directory: Uuid) -> bool:
        arrived, departed, any_directory = self._availability
        if replica == departed:
            return False
        broker = self._state.image.brokers.get(replica)
        if replica == arrived:
            return any_directory or (broker is not None and broker.has_online_directory(directory))
        return broker is not None and broker.is_active and broker.has_online_directory(directory)


def change(
    state: State, topic: TopicImage, index: int, target: Target, election: Election | None = None
) -> list[m.PartitionChangeRecord]:
    """Return the record that brings one partition to the target; none if it is there. See `TopicChanges`."""
    return TopicChanges(state, topic, election).records(index, target)


def _changes(
    state: State,
    broker_id: int,
    target_of: Callable[[PartitionImage], Target | None],
    availability: Availability = UNCHANGED,
) -> Slices[list[Message]]:
    """Change the partitions of a broker for which `target_of` returns a target."""
    records: list[Message] = []
    for topic in state.image.topics_by_name.values():
        yield
        changes = None
        for index, partition in topic.partitions.items():
            target = target_of(partition) if broker_id in partition.replicas else None
            if target is not None:
                changes = TopicChanges(state, topic, availability=availability) if changes is None else changes
                records += changes.records(index, target)
                yield
    return records


def _eligible_enabled(state: State) -> bool:
    name = ELIGIBLE_LEADER_REPLICAS_VERSION
    return served_level(name, state.image.features.get(name, 0)) > 0


def records_for_departure(state: State, broker_id: int, *, unclean: bool = False) -> Slices[list[Message]]:
    """Remove an unavailable broker from leadership and the ISR; after an unclean stop it is not eligible, either."""
    lost = broker_id if unclean and _eligible_enabled(state) else None

    def target_of(partition: PartitionImage) -> Target | None:
        if broker_id in partition.isr or (lost is not None and broker_id in partition.eligible_leader_replicas):
            return Target(isr=without(partition.isr, (broker_id,)), unclean_shutdown=lost)
        return None

    return _changes(state, broker_id, target_of, Availability(departed=broker_id))


def records_for_arrival(state: State, broker_id: int, *, any_directory: bool = False) -> Slices[list[Message]]:
    """Elect leaders of partitions without one, now that the broker is available."""
    availability = Availability(arrived=broker_id, any_directory=any_directory)
    return _changes(state, broker_id, lambda each: Target() if each.leader == NO_LEADER else None, availability)


def records_for_offline_directories(
    state: State, broker_id: int, directories: Iterable[bytes]
) -> Slices[list[Message]]:
    """Remove the broker from leadership and ISR of the partitions in directories that failed. KIP-858."""
    lost = set(directories)

    def target_of(partition: PartitionImage) -> Target | None:
        is_lost = broker_id in partition.isr and partition.directory_of(broker_id) in lost
        return Target(isr=without(partition.isr, (broker_id,))) if is_lost else None

    return _changes(state, broker_id, target_of, Availability(departed=broker_id))


def records_for_restart(state: State, broker_id: int) -> Slices[list[Message]]:
    """Start a new leader epoch in the partitions that a crashed broker led, because their last records may be lost."""
    records: list[Message] = []
    for topic, index, partition in partitions_of(state, broker_id):
        if partition.leader == broker_id:
            records.append(m.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=broker_id))
            yield
    return records


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
    if not records and not preferred:
        records = _elect_without_log(state, topic, index)
    if not records and preferred:
        refuse(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    if not records:
        refuse(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return records


def _elect_without_log(state: State, topic: TopicImage, index: int) -> list[m.PartitionChangeRecord]:
    """Elect a replica whose directory was lost, with an empty log in another directory of its broker.

    Only on request, and if no other replica can lead: the records of the partition are lost.
    """
    for replica in topic.partitions[index].replicas:
        if state.is_active(replica):
            moved = Target(directories={replica: state.directory_of(replica)})
            records = change(state, topic, index, moved, Election.UNCLEAN)
            if any(record.leader == replica for record in records):
                return records
    return []

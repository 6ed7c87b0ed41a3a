"""Leaders and in-sync replicas when brokers become available or unavailable, and elections on request. KIP-460.

Eligible leader replicas outside the ISR (KIP-966) are not created here (feature level 0). But those in the metadata of
a stock cluster are elected, because its partitions have an empty ISR after a shutdown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.controller.state import Outcome, State, check_size, refuse
from ottla.metadata.image import BROKER, NO_LEADER, TOPIC, PartitionImage, TopicImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message

if TYPE_CHECKING:
    from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

PREFERRED, UNCLEAN = 0, 1
RECOVERED, RECOVERING = 0, 1
UNCLEAN_SETTING = "unclean.leader.election.enable"


def partitions_of(state: State, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """Yield every partition with a replica on the broker."""
    for topic in state.image.topics_by_name.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                yield topic, index, partition


def records_for_departure(state: State, broker_id: int) -> list[Message]:
    """Remove an unavailable broker from leadership, and from each ISR of which it is not the only member."""
    records: list[Message] = []
    for topic, index, partition in partitions_of(state, broker_id):
        if broker_id not in partition.isr:
            continue
        remaining = [replica for replica in partition.isr if replica != broker_id]
        change = m.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
        if remaining:
            change.isr = remaining
        if partition.leader == broker_id:
            in_sync = [replica for replica in partition.replicas if replica in remaining and state.is_active(replica)]
            change.leader = in_sync[0] if in_sync else NO_LEADER
        if change.isr is not None or change.leader != m.PartitionChangeRecord().leader:
            records.append(change)
    return records


def records_for_arrival(state: State, broker_id: int) -> list[Message]:
    """Make an available broker the in-sync leader of partitions that have no leader."""
    records: list[Message] = []
    for topic, index, partition in partitions_of(state, broker_id):
        if partition.leader != NO_LEADER:
            continue
        if broker_id in partition.isr:
            records.append(m.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=broker_id))
        elif broker_id in partition.eligible_leader_replicas:
            records.append(_eligible(topic, index, broker_id))
        elif partition.last_known_elr == (broker_id,) and not partition.isr:
            # No other replica can have more records. The broker's recovery reports lost records.
            records.append(_unclean(topic, index, broker_id))
        elif unclean_allowed(state, topic.name):
            records.append(_unclean(topic, index, broker_id))
    return records


def records_for_restart(state: State, broker_id: int) -> list[Message]:
    """Start a new leader epoch in the partitions that a crashed broker led, because their last records may be lost."""
    return [
        m.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=broker_id)
        for topic, index, partition in partitions_of(state, broker_id)
        if partition.leader == broker_id
    ]


def unclean_allowed(state: State, topic: str) -> bool:
    """Return the effective `unclean.leader.election.enable` of the topic."""
    image = state.image
    for configs in (image.config(TOPIC, topic), image.config(BROKER, str(state.node_id)), image.config(BROKER, "")):
        if UNCLEAN_SETTING in configs:
            return configs[UNCLEAN_SETTING].lower() == "true"
    return state.rules.default(TOPIC, UNCLEAN_SETTING) == "true"


def _eligible(topic: TopicImage, index: int, leader: int) -> m.PartitionChangeRecord:
    return m.PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        leader=leader,
        isr=[leader],
        eligible_leader_replicas=[],
        last_known_elr=[],
    )


def _unclean(topic: TopicImage, index: int, leader: int) -> m.PartitionChangeRecord:
    return m.PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        leader=leader,
        isr=[leader],
        leader_recovery_state=RECOVERING,
        eligible_leader_replicas=[],
        last_known_elr=[],
    )


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
                records.append(_elect(state, name, index, request.election_type))
            except KafkaError as error:
                if everything and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                answer.error_code, answer.error_message = error.code, error.message
            result.partition_result.append(answer)
        results.append(result)
    check_size(records)
    return Outcome(records, ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=results))


def _elect(state: State, name: str, index: int, election_type: int) -> Message:
    topic = state.image.topics_by_name.get(name)
    if topic is None:
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    preferred = partition.replicas[0]
    has_leader = partition.leader != NO_LEADER
    if (election_type == PREFERRED and partition.leader == preferred) or (election_type == UNCLEAN and has_leader):
        refuse(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    if election_type == PREFERRED:
        if preferred not in partition.isr or not state.is_active(preferred):
            refuse(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        return m.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=preferred)
    alive = [replica for replica in partition.replicas if state.is_active(replica)]
    in_sync = [replica for replica in alive if replica in partition.isr]
    if in_sync:
        return m.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=in_sync[0])
    if not alive:
        refuse(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return _unclean(topic, index, alive[0])

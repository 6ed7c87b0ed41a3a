"""AssignReplicasToDirs: a broker reports in which log directories its replicas are. KIP-858.

A replica in a directory that is not online leaves leadership and the ISR together with the assignment.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.common.slices import Slices
from ottla.controller.brokers import check_epoch
from ottla.controller.leaders import UNCHANGED, Availability, TopicChanges
from ottla.controller.partition_change import Target, without
from ottla.controller.state import Outcome, State, check_size, refuse
from ottla.metadata.features import DIRECTORIES_FROM
from ottla.metadata.image import BrokerImage, TopicImage
from ottla.protocol.message import Message
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)


def assign_replicas(
    state: State, request: AssignReplicasToDirsRequest
) -> Slices[Outcome[AssignReplicasToDirsResponse]]:
    """Change the directories of a broker's replicas; each has its own error. Raises STALE_BROKER_EPOCH."""
    if state.image.metadata_version < DIRECTORIES_FROM:
        refuse(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_epoch(state, request.broker_id, request.broker_epoch)
    records: list[Message] = []
    response = AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=[])
    seen: set[tuple[Uuid, int]] = set()
    for directory in request.directories:
        assigned = ResponseDirectoryData(id=directory.id, topics=[])
        for asked in directory.topics:
            topic = state.image.topics_by_id.get(asked.topic_id)
            answers = []
            for partition in asked.partitions:
                yield
                index, key = partition.partition_index, (asked.topic_id, partition.partition_index)
                # The records of a partition that is named twice would be based on the same state.
                code = ErrorCode.INVALID_REQUEST if key in seen else _problem(topic, index, broker.broker_id)
                seen.add(key)
                if topic is not None and not code:
                    records += _assign(state, broker, topic, index, directory.id)
                answers.append(ResponsePartitionData(partition_index=index, error_code=code))
            check_size(records)
            assigned.topics.append(ResponseTopicData(topic_id=asked.topic_id, partitions=answers))
        response.directories.append(assigned)
    return Outcome(records, response)


def _problem(topic: TopicImage | None, index: int, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _assign(state: State, broker: BrokerImage, topic: TopicImage, index: int, directory: Uuid) -> list[Message]:
    target = Target(directories={broker.broker_id: directory})
    partition = topic.partitions[index]
    availability = UNCHANGED
    if directory not in broker.directories and broker.broker_id in partition.isr:
        target = target._replace(isr=without(partition.isr, (broker.broker_id,)))
        availability = Availability(departed=broker.broker_id)
    return [*TopicChanges(state, topic, availability=availability).records(index, target)]

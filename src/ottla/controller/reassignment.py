"""Moving partitions between brokers. KIP-455, KIP-860.

A move to brokers that already have a replica completes at once. A move to other brokers adds them first, and completes
when they are in sync; `complete` decides that after a change of the ISR. With one broker, no move is ever in progress.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.controller.state import Outcome, State, check_assignment, check_size, refuse
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter(
    state: State, request: AlterPartitionReassignmentsRequest
) -> Slices[Outcome[AlterPartitionReassignmentsResponse]]:
    """Start, change or (without replicas) cancel moves; each partition has its own error."""
    records: list[Message] = []
    responses = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            yield
            check_size(records)
            answer = ReassignablePartitionResponse(
                partition_index=partition.partition_index, error_code=ErrorCode.NONE, error_message=None
            )
            try:
                records += _alter(state, topic.name, partition, request.allow_replication_factor_change)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    check_size(records)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )
    return Outcome(records, response)


def _alter(state: State, name: str, wanted: ReassignablePartition, may_change_factor: bool) -> list[Message]:
    topic = state.image.topics_by_name.get(name)
    if topic is None:
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    index = wanted.partition_index
    partition = topic.partitions.get(index)
    if partition is None:
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    if wanted.replicas is None:
        if not partition.is_reassigning:
            refuse(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        before = tuple(r for r in partition.replicas if r not in partition.adding_replicas)
        return _change(state, topic, index, partition, before)
    target = tuple(wanted.replicas)
    check_assignment(state, target, None)
    if not may_change_factor:
        size = len([r for r in partition.replicas if r not in partition.adding_replicas])
        if len(target) != size:
            refuse(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {size} to {len(target)}",
            )
    return _change(state, topic, index, partition, target)


def _change(
    state: State, topic: TopicImage, index: int, partition: PartitionImage, target: tuple[int, ...]
) -> list[Message]:
    adding = [replica for replica in target if replica not in partition.isr]
    change = m.PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
    if adding:
        replicas = [*target, *(r for r in partition.replicas if r not in target)]
        change.replicas = replicas
        change.adding_replicas = [r for r in target if r not in partition.replicas or r in partition.adding_replicas]
        change.removing_replicas = [r for r in partition.replicas if r not in target]
        change.directories = _directories(state, partition, replicas)
        return [change]
    if target == partition.replicas and not partition.is_reassigning:
        return []
    change.replicas = list(target)
    change.isr = [replica for replica in target if replica in partition.isr]
    change.directories = _directories(state, partition, list(target))
    if partition.is_reassigning:
        change.adding_replicas, change.removing_replicas = [], []
    if partition.leader not in target:
        alive = [replica for replica in change.isr if state.is_active(replica)]
        change.leader = alive[0] if alive else -1
    return [change]


def _directories(state: State, partition: PartitionImage, replicas: list[int]) -> list[bytes]:
    known = dict(zip(partition.replicas, partition.directories, strict=False))
    return [known.get(replica) or state.directory_of(replica) for replica in replicas]


def complete(state: State, topic: TopicImage, index: int) -> list[Message]:
    """Complete the move of a partition if all target replicas are in sync."""
    partition = topic.partitions[index]
    target = tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)
    if not partition.is_reassigning or not set(target) <= set(partition.isr):
        return []
    return _change(state, topic, index, partition, target)


def ongoing(
    state: State, request: ListPartitionReassignmentsRequest
) -> Slices[Outcome[ListPartitionReassignmentsResponse]]:
    """List the moves in progress, of all or of the named partitions."""
    topics = []
    asked: dict[str, set[int]] | None = None
    if request.topics is not None:
        asked = {}
        for named in request.topics:
            asked.setdefault(named.name, set()).update(named.partition_indexes)
            yield
    for topic in state.image.topics_by_name.values() if asked is None else _named(state, asked):
        yield
        moving = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index, partition in topic.partitions.items()
            if partition.is_reassigning and (asked is None or index in asked[topic.name])
        ]
        if moving:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=moving))
    response = ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics)
    return Outcome([], response)


def _named(state: State, names: dict[str, set[int]]) -> list[TopicImage]:
    known = state.image.topics_by_name
    return [known[name] for name in names if name in known]

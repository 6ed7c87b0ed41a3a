"""Moving partitions between brokers. KIP-455, KIP-860.

A move to brokers that already have an in-sync replica completes at once. A move to other brokers adds them first, and
completes with the change of the ISR (AlterPartition) after which they are in sync. `partition_change` decides that.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.controller import leaders
from ottla.controller.partition_change import Election, Target, without
from ottla.controller.state import Outcome, State, check_assignment, check_size, refuse
from ottla.metadata.image import PartitionImage, TopicImage
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
        return _cancel(state, topic, index, partition)
    target = tuple(wanted.replicas)
    check_assignment(state, target, None)
    if not may_change_factor:
        size = len(without(partition.replicas, partition.adding_replicas))
        if len(target) != size:
            refuse(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {size} to {len(target)}",
            )
    removing = tuple(sorted(set(partition.replicas) - set(target)))
    adding = tuple(sorted(set(target) - set(partition.replicas)))
    # A replica that an earlier reassignment adds is still being added, and stays so until it is in sync.
    adding = tuple(sorted({*adding, *(r for r in partition.adding_replicas if r in target)}))
    change = Target(replicas=(*target, *removing), adding=adding, removing=removing)
    return [*leaders.change(state, topic, index, change, Election.ONLINE)]


def _cancel(state: State, topic: TopicImage, index: int, partition: PartitionImage) -> list[Message]:
    """Return to the replicas before the reassignment.

    If only added replicas are in sync, the first original replica leads, and may lack records: that is an unclean
    election, which the topic must allow.
    """
    replicas = without(partition.replicas, partition.adding_replicas)
    isr = without(partition.isr, partition.adding_replicas)
    if not isr and partition.isr:
        if not leaders.unclean_allowed(state, topic.name):
            refuse(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
                "leader election.",
            )
        isr = replicas[:1]
    return [*leaders.change(state, topic, index, Target(isr=isr, replicas=replicas, adding=(), removing=()))]


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

"""AlterPartition: a leader changes the in-sync replicas of its partitions. KIP-497, KIP-841, KIP-903.

A leader that is not the current one, or that knows an older state, changes nothing. A replica joins the ISR only if its
broker is available and has the epoch that the leader saw: a broker that restarted meanwhile may lack records. The
change may complete a reassignment, which can move the leadership to another replica.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.controller import leaders
from ottla.controller.brokers import check_epoch
from ottla.controller.partition_change import RECOVERED, RECOVERING, Target
from ottla.controller.state import Outcome, State
from ottla.metadata.delta import changed_partition
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

ANY_EPOCH = -1
EPOCHS_SINCE_VERSION = 3


def alter_partition(
    state: State, request: AlterPartitionRequest, api_version: int
) -> Slices[Outcome[AlterPartitionResponse]]:
    """Change the ISR of partitions; each has its own error. Raises STALE_BROKER_EPOCH for the request."""
    check_epoch(state, request.broker_id, request.broker_epoch)
    records: list[Message] = []
    topics = []
    seen: set[tuple[bytes, int]] = set()
    for asked in request.topics:
        topic = state.image.topics_by_id.get(asked.topic_id)
        answers = []
        for data in asked.partitions:
            yield
            if api_version < EPOCHS_SINCE_VERSION:
                data.new_isr_with_epochs = [BrokerState(replica, ANY_EPOCH) for replica in data.new_isr]
            answer = ResponsePartitionData(partition_index=data.partition_index)
            key = (asked.topic_id, data.partition_index)
            # Both records of a partition that is named twice would be based on the same state.
            if key in seen:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif topic is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                records += _alter(state, request.broker_id, topic, data, answer)
            seen.add(key)
            answers.append(answer)
        topics.append(ResponseTopicData(topic_id=asked.topic_id, partitions=answers))
    return Outcome(records, AlterPartitionResponse(error_code=ErrorCode.NONE, topics=topics))


def _alter(
    state: State, broker_id: int, topic: TopicImage, data: RequestPartitionData, answer: ResponsePartitionData
) -> list[Message]:
    partition = topic.partitions.get(data.partition_index)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return []
    answer.error_code = _problem(state, broker_id, partition, data)
    if answer.error_code:
        return []
    isr = tuple(member.broker_id for member in data.new_isr_with_epochs)
    target = Target(isr=isr, recovery_state=data.leader_recovery_state)
    records = leaders.change(state, topic, data.partition_index, target)
    for record in records:
        partition = changed_partition(partition, record)
    if partition.leader != broker_id:
        # The change completed a reassignment that removed the leader. It must fetch the metadata before it continues.
        answer.error_code = ErrorCode.NEW_LEADER_ELECTED
        return [*records]
    answer.leader_id, answer.leader_epoch = partition.leader, partition.leader_epoch
    answer.isr, answer.leader_recovery_state = list(partition.isr), partition.leader_recovery_state
    answer.partition_epoch = partition.partition_epoch
    return [*records]


def _problem(state: State, broker_id: int, partition: PartitionImage, data: RequestPartitionData) -> ErrorCode:
    # A leader with a higher epoch has heard of a newer controller than this one.
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [member.broker_id for member in data.new_isr_with_epochs]
    if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    recovery = data.leader_recovery_state
    if recovery not in (RECOVERED, RECOVERING) or (recovery == RECOVERING and len(isr) > 1):
        return ErrorCode.INVALID_REQUEST
    if recovery == RECOVERING and partition.leader_recovery_state == RECOVERED:
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(state, member) for member in data.new_isr_with_epochs):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(state: State, member: BrokerState) -> bool:
    broker = state.image.brokers.get(member.broker_id)
    return broker is not None and broker.is_active and member.broker_epoch in (ANY_EPOCH, broker.epoch)

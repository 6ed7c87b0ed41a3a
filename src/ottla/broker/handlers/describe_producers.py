"""DescribeProducers (61), version 0: the active producers of partitions, by any replica. KIP-664."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.broker.authorization_table import MESSAGES
from ottla.broker.response_size import check_response_size
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import validate_topic_name
from ottla.common.slices import Slices
from ottla.protocol.elements import as_list, encode_element
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import PartitionPorts

_FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def handle(
    broker: PartitionPorts, context: RequestContext, request: DescribeProducersRequest
) -> Slices[DescribeProducersResponse]:
    """Describe each partition. If it is named several times, it is described once and its encoding is repeated."""
    described: dict[tuple[str, int], bytes] = {}
    topics = []
    size = 0
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            encoded = described.get((topic.name, index))
            if encoded is None:
                answer = _describe(broker, context, topic.name, index)
                encoded = encode_element(DescribeProducersResponse, context.api_version, answer)
                described[topic.name, index] = encoded
            size += len(encoded)
            check_response_size(size)
            partitions.append(encoded)
            yield
        topics.append(TopicResponse(name=topic.name, partitions=as_list(partitions)))
        yield
    return DescribeProducersResponse(topics=topics)


def _describe(broker: PartitionPorts, context: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        validate_topic_name(topic)
        if not allowed(broker, context, Operation.READ, ResourceType.TOPIC, topic):
            raise KafkaError(_FORBIDDEN, MESSAGES[_FORBIDDEN])
        partition = broker.partitions.readable(topic, index)
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start,
            )
            for producer in partition.log.active_producers()
        ],
    )

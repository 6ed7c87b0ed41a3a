"""The request of a follower for the first or last offset of its leader's log, and the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from ottla.common.completion import Completion
    from ottla.common.ids import TopicPartition
    from ottla.protocol.message import Message


def request(node_id: int, partition: TopicPartition, leader_epoch: int, timestamp: int) -> ListOffsetsRequest:
    """Ask for one offset of one partition."""
    row = ListOffsetsPartition(
        partition_index=partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    return ListOffsetsRequest(replica_id=node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[row])])


def offset_of(done: Completion[Message], partition: TopicPartition) -> int:
    """The offset of the partition in a response. Raises KafkaError, NetworkError."""
    response = done.result()
    assert isinstance(response, ListOffsetsResponse)
    for topic in response.topics:
        for data in topic.partitions:
            if (topic.name, data.partition_index) == partition:
                if data.error_code:
                    raise KafkaError(error_code(data.error_code), f"ListOffsets of {partition}")
                return data.offset
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ListOffsets returned no offset of {partition}")

"""DescribeQuorum (55), versions 0-2: leader, epoch and voters of the metadata quorum. KIP-642, KIP-836, KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.ids import METADATA_TOPIC
from ottla.common.slices import Slices
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.raft import Endpoint

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DescribeQuorumPorts
    from ottla.raft import QuorumDescription, ReplicaDescription


def handle(
    broker: DescribeQuorumPorts, context: RequestContext, request: DescribeQuorumRequest
) -> Slices[DescribeQuorumResponse]:
    """Describe the only quorum, partition 0 of the metadata topic. Other requested partitions are unknown."""
    asked = [(topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions[:2]]
    if asked != [(METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(
            error_code=ErrorCode.NONE, error_message=None, topics=(yield from _unknown(request))
        )
    quorum = broker.metadata.describe_quorum()
    if quorum is None:
        error = ResponsePartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return DescribeQuorumResponse(topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[error])])
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[_partition(quorum)])],
        nodes=_nodes(broker, quorum),
    )


def _unknown(request: DescribeQuorumRequest) -> Slices[list[ResponseTopicData]]:
    topics = []
    for topic in request.topics:
        partitions = []
        for part in topic.partitions:
            partitions.append(
                ResponsePartitionData(
                    partition_index=part.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="This server does not host this topic-partition.",
                )
            )
            yield
        topics.append(ResponseTopicData(topic_name=topic.topic_name, partitions=partitions))
        yield
    return topics


def _partition(quorum: QuorumDescription) -> ResponsePartitionData:
    return ResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(voter) for voter in quorum.voters],
        observers=[_replica(observer) for observer in quorum.observers],
    )


def _replica(replica: ReplicaDescription) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.key.node_id,
        replica_directory_id=replica.key.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )


def _nodes(broker: DescribeQuorumPorts, quorum: QuorumDescription) -> list[Node]:
    """The controller listeners of the voters; a node whose listeners are not known has an empty list."""
    own = [Endpoint(each.name, each.host, each.port) for each in broker.endpoints.controllers]
    return [
        Node(
            node_id=voter.key.node_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port)
                for each in (voter.endpoints or (own if voter.key.node_id == quorum.leader_id else ()))
            ],
        )
        for voter in quorum.voters
    ]

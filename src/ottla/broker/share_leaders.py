"""Names the leaders of share partitions that this node does not lead, so that members need not ask (KIP-951, KIP-932).

The share sessions of a member are with the leaders of its partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.common.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge, share_fetch

if TYPE_CHECKING:
    from ottla.broker.ports import ShareLeaderPorts
    from ottla.common.ids import Uuid

_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

R = TypeVar("R", share_fetch.ShareFetchResponse, share_acknowledge.ShareAcknowledgeResponse)


def with_leaders(broker: ShareLeaderPorts, listener: str, response: R) -> R:
    """Add the current leaders of the partitions that have moved, with their addresses on `listener`."""
    leaders: set[int] = set()
    for topic in response.responses:
        for row in topic.partitions:
            if isinstance(row, share_fetch.PartitionData):
                if row.error_code in _MOVED or row.acknowledge_error_code in _MOVED:
                    row.current_leader = share_fetch.LeaderIdAndEpoch(*_leader(broker, topic.topic_id, row, leaders))
            elif row.error_code in _MOVED:
                row.current_leader = share_acknowledge.LeaderIdAndEpoch(*_leader(broker, topic.topic_id, row, leaders))
    for leader in sorted(leaders):
        address = broker.address(leader, listener)
        if address is None:
            continue
        if isinstance(response, share_fetch.ShareFetchResponse):
            response.node_endpoints.append(share_fetch.NodeEndpoint(leader, *address))
        else:
            response.node_endpoints.append(share_acknowledge.NodeEndpoint(leader, *address))
    return response


def _leader(
    broker: ShareLeaderPorts,
    topic_id: Uuid,
    row: share_fetch.PartitionData | share_acknowledge.PartitionData,
    leaders: set[int],
) -> tuple[int, int]:
    leader, epoch = broker.partitions.leader_of(topic_id, row.partition_index)
    leaders.add(leader)
    return leader, epoch

"""Names the leaders of share partitions that this node does not lead, so that members need not ask (KIP-951, KIP-932).

The share sessions of a member are with the leaders of its partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from ottla.common.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge, share_fetch

if TYPE_CHECKING:
    from ottla.broker.ports import ShareLeaderPorts
    from ottla.common.ids import Uuid

_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_UNKNOWN: Final = (-1, -1)
"""The leader and the epoch of other partitions. The default of both fields is 0, which is a node id."""

R = TypeVar("R", share_fetch.ShareFetchResponse, share_acknowledge.ShareAcknowledgeResponse)


def with_leaders(broker: ShareLeaderPorts, listener: str, response: R) -> R:
    """Add the current leaders of the partitions that have moved, with their addresses on `listener`."""
    leaders: set[int] = set()
    for topic in response.responses:
        for row in topic.partitions:
            known = _leader(broker, topic.topic_id, row, leaders) if _has_moved(row) else _UNKNOWN
            row.current_leader.leader_id, row.current_leader.leader_epoch = known
    for leader in sorted(leaders):
        address = broker.endpoints.address(leader, listener)
        if address is None:
            continue
        if isinstance(response, share_fetch.ShareFetchResponse):
            response.node_endpoints.append(share_fetch.NodeEndpoint(leader, *address))
        else:
            response.node_endpoints.append(share_acknowledge.NodeEndpoint(leader, *address))
    return response


def _has_moved(row: share_fetch.PartitionData | share_acknowledge.PartitionData) -> bool:
    if row.error_code in _MOVED:
        return True
    return isinstance(row, share_fetch.PartitionData) and row.acknowledge_error_code in _MOVED


def _leader(
    broker: ShareLeaderPorts,
    topic_id: Uuid,
    row: share_fetch.PartitionData | share_acknowledge.PartitionData,
    leaders: set[int],
) -> tuple[int, int]:
    leader, epoch = broker.partitions.leader_of(topic_id, row.partition_index)
    leaders.add(leader)
    return leader, epoch

"""DescribeCluster (60) names the cluster and its brokers or (KIP-919) controllers. KIP-700, KIP-1073."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct, since


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    """Asks for one kind of endpoints."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: bool = since(2)


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    """The cluster's id and nodes."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -(2**31)


class DescribeClusterBroker(Struct):
    """An element of `DescribeClusterResponse.brokers`."""

    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: bool = since(2)

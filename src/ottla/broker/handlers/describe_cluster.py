"""DescribeCluster (60), versions 0-2: the nodes, with their addresses for clients of this listener.

KIP-700, KIP-919, KIP-1073. On a controller's listener the nodes are the controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.operations import cluster_operations
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DescribeClusterPorts

BROKERS, CONTROLLERS = 1, 2
_NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def handle(
    broker: DescribeClusterPorts, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """List the brokers, or on a controller's listener the controllers; the client must request that kind."""
    kind = CONTROLLERS if broker.endpoints.is_controller_listener(context.listener) else BROKERS
    if request.endpoint_type != kind:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        if request.endpoint_type in _NAMES:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = (
                f"The request was sent to an endpoint of type {_NAMES[kind]}, but we wanted an endpoint of type"
                f" {_NAMES[request.endpoint_type]}"
            )
        return DescribeClusterResponse(error_code=code, error_message=message)
    if kind == CONTROLLERS:
        nodes = _controllers(broker, context.listener)
        leader = broker.metadata.leader
        controller_id = -1 if leader is None else leader[0]
    else:
        nodes = _brokers(broker, context.listener, include_fenced=request.include_fenced_brokers)
        controller_id = broker.endpoints.controller_id([node.broker_id for node in nodes if not node.is_fenced])
    response = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        endpoint_type=kind,
        cluster_id=broker.identity.cluster_id,
        controller_id=controller_id,
        brokers=nodes,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(broker, context)
    return response


def _brokers(broker: DescribeClusterPorts, listener: str, *, include_fenced: bool) -> list[DescribeClusterBroker]:
    found = []
    for node_id, registered in broker.metadata.image.brokers.items():
        endpoint = broker.endpoints.endpoint(node_id, listener)
        if endpoint is not None and (include_fenced or not registered.fenced):
            found.append(
                DescribeClusterBroker(
                    broker_id=node_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=registered.rack,
                    is_fenced=registered.fenced,
                )
            )
    return found


def _controllers(broker: DescribeClusterPorts, listener: str) -> list[DescribeClusterBroker]:
    """The registered controllers with this listener; this node also if it has not registered yet."""
    found = {
        endpoint.name: DescribeClusterBroker(broker_id=broker.node_id, host=endpoint.host, port=endpoint.port)
        for endpoint in broker.endpoints.controllers
    }
    nodes = {broker.node_id: found[listener]} if listener in found else {}
    for controller in broker.metadata.image.controllers.values():
        for endpoint in controller.end_points:
            if endpoint.name == listener:
                node_id = controller.controller_id
                nodes[node_id] = DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
    return [nodes[node_id] for node_id in sorted(nodes)]

"""DescribeCluster (60), versions 0-2: brokers as clients of this listener reach them. KIP-700, KIP-919, KIP-1073."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker import operations
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext

BROKERS, CONTROLLERS = 1, 2


def handle(broker: Broker, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """List the brokers; this is no controller's endpoint."""
    if request.endpoint_type != BROKERS:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        if request.endpoint_type == CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
            message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(error_code=code, error_message=message)
    brokers = []
    for node_id, registered in broker.metadata.image.brokers.items():
        endpoint = registered.endpoint(context.listener)
        if endpoint is not None and (request.include_fenced_brokers or not registered.fenced):
            brokers.append(
                DescribeClusterBroker(
                    broker_id=node_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=registered.rack,
                    is_fenced=registered.fenced,
                )
            )
    response = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations.CLUSTER_OPERATIONS
    return response

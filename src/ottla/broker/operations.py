"""Authorized operations as the bit fields of Metadata, DescribeCluster and descriptions of groups. KIP-430.

Without an authorizer every client may perform each operation that the kind of resource knows, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import SILENT, allowed, allowed_on_cluster
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasSecurity

NOT_REQUESTED = -(2**31)

_SUPPORTED: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
}
_ALL = {kind: sum(1 << operation for operation in supported) for kind, supported in _SUPPORTED.items()}
TOPIC_OPERATIONS = _ALL[ResourceType.TOPIC]


def authorized_operations(broker: HasSecurity, context: RequestContext, resource_type: ResourceType, name: str) -> int:
    """The operations that the client of the request may perform on the resource, one bit for each."""
    if broker.security.authorizer is None:
        return _ALL[resource_type]
    return sum(
        1 << operation
        for operation in _SUPPORTED[resource_type]
        if allowed(broker, context, operation, resource_type, name, SILENT)
    )


def cluster_operations(broker: HasSecurity, context: RequestContext) -> int:
    """The operations that the client may perform on the cluster; 0 if it may not describe the cluster."""
    if not allowed_on_cluster(broker, context, Operation.DESCRIBE):
        return 0
    return authorized_operations(broker, context, ResourceType.CLUSTER, CLUSTER_NAME)

"""DescribeAcls (29), versions 1-3: the access control lists that a filter selects, by pattern. KIP-140, KIP-290.

Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization_guard import refused
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.metadata.acls import acl_of, filter_of
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.security.acl import Pattern

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DescribeAclsPorts


def handle(
    broker: DescribeAclsPorts, context: RequestContext, request: DescribeAclsRequest
) -> Slices[DescribeAclsResponse]:
    """List the rules. A number 0 (UNKNOWN) closes the connection, as in Kafka."""
    numbers = request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    if not all(numbers):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "DescribeAclsRequest contains UNKNOWN elements")
    refusal: DescribeAclsResponse | None = refused(broker, context, request)
    if refusal is not None:
        return refusal
    if broker.security.authorizer is None:
        text = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=text)
    selected = filter_of(request)
    resources: dict[Pattern, DescribeAclsResource] = {}
    for record in broker.metadata.image.acls.values():
        yield
        acl = acl_of(record)
        if not selected.matches(acl):
            continue
        resource = resources.get(acl.pattern)
        if resource is None:
            resource = resources[acl.pattern] = DescribeAclsResource(
                resource_type=acl.pattern.resource_type,
                resource_name=acl.pattern.name,
                pattern_type=acl.pattern.pattern_type,
                acls=[],
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(error_message="", resources=list(resources.values()))

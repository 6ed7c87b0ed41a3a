"""CreateAcls (30), versions 1-3: adds access control lists, each with its own error. KIP-140, KIP-290.

Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.acl_changes import Condition, change
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.metadata.acls import created_acl
from ottla.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import AclPorts


def handle(broker: AclPorts, context: RequestContext, request: CreateAclsRequest) -> Slices[CreateAclsResponse]:
    """Add the rules. A number 0 (UNKNOWN) closes the connection, as in Kafka."""
    for rule in request.creations:
        if not (rule.resource_type and rule.resource_pattern_type and rule.operation and rule.permission_type):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "CreatableAcls contain unknown elements")
        yield
    try:
        in_force = partial(_are_known, request)
        return (yield from change(broker, context, request, lambda to: to.create_acls(request), in_force))
    except KafkaError as error:
        result = AclCreationResult(error_code=error.code, error_message=error.message or None)
        return CreateAclsResponse(results=[result] * len(request.creations))


def _are_known(request: CreateAclsRequest, response: CreateAclsResponse) -> Condition:
    created = [
        created_acl(creation)
        for creation, result in zip(request.creations, response.results, strict=False)
        if not result.error_code
    ]
    return lambda known: all(acl in known for acl in created)

"""DeleteAcls (31), versions 1-3: removes the access control lists that filters select. KIP-140, KIP-290.

Without an authorizer: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.acl_changes import Condition, change
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.metadata.acls import deleted_acl
from ottla.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import AclPorts


def handle(broker: AclPorts, context: RequestContext, request: DeleteAclsRequest) -> Slices[DeleteAclsResponse]:
    """Remove the rules. A number 0 (UNKNOWN) closes the connection, as in Kafka."""
    for each in request.filters:
        if not (each.resource_type_filter and each.pattern_type_filter and each.operation and each.permission_type):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Filters contain UNKNOWN elements")
        yield
    try:
        return (yield from change(broker, context, request, lambda to: to.delete_acls(request), _are_unknown))
    except KafkaError as error:
        result = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
        return DeleteAclsResponse(filter_results=[result] * len(request.filters))


def _are_unknown(response: DeleteAclsResponse) -> Condition:
    deleted = [deleted_acl(match) for result in response.filter_results for match in result.matching_acls]
    return lambda known: not any(acl in known for acl in deleted)

"""DeleteAcls (31), versions 1-3: refused, as by Kafka without an authorizer. KIP-140."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "No Authorizer is configured."


def handle(_broker: object, _context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Return SECURITY_DISABLED for each filter."""
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))

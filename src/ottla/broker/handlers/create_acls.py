"""CreateAcls (30), versions 1-3: refused, as by Kafka without an authorizer. KIP-140."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "No Authorizer is configured."


def handle(_broker: object, _context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Return SECURITY_DISABLED for each rule."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)
    return CreateAclsResponse(results=[refused] * len(request.creations))

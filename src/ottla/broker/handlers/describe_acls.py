"""DescribeAcls (29), versions 1-3: refused, as by Kafka without an authorizer. KIP-140."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "No Authorizer is configured on the broker"


def handle(_broker: object, _context: RequestContext, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return SECURITY_DISABLED, which tools that copy rules understand."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=MESSAGE)

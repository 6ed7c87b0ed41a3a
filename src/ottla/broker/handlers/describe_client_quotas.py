"""DescribeClientQuotas (48), versions 0-1: refused, because there are no client quotas. KIP-546."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "Client quotas are not supported by this broker."


def handle(
    _broker: object, _context: RequestContext, _request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return UNSUPPORTED_VERSION."""
    return DescribeClientQuotasResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=MESSAGE, entries=None)

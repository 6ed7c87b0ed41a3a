"""DescribeUserScramCredentials (50), version 0: refused, because there are no users. KIP-554."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "SCRAM credentials are not supported by this broker."


def handle(
    _broker: object, _context: RequestContext, _request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Return UNSUPPORTED_VERSION."""
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=MESSAGE)

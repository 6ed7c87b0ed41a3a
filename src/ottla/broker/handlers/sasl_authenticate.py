"""SaslAuthenticate (36), versions 0-2: refused, as by Kafka on listeners without SASL. KIP-152."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "SaslAuthenticate request received after successful authentication"


def handle(_broker: object, _context: RequestContext, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Return ILLEGAL_SASL_STATE; the connection stays open."""
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=MESSAGE)

"""SaslHandshake (17), versions 0-1: refused, as by Kafka on listeners without SASL. KIP-43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext


def handle(_broker: object, _context: RequestContext, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Return ILLEGAL_SASL_STATE; the connection stays open."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

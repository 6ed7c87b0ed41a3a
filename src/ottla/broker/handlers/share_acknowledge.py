"""ShareAcknowledge (79), versions 1-2: acknowledge records without a fetch. KIP-932, KIP-1222."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareGroupPorts


def handle(
    broker: ShareGroupPorts, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Slices[ShareAcknowledgeResponse]:
    """Acknowledge records; UNSUPPORTED_VERSION without the finalized feature share.version."""
    if not broker.serves_share_groups():
        return ShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return broker.shares.requests.acknowledge(request, context.api_version)

"""ShareAcknowledge (79), versions 1-2: acknowledge records without a fetch. KIP-932, KIP-1222."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization_guard import refused
from ottla.broker.share_leaders import with_leaders
from ottla.broker.share_rights import may_read
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareLeaderPorts


def handle(
    broker: ShareLeaderPorts, context: RequestContext, request: ShareAcknowledgeRequest
) -> Slices[ShareAcknowledgeResponse]:
    """Acknowledge records; UNSUPPORTED_VERSION without the finalized feature share.version."""
    if not broker.settings.serves_share_groups():
        return ShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is not None:
        refusal: ShareAcknowledgeResponse | None = refused(broker, context, request)
        if refusal is not None:
            return refusal
    rights = may_read(broker, context)
    response = yield from broker.shares.requests.acknowledge(request, context.api_version, rights)
    return with_leaders(broker, context.listener, response)

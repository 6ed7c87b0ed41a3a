"""ShareFetch (78), versions 1-2: acknowledge records, acquire further ones. KIP-932, KIP-1206, KIP-1222.

`coordination/shares/fetching.py` does the work. A partition that another node leads has its leader in the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization_guard import refused
from ottla.broker.share_leaders import with_leaders
from ottla.broker.share_rights import may_read
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareLeaderPorts


def handle(broker: ShareLeaderPorts, context: RequestContext, request: ShareFetchRequest) -> Slices[ShareFetchResponse]:
    """Acknowledge and acquire records; UNSUPPORTED_VERSION without the finalized feature share.version."""
    if not broker.settings.serves_share_groups():
        return ShareFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if request.group_id is not None:
        refusal: ShareFetchResponse | None = refused(broker, context, request)
        if refusal is not None:
            return refusal
    rights = may_read(broker, context)
    response = yield from broker.shares.requests.fetch(request, context.api_version, context.connection, rights)
    return with_leaders(broker, context.listener, response)

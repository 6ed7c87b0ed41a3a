"""ShareFetch (78), versions 1-2: acknowledge records, acquire further ones. KIP-932, KIP-1206, KIP-1222.

The work is done by `broker/share_fetching.py`. Not implemented: `node_endpoints` and `current_leader`, since this node
leads all partitions that it serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareGroupPorts


def handle(
    broker: ShareGroupPorts, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse | Slices[ShareFetchResponse]:
    """Acknowledge and acquire records; UNSUPPORTED_VERSION without the finalized feature share.version."""
    if not broker.serves_share_groups():
        return ShareFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return broker.shares.requests.fetch(request, context.api_version, context.connection)

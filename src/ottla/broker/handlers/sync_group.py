"""SyncGroup (14), versions 0-5. KIP-345, KIP-559.

The leader's brings the assignment; the others' are parked until it is written to `__consumer_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> Completion[SyncGroupResponse]:
    """Hand it to the group's shard."""
    return broker.groups.submit(request.group_id, request, api_version=context.api_version)

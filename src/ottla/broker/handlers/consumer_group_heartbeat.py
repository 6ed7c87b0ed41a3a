"""ConsumerGroupHeartbeat (68), versions 0-1: everything that a member of a consumer group says. KIP-848, KIP-1082.

Without the finalized feature group.version, or without `consumer` in group.coordinator.rebalance.protocols, it is
advertised and refused, because a client that does not find the API may wait for another broker that has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import FILTERED, allowed
from ottla.broker.authorization_guard import refused
from ottla.broker.member_requests import submit
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ConsumerGroupPorts


def handle(
    broker: ConsumerGroupPorts, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Completion[ConsumerGroupHeartbeatResponse]:
    """Pass the request to the group's shard."""
    if not broker.settings.serves_consumer_groups():
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    refusal: ConsumerGroupHeartbeatResponse | None = refused(broker, context, request)
    if refusal is not None:
        return refusal
    may_describe = None
    if broker.security.authorizer is not None:

        def may_describe(name: str) -> bool:
            return allowed(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, name, FILTERED)

    return submit(broker.groups, context, request.group_id, request, may_describe)

"""FindCoordinator (10), versions 0-6. KIP-699 (several keys), KIP-932 (share groups).

The coordinator of all groups and transactions is this node, with its address on the listener that received the request.
The first request creates `__consumer_offsets` or `__transaction_state` and waits for it; in Kafka the client must
retry. Not implemented: share groups (INVALID_REQUEST, as in Kafka if the feature is off).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.elements import Elements
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.internal_topic import InternalTopic
    from ottla.broker.ports import FindCoordinatorPorts

BATCHED_SINCE = 4


class KeyType(IntEnum):
    """The kind of the keys."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class _Node(NamedTuple):
    node_id: int = -1
    host: str = ""
    port: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


_REFUSED: dict[int, _Node] = {
    KeyType.SHARE: _Node(error=ErrorCode.INVALID_REQUEST, message="Share groups are not supported by this broker."),
}
_UNKNOWN_TYPE = _Node(error=ErrorCode.INVALID_REQUEST, message="The type of the key is not known.")


def handle(
    broker: FindCoordinatorPorts, context: RequestContext, request: FindCoordinatorRequest
) -> Slices[FindCoordinatorResponse]:
    """Return this node as the coordinator when the coordinator's topic exists."""
    if request.key_type == KeyType.GROUP:
        node = yield from _this_node(broker, context, broker.groups.shards.topic)
    elif request.key_type == KeyType.TRANSACTION:
        node = yield from _this_node(broker, context, broker.transactions.shards.topic)
    else:
        node = _REFUSED.get(request.key_type, _UNKNOWN_TYPE)
    return (yield from _respond(context, request, node))


def _this_node(broker: FindCoordinatorPorts, context: RequestContext, topic: InternalTopic) -> Slices[_Node]:
    try:
        yield from result_of(topic.ensure())
        host, port = broker.advertised_endpoint(context.listener)
    except KafkaError as error:
        return _Node(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message=str(error))
    return _Node(broker.node_id, host, port)


def _respond(context: RequestContext, request: FindCoordinatorRequest, node: _Node) -> Slices[FindCoordinatorResponse]:
    if context.api_version < BATCHED_SINCE:
        return FindCoordinatorResponse(
            error_code=node.error,
            error_message=node.message,
            node_id=node.node_id,
            host=node.host,
            port=node.port,
        )
    rows: Elements[Coordinator] = Elements(FindCoordinatorResponse, context.api_version)
    for key in request.coordinator_keys:
        rows.append(
            Coordinator(
                key=key,
                node_id=node.node_id,
                host=node.host,
                port=node.port,
                error_code=node.error,
                error_message=node.message,
            )
        )
        yield
    return FindCoordinatorResponse(coordinators=rows.as_list())

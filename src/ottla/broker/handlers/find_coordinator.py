"""FindCoordinator (10), versions 0-6. KIP-699 (several keys), KIP-932 (share groups).

The coordinator of all groups, transactions and share partitions is this node, with its address on the listener that
received the request. The first request creates the coordinator's topic and waits for it; in Kafka the client must
retry. The key of a share partition is `group:topicId:partition`; another one is INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.coordinators.share.events import is_coordinator_key
from ottla.protocol.elements import Elements
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.internal_topic import InternalTopic
    from ottla.broker.ports import FindCoordinatorPorts

BATCHED_SINCE = 4
SHARE_SINCE = 6


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


_NO_SHARE_GROUPS = _Node(error=ErrorCode.INVALID_REQUEST, message="Share groups are not enabled.")
_INVALID_KEY = _Node(error=ErrorCode.INVALID_REQUEST, message="The key is not group:topicId:partition.")
_UNKNOWN_TYPE = _Node(error=ErrorCode.INVALID_REQUEST, message="The type of the key is not known.")


def handle(
    broker: FindCoordinatorPorts, context: RequestContext, request: FindCoordinatorRequest
) -> Slices[FindCoordinatorResponse]:
    """Return this node as the coordinator when the coordinator's topic exists."""
    if request.key_type == KeyType.GROUP:
        node = yield from _this_node(broker, context, broker.groups.shards.topic)
    elif request.key_type == KeyType.TRANSACTION:
        node = yield from _this_node(broker, context, broker.transactions.shards.topic)
    elif request.key_type == KeyType.SHARE:
        return (yield from _share_coordinators(broker, context, request))
    else:
        node = _UNKNOWN_TYPE
    return (yield from _respond(context, request, node))


def _share_coordinators(
    broker: FindCoordinatorPorts, context: RequestContext, request: FindCoordinatorRequest
) -> Slices[FindCoordinatorResponse]:
    """Return this node for each valid key."""
    if context.api_version < SHARE_SINCE or not broker.serves_share_groups():
        return (yield from _respond(context, request, _NO_SHARE_GROUPS))
    invalid: set[str] = set()
    for key in request.coordinator_keys:
        if not is_coordinator_key(key):
            invalid.add(key)
        yield
    if invalid.issuperset(request.coordinator_keys):
        return (yield from _respond(context, request, _INVALID_KEY))
    node = yield from _this_node(broker, context, broker.shares.coordinator.shards.topic)
    return (yield from _respond(context, request, node, invalid))


def _this_node(broker: FindCoordinatorPorts, context: RequestContext, topic: InternalTopic) -> Slices[_Node]:
    try:
        yield from result_of(topic.ensure())
        host, port = broker.advertised_endpoint(context.listener)
    except KafkaError as error:
        return _Node(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message=str(error))
    return _Node(broker.node_id, host, port)


def _respond(
    context: RequestContext, request: FindCoordinatorRequest, node: _Node, invalid: AbstractSet[str] = frozenset()
) -> Slices[FindCoordinatorResponse]:
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
        answer = _INVALID_KEY if key in invalid else node
        rows.append(
            Coordinator(
                key=key,
                node_id=answer.node_id,
                host=answer.host,
                port=answer.port,
                error_code=answer.error,
                error_message=answer.message,
            )
        )
        yield
    return FindCoordinatorResponse(coordinators=rows.as_list())

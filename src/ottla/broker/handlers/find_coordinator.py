"""FindCoordinator (10), versions 0-6. KIP-699 (several keys), KIP-932 (share groups).

The coordinator of a group, a transactional id or a share partition is the node that leads its partition of the
coordinator's topic, with its address on the listener that received the request. Without a leader the answer is
COORDINATOR_NOT_AVAILABLE. The first request creates the coordinator's topic and waits for it; in Kafka the client must
retry. The key of a share partition is `group:topicId:partition`; another one is INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.broker.authorization import allowed_names, allowed_on_cluster
from ottla.broker.authorization_table import ERRORS, MESSAGES
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.coordinators.share.events import is_coordinator_key
from ottla.protocol.elements import Elements
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import FindCoordinatorPorts
    from ottla.coordination.internal_topic import InternalTopic

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


_Find: TypeAlias = Callable[[str], _Node]
"""Returns the coordinator of a key."""
_NO_SHARE_GROUPS = _Node(error=ErrorCode.INVALID_REQUEST, message="Share groups are not enabled.")
_INVALID_KEY = _Node(error=ErrorCode.INVALID_REQUEST, message="The key is not group:topicId:partition.")
_UNKNOWN_TYPE = _Node(error=ErrorCode.INVALID_REQUEST, message="The type of the key is not known.")


_DESCRIBED: dict[int, ResourceType] = {
    KeyType.GROUP: ResourceType.GROUP,
    KeyType.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}
_FORBIDDEN = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    broker: FindCoordinatorPorts, context: RequestContext, request: FindCoordinatorRequest
) -> Slices[FindCoordinatorResponse]:
    """Return the coordinator of each key when the coordinator's topic exists."""
    if request.key_type == KeyType.GROUP:
        find = yield from _described_finder(broker, context, request, broker.groups.shards.topic)
    elif request.key_type == KeyType.TRANSACTION:
        find = yield from _described_finder(broker, context, request, broker.transactions.shards.topic)
    elif request.key_type == KeyType.SHARE:
        find = yield from _share_finder(broker, context, request)
    else:
        find = _always(_UNKNOWN_TYPE)
    return (yield from _respond(context, request, find))


def _share_finder(
    broker: FindCoordinatorPorts, context: RequestContext, request: FindCoordinatorRequest
) -> Slices[_Find]:
    if context.api_version < SHARE_SINCE:
        return _always(_NO_SHARE_GROUPS)
    if not allowed_on_cluster(broker, context, Operation.CLUSTER_ACTION):
        return _always(_Node(error=_FORBIDDEN, message=MESSAGES[_FORBIDDEN]))
    if not broker.settings.serves_share_groups():
        return _always(_NO_SHARE_GROUPS)
    invalid: set[str] = set()
    for key in request.coordinator_keys:
        if not is_coordinator_key(key):
            invalid.add(key)
        yield
    if invalid.issuperset(request.coordinator_keys):
        return _always(_INVALID_KEY)
    find = yield from _finder(broker, context, broker.shares.coordinator.shards.topic)
    return lambda key: _INVALID_KEY if key in invalid else find(key)


def _described_finder(
    broker: FindCoordinatorPorts, context: RequestContext, request: FindCoordinatorRequest, topic: InternalTopic
) -> Slices[_Find]:
    """Find the coordinators of groups or transactions that the client may describe; only for them create the topic."""
    resource_type = _DESCRIBED[request.key_type]
    is_batched = context.api_version >= BATCHED_SINCE
    keys = request.coordinator_keys if is_batched else [request.key]
    visible = allowed_names(broker, context, Operation.DESCRIBE, resource_type, keys)
    error = ERRORS[resource_type]
    # As in Kafka, only older responses have a message.
    refusal = _Node(error=error, message="" if is_batched else MESSAGES[error])
    if keys and not visible:
        return _always(refusal)
    find = yield from _finder(broker, context, topic)
    return lambda key: find(key) if key in visible else refusal


def _finder(broker: FindCoordinatorPorts, context: RequestContext, topic: InternalTopic) -> Slices[_Find]:
    """Create the topic if necessary; returns the function that finds the coordinator of a key."""
    try:
        yield from result_of(topic.ensure())
    except KafkaError as error:
        return _always(_Node(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message=str(error)))
    return lambda key: _leader(broker, context.listener, topic, key)


def _always(node: _Node) -> _Find:
    return lambda _key: node


def _leader(broker: FindCoordinatorPorts, listener: str, topic: InternalTopic, key: str) -> _Node:
    node_id = topic.leader_of(key)
    endpoint = broker.endpoints.live(node_id, listener)
    if endpoint is None:
        return _Node(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, message="The coordinator is not available.")
    return _Node(node_id, endpoint.host, endpoint.port)


def _respond(context: RequestContext, request: FindCoordinatorRequest, find: _Find) -> Slices[FindCoordinatorResponse]:
    if context.api_version < BATCHED_SINCE:
        node = find(request.key)
        return FindCoordinatorResponse(
            error_code=node.error,
            error_message=node.message,
            node_id=node.node_id,
            host=node.host,
            port=node.port,
        )
    rows: Elements[Coordinator] = Elements(FindCoordinatorResponse, context.api_version)
    for key in request.coordinator_keys:
        answer = find(key)
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

"""Common parts of the requests that describe groups, of the classic and all modern types.

The client needs DESCRIBE of each group. Groups of a modern type name the topics that they read: without DESCRIBE of one
of these topics the group has an error, and neither members nor topology.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from ottla.broker.authorization import allowed, allowed_names
from ottla.broker.operations import authorized_operations
from ottla.broker.response_size import check_response_size
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.common.slices import Slices, result_of
from ottla.protocol.elements import as_list, encode_element
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasSecurity
    from ottla.coordination.group_runtime import GroupRuntime
    from ottla.protocol.message import Message
    from ottla.protocol.messages import (
        consumer_group_describe,
        describe_groups,
        share_group_describe,
        streams_group_describe,
    )

D = TypeVar(
    "D",
    "consumer_group_describe.DescribedGroup",
    "describe_groups.DescribedGroup",
    "share_group_describe.DescribedGroup",
    "streams_group_describe.DescribedGroup",
)
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


class Kind(NamedTuple, Generic[D]):
    """A type of groups."""

    row: Callable[..., D]
    """The class of a description."""
    response: type[Message]
    topics: Callable[[D], Iterable[str]]
    """The topics in a description."""
    hidden_topics: str = HIDDEN_TOPICS
    """The message without DESCRIBE of one of the topics."""


def describe_each(
    broker: HasSecurity,
    context: RequestContext,
    names: Iterable[str],
    describe: Callable[[str], Completion[D]],
    kind: Kind[D],
    *,
    with_operations: bool,
) -> Slices[list[D]]:
    """Describe each group in its shard; returns encoded elements of the response in the order of `names`.

    A group that is named several times is described once, and its encoded description is repeated, as in Kafka. With
    operations, the groups without an error list what their client may do (KIP-430).
    """
    described: dict[str, bytes] = {}
    rows: list[bytes] = []
    size = 0
    for name in names:
        yield
        if name not in described:
            row = kind.row(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if allowed(broker, context, Operation.DESCRIBE, ResourceType.GROUP, name):
                row = _without_hidden_topics(broker, context, (yield from result_of(describe(name))), kind)
            if with_operations and row.error_code == ErrorCode.NONE:
                row.authorized_operations = authorized_operations(broker, context, ResourceType.GROUP, name)
            described[name] = encode_element(kind.response, context.api_version, row)
        rows.append(described[name])
        size += len(described[name])
        check_response_size(size)
    return as_list(rows)


def _without_hidden_topics(broker: HasSecurity, context: RequestContext, row: D, kind: Kind[D]) -> D:
    """The description, or an error if it has a topic that the client may not describe."""
    if broker.security.authorizer is None:
        return row
    topics = set(kind.topics(row))
    if topics == allowed_names(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, topics):
        return row
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return kind.row(group_id=row.group_id, error_code=error, error_message=kind.hidden_topics)


class DescribeRequest(Protocol):
    """A request that describes modern groups."""

    group_ids: list[str]
    include_authorized_operations: bool


def describe_modern(
    broker: HasSecurity,
    context: RequestContext,
    request: DescribeRequest,
    groups: GroupRuntime | None,
    question: Callable[[str], Request[D]],
    kind: Kind[D],
) -> Slices[list[D]]:
    """Describe groups of one modern type by `question`; UNSUPPORTED_VERSION for each if `groups` is None."""

    def describe(name: str) -> Completion[D]:
        if groups is None or not name:
            error = ErrorCode.UNSUPPORTED_VERSION if groups is None else ErrorCode.INVALID_GROUP_ID
            return Completion.of(kind.row(group_id=name, error_code=error))
        return groups.submit(name, question(name), api_version=context.api_version)

    operations = request.include_authorized_operations
    return (yield from describe_each(broker, context, request.group_ids, describe, kind, with_operations=operations))

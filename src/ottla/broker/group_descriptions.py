"""Common parts of the requests that describe groups, of the classic and all modern types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.broker.operations import GROUP_OPERATIONS
from ottla.broker.response_size import check_response_size
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.common.slices import Slices, result_of
from ottla.protocol.elements import as_list, encode_element

if TYPE_CHECKING:
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


def describe_each(
    names: Iterable[str],
    describe: Callable[[str], Completion[D]],
    response: type[Message],
    version: int,
    *,
    with_operations: bool,
) -> Slices[list[D]]:
    """Describe each group in its shard; returns encoded elements of `response` in the order of `names`.

    A group that is named several times is described once, and its encoded description is repeated, as in Kafka. With
    operations, the groups without an error list what their caller may do (KIP-430).
    """
    described: dict[str, bytes] = {}
    rows: list[bytes] = []
    size = 0
    for name in names:
        yield
        if name not in described:
            row = yield from result_of(describe(name))
            if with_operations and row.error_code == ErrorCode.NONE:
                row.authorized_operations = GROUP_OPERATIONS
            described[name] = encode_element(response, version, row)
        rows.append(described[name])
        size += len(described[name])
        check_response_size(size)
    return as_list(rows)


class DescribeRequest(Protocol):
    """A request that describes modern groups."""

    group_ids: list[str]
    include_authorized_operations: bool


def describe_modern(
    groups: GroupRuntime | None,
    version: int,
    request: DescribeRequest,
    question: Callable[[str], Request[D]],
    row: Callable[..., D],
    response: type[Message],
) -> Slices[list[D]]:
    """Describe groups of one modern type by `question`; UNSUPPORTED_VERSION for each if `groups` is None."""

    def describe(name: str) -> Completion[D]:
        if groups is None or not name:
            error = ErrorCode.UNSUPPORTED_VERSION if groups is None else ErrorCode.INVALID_GROUP_ID
            return Completion.of(row(group_id=name, error_code=error))
        return groups.submit(name, question(name), api_version=version)

    operations = request.include_authorized_operations
    return (yield from describe_each(request.group_ids, describe, response, version, with_operations=operations))

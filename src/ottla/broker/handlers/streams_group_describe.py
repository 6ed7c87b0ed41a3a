"""StreamsGroupDescribe (89), version 0: refused, as by Kafka without the feature streams.version. KIP-1071."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.elements import Elements
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "Streams groups are not supported by this broker."


def handle(
    _broker: object, context: RequestContext, request: StreamsGroupDescribeRequest
) -> Slices[StreamsGroupDescribeResponse]:
    """Return UNSUPPORTED_VERSION for each group."""
    groups: Elements[DescribedGroup] = Elements(StreamsGroupDescribeResponse, context.api_version)
    for group_id in request.group_ids:
        groups.append(
            DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=MESSAGE)
        )
        yield
    return StreamsGroupDescribeResponse(groups=groups.as_list())

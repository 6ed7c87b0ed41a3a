"""DescribeGroups (15), versions 0-6. KIP-345, KIP-430 (authorized operations), KIP-1043 (GROUP_ID_NOT_FOUND since 6).

Before version 6 a group that does not exist is Dead, without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import gather
from ottla.broker.operations import GROUP_OPERATIONS
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.coordinators.group import DescribeGroup
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: DescribeGroupsRequest
) -> Completion[DescribeGroupsResponse]:
    """Ask the shard of each group; the answers are in the order of the questions."""
    version = context.api_version
    asked = [broker.groups.submit(name, DescribeGroup(name), api_version=version) for name in request.groups]

    def respond(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return DescribeGroupsResponse(groups=groups)

    return gather(asked, respond)

"""DeleteShareGroupOffsets (92), version 0: forget topics of an empty share group. KIP-932."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed_names
from ottla.broker.authorization_guard import refused
from ottla.broker.authorization_table import MESSAGES
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.coordinators.group.share.events import DeleteShareOffsets
from ottla.protocol.elements import Elements
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareOffsetPorts

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def handle(
    broker: ShareOffsetPorts, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> Slices[DeleteShareGroupOffsetsResponse]:
    """Pass the topics that exist to the group's shard."""
    if not broker.settings.serves_share_groups():
        return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    refusal: DeleteShareGroupOffsetsResponse | None = refused(broker, context, request)
    if refusal is not None:
        return refusal
    if not request.group_id:
        return DeleteShareGroupOffsetsResponse(
            error_code=ErrorCode.INVALID_GROUP_ID, error_message="The group id is invalid."
        )
    topics = broker.metadata.image.topics_by_name
    names = [topic.topic_name for topic in request.topics]
    readable = allowed_names(broker, context, Operation.READ, ResourceType.TOPIC, names)
    topic_ids = set()
    for topic in request.topics:
        if topic.topic_name in topics and topic.topic_name in readable:
            topic_ids.add(topics[topic.topic_name].topic_id)
        yield
    deletion = DeleteShareOffsets(request.group_id, frozenset(topic_ids))
    outcome = yield from result_of(broker.groups.submit(request.group_id, deletion))
    if outcome.error is not ErrorCode.NONE:
        message = outcome.message or outcome.error.text
        return DeleteShareGroupOffsetsResponse(error_code=outcome.error, error_message=message)
    rows: Elements[DeleteShareGroupOffsetsResponseTopic] = Elements(
        DeleteShareGroupOffsetsResponse, context.api_version
    )
    for name in names:
        row = DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=UNKNOWN, error_message=UNKNOWN.text)
        found = topics.get(name)
        if name not in readable:
            row.error_code, row.error_message = FORBIDDEN, MESSAGES[FORBIDDEN]
        elif found is not None:
            row.error_code = error = outcome.topics[found.topic_id]
            row.error_message = None if error is ErrorCode.NONE else error.text
            if error is UNKNOWN:
                row.error_message = "There is no offset information to delete."
            else:
                row.topic_id = found.topic_id
        rows.append(row)
        yield
    return DeleteShareGroupOffsetsResponse(responses=rows.as_list())

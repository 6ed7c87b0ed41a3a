"""StreamsGroupHeartbeat (88), version 0: refused, as by Kafka without the feature streams.version. KIP-1071.

The API is advertised and refused, because a client that does not find it may wait for another broker that has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext

MESSAGE = "Streams groups are not supported by this broker; set group.protocol=classic."


def handle(
    _broker: object, _context: RequestContext, _request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Return UNSUPPORTED_VERSION."""
    return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=MESSAGE)

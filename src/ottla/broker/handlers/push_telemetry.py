"""PushTelemetry (72), version 0: the metrics of a client, for the next scrapes of this node. KIP-714.

Served by brokers with `ottla.metrics.listener`; other brokers answer UNSUPPORTED_VERSION and do not advertise it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasTelemetry


def handle(
    broker: HasTelemetry, context: RequestContext, request: PushTelemetryRequest
) -> Slices[PushTelemetryResponse]:
    """Store the values, or return why not."""
    if broker.telemetry is None:
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    code = yield from broker.telemetry.push(context, request)
    return PushTelemetryResponse(error_code=code)

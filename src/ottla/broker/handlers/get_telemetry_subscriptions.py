"""GetTelemetrySubscriptions (71), version 0: the metrics that a client should push, how often and how. KIP-714.

Served by brokers with `ottla.metrics.listener`; other brokers answer UNSUPPORTED_VERSION and do not advertise it.
Differs from Kafka: counters are asked for with their whole value (no delta temporality), as Prometheus stores them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasTelemetry


def handle(
    broker: HasTelemetry, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the subscription; THROTTLING_QUOTA_EXCEEDED before the interval is over."""
    if broker.telemetry is None:
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return broker.telemetry.subscription(context, request)

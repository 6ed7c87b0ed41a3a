"""GetTelemetrySubscriptions (71) tells a client which metrics to push. KIP-714."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int8, Int16, Int32, Message, Uuid


class GetTelemetrySubscriptionsRequest(Message, key=71, versions="0", flexible="0+"):
    """Asks, with the client's id if it has one."""

    client_instance_id: Uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message, key=71, versions="0", flexible="0+"):
    """The subscription."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []

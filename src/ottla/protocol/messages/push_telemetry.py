"""PushTelemetry (72) carries a client's metrics in OTLP form. KIP-714."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int8, Int16, Int32, Message, Uuid


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    """The metrics."""

    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: bool = False
    compression_type: Int8 = 0
    metrics: bytes = b""


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0

"""UnregisterBroker (64) removes a broker from the cluster. KIP-631."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    """The broker to remove."""

    broker_id: Int32 = 0


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""

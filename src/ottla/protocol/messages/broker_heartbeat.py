"""BrokerHeartbeat (63) keeps a broker registered and asks to be unfenced or shut down. KIP-631, KIP-858, KIP-1066."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Uuid, tagged


class BrokerHeartbeatRequest(Message, key=63, versions="0-2", flexible="0+"):
    """The broker's state and wishes."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[Uuid] = tagged(0, 1)
    cordoned_log_dirs: list[Uuid] | None = tagged(1, 2, default=None)


class BrokerHeartbeatResponse(Message, key=63, versions="0-2", flexible="0+"):
    """The controller's answer to the wishes."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False

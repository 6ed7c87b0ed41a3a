"""AllocateProducerIds (67) gives a broker a block of producer ids. KIP-730."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message


class AllocateProducerIdsRequest(Message, key=67, versions="0", flexible="0+"):
    """From a broker."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message, key=67, versions="0", flexible="0+"):
    """The block."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0

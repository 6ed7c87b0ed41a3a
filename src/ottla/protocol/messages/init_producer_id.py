"""InitProducerId (22) gives out producer ids and epochs. KIP-98, KIP-360, KIP-890, KIP-939."""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Int64, Message, since


class InitProducerIdRequest(Message, Request["InitProducerIdResponse"], key=22, versions="0-6", flexible="2+"):
    """Asks for an id, for a transaction or just for idempotence."""

    transactional_id: str | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: bool = since(6)
    keep_prepared_txn: bool = since(6)


class InitProducerIdResponse(Message, key=22, versions="0-6", flexible="2+"):
    """The id and epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Int64 = since(6, default=-1)
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)

"""EndTxn (26) commits or aborts a transaction. Version 5 bumps the epoch each time (KIP-890)."""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Int64, Message, since


class EndTxnRequest(Message, Request["EndTxnResponse"], key=26, versions="0-5", flexible="3+"):
    """Ends the transaction."""

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: bool = False


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    """The outcome, and the epoch to go on with."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = since(5, default=-1)
    producer_epoch: Int16 = since(5, default=-1)

"""AddOffsetsToTxn (25) registers a group's offsets with a transaction. KIP-98."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    """Adds the partition that holds the group's offsets."""

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0

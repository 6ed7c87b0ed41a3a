"""DescribeTransactions (65) shows the state of transactions. KIP-664."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    """Asks about transactional ids."""

    transactional_ids: list[str] = []


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    """Their states and partitions."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []


class TransactionState(Struct):
    """An element of `DescribeTransactionsResponse.transaction_states`."""

    error_code: Int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class TopicData(Struct):
    """An element of `TransactionState.topics`."""

    topic: str = ""
    partitions: list[Int32] = []

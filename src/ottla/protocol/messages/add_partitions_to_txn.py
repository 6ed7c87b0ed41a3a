"""AddPartitionsToTxn (24) registers partitions with a transaction.

Versions 4 and up come from brokers, in batches and to verify (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, field, since


class AddPartitionsToTxnRequest(Message, key=24, versions="0-5", flexible="3+"):
    """Adds or verifies partitions."""

    transactions: list[AddPartitionsToTxnTransaction] = since(4)
    v3_and_below_transactional_id: str = field("0-3")
    v3_and_below_producer_id: Int64 = field("0-3")
    v3_and_below_producer_epoch: Int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")


class AddPartitionsToTxnTransaction(Struct):
    """An element of `AddPartitionsToTxnRequest.transactions`."""

    transactional_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnTopic(Struct):
    """An element of `AddPartitionsToTxnRequest.v3_and_below_topics` and `AddPartitionsToTxnTransaction.topics`."""

    name: str = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnResponse(Message, key=24, versions="0-5", flexible="3+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")


class AddPartitionsToTxnResult(Struct):
    """An element of `AddPartitionsToTxnResponse.results_by_transaction`."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnTopicResult(Struct):
    """An element of `AddPartitionsToTxnResponse.results_by_topic_v3_and_below` and others."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnPartitionResult(Struct):
    """An element of `AddPartitionsToTxnTopicResult.results_by_partition`."""

    partition_index: Int32 = 0
    partition_error_code: Int16 = 0

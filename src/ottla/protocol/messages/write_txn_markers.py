"""WriteTxnMarkers (27) writes the end of transactions into partitions; brokers send it. KIP-98, KIP-1228."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, since


class WriteTxnMarkersRequest(Message, key=27, versions="1-2", flexible="1+"):
    """Writes markers."""

    markers: list[WritableTxnMarker] = []


class WritableTxnMarker(Struct):
    """An element of `WriteTxnMarkersRequest.markers`."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = since(2)


class WritableTxnMarkerTopic(Struct):
    """An element of `WritableTxnMarker.topics`."""

    name: str = ""
    partition_indexes: list[Int32] = []


class WriteTxnMarkersResponse(Message, key=27, versions="1-2", flexible="1+"):
    """The outcome per partition."""

    markers: list[WritableTxnMarkerResult] = []


class WritableTxnMarkerResult(Struct):
    """An element of `WriteTxnMarkersResponse.markers`."""

    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WritableTxnMarkerTopicResult(Struct):
    """An element of `WritableTxnMarkerResult.topics`."""

    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerPartitionResult(Struct):
    """An element of `WritableTxnMarkerTopicResult.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0

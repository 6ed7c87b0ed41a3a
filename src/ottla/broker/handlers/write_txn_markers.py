"""WriteTxnMarkers (27), versions 1-2: the ends of transactions, from other brokers and tools. KIP-98, KIP-1228.

An administrator aborts a hanging transaction with it (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.coordination.transactions.markers import write_markers
from ottla.log.transaction_marker import TransactionEnd
from ottla.protocol.elements import Elements
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.coordination.transactions.markers import MarkerPorts


def handle(
    broker: MarkerPorts, context: RequestContext, request: WriteTxnMarkersRequest
) -> Slices[WriteTxnMarkersResponse]:
    """Write the markers; respond when all are committed. As in Kafka, markers of one producer share a result."""
    results: dict[int, Elements[WritableTxnMarkerTopicResult]] = {}
    version = context.api_version
    for marker in request.markers:
        end = TransactionEnd(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        outcomes = yield from write_markers(broker, end, _partitions(marker))
        topics = results.setdefault(marker.producer_id, Elements(WriteTxnMarkersResponse, version))
        for name, rows in groupby(outcomes.items(), lambda row: row[0][0]):
            topics.append(WritableTxnMarkerTopicResult(name=name, partitions=(yield from _rows(rows, version))))
            yield
        yield
    answers: Elements[WritableTxnMarkerResult] = Elements(WriteTxnMarkersResponse, version)
    for producer_id, topics in results.items():
        answers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics.as_list()))
        yield
    return WriteTxnMarkersResponse(markers=answers.as_list())


def _partitions(marker: WritableTxnMarker) -> Iterable[tuple[str, int]]:
    return ((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)


def _rows(
    outcomes: Iterable[tuple[tuple[str, int], ErrorCode]], version: int
) -> Slices[list[WritableTxnMarkerPartitionResult]]:
    rows: Elements[WritableTxnMarkerPartitionResult] = Elements(WriteTxnMarkersResponse, version)
    for (_, index), error in outcomes:
        rows.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
        yield
    return rows.as_list()

"""Requests, further events and further effects of the transaction coordinator.

InitProducerIdRequest and EndTxnRequest arrive as they are, and are answered by InitProducerIdResponse and
EndTxnResponse. The broker splits a request that names several transactional ids into one of the requests below for
each id. The version of the client's request is `Call.api_version`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.common.errors import ErrorCode
from ottla.common.expressions import Matcher
from ottla.common.request import Request
from ottla.coordinators.events import OwnEffect
from ottla.protocol.messages import describe_transactions, list_transactions

TopicPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class AddPartitions(Request[dict[TopicPartition, ErrorCode]]):
    """Add the partitions to the transaction, or verify that they are part of it.

    The response is a dictionary: the ErrorCode of each partition.

    `client_transaction_version` is 2 if the partitions are added by a transactional Produce (version 12 or later) or
    TxnOffsetCommit (version 5 or later), or by AddPartitionsToTxn of version 4 or later. It is 0 for earlier versions
    of AddPartitionsToTxn, and for AddOffsetsToTxn. A request of version 0 or 1 that is not `verify_only` and has the
    `client_transaction_version` 0 gets INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    client_transaction_version: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTransaction(Request[describe_transactions.TransactionState]):
    """Describe one transaction; the response is a TransactionState of DescribeTransactionsResponse."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ListTransactions(Request[list[list_transactions.TransactionState] | ErrorCode]):
    """List the transactions of this shard that match all filters; the response is a list of TransactionStates.

    An empty filter matches everything. States are Kafka's names and are compared exactly; unknown names match nothing
    (`admin.unknown_states` returns them). `duration_ms`: only transactions that have been open for longer; -1 matches
    everything.
    """

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    matches: Matcher | None = None


@dataclass(frozen=True, slots=True)
class AllocateProducerId(OwnEffect):
    """Allocate a new producer id, then report it as `ProducerIdAllocated` with the same id."""

    id: int


class ProducerIdAllocated(NamedTuple):
    """The outcome of an `AllocateProducerId`: the producer id, or the error for which none was allocated."""

    id: int
    producer_id: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class WriteMarkers(OwnEffect):
    """Write the end of a transaction into its partitions, then report the outcome as `MarkersWritten`.

    Like a `Reply` it must wait until everything appended so far is committed: a marker must never survive a power
    failure that the decision to commit or to abort did not survive. The outcome must be reported in any case; the
    shard decides about retries, after a pause.
    """

    id: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
    """The version of the transaction: 2 if the partitions must check that the epoch was bumped (KIP-1228)."""


class MarkersWritten(NamedTuple):
    """The outcome of a `WriteMarkers` for each of its partitions.

    NONE: the marker is committed, or the metadata of the cluster no longer has the partition, so that there is nothing
    to end. UNKNOWN_TOPIC_OR_PARTITION does not mean that: it is retried, because a partition that is not open yet may
    have an open transaction. A partition without a result is retried, too.
    """

    id: int
    results: Mapping[TopicPartition, ErrorCode]

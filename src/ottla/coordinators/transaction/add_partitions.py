"""Adds partitions to a transaction, or verifies that they are part of it (KIP-890)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.transaction.core import Core
from ottla.coordinators.transaction.errors import refuse
from ottla.coordinators.transaction.events import AddPartitions, TopicPartition
from ottla.coordinators.transaction.follow_ups import AnswerAdd
from ottla.coordinators.transaction.metadata import FLEXIBLE_RECORDS_SINCE
from ottla.coordinators.transaction.states import PREPARED, State


def add(core: Core, call: Call[AddPartitions], request: AddPartitions, now: Moment) -> Effects:
    """Add the partitions; the first ones begin the transaction."""
    if request.verify_only:
        return [_verify(core, call, request)]
    error = _check(core, request)
    if error is not ErrorCode.NONE:
        return [refuse(call, error)]
    metadata = core.transactions[request.transactional_id]
    added = frozenset(request.partitions)
    if metadata.state is State.ONGOING and added <= metadata.partitions:
        return [_accept(call, request)]
    next_value = metadata.with_partitions(added, now.wall_ms, request.client_transaction_version)
    return [core.change(request.transactional_id, next_value, AnswerAdd(call, request.transactional_id, request))]


def _check(core: Core, request: AddPartitions) -> ErrorCode:
    transactional_id = request.transactional_id
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    metadata = core.transactions.get(transactional_id)
    # First, because a change in flight may replace the producer id.
    if core.is_pending(transactional_id):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if metadata is None or metadata.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if request.client_transaction_version and core.level < FLEXIBLE_RECORDS_SINCE:
        return ErrorCode.UNSUPPORTED_VERSION  # The record could not store the version.
    return ErrorCode.NONE


def _verify(core: Core, call: Call[AddPartitions], request: AddPartitions) -> Reply[dict[TopicPartition, ErrorCode]]:
    metadata = core.transactions.get(request.transactional_id)
    if not request.transactional_id:
        return refuse(call, ErrorCode.INVALID_REQUEST)
    if metadata is None or metadata.producer_id != request.producer_id:
        return refuse(call, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != request.producer_epoch:
        return refuse(call, ErrorCode.PRODUCER_FENCED)
    if metadata.state in PREPARED:
        return refuse(call, ErrorCode.CONCURRENT_TRANSACTIONS)
    part, other = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
    return Reply(call, {row: part if row in metadata.partitions else other for row in request.partitions})


def _accept(call: Call[AddPartitions], request: AddPartitions) -> Reply[dict[TopicPartition, ErrorCode]]:
    return Reply(call, dict.fromkeys(request.partitions, ErrorCode.NONE))


def appended(_core: Core, follow_up: AnswerAdd, error: ErrorCode, _now: Moment) -> Effects:
    """Answer the request."""
    call, _, request = follow_up
    return [_accept(call, request) if error is ErrorCode.NONE else refuse(call, error)]

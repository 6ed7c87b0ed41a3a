"""InitProducerId: gives a producer its id and epoch, and fences earlier producers of the same transactional id.

A producer that names its id and epoch continues after an error (KIP-360). It is fenced if another producer has called
InitProducerId since. An open transaction is aborted first: the client gets CONCURRENT_TRANSACTIONS and retries.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, Moment, Reply, log_line
from ottla.coordinators.transaction.core import Core
from ottla.coordinators.transaction.end_transaction import prepare
from ottla.coordinators.transaction.errors import refuse
from ottla.coordinators.transaction.follow_ups import EndOrder, Initialize
from ottla.coordinators.transaction.metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Metadata,
    created,
    is_exhausted,
)
from ottla.coordinators.transaction.states import State
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class _Expected(NamedTuple):
    """The producer id and epoch that the producer names as its present ones."""

    producer_id: int
    epoch: int


def initialize(core: Core, call: Call[InitProducerIdRequest], request: InitProducerIdRequest, now: Moment) -> Effects:
    """Give the producer its id and epoch."""
    error = _check(core, request)
    if error is not ErrorCode.NONE:
        return [refuse(call, error)]
    return _initialize(core, Initialize(call, request.transactional_id or "", request), now, allocated=None)


def allocated(core: Core, order: Initialize, producer_id: int, error: ErrorCode, now: Moment) -> Effects:
    """Handle the request again, now with a new producer id."""
    if error is not ErrorCode.NONE:
        return [refuse(order.call, error)]
    return _initialize(core, order, now, allocated=producer_id)


def _check(core: Core, request: InitProducerIdRequest) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.enable2_pc and not core.config.two_phase_commit:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared_txn:  # KIP-939: Kafka 4.3 does not implement it, either.
        return ErrorCode.UNSUPPORTED_VERSION
    if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= core.config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _initialize(core: Core, order: Initialize, now: Moment, allocated: int | None) -> Effects:
    call, transactional_id, request = order
    if core.is_pending(transactional_id):
        return [refuse(call, ErrorCode.CONCURRENT_TRANSACTIONS)]
    timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
    metadata = core.transactions.get(transactional_id)
    if metadata is None:
        if allocated is None:
            return [core.allocate(transactional_id, order)]
        metadata = created(allocated, timeout_ms, now.wall_ms)
    named = request.producer_id != NO_PRODUCER_ID
    expected = _Expected(request.producer_id, request.producer_epoch) if named else None
    if expected is not None and not _may_continue(metadata, expected):
        return [refuse(call, ErrorCode.PRODUCER_FENCED)]
    if metadata.state is State.ONGOING:
        end = EndOrder(call, transactional_id, commit=False, bumps_epoch=core.bumps_epoch, fences=True)
        return prepare(core, end, now)
    if metadata.is_exhausted and (expected is None or expected.epoch == metadata.producer_epoch):
        if allocated is None:
            return [core.allocate(transactional_id, order)]
        next_value: Metadata | None = metadata.with_new_producer_id(
            allocated, timeout_ms, now.wall_ms, named_epoch=expected is not None
        )
    else:
        next_value = metadata.with_next_epoch(timeout_ms, now.wall_ms, None if expected is None else expected.epoch)
    if next_value is None:
        text = "Expected producer epoch %d does not match current producer epoch %d or previous producer epoch %d"
        line = log_line(text, request.producer_epoch, metadata.producer_epoch, metadata.last_producer_epoch)
        return [line, refuse(call, ErrorCode.PRODUCER_FENCED)]
    return [core.change(transactional_id, next_value, order)]


def _may_continue(metadata: Metadata, expected: _Expected) -> bool:
    """Whether the named producer id is the present one; the epoch is checked later.

    It may be the previous one if its epochs were exhausted: a retry of a request whose response was lost. The producer
    of a new transactional id recovers from UNKNOWN_PRODUCER_ID.
    """
    return (
        metadata.producer_epoch == NO_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and is_exhausted(expected.epoch))
    )


def appended(core: Core, order: Initialize, error: ErrorCode, _now: Moment) -> Effects:
    """Answer the request."""
    call, transactional_id, _ = order
    if error is not ErrorCode.NONE:
        line = log_line(
            "Returning %s error code to client for %s's InitProducerId request", error.name, transactional_id
        )
        return [line, refuse(call, error)]
    metadata = core.transactions[transactional_id]
    line = log_line(
        "Initialized transactionalId %s with producerId %d and producer epoch %d on partition __transaction_state-%d",
        transactional_id, metadata.producer_id, metadata.producer_epoch, core.partition,
    )  # fmt: skip
    response = InitProducerIdResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch)
    return [line, Reply(call, response)]

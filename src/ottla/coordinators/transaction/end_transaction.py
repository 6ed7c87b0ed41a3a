"""Ends transactions: EndTxn, and the abort of the open transaction of a producer that is fenced or timed out.

The decision is one record. Once it is appended, the client has its answer, and the markers are written.

EndTxn up to version 4 does not change the epoch: a retry is recognised by the state. Since version 5 each transaction
has its own epoch (KIP-890): a request with the previous epoch is a retry of one whose response was lost, and a request
with the present epoch is about the next transaction, which may be aborted before it has begun.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Call, Effects, LogLine, Moment, Reply, log_line
from ottla.coordinators.transaction.core import Core
from ottla.coordinators.transaction.errors import refuse
from ottla.coordinators.transaction.follow_ups import EndOrder
from ottla.coordinators.transaction.markers import proceed
from ottla.coordinators.transaction.metadata import (
    EPOCH_BUMP_SINCE,
    FLEXIBLE_RECORDS_SINCE,
    LAST_PRODUCER_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Metadata,
)
from ottla.coordinators.transaction.states import COMPLETED, State
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

BUMPS_EPOCH_SINCE = 5


def end(core: Core, call: Call[EndTxnRequest], request: EndTxnRequest, now: Moment) -> Effects:
    """Commit or abort the producer's transaction."""
    bumps_epoch = call.api_version >= BUMPS_EPOCH_SINCE
    error = _check(core, request, bumps_epoch=bumps_epoch)
    if error is ErrorCode.INVALID_TXN_STATE:
        return [_wrong_state(core, request), refuse(call, error)]
    if error is not None and error is not ErrorCode.NONE:
        return [refuse(call, error)]
    if error is ErrorCode.NONE:
        return [_accept(call, core.transactions[request.transactional_id])]
    order = EndOrder(call, request.transactional_id, request.committed, bumps_epoch=bumps_epoch, fences=False)
    return prepare(core, order, now)


def _check(core: Core, request: EndTxnRequest, *, bumps_epoch: bool) -> ErrorCode | None:
    """Return an error, NONE for a retry of a request that succeeded, or None if the transaction ends now."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    metadata = core.transactions.get(request.transactional_id)
    if metadata is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    pending = core.is_pending(request.transactional_id)
    if bumps_epoch:
        # First, because the decision in flight may replace the producer id.
        error = ErrorCode.CONCURRENT_TRANSACTIONS if pending else _check_with_epoch_bump(metadata, request)
        # The record could not store the version of the transaction.
        is_unsupported = error in (None, ErrorCode.INVALID_TXN_STATE) and core.level < FLEXIBLE_RECORDS_SINCE
        return ErrorCode.UNSUPPORTED_VERSION if is_unsupported else error
    if metadata.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if metadata.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if metadata.state is State.ONGOING:
        return None
    return ErrorCode.NONE if _has_result(metadata, request) else ErrorCode.INVALID_TXN_STATE


def _check_with_epoch_bump(metadata: Metadata, request: EndTxnRequest) -> ErrorCode | None:
    """The same for a transaction with its own epoch."""
    got_new_id = (
        request.producer_id == metadata.previous_producer_id
        and request.producer_epoch == LAST_PRODUCER_EPOCH
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != request.producer_id and not got_new_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    was_bumped = request.producer_epoch + 1 == metadata.producer_epoch
    # Without the version, a producer could get the epoch of its successor, whose transactions do not bump the epoch.
    is_versioned = metadata.client_transaction_version >= EPOCH_BUMP_SINCE
    if metadata.state in COMPLETED and is_versioned and (got_new_id or was_bumped):
        return ErrorCode.NONE if _has_result(metadata, request) else ErrorCode.INVALID_TXN_STATE
    if metadata.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if metadata.state is State.ONGOING or not request.committed:
        return None
    return ErrorCode.INVALID_TXN_STATE


def _has_result(metadata: Metadata, request: EndTxnRequest) -> bool:
    return metadata.state is (State.COMPLETE_COMMIT if request.committed else State.COMPLETE_ABORT)


def _wrong_state(core: Core, request: EndTxnRequest) -> LogLine:
    return log_line(
        "TransactionalId: %s's state is %s, but received transaction marker result to send: %s",
        request.transactional_id,
        core.transactions[request.transactional_id].state.title,
        "COMMIT" if request.committed else "ABORT",
    )


def _accept(call: Call[EndTxnRequest], metadata: Metadata) -> Reply[EndTxnResponse]:
    """Answer with the epoch of the next transaction; older versions have no field for it."""
    if call.api_version < BUMPS_EPOCH_SINCE:
        return Reply(call, EndTxnResponse(producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH))
    return Reply(call, EndTxnResponse(producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch))


# -- the decision ------------------------------------------------------------------------------------------------


def prepare(core: Core, order: EndOrder, now: Moment, next_producer_id: int = NO_PRODUCER_ID) -> Effects:
    """Append the decision; before it, allocate the next producer id if this one has no further epoch."""
    metadata = core.transactions[order.transactional_id]
    if order.bumps_epoch:
        if metadata.is_exhausted and next_producer_id == NO_PRODUCER_ID:
            return [core.allocate(order.transactional_id, order)]
        next_value = metadata.prepared_with_epoch_bump(
            commit=order.commit, now_ms=now.wall_ms, next_producer_id=next_producer_id
        )
    elif order.fences:
        next_value = metadata.fenced(now.wall_ms)
    else:
        next_value = metadata.prepared(commit=order.commit, now_ms=now.wall_ms)
    return [core.change(order.transactional_id, next_value, order)]


def allocated(core: Core, order: EndOrder, producer_id: int, error: ErrorCode, now: Moment) -> Effects:
    """Append the decision, with the next producer id."""
    if error is not ErrorCode.NONE:
        return _failed(core, order, error, now)
    return prepare(core, order, now, producer_id)


def appended(core: Core, order: EndOrder, error: ErrorCode, now: Moment) -> Effects:
    """Answer the request and write the markers."""
    if error is not ErrorCode.NONE:
        return _failed(core, order, error, now)
    effects: Effects = []
    if order.call is None:
        text = "Completed rollback of ongoing transaction for transactionalId %s due to timeout"
        effects.append(log_line(text, order.transactional_id))
    elif isinstance(order.call.request, InitProducerIdRequest):
        effects.append(refuse(order.call, ErrorCode.CONCURRENT_TRANSACTIONS))
    else:
        # The producer continues with the value after completion.
        completed = core.transactions[order.transactional_id].completed(now.wall_ms)
        effects.append(_accept(order.call, completed))
    return [*effects, *proceed(core, order.transactional_id, now)]


def _failed(core: Core, order: EndOrder, error: ErrorCode, now: Moment) -> Effects:
    """Report a decision that could not be stored; a transaction that timed out is aborted at the next check."""
    if order.call is not None:
        return [refuse(order.call, error)]
    core.expect_end(order.transactional_id, now)
    text = "Rollback of ongoing transaction for transactionalId %s failed due to error %s"
    return [log_line(text, order.transactional_id, error.name)]

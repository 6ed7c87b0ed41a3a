"""Responses with an error, for every request that a shard handles.

Clients that do not know PRODUCER_FENCED get INVALID_PRODUCER_EPOCH instead, which they handle in the same way.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar, cast

from ottla.common.errors import ErrorCode
from ottla.common.request import Request
from ottla.coordinators.events import Call, Reply
from ottla.coordinators.transaction.events import AddPartitions, DescribeTransaction, ListTransactions, TopicPartition
from ottla.coordinators.transaction.metadata import NO_EPOCH, NO_PRODUCER_ID
from ottla.protocol.messages.describe_transactions import TransactionState
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

R = TypeVar("R")

_Response: TypeAlias = (
    InitProducerIdResponse | EndTxnResponse | TransactionState | dict[TopicPartition, ErrorCode] | ErrorCode | None
)
_FENCED_SINCE_INIT = 4
_FENCED_SINCE = 2


def error_response(call: Call[Request[R]], error: ErrorCode) -> R:
    """Return the response to `call` with `error`; the error code itself for ListTransactions."""
    # Each request declares the type of its response, which a type checker does not follow through the cases.
    return cast("R", _response(call, error))


def _response(call: Call[Any], error: ErrorCode) -> _Response:
    request = call.request
    match request:
        case InitProducerIdRequest():
            code = _known(call, error, _FENCED_SINCE_INIT)
            return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
        case EndTxnRequest():
            code = _known(call, error, _FENCED_SINCE)
            return EndTxnResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
        case AddPartitions():
            is_from_client = not request.verify_only and request.client_transaction_version == 0
            code = _known(call, error, _FENCED_SINCE) if is_from_client else error
            return dict.fromkeys(request.partitions, code)
        case DescribeTransaction():
            return TransactionState(error_code=error, transactional_id=request.transactional_id)
        case ListTransactions():
            return error
        case _:
            return None


def refuse(call: Call[Any], error: ErrorCode) -> Reply[Any]:
    """Answer `call` with an error."""
    return Reply(call, error_response(call, error))


def _known(call: Call[Any], error: ErrorCode, fenced_since: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and call.api_version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error

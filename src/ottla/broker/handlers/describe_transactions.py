"""DescribeTransactions (65), version 0: the state and the partitions of transactions. KIP-664."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed, allowed_names
from ottla.broker.response_size import check_response_size
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.coordinators.transaction.events import DescribeTransaction
from ottla.protocol.elements import Elements
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import TransactionPorts


def handle(
    broker: TransactionPorts, context: RequestContext, request: DescribeTransactionsRequest
) -> Slices[DescribeTransactionsResponse]:
    """Describe each transactional id; each has its own error."""
    rows: Elements[TransactionState] = Elements(DescribeTransactionsResponse, context.api_version)
    for name in request.transactional_ids:
        if allowed(broker, context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
            row = yield from result_of(broker.transactions.submit(name, DescribeTransaction(name)))
            topics = (topic.topic for topic in row.topics)
            visible = allowed_names(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, topics)
            row.topics = [topic for topic in row.topics if topic.topic in visible]
        else:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            row = TransactionState(transactional_id=name, error_code=error)
        rows.append(row)
        check_response_size(rows.size)
        yield
    return DescribeTransactionsResponse(transaction_states=rows.as_list())

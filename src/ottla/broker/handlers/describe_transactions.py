"""DescribeTransactions (65), version 0: the state and the partitions of transactions. KIP-664."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.response_size import check_response_size
from ottla.common.slices import Slices, result_of
from ottla.coordinators.transaction.events import DescribeTransaction
from ottla.protocol.elements import Elements
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasTransactions


def handle(
    broker: HasTransactions, context: RequestContext, request: DescribeTransactionsRequest
) -> Slices[DescribeTransactionsResponse]:
    """Describe each transactional id; each has its own error."""
    rows: Elements[TransactionState] = Elements(DescribeTransactionsResponse, context.api_version)
    for name in request.transactional_ids:
        row = yield from result_of(broker.transactions.submit(name, DescribeTransaction(name)))
        rows.append(row)
        check_response_size(rows.size)
        yield
    return DescribeTransactionsResponse(transaction_states=rows.as_list())
